"""An exported file gives the probabilities of the classifier, and holds nothing that they do not need."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from onebyone import Dataset, OnlineClassifier, UsageError
from onebyone.estimator.labels import from_json
from tiers import mostly_slow


def run_exported(path: Path, x: Any) -> tuple[Any, list[Any]]:
    """Probabilities and classes of an exported file, as another program would get them."""
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(path)
        classes = session.get_modelmeta().custom_metadata_map["classes"]
        (probabilities,) = session.run(["probabilities"], {"samples": x})
    else:
        extra = {"classes.json": ""}
        program = torch.export.load(path, extra_files=extra)
        probabilities, classes = program.module()(torch.from_numpy(x)).numpy(), extra["classes.json"]
    return probabilities, [from_json(label) for label in json.loads(classes)]


def bytes_of(kind: str, digits: Dataset) -> Any:
    images = digits.train_x[:60].numpy()
    match kind:
        case "gray":
            return images[:, 0]
        case "last":
            return images.repeat(3, axis=1).transpose(0, 2, 3, 1).copy()
        case _:
            return images.reshape(60, -1).astype(np.float32)


# A trained head, prototypes and class means; every layout; a class that was announced and never came.
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("auto", "gray", {}),
    ("auto", "vector", {"options": {"first_samples": 20}}),
    ("auto", "last", {"options": {"first_samples": 20}}),
    ("ccp", "gray", {}),
    ("er", "vector", {"freeze_encoder": True}),
    ("icarl", "last", {}),
]


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
@pytest.mark.parametrize(("name", "kind", "parameters"), mostly_slow(CASES, fast=[("ccp", "gray", {})]), ids=str)
def test_exported_models_give_the_same_probabilities(
    digits: Dataset, name: str, kind: str, parameters: dict[str, Any], ending: str, tmp_path: Path
) -> None:
    x, y = bytes_of(kind, digits), [("digit", label) for label in digits.train_y[:60].tolist()]
    clf = OnlineClassifier(name, memory=5000, **parameters).partial_fit(x, y, classes=[("digit", 99)])
    before = clf.predict_proba(x)
    path = tmp_path / f"model.{ending}"
    clf.export(path)
    for count in (1, 2, 7, 60):
        probabilities, classes = run_exported(path, x[:count])
        np.testing.assert_allclose(probabilities, before[:count], atol=1e-4)
    assert classes == clf.classes_.tolist()
    assert [classes[best] for best in probabilities.argmax(1)] == clf.predict(x).tolist()
    assert path.stat().st_size < clf.nbytes - 5000 * x[0].nbytes / 2  # the memory stays at home
    assert clf.partial_fit(x, y).n_samples_seen_ == 120


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    clf = OnlineClassifier().partial_fit([[1.0]], [0])
    with pytest.raises(UsageError, match=r"has the suffix '.pkl'; use '.onnx', or '.pt2'"):
        clf.export(tmp_path / "model.pkl")
    assert list(tmp_path.iterdir()) == []
