"""What holds for every method, on every stream it may meet."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from onebyone import Dataset, Learner, Spec, UsageError, create, methods, streams
from onebyone.methods import ReplayLearner, ReplayOptions, method

NAMES = list(methods())
REPLAY = [name for name in NAMES if issubclass(method(name).options, ReplayOptions)]
Batch = tuple[Tensor, Tensor]


def learn(learner: Learner[Any], tasks: list[list[Batch]]) -> list[Tensor]:
    """The losses, one a step; after each step all is as it has to be."""
    losses = []
    for task in tasks:
        for x, y in task:
            before = x.clone()
            losses.append(learner.observe(x, y))
            assert torch.equal(x, before)
            assert losses[-1].isfinite()
            if isinstance(learner, ReplayLearner):
                check_memory(learner)
        if learner.needs_boundaries:
            learner.end_task()
    return losses


def check_memory(learner: ReplayLearner[Any]) -> None:
    memory, capacity = learner.memory, learner.options.memory_per_class * learner.spec.num_classes
    assert len(memory.x) == len(memory.y) == capacity + 1
    assert int(memory.seen) == int(learner.counts.sum())
    assert int(memory.filled.sum()) == min(int(memory.seen), capacity)
    assert learner.observed[memory.y[:-1][memory.filled]].all()
    assert not memory.x[-1].any()


def check(learner: Learner[Any], x: Tensor) -> None:
    """Finite weights, and an answer among the classes seen."""
    for name, tensor in learner.state_dict().items():
        assert tensor.isfinite().all(), name
    known = learner.observed.clone()
    if getattr(learner.options, "readout", "head") == "ncm":
        known &= learner.in_batch(learner.memory.y[:-1][learner.memory.filled])  # a mean needs a sample
    scores = learner.scores(x)
    assert scores.shape == (len(x), learner.spec.num_classes)
    assert scores[:, known].isfinite().all()
    assert (scores[:, ~known] == float("-inf")).all()
    assert torch.equal(learner.predict(x), scores.argmax(1))


def tasks_of(data: Dataset, stream: streams.Stream) -> list[list[Batch]]:
    return [
        [(data.train_x[index], data.train_y[index]) for index in task.batches(stream.batch_size)]
        for task in stream.tasks
    ]


@pytest.mark.parametrize("classes_per_task", [1, 2, 3])
@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {"memory_per_class": size}) for name in REPLAY for size in (1, 5, 20)]
    + [(name, {}) for name in NAMES if name not in REPLAY],
    ids=str,
)
def test_digits(few: Dataset, name: str, options: dict[str, int], classes_per_task: int) -> None:
    make = streams.iid if method(name).learner.stream == "iid" else streams.class_incremental
    learner = create(name, few.spec, **options)
    losses = learn(learner, tasks_of(few, make(few.train_y, 10, classes_per_task)))
    assert int(learner.steps) == len(losses)
    assert learner.counts.tolist() == [12] * 10
    check(learner, few.test_x)


@dataclass(frozen=True)
class Situation:
    """Something else that may come: other samples, other batches, other options."""

    options: dict[str, Any] = field(default_factory=dict)
    labels: tuple[int, ...] = (0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 1, 2)
    size: int = 4  # of a batch
    spec: Spec | None = None  # that of digits if there is none

    def applies(self, name: str) -> bool:
        return self.options.keys() <= {item.name for item in fields(method(name).options)}

    def tasks(self, data: Dataset) -> Iterator[list[Batch]]:
        """A task for each class that comes, also for one that comes back."""
        x, y = data.train_x[: len(self.labels)], torch.tensor(self.labels)
        if self.spec:
            generator = torch.Generator().manual_seed(0)
            x = torch.randn(len(y), *self.spec.shape, generator=generator) + y.reshape(-1, *[1] * len(self.spec.shape))
        ends = [i for i in range(1, len(y)) if y[i] != y[i - 1]]
        for part, labels in zip(x.tensor_split(ends), y.tensor_split(ends), strict=True):
            yield list(zip(part.split(self.size), labels.split(self.size), strict=True))


SITUATIONS = {
    "one by one": Situation(size=1),
    "one by one, mixed": Situation(labels=(0, 1, 2, 1, 0, 0, 1), size=1),
    "one class": Situation(labels=(3,) * 20),
    "batches above the memory": Situation({"memory_per_class": 1}, labels=(1,) * 30 + (2,) * 30, size=25),
    "many drawn from few": Situation({"memory_per_class": 1, "replay_size": 30}),
    "one drawn": Situation({"replay_size": 1}),
    "vectors": Situation(spec=Spec((20,), 4, torch.float32)),
    "vectors one by one": Situation(spec=Spec((20,), 4, torch.float32), size=1),
    "float images": Situation(spec=Spec((3, 6, 6), 4, torch.float32)),
    "float images as they are": Situation({"augment": False}, spec=Spec((3, 6, 6), 4, torch.float32)),
    "single pixels one by one": Situation({"augment": False}, spec=Spec((3, 1, 1), 4, torch.float32), size=1),
    "two classes there are": Situation(labels=(0, 0, 0, 1, 1, 1), spec=Spec((1, 8, 8), 2, torch.float32)),
    "joint passes": Situation({"passes": "joint"}),
    "joint passes one by one": Situation({"passes": "joint"}, size=1),
    "balanced": Situation({"memory_policy": "balanced", "memory_per_class": 1}, labels=(0,) * 12 + (1,) * 9 + (0,) * 3),
    "nearest mean": Situation({"readout": "ncm"}),
    "other classes replayed": Situation({"replay_from": "others"}),
    "all classes replayed": Situation({"replay_from": "all"}),
    "plain layout": Situation({"channels_last": False}),
    "no augmentation": Situation({"augment": False}),
    "no incoming loss": Situation({"incoming_weight": 0.0}),
    "no replay loss": Situation({"replay_weight": 0.0}),
    "summed replay": Situation({"replay_reduction": "sum"}),
    "drawn positives": Situation({"positives": "memory"}),
    "drawn positives, joint": Situation({"positives": "memory", "passes": "joint"}, size=1),
    "no projector": Situation({"projector": "none"}),
    "a last batch of one, down to one pixel": Situation({"encoder": "resnet18"}, labels=(0,) * 5 + (1,) * 9),
}


@pytest.mark.parametrize(
    ("name", "situation"),
    [(name, case) for name in NAMES for case, situation in SITUATIONS.items() if situation.applies(name)],
)
def test_situation(few: Dataset, name: str, situation: str) -> None:
    case = SITUATIONS[situation]
    learner = create(name, case.spec or few.spec, **case.options)
    tasks = list(case.tasks(few))
    learn(learner, tasks)
    check(learner, torch.cat([x for task in tasks for x, _ in task]))


def test_every_situation_is_met() -> None:
    assert all(any(situation.applies(name) for name in NAMES) for situation in SITUATIONS.values())


# What a learner is lies in its state.


def prepared(few: Dataset, name: str, seed: int = 0, **options: Any) -> tuple[Learner[Any], list[list[Batch]]]:
    """A learner in the middle of its second task, and what is still to come."""
    tasks = tasks_of(few, streams.class_incremental(few.train_y, 10, 2, batch_size=7, seed=4))
    learner = create(name, few.spec, seed=seed, **options)
    learn(learner, tasks[:1])
    learner.observe(*tasks[1][0])
    return learner, [tasks[1][1:], tasks[2]]


def state(learner: Learner[Any]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in learner.state_dict().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    assert first.keys() == second.keys()
    return all(torch.equal(tensor, second[name]) for name, tensor in first.items())


MAKINGS = [(name, {}) for name in NAMES] + [
    (name, {"memory_policy": "balanced", "memory_per_class": 1, "passes": "joint"}) for name in REPLAY
]
makings = pytest.mark.parametrize(("name", "options"), MAKINGS, ids=str)


@makings
@pytest.mark.parametrize("how", ["state_dict", "deepcopy", "same seed"])
def test_going_on_from_the_same_state_gives_the_same_bits(
    few: Dataset, name: str, options: dict[str, Any], how: str
) -> None:
    learner, rest = prepared(few, name, **options)
    match how:
        case "state_dict":
            other = create(name, few.spec, seed=1, **options)
            other.load_state_dict(state(learner))
        case "deepcopy":
            other = deepcopy(learner)
        case _:
            with torch.random.fork_rng():
                torch.manual_seed(123)  # of no concern
                other, _ = prepared(few, name, **options)
    assert same(state(learner), state(other))
    halfway = state(learner)
    losses = learn(learner, rest)
    assert same(halfway, state(other))  # nothing is shared between the two
    assert torch.equal(torch.stack(losses), torch.stack(learn(other, rest)))
    assert same(state(learner), state(other))
    assert torch.equal(learner.scores(few.test_x), other.scores(few.test_x))


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_is_another_learner(few: Dataset, name: str) -> None:
    first, second = (create(name, few.spec, seed=seed) for seed in (0, 1))
    assert not torch.equal(first.generator.get_state(), second.generator.get_state())
    for (part, weight), other in zip(first.named_parameters(), second.parameters(), strict=True):
        # One-dimensional weights and BatchNorm's start at their constants.
        assert torch.equal(weight, other) == (weight.dim() == 1 and len(weight.unique()) == 1), part


@pytest.mark.parametrize("name", NAMES)
def test_a_learner_leaves_the_global_generator_alone(few: Dataset, name: str) -> None:
    before = torch.get_rng_state()
    prepared(few, name)
    assert torch.equal(torch.get_rng_state(), before)


@makings
def test_answering_changes_nothing(few: Dataset, name: str, options: dict[str, Any]) -> None:
    learner, rest = prepared(few, name, **options)
    silent = deepcopy(learner)
    before, modes = state(learner), [module.training for module in learner.modules()]
    scores = learner.scores(few.test_x)
    assert torch.equal(learner.scores(few.test_x), scores)
    assert same(state(learner), before)
    assert [module.training for module in learner.modules()] == modes
    torch.testing.assert_close(learner.scores(few.test_x, chunk=7), scores)
    learn(learner, rest)
    learn(silent, rest)
    assert same(state(learner), state(silent))


@pytest.mark.parametrize("name", NAMES)
def test_a_learner_that_has_seen_nothing_has_no_answer(few: Dataset, name: str) -> None:
    learner = create(name, few.spec)
    assert (learner.scores(few.test_x) == float("-inf")).all()
    assert (learner.predict(few.test_x) == -1).all()


@pytest.mark.parametrize("name", NAMES)
def test_memory_layout_changes_no_more_than_rounding(few: Dataset, name: str) -> None:
    batch = few.train_x[::6], few.train_y[::6]
    losses = [create(name, few.spec, channels_last=layout).observe(*batch) for layout in (True, False)]
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)


def test_only_icarl_has_to_know_where_a_task_ends() -> None:
    assert [name for name in NAMES if method(name).learner.needs_boundaries] == ["icarl"]


def test_only_iid_is_meant_for_a_shuffled_stream() -> None:
    assert [name for name in NAMES if method(name).learner.stream == "iid"] == ["iid"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cpp", {}, "unknown method 'cpp'; did you mean 'ccp'"),
        ("er", {"memory_per_class": 0}, "memory_per_class is 0; it must be at least 1"),
        ("ccp", {"readout": "head"}, "unknown readout 'head'"),
        ("ccp", {"encoder": "resnet"}, "unknown encoder 'resnet'; did you mean 'resnet18'"),
    ],
)
def test_what_cannot_be_made_is_refused(few: Dataset, name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        create(name, replace(few.spec), **options)
