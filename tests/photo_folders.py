"""Folders of images, and a small encoder for classifiers of them."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from PIL import Image

from classifiers import learner_of
from onebyone import OnlineClassifier

ENCODER = "onnx:net.onnx"
COLOURS = ("blue", "green", "red")


def write_images(root: Path, count: int = 8, classes: tuple[str, ...] = COLOURS, seed: int = 0) -> Path:
    """Noisy images, textured along rows or columns, in a folder per class."""
    random = np.random.default_rng(seed)
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        wave = 100 * np.sin(np.arange(40) * (0.3 + 0.5 * number))
        for index in range(count):
            pixels = 128 + wave[None, :, None] + random.normal(0, 20, (40, 40, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(root / name / f"{index}.png")
    return root


@pytest.fixture(autouse=True)
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small encoder in the working directory: means of 4 x 4 pixels. Filters of patches take seconds to compute."""
    monkeypatch.chdir(tmp_path)
    images = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 16, 16])
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", 48])
    nodes = [
        helper.make_node("AveragePool", ["x"], ["pooled"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Flatten", ["pooled"], ["features"]),
    ]
    graph = helper.make_graph(nodes, "graph", [images], [features])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "net.onnx")


def new() -> OnlineClassifier:
    return OnlineClassifier(encoder=ENCODER, memory="60KB", batch_size=64)


def same(one: OnlineClassifier, other: OnlineClassifier) -> bool:
    """Whether both learnt the same samples, in any order: sums of numbers are rounded."""
    a, b = learner_of(one).state_dict(), learner_of(other).state_dict()
    names = [name for name in a if name.startswith(("moments.weights", "moments.sums", "kept.", "counts"))]
    return len(names) > 4 and all(torch.allclose(a[name].double(), b[name].double(), atol=1e-4) for name in names)
