"""The state of any torch optimizer belongs to the state of its learner: resumed, copied, grown and rolled back."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onebyone import Dataset, OnlineClassifier, UsageError, create
from onebyone.engine import Captured, Eager
from onebyone.methods import ReplayOptions, grown, register
from onebyone.methods.er import ER
from onebyone.runs import Listener, RunConfig, run
from onebyone.testing import check_learner
from run_folders import numbers

Optimizer = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]


class Counting(torch.optim.SGD):
    """Keeps a Python number in its state, as some optimizers outside torch do."""

    def step(self, closure: Any = None) -> None:
        first = self.state[self.param_groups[0]["params"][0]]
        first["calls"] = first.get("calls", 0) + 1
        self.param_groups[0]["lr"] = 0.1 / first["calls"]
        super().step()


OPTIMIZERS: dict[str, Optimizer] = {
    "momentum": lambda weights: torch.optim.SGD(weights, 0.05, momentum=0.9),
    "adam": lambda weights: torch.optim.Adam(weights, 0.01),
    "counting": lambda weights: Counting(weights, 0.1),
}


def registered(name: str) -> type[ER]:
    """The method ER with an optimizer of its own, under this name."""

    class Own(ER):
        """ER with another optimizer."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.optimizer = OPTIMIZERS[name](self.parameters())

    return register(name, ReplayOptions)(Own)


@pytest.fixture(params=OPTIMIZERS)
def method(request: pytest.FixtureRequest) -> str:
    registered(request.param)
    name: str = request.param
    return name


class Crash(Listener):
    def stepped(self, task: int, samples: int) -> None:
        self.left = getattr(self, "left", 10) - 1
        if self.left == 0:
            raise KeyError("crash")


def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(method: str, digits: Dataset, tmp_path: Path) -> None:
    config = RunConfig(method=method, classes_per_task=5, batch_size=100, memory_per_class=5)
    with pytest.raises(KeyError):
        run(config, data=digits, out=tmp_path, checkpoint_every=4, listener=Crash())
    assert (tmp_path / "checkpoint.safetensors").exists()
    assert numbers(run(config, data=digits, out=tmp_path)) == numbers(run(config, data=digits))


def same_state(first: nn.Module, second: nn.Module) -> bool:
    one, other = first.state_dict(), second.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("how", ["state_dict", "deepcopy", "begun"])
def test_a_copy_learns_with_the_same_bits(method: str, how: str, few: Dataset) -> None:
    """Into a learner that has taken no step, and into one whose optimizer has a state already."""
    learner = create(method, few.spec, memory_per_class=2)
    for index in range(3):
        learner.observe(few.train_x[index::12], few.train_y[index::12])
    if how == "deepcopy":
        other = deepcopy(learner)
    else:
        other = create(method, few.spec, memory_per_class=2, seed=5)
        if how == "begun":
            other.observe(few.train_x[:30], few.train_y[:30])
        other.load_state_dict(learner.state_dict())
    for each in (learner, other):
        each.observe(few.train_x[5::12], few.train_y[5::12])
    assert same_state(learner, other)
    assert torch.equal(learner.scores(few.test_x), other.scores(few.test_x))


def test_a_state_from_before_the_first_step_takes_the_momentum_away(method: str, few: Dataset) -> None:
    learner = create(method, few.spec, memory_per_class=2)
    new = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    for _ in range(2):
        learner.observe(few.train_x[:9], few.train_y[:9])
    assert learner.state_dict().keys() > new.keys()
    learner.load_state_dict(new)
    assert same_state(learner, create(method, few.spec, memory_per_class=2))


def test_a_saved_classifier_learns_with_the_same_bits(method: str, few: Dataset, tmp_path: Path) -> None:
    x, y = few.train_x.numpy()[:, 0], few.train_y.numpy()
    settings: dict[str, Any] = {"memory": "20KB", "random_state": 0}
    classifier = OnlineClassifier(method, **settings).partial_fit(x[:60], y[:60])
    classifier.save(tmp_path / "saved")
    others = [OnlineClassifier.load(tmp_path / "saved"), deepcopy(classifier)]
    for each in (classifier, *others):
        each.partial_fit(x[60:], y[60:])
    for other in others:
        assert np.array_equal(other.decision_function(x), classifier.decision_function(x))


def test_a_call_that_fails_leaves_no_momentum(few: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step of the optimizer is part of the call that is undone."""
    own = registered("momentum")
    x, y = few.train_x.numpy()[:, 0], few.train_y.numpy()
    settings: dict[str, Any] = {"memory": "20KB", "random_state": 0, "batch_size": 5}
    classifier = OnlineClassifier("momentum", **settings).partial_fit(x[:5], y[:5])
    learner = classifier._state.learner  # type: ignore[union-attr]
    learner.load_state_dict({k: v for k, v in learner.state_dict().items() if not k.startswith("optimizer.")})
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    observe, calls = own.observe, iter(range(9))

    def failing(self: ER, *given: Tensor) -> Tensor:
        if next(calls) == 1:
            raise KeyError("no")
        return observe(self, *given)

    monkeypatch.setattr(own, "observe", failing)
    with pytest.raises(KeyError):
        classifier.partial_fit(x[5:20], y[5:20])
    after = classifier._state.learner.state_dict()  # type: ignore[union-attr]
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_new_classes_get_momentum_zero_and_others_keep_theirs(method: str, few: Dataset) -> None:
    learner = create(method, few.spec, memory_samples=30)
    learner.observe(few.train_x[::7], few.train_y[::7])
    larger = grown(learner, 20)
    before, after = learner.state_dict(), larger.state_dict()
    assert before.keys() == after.keys()
    for name in (name for name in before if name.startswith("optimizer.")):
        corner = tuple(slice(size) for size in before[name].shape)
        assert torch.equal(after[name][corner], before[name]), name
        assert after[name].count_nonzero() == before[name].count_nonzero(), name
    larger.observe(few.train_x[:30], few.train_y[:30])


def test_a_forgotten_class_loses_its_momentum(few: Dataset) -> None:
    registered("momentum")
    learner = create("momentum", few.spec, memory_per_class=2)
    learner.observe(few.train_x[::7], few.train_y[::7])

    def of_class(slot: int) -> float:
        found = [t for name, t in learner.state_dict().items() if name.startswith("optimizer.") and len(t) == 10]
        assert len(found) == 2  # weight and bias of the head
        return sum(float(tensor[slot].abs().sum()) for tensor in found)

    kept = of_class(4)
    learner.forget_class(3)
    assert (of_class(3), of_class(4)) == (0, kept)


def test_a_learner_with_momentum_keeps_the_contract() -> None:
    check_learner(registered("momentum"))


@pytest.mark.parametrize("name", ["er", "momentum"])
def test_a_captured_step_uses_the_momentum_of_the_learner(
    name: str, few: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU: a graph that remembers which tensors it would write to, and does the step itself."""
    registered("momentum")

    class Graph:
        def capture_begin(self, **_: Any) -> None: ...

        def register_generator_state(self, _: torch.Generator) -> None: ...

        def capture_end(self) -> None:
            self.written = addresses()

        def replay(self) -> None:
            assert addresses() == self.written
            Eager.step(engine, engine.index)

    def addresses() -> list[int]:
        return [tensor.data_ptr() for name, tensor in learner.state_dict().items() if "_extra_state" not in name]

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    for name_of_stream in ("Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name_of_stream, lambda device: Mock())
    learner, eager = (create(name, few.spec, memory_per_class=2) for _ in range(2))
    engine = Captured(learner, few.train_x, few.train_y, batch_size=10)
    assert same_state(learner, eager)  # after it was recorded, or not yet
    for index in torch.arange(105).split(10):  # the last one is shorter
        engine.step(index)
        eager.observe(few.train_x[index], few.train_y[index])
    assert isinstance(engine.graph, Graph)
    assert same_state(learner, eager)


def test_plain_sgd_has_no_state(few: Dataset) -> None:
    learner = create("er", few.spec)
    names = learner.state_dict().keys()
    learner.observe(few.train_x[:9], few.train_y[:9])
    assert learner.state_dict().keys() == names
    assert not any(name.startswith("optimizer") for name in names)


def test_a_state_that_does_not_fit_is_refused(few: Dataset) -> None:
    registered("momentum")
    learner = create("momentum", few.spec)
    with pytest.raises(RuntimeError, match="the state of optimizer does not fit its parameters"):
        learner.load_state_dict(learner.state_dict() | {"optimizer.tensor.99.momentum_buffer": torch.zeros(1)})


def test_a_state_that_cannot_be_saved_is_named(few: Dataset) -> None:
    registered("momentum")
    learner = create("momentum", few.spec)
    learner.optimizer.state[next(learner.parameters())]["past"] = []  # as that of LBFGS
    with pytest.raises(UsageError, match="past in the state of SGD is a list, which cannot be saved; use an optimizer"):
        learner.state_dict()
