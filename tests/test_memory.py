"""The memory and its policies. The value of a sample is its number, from 1, so that each can be recognised."""

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from onebyone.errors import UsageError
from onebyone.memory import BalancedReservoir, Memory, Reservoir, create

CLASSES = 4
policies = pytest.mark.parametrize("policy", ["reservoir", "balanced"])
batch_sizes = st.lists(st.integers(1, 9), max_size=8)
capacities = st.integers(1, 6)


def make(policy: str, capacity: int, **extra: int) -> Memory:
    return create(policy, capacity, (2,), torch.int64, CLASSES, extra)


def offer(memory: Memory, y: Sequence[int], generator: torch.Generator, **extra: Tensor) -> None:
    """The next ``len(y)`` samples."""
    number = memory.seen + torch.arange(1, len(y) + 1)
    memory.add(number[:, None].expand(-1, 2), torch.tensor(y), generator, **extra)


def contents(memory: Memory) -> list[int]:
    """Sample numbers, row by row; the rest of the memory has to be blank."""
    rows = min(int(memory.seen), memory.capacity)
    for name, buffer in memory.named_buffers():
        if name not in ("seen", "held"):
            assert not buffer[rows:].any(), name
    assert torch.equal(memory.x[:, 0], memory.x[:, 1])
    return memory.x[:rows, 0].tolist()


@given(capacities, batch_sizes, st.integers(0, 2**32 - 1))
def test_reservoir_against_algorithm_r(capacity: int, sizes: list[int], seed: int) -> None:
    memory, generator = make("reservoir", capacity), torch.Generator().manual_seed(seed)
    same = torch.Generator().manual_seed(seed)
    expected: list[int] = []
    number = 0
    for size in sizes:
        offer(memory, [0] * size, generator)
        for draw in torch.randint(2**62, (size,), generator=same).tolist():
            number += 1
            if number <= capacity:
                expected.append(number)
            elif draw % number < capacity:
                expected[draw % number] = number
        assert contents(memory) == expected


@given(capacities, st.lists(st.integers(0, CLASSES - 1), max_size=40), st.integers(0, 2**32 - 1), st.data())
def test_balanced_one_sample_at_a_time(capacity: int, labels: list[int], seed: int, data: st.DataObject) -> None:
    """A full memory and a new sample: the largest class (the first of equals) loses its lowest key.

    Among classes with one row each, not the class of the new sample.
    """
    memory, generator = make("balanced", capacity), torch.Generator().manual_seed(seed)
    same = torch.Generator().manual_seed(seed)
    expected: list[int] = []
    keys: list[float] = []
    while len(keys) < len(labels):
        size = min(data.draw(st.integers(1, 9)), len(labels) - len(keys))
        offer(memory, labels[len(keys) :][:size], generator)
        for key in torch.rand(size, generator=same).tolist():
            keys.append(key)
            expected.append(len(keys))
            if len(expected) > capacity:
                counts = Counter(labels[number - 1] for number in expected)
                counts[labels[len(keys) - 1]] -= 0.5 * (counts[labels[len(keys) - 1]] == 1)  # type: ignore[assignment]
                largest = max(range(CLASSES), key=lambda label: (counts[label], -label))
                lowest = min((n for n in expected if labels[n - 1] == largest), key=lambda n: keys[n - 1])
                expected[expected.index(lowest)] = expected[-1]
                expected.pop()
        assert contents(memory) == expected
        kept_labels = [labels[number - 1] for number in expected]
        assert memory.y[: len(expected)].tolist() == kept_labels
        assert memory.get_buffer("held").tolist() == [kept_labels.count(label) for label in range(CLASSES)]
    # A class keeps its highest keys, unless it lost all of them in between.
    for label in range(CLASSES if len(set(labels)) <= capacity else 0):
        shown = sorted((n + 1 for n, own in enumerate(labels) if own == label), key=lambda n: -keys[n - 1])
        kept = [number for number in expected if labels[number - 1] == label]
        assert set(kept) == set(shown[: len(kept)])


def test_a_class_comes_back_to_a_balanced_memory_with_fewer_rows_than_classes() -> None:
    memory, generator = make("balanced", 2), torch.Generator().manual_seed(0)
    for label in (0, 1, 2, 3, 0, 1, 0):
        offer(memory, [label] * 3, generator)
        assert label in memory.y[:2]


def test_reservoir_keeps_every_sample_equally_often() -> None:
    kept, runs = torch.zeros(21), 2000
    generator = torch.Generator().manual_seed(0)
    for _ in range(runs):
        memory = make("reservoir", 5)
        for size in (1, 7, 12):
            offer(memory, [0] * size, generator)
        kept[contents(memory)] += 1
    expected, deviation = runs / 4, (runs / 4 * 3 / 4) ** 0.5
    assert ((kept[1:] - expected).abs() < 4 * deviation).all()


@pytest.mark.slow
def test_balanced_shares_evenly_and_keeps_a_fair_sample_of_each_class() -> None:
    """With a class that returns: its samples of both periods are kept equally often."""
    labels = [0] * 12 + [2] * 9 + [3] * 9 + [0] * 6
    kept, runs = torch.zeros(len(labels) + 1), 1000
    generator = torch.Generator().manual_seed(0)
    for _ in range(runs):
        memory = make("balanced", 8)
        for batch in labels[:15], labels[15:16], labels[16:]:
            offer(memory, batch, generator)
        counts = memory.y[:8].bincount(minlength=CLASSES).tolist()
        assert counts == [2, 0, 3, 3]
        kept[contents(memory)] += 1
    for label, share in ((0, 2 / 18), (2, 3 / 9), (3, 3 / 9)):
        own = kept[1:][torch.tensor(labels) == label]
        assert ((own - runs * share).abs() < 4 * (runs * share * (1 - share)) ** 0.5).all()


@policies
@given(capacities, st.lists(st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=9), max_size=6))
def test_extra_fields_stay_with_their_rows(policy: str, capacity: int, batches: list[list[int]]) -> None:
    memory, generator = make(policy, capacity, logits=3), torch.Generator().manual_seed(0)
    for batch in batches:
        number = memory.seen + torch.arange(1, len(batch) + 1)
        offer(memory, batch, generator, logits=number[:, None] * torch.tensor([1.0, 2.0, 3.0]))
    numbers = contents(memory)
    assert len(set(numbers)) == len(numbers) == min(sum(map(len, batches)), capacity)
    assert torch.equal(memory.get_buffer("logits")[:, 0], memory.x[:, 0].float())
    rows = memory.sample(capacity + 1, generator)
    assert torch.equal(rows.extra["logits"], rows.x[:, :1] * torch.tensor([1.0, 2.0, 3.0]))
    labels = [0, *(label for batch in batches for label in batch)]
    assert rows.y.tolist() == [labels[number] for number in rows.x[:, 0].tolist()]


@pytest.mark.parametrize("count", [1, 3, 8, 9, 20])
@pytest.mark.parametrize("offered", [0, 1, 5, 8, 30])
@pytest.mark.parametrize("wanted", [None, lambda y: y == 1, lambda y: y < 0], ids=["all", "one class", "none"])
@policies
def test_sample(policy: str, wanted: Callable[[Tensor], Tensor] | None, offered: int, count: int) -> None:
    """Different rows, only allowed ones, as many as there are; the rest is blank and has weight zero."""
    memory, generator = make(policy, 8), torch.Generator().manual_seed(count)
    labels = [number % 3 for number in range(offered)]
    if labels:
        offer(memory, labels, generator)
    allowed = wanted(memory.y[:-1]) if wanted else None
    usable = {n for row, n in enumerate(contents(memory)) if allowed is None or allowed[row]}
    rows = memory.sample(count, generator, allowed)
    drawn = rows.x[:, 0]
    expected = min(count, len(usable))
    assert rows.weight.tolist() == [1.0] * expected + [0.0] * (count - expected)
    assert len(set(drawn[:expected].tolist()) & usable) == expected
    assert not drawn[expected:].any()
    assert rows.y.tolist() == [labels[n - 1] if n else 0 for n in drawn.tolist()]


def test_sample_is_uniform() -> None:
    memory, generator = make("reservoir", 8), torch.Generator().manual_seed(0)
    offer(memory, [0, 1, 0, 0, 1, 0], generator)
    runs, allowed = 2000, memory.y[:-1] == 0
    drawn = torch.stack([memory.sample(2, generator, allowed).x[:, 0] for _ in range(runs)])
    pairs = Counter(tuple(pair) for pair in drawn.tolist())
    assert set(pairs) == {(a, b) for a in (1, 3, 4, 6) for b in (1, 3, 4, 6) if a != b}
    assert all(abs(times - runs / 12) < 4 * (runs / 12) ** 0.5 for times in pairs.values())


@policies
@pytest.mark.parametrize("offered", [0, 3, 9])
def test_everything(policy: str, offered: int) -> None:
    memory, generator = make(policy, 5), torch.Generator().manual_seed(0)
    if offered:
        offer(memory, [1] * offered, generator)
    rows, held = memory.everything(), min(offered, 5)
    assert rows.x[:, 0].tolist() == contents(memory) + [0] * (5 - held)
    assert rows.weight.tolist() == memory.filled.tolist() == [1.0] * held + [0.0] * (5 - held)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (Reservoir(7, (3, 4, 4)), 8 * (48 + 8) + 8),
        (Reservoir(7, (20,), torch.float32), 8 * (80 + 8) + 8),
        (Reservoir(7, (20,), torch.float32, {"logits": 10}), 8 * (80 + 8 + 40) + 8),
        (BalancedReservoir(7, (3, 4, 4), num_classes=5), 8 * (48 + 8 + 4) + 8 + 5 * 8),
    ],
)
def test_bytes(memory: Memory, expected: int) -> None:
    """Samples, labels and further fields for capacity + 1 rows, keys and counts of classes, the number offered."""
    assert memory.nbytes == expected


@policies
@pytest.mark.parametrize("capacity", [0, -1])
def test_a_memory_without_capacity_is_refused(policy: str, capacity: int) -> None:
    with pytest.raises(UsageError, match=f"a memory of {capacity} samples was asked for; it must hold at least 1"):
        make(policy, capacity)


def test_unknown_policy() -> None:
    with pytest.raises(UsageError, match="unknown memory policy 'reservor'; did you mean 'reservoir'"):
        make("reservor", 5)


@pytest.mark.parametrize("policy", ["reservoir", "balanced"])
@given(data=st.data())
def test_removed_samples_are_gone_and_later_ones_take_their_rows(policy: str, data: st.DataObject) -> None:
    """Against a list: offers, removals of samples and of classes in any order."""
    capacity, generator, number = data.draw(st.integers(1, 8)), torch.Generator().manual_seed(0), 0
    memory = create(policy, capacity, (1,), torch.int64, 3, {"extra": 3})
    offered: dict[int, int] = {}  # number -> label of all that were offered and not removed
    for action in data.draw(st.lists(st.sampled_from(["add", "remove", "class", "relabel"]), min_size=1, max_size=12)):
        if action == "add":
            y = torch.tensor(data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=6)))
            x = torch.arange(number, number + len(y))[:, None]
            memory.add(x, y, generator, extra=x.expand(-1, 3).float())
            offered |= dict(zip(x[:, 0].tolist(), y.tolist(), strict=True))
            number += len(y)
        elif action == "remove" and offered:
            gone = data.draw(st.lists(st.sampled_from(sorted(offered)), min_size=1, unique=True))
            x, y = torch.tensor(gone)[:, None], torch.tensor([offered.pop(each) for each in gone])
            memory.remove(memory.find(x, y), len(gone))
        elif action == "class":
            members = [each for each, label in offered.items() if label == 1]
            memory.forget_class(1, len(members))
            for each in members:
                del offered[each]
        else:
            memory.relabel(0, 2)
            offered = {each: 2 if label == 0 else label for each, label in offered.items()}
        filled = memory.filled
        kept = dict(zip(memory.x[:-1][filled, 0].tolist(), memory.y[:-1][filled].tolist(), strict=True))
        assert kept.items() <= offered.items()
        assert len(kept) == int(filled.sum())
        assert (memory.get_buffer("extra")[:-1][filled, 0] == memory.x[:-1][filled, 0]).all()
        assert filled.tolist() == sorted(filled.tolist(), reverse=True)
        if policy == "balanced":
            assert memory.get_buffer("held").tolist() == [list(kept.values()).count(label) for label in range(3)]
    # A memory that was full is filled again by samples that the policy keeps.
    before = int(memory.filled.sum())
    for _ in range(100):
        memory.add(torch.full((10, 1), -1), torch.arange(10) % 3, generator, extra=torch.zeros(10, 3))
    assert memory.filled.all() or policy == "reservoir"
    assert memory.filled.sum() > min(before, capacity - 1)


def test_a_reservoir_stays_uniform_after_a_removal() -> None:
    """Half of the first samples are removed; what is left and what comes later is kept equally often."""
    kept = torch.zeros(400)
    for seed in range(300):
        generator = torch.Generator().manual_seed(seed)
        memory = Reservoir(40, (1,), torch.int64)
        x = torch.arange(400)[:, None]
        memory.add(x[:200], torch.arange(200) % 2, generator)
        memory.forget_class(1, 100)
        memory.add(x[200:], torch.zeros(200, dtype=torch.int64), generator)
        kept[memory.x[:-1][memory.filled, 0]] += 1
    assert kept[1:200:2].sum() == 0
    early, late = kept[:200:2].mean(), kept[200:].mean()
    assert abs(early / late - 1) < 0.15
