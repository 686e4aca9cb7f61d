"""Streams beyond disjoint tasks: blurry, gaussian, returning, imbalanced."""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from onebyone import UsageError, blurry, class_incremental, gaussian, iid, returning, streams
from onebyone.streams import Stream

MAKE: dict[str, Callable[..., Stream]] = {
    "class-incremental": class_incremental,
    "blurry": blurry,
    "gaussian": gaussian,
    "returning": returning,
    "iid": iid,
}
World = tuple[Tensor, int, dict[str, Any]]
kinds = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


def shuffled(counts: list[int]) -> Tensor:
    """Shuffled labels with this many samples of each class."""
    y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return y[torch.randperm(len(y), generator=torch.Generator().manual_seed(7))]


def everything(stream: Stream) -> list[int]:
    return torch.cat(list(stream)).tolist()


def arriving(stream: Stream, y: Tensor) -> Tensor:
    return y[torch.cat([task.indices for task in stream.tasks])]


@st.composite
def labelled(draw: st.DrawFn, least: int = 3) -> World:
    """Labels with a minimum number of samples per class, the number of classes, and keywords of every stream."""
    counts = draw(st.lists(st.integers(least, 40), min_size=2, max_size=9))
    common = {
        "classes_per_task": draw(st.integers(1, len(counts) - 1)),
        "batch_size": draw(st.integers(1, 50)),
        "order": draw(st.sampled_from(["label", "random"])),
        "seed": draw(st.integers(0, 1000)),
    }
    return shuffled(counts), len(counts), common


@kinds
@given(world=labelled())
def test_every_sample_arrives_once_in_full_batches(make: Callable[..., Stream], world: World) -> None:
    y, classes, common = world
    stream = make(y, classes, **common)
    assert sorted(everything(stream)) == list(range(len(y)))
    assert everything(make(y, classes, **common)) == everything(stream)  # by the seed alone
    groups = [task.classes for task in class_incremental(y, classes, **common).tasks]
    again = 3 if make is returning else 1
    assert [task.classes for task in stream.tasks] == groups * again
    for task in stream.tasks:
        *full, last = map(len, task.batches(stream.batch_size))
        assert set(full) <= {stream.batch_size}
        assert 1 <= last <= stream.batch_size
    assert stream.disjoint == (make is class_incremental or not any(strangers(stream, y)))


def strangers(stream: Stream, y: Tensor) -> list[int]:
    """How many samples of each task are not of its classes."""
    met: set[int] = set()
    counts = []
    for task in stream.tasks:
        counts.append(sum(label not in task.classes or label in met for label in y[task.indices].tolist()))
        met |= set(task.classes)
    return counts


@kinds
@given(world=labelled(least=20), imbalance=st.floats(1.01, 5))
def test_imbalance_is_the_ratio_of_class_sizes(make: Callable[..., Stream], world: World, imbalance: float) -> None:
    y, classes, common = world
    stream = make(y, classes, imbalance=imbalance, **common)
    indices = everything(stream)
    assert len(set(indices)) == len(indices) == stream.samples
    counts = torch.bincount(y[indices], minlength=classes)
    most = int(torch.bincount(y).min())
    expected = [round(most * imbalance ** (-step / (classes - 1))) for step in range(classes)]
    assert sorted(counts.tolist(), reverse=True) == expected
    same = class_incremental(y, classes, imbalance=imbalance, **common)
    assert sorted(everything(same)) == sorted(indices)  # whatever the schedule


def test_the_seed_determines_which_class_is_rare() -> None:
    y = shuffled([50] * 5)
    rarest = {int(torch.bincount(y[everything(iid(y, 5, imbalance=10, seed=seed))]).argmin()) for seed in range(20)}
    assert len(rarest) > 2
    common, rare = torch.bincount(y[everything(iid(y, 5, imbalance=50))]).topk(5).values[[0, -1]].tolist()
    assert (common, rare) == (50, 1)


@given(share=st.floats(0, 1), classes_per_task=st.sampled_from([1, 2, 3]), seed=st.integers(0, 99))
def test_moved_samples_are_uniform_over_the_other_tasks(share: float, classes_per_task: int, seed: int) -> None:
    y = shuffled([400] * 7)
    stream = blurry(y, 7, classes_per_task, share=share, seed=seed)
    tasks, count = len(stream.tasks), len(y)
    strays = sum(int((~torch.isin(y[task.indices], torch.tensor(task.classes))).sum()) for task in stream.tasks)
    error = 5 * (share * (1 - share) / count) ** 0.5  # five standard deviations of a mean
    assert strays / count == pytest.approx(share, abs=error + 1e-9)
    at_home = class_incremental(y, 7, classes_per_task, seed=seed).tasks
    for source in range(tasks):
        members = torch.isin(torch.arange(count), at_home[source].indices)
        for target in range(tasks):
            if target != source:
                expected = share * int(members.sum()) / (tasks - 1)
                assert int(members[stream.tasks[target].indices].sum()) == pytest.approx(
                    expected, abs=5 * expected**0.5 + 1
                )


def test_a_blurry_stream_with_share_0_is_class_incremental() -> None:
    y = shuffled([9, 5, 7])
    sharp, incremental = blurry(y, 3, share=0, seed=4), class_incremental(y, 3, seed=4)
    assert sharp.disjoint
    assert everything(sharp) == everything(incremental)
    assert not blurry(y, 3, share=0.5, seed=4).disjoint
    all_gone = blurry(shuffled([50, 50]), 2, share=1)
    assert {label for task in all_gone.tasks for label in shuffled([50, 50])[task.indices].tolist()} == {0, 1}


@given(width=st.floats(0.05, 4), classes_per_task=st.sampled_from([1, 2]), seed=st.integers(0, 99))
def test_classes_come_in_waves_with_their_centres_in_order(width: float, classes_per_task: int, seed: int) -> None:
    y = shuffled([500] * 6)
    stream = gaussian(y, 6, classes_per_task, width=width, seed=seed, order="random")
    labels = arriving(stream, y)
    positions = torch.arange(len(y), dtype=torch.float64)
    centres = [
        float(positions[torch.isin(labels, torch.tensor(task.classes))].mean() / len(y)) for task in stream.tasks
    ]
    assert centres == sorted(centres)
    sizes = [len(task.indices) for task in stream.tasks]
    assert max(sizes) - min(sizes) <= 1


def test_the_width_of_a_wave_is_in_tasks() -> None:
    """In the middle of a long stream of equal classes, the standard deviation of the positions is the width."""
    y = shuffled([200] * 60)
    for width in (0.5, 1.0, 3.0):
        labels = arriving(gaussian(y, 60, width=width), y)
        positions = torch.arange(len(y)) / 200
        middle = [positions[labels == label] for label in range(25, 35)]
        assert sum(float(p.std()) for p in middle) / 10 == pytest.approx((width**2 + 1 / 12) ** 0.5, rel=0.15)
        assert sum(float(p.mean()) - c for c, p in enumerate(middle, start=25)) / 10 == pytest.approx(0.5, abs=0.3)


def test_a_narrow_wave_is_a_task() -> None:
    y = shuffled([30] * 4)
    narrow, tasks = gaussian(y, 4, width=1e-3, seed=1), class_incremental(y, 4, seed=1).tasks
    assert [sorted(task.indices.tolist()) for task in narrow.tasks] == [sorted(t.indices.tolist()) for t in tasks]
    assert not narrow.disjoint  # by chance only


@given(world=labelled(), periods=st.integers(1, 3))
def test_every_class_returns_as_often_as_periods_says(world: World, periods: int) -> None:
    y, classes, common = world
    stream = returning(y, classes, periods=periods, **common)
    assert stream.disjoint == (periods == 1)
    total = torch.bincount(y)
    for label in range(classes):
        counts = [int((y[task.indices] == label).sum()) for task in stream.tasks if label in task.classes]
        assert len(counts) == periods
        assert max(counts) - min(counts) <= 1
        assert sum(counts) == int(total[label])
    for task in stream.tasks:
        assert set(y[task.indices].tolist()) == set(task.classes)
    if common["classes_per_task"] == 1:
        runs = [label for label, _ in groupby(arriving(stream, y).tolist())]
        assert runs == [task.classes[0] for task in stream.tasks]


@pytest.mark.parametrize("make", [class_incremental, gaussian, returning, iid])
def test_one_class_only(make: Callable[..., Stream]) -> None:
    y = torch.zeros(12, dtype=torch.int64)
    assert sorted(everything(make(y, 1, batch_size=5))) == list(range(12))
    with pytest.raises(UsageError, match="a single class cannot be imbalanced"):
        make(y, 1, imbalance=2)


def test_one_task_has_no_boundary_to_blur() -> None:
    with pytest.raises(UsageError, match="no boundary to blur; lower classes_per_task"):
        blurry(torch.zeros(12, dtype=torch.int64), 1)


@pytest.mark.parametrize(
    ("make", "y", "options", "sentence"),
    [
        (blurry, [0, 1], {}, r"no training sample has a class of task \(2,\); remove"),
        (gaussian, [0, 1], {}, r"no training sample has a class of task \(2,\); remove"),
        (returning, [0, 1], {}, r"no training sample has a class of task \(2,\); remove"),
        (iid, [0, 1], {}, "2 samples do not fill 3 tasks; raise classes_per_task or add samples"),
        (returning, [0, 0, 1, 1, 2], {"periods": 2}, "fewer samples than its 2 periods; lower periods"),
        (
            blurry,
            [0, 1, 2],
            {"share": 1, "seed": 0},
            "3 samples leave one of 3 tasks empty; lower share or add samples",
        ),
        (iid, [0, 0, 1, 1, 2, 2], {"imbalance": 3}, "imbalance is 3; the smallest class has 2 samples, so it can be"),
        (blurry, [0, 1, 2], {"share": -0.1}, "share is -0.1; it must be at least 0"),
        (blurry, [0, 1, 2], {"share": 1.1}, "share is 1.1; it must be at most 1"),
        (gaussian, [0, 1, 2], {"width": 0.0}, "width is 0.0; it must be above 0"),
        (returning, [0, 1, 2], {"periods": 0}, "periods is 0; it must be at least 1"),
        (class_incremental, [0, 1, 2], {"imbalance": float("nan")}, "imbalance is nan; it must be at least 1"),
    ],
)
def test_impossible_streams_are_refused(
    make: Callable[..., Stream], y: list[int], options: dict[str, float], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        make(torch.tensor(y), 3, **options)


def test_streams_do_not_use_the_global_generator() -> None:
    y, before = shuffled([20] * 3), torch.get_rng_state()
    for make in MAKE.values():
        make(y, 3, imbalance=2, order="random")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_stream_by_name_and_options() -> None:
    y = shuffled([20] * 4)
    named = streams.stream_named("blurry:share=0.3,imbalance=2", y, 4, 2, order="random", batch_size=3, seed=5)
    made = blurry(y, 4, 2, share=0.3, imbalance=2, order="random", batch_size=3, seed=5)
    assert [batch.tolist() for batch in named] == [batch.tolist() for batch in made]
    assert {name: entry.make for name, entry in streams.streams().items()} == MAKE
    for name in MAKE:
        assert streams.in_full(streams.in_full(name)) == streams.in_full(name)
    assert streams.in_full("returning:periods=3") == streams.in_full("returning:imbalance=1") != "returning"


def test_the_first_arrival_of_each_class() -> None:
    y = torch.tensor([0, 1, 0, 2, 2, 1])
    assert class_incremental(y, 4, 2).first_arrivals(y) == {0: 0, 1: 0, 2: 1, 3: 1}  # class 3 never arrives
    assert returning(y, 3, periods=2).first_arrivals(y) == {0: 0, 1: 1, 2: 2}
    stream = blurry(shuffled([40] * 3), 3, share=0.5)
    assert stream.first_arrivals(shuffled([40] * 3)) == {0: 0, 1: 0, 2: 0}
