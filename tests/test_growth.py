"""More capacity for classes does not change what a learner has learnt."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from classifiers import class_means
from onebyone import Dataset, Learner, UsageError, create, methods
from onebyone.methods import BudgetOptions, ReplayLearner, ReplayOptions, grown, method

NAMES = [name for name in methods() if not issubclass(method(name).options, BudgetOptions)]  # which classes share
REPLAY = [name for name in NAMES if issubclass(method(name).options, ReplayOptions)]
LEARNERS = [(name, {"memory_samples": 30} if name in REPLAY else {}) for name in NAMES] + [
    (name, {"memory_samples": 30, "memory_policy": "balanced", "readout": class_means(name)}) for name in REPLAY
]
every_learner = pytest.mark.parametrize(("name", "options"), LEARNERS, ids=str)


def learner_of_three(few: Dataset, name: str, options: dict[str, Any], room: int) -> Learner[Any]:
    """A learner with capacity for ``room`` classes that has learnt classes 0 to 2 and ended one task."""
    learner = create(name, replace(few.spec, num_classes=room), seed=3, **options)
    for x, y in zip(few.train_x[:36].split(9), few.train_y[:36].split(9), strict=True):
        learner.observe(x, y)
        if learner.needs_boundaries and int(learner.steps) == 2:
            learner.end_task()
    return learner


def corners(large: dict[str, Tensor], small: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: large[name][tuple(slice(size) for size in tensor.shape)] for name, tensor in small.items()}


@every_learner
def test_known_classes_keep_their_scores_bit_for_bit(few: Dataset, name: str, options: dict[str, Any]) -> None:
    learner = learner_of_three(few, name, options, room=16)
    before = {part: tensor.clone() for part, tensor in learner.state_dict().items()}
    larger = grown(learner, 32)
    assert torch.equal(larger.scores(few.test_x)[:, :16], learner.scores(few.test_x))
    assert (larger.scores(few.test_x)[:, 16:] == float("-inf")).all()
    for part, tensor in corners(larger.state_dict(), before).items():
        assert torch.equal(tensor, before[part]), part
    for part, tensor in learner.state_dict().items():  # the old learner does not change
        assert torch.equal(tensor, before[part]), part
    assert torch.equal(larger.generator.get_state(), learner.generator.get_state())
    assert larger.counts.sum() == learner.counts.sum()


@pytest.mark.parametrize("samples", [0, 5, 36], ids=["nothing seen", "few", "many"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (64,)], ids=["images", "vectors"])
def test_more_classes_leave_fewer_filters(few: Dataset, shape: tuple[int, ...], samples: int) -> None:
    """The budget stays the same. The remaining filters have the statistics of a learner that had only them."""
    x, y = few.train_x.reshape(-1, *shape), few.train_y
    spec = replace(few.spec, shape=shape, num_classes=16)
    small = create("patch-lda", spec, budget=20_000)
    if samples:
        small.observe(x[:samples], y[:samples])
    before = {part: tensor.clone() for part, tensor in small.state_dict().items()}
    larger = grown(small, 32)
    assert larger.memory_bytes <= 20_000
    assert torch.equal(larger.counts[:16], small.counts)
    assert torch.equal(larger.steps, small.steps)
    same = create("patch-lda", replace(spec, num_classes=32), budget=20_000)
    if samples:
        same.observe(x[:samples], y[:samples])
    if small.extractor.count:  # filters depend on their number, so they are copied for the comparison
        assert larger.extractor.count < small.extractor.count
        same.extractor.load_state_dict(larger.extractor.state_dict())
        same.moments = type(same.moments)(same.extractor.width, 32, small.moments.sums.dtype)
        if samples:
            same.moments.add(same.codes(same.read(x[:samples])), y[:samples])
    asked = few.test_x.reshape(-1, *shape)
    torch.testing.assert_close(larger.scores(asked), same.scores(asked), rtol=1e-4, atol=1e-5)
    for learner in (larger, same):
        learner.observe(x[samples:], y[samples:])
    torch.testing.assert_close(larger.scores(asked), same.scores(asked), rtol=1e-4, atol=1e-5)
    for part, tensor in small.state_dict().items():  # the old learner does not change
        assert torch.equal(tensor, before[part]), part


@every_learner
def test_new_parts_equal_those_of_a_new_learner(few: Dataset, name: str, options: dict[str, Any]) -> None:
    learner = learner_of_three(few, name, options, room=16)
    larger, fresh = grown(learner, 32).state_dict(), create(name, replace(few.spec, num_classes=32), seed=3, **options)
    for part, tensor in fresh.state_dict().items():
        old = learner.state_dict()[part]
        if tensor.shape != old.shape:
            (axis,) = (axis for axis, size in enumerate(tensor.shape) if size != old.shape[axis])
            assert torch.equal(larger[part].narrow(axis, 16, 16), tensor.narrow(axis, 16, 16)), part


@every_learner
def test_a_grown_learner_learns_the_new_classes(few: Dataset, name: str, options: dict[str, Any]) -> None:
    learner = grown(learner_of_three(few, name, options, room=3), 6)
    assert learner.spec.num_classes == 6
    for x, y in zip(few.train_x[36:72].split(9), few.train_y[36:72].split(9), strict=True):
        assert learner.observe(x, y).isfinite()
    assert learner.counts.tolist() == [12] * 6
    scores = learner.scores(few.test_x)
    assert scores.isfinite().all(0).sum() >= 3  # a class may have left the memory, whose size is fixed
    if isinstance(learner, ReplayLearner):
        assert learner.memory.capacity == 30
        assert int(learner.memory.seen) == 72
        torch.testing.assert_close(learner.memory.filled.sum(), torch.tensor(30))


@every_learner
def test_two_learners_that_grew_equally_stay_equal(few: Dataset, name: str, options: dict[str, Any]) -> None:
    """This needs the generator to keep its state."""
    first, second = (grown(learner_of_three(few, name, options, room=16), 32) for _ in range(2))
    for learner in (first, second):
        learner.observe(few.train_x[40:50], few.train_y[40:50])
    for part, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[part]), part


def test_memory_samples_does_not_depend_on_the_number_of_classes(few: Dataset) -> None:
    learner = create("er", few.spec, memory_samples=7, memory_per_class=100)
    assert isinstance(learner, ReplayLearner)
    assert learner.memory.capacity == 7


@pytest.mark.parametrize("policy", ["reservoir", "balanced"])
def test_a_memory_that_would_grow_is_refused(few: Dataset, policy: str) -> None:
    """Its new rows would be replayed as samples of class 0."""
    learner = learner_of_three(few, "er", {"memory_per_class": 2, "memory_policy": policy}, room=3)
    with pytest.raises(UsageError, match=r"from 6 to 12 samples, .* give memory_samples"):
        grown(learner, 6)
