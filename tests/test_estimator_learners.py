"""How the parameters memory and encoder become a learner."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from classifiers import NETWORKS, vectors
from onebyone import Dataset, OnlineClassifier, Spec, UsageError, create
from onebyone.engine.static import capture_problem
from onebyone.methods import NetworkLearner, ReplayLearner
from onebyone.nets import Adapted
from onebyone.nets.mlp import ScaledMLP
from onebyone.options import number_of_bytes


@pytest.mark.parametrize(("text", "size"), [("3MB", 3_000_000), ("500 kb", 500_000), ("1.5GB", 1.5e9), ("70B", 70)])
def test_sizes_in_bytes(text: str, size: int) -> None:
    assert number_of_bytes(text, "memory") == size


@pytest.mark.parametrize("policy", ["reservoir", "balanced"])
@pytest.mark.parametrize("name", ["ccp", "der++"])
def test_a_memory_by_size_holds_as_many_samples_as_fit(digits: Dataset, name: str, policy: str) -> None:
    clf = OnlineClassifier(name, memory="20KB", options={"memory_policy": policy})
    clf.partial_fit(digits.train_x[:20], digits.train_y[:20])
    assert clf._state is not None
    learner = clf._state.learner
    assert isinstance(learner, ReplayLearner)
    row = 64 + 8 + 4 * (policy == "balanced") + 4 * 16 * (name == "der++")
    assert 20_000 - row < learner.memory.nbytes <= 20_000


def test_a_memory_that_grows_with_the_classes_gives_a_warning() -> None:
    """DER++ stores one number per class with each sample."""
    x = np.random.default_rng(0).normal(size=(300, 16))
    clf = OnlineClassifier("der++", memory="60KB").partial_fit(x[:16], range(16))
    with pytest.warns(
        UserWarning, match=r"memory is '60KB', and capacity for 512 classes makes it [\d,]+ bytes; "
    ) as warned:
        clf.partial_fit(x, range(300))
    (warning,) = warned
    assert clf._state is not None
    assert f"{clf._state.learner.memory_bytes:,} bytes" in str(warning.message)
    assert clf._state.learner.memory_bytes > 10 * 60_000
    assert warning.filename == __file__
    clf.partial_fit(x, range(300))  # a warning would be an error: it has not grown again


@pytest.mark.parametrize(
    ("name", "memory"), [("der++", 200), ("ccp", "60KB"), ("replay", "60KB"), ("hybrid", "8MB"), ("auto", "8MB")]
)
def test_a_memory_that_hardly_grows_gives_no_warning(name: str, memory: int | str) -> None:
    x = np.random.default_rng(0).normal(size=(300, 16))
    OnlineClassifier(name, memory=memory).partial_fit(x, range(300))  # a warning would be an error


def test_any_module_can_be_an_encoder_and_is_not_changed(digits: Dataset) -> None:
    module = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    clf = OnlineClassifier(encoder=module).partial_fit(digits.train_x[:30], digits.train_y[:30])
    assert clf._state is not None
    assert clf._state.learner.encoder.width == 6 * 6 * 6
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    own = clf._state.learner.encoder.state_dict()
    assert not torch.equal(own["module.0.weight"], before["0.weight"])
    clf.partial_fit(digits.train_x[:40], [100 + number for number in range(40)])  # grows
    assert clf.score(digits.train_x[:40], digits.train_y[:40]) >= 0


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("encoder", ["conv", nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU())])
def test_a_frozen_encoder_does_not_change(digits: Dataset, encoder: Any, name: str) -> None:
    clf = OnlineClassifier(name, encoder=encoder, freeze_encoder=True, memory=500)
    clf.partial_fit(digits.train_x[:1], digits.train_y[:1])
    before = {part: tensor.clone() for part, tensor in frozen(clf).items()}
    for label in range(20):
        clf.partial_fit(digits.train_x[label : label + 10], [label] * 10)
    after = frozen(clf)
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[part]) for part, tensor in before.items())


@pytest.mark.parametrize("name", NETWORKS)
def test_vectors_are_standardised_with_a_frozen_encoder_too(name: str) -> None:
    x, y = vectors(300)
    parameters: dict[str, Any] = {"freeze_encoder": True, "memory": 100}
    clf = OnlineClassifier(name, **parameters).partial_fit(x, y)
    far = OnlineClassifier(name, **parameters).partial_fit(1000 * x + 5000, y)
    assert far.score(1000 * x + 5000, y) == pytest.approx(clf.score(x, y), abs=0.02)
    module = ScaledMLP((4,))
    given = OnlineClassifier(name, encoder=module, **parameters).partial_fit(x, y)
    assert all(torch.equal(frozen(given)[f"module.{part}"], tensor) for part, tensor in module.state_dict().items())


def frozen(clf: OnlineClassifier) -> dict[str, torch.Tensor]:
    """The weights of the network, which may be a part of the learner."""
    assert clf._state is not None
    found: Any = next(part for part in clf._state.learner.modules() if isinstance(part, NetworkLearner))
    return dict(found.encoder.state_dict())


@pytest.mark.parametrize("name", NETWORKS)
def test_steps_of_adapted_networks_can_be_captured(name: str) -> None:
    spec = Spec((5,), 16, torch.float32)
    frozen = Adapted(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)), (5,), frozen=True)
    for encoder in ("scaled-mlp", frozen):
        assert capture_problem(create(name, spec, encoder=encoder), batch_size=10) is None


def test_a_model_of_timm(digits: Dataset, timm: list[tuple[Any, ...]]) -> None:
    OnlineClassifier(encoder="timm:tiny").partial_fit(digits.train_x[:9], digits.train_y[:9])
    assert timm == [("tiny", True, 0)]
    with pytest.raises(UsageError, match="timm has no model 'hf-hub:somebody/thing'"):
        OnlineClassifier(encoder="timm:hf-hub:somebody/thing").partial_fit(digits.train_x[:9], digits.train_y[:9])
    with pytest.raises(UsageError, match="reads images"):
        OnlineClassifier(encoder="timm:tiny").partial_fit([[1.0, 2.0]], [1])


def test_a_name_of_timm_without_its_prefix_is_refused(digits: Dataset, timm: list[tuple[Any, ...]]) -> None:
    """Names without a prefix are encoders of this library. The same name in timm is another network."""
    for frozen in (True, False):
        with pytest.raises(UsageError, match="write 'timm:tiny'"):
            OnlineClassifier(encoder="tiny", freeze_encoder=frozen).partial_fit(digits.train_x[:9], digits.train_y[:9])
        OnlineClassifier(encoder="conv", freeze_encoder=frozen).partial_fit(digits.train_x[:9], digits.train_y[:9])
    assert timm == []


def test_a_method_that_does_not_tell_the_bytes_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplayLearner, "memory_bytes", 0)
    with pytest.raises(UsageError, match="does not tell the bytes of a sample; give a number of samples"):
        OnlineClassifier("er", memory="3MB").partial_fit([[1.0]], [0])
