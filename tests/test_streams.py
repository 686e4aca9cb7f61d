"""The order of arrival, on unsorted labels with classes of different size."""

from collections.abc import Callable
from math import ceil

import pytest
import torch

from onebyone import Dataset
from onebyone.errors import UsageError
from onebyone.streams import Stream, class_incremental, iid

CLASSES = 7
Y = torch.arange(60).square() % 19 % CLASSES  # every class, 6 to 13 samples each

kinds = pytest.mark.parametrize("make", [class_incremental, iid])
orders = pytest.mark.parametrize("order", ["label", "random"])
sizes = pytest.mark.parametrize("batch_size", [1, 4, 100])
groups = pytest.mark.parametrize("classes_per_task", [1, 2, 3, 7])  # only 1 and 7 divide 7
Make = Callable[..., Stream]


def everything(stream: Stream) -> list[int]:
    return torch.cat(list(stream)).tolist()


@kinds
@orders
@sizes
@groups
def test_every_sample_once_in_batches_that_end_with_their_task(
    make: Make, order: str, batch_size: int, classes_per_task: int
) -> None:
    stream = make(Y, CLASSES, classes_per_task, order=order, batch_size=batch_size, seed=3)
    assert sorted(everything(stream)) == list(range(len(Y)))
    assert stream.samples == len(Y)
    classes = [task.classes for task in stream.tasks]
    assert [len(group) for group in classes[:-1]] == [classes_per_task] * (len(classes) - 1)
    assert sorted(sum(classes, ())) == list(range(CLASSES))
    expected = []
    for task in stream.tasks:
        count = len(task.indices)
        expected += [batch_size] * (count // batch_size) + [count % batch_size] * (count % batch_size > 0)
        assert len(task.batches(batch_size)) == ceil(count / batch_size)
    assert [len(batch) for batch in stream] == expected
    assert len(stream) == len(expected)


@orders
@groups
def test_tasks_are_disjoint(order: str, classes_per_task: int) -> None:
    stream = class_incremental(Y, CLASSES, classes_per_task, order=order, batch_size=5)
    assert stream.disjoint
    for task in stream.tasks:
        assert set(Y[task.indices].tolist()) == set(task.classes)
        for batch in task.batches(5):
            assert set(Y[batch].tolist()) <= set(task.classes)


@groups
def test_iid_is_shuffled_in_parts_of_equal_length(classes_per_task: int) -> None:
    stream = iid(Y, CLASSES, classes_per_task)
    counts = [len(task.indices) for task in stream.tasks]
    assert not stream.disjoint
    assert len(counts) == ceil(CLASSES / classes_per_task)
    assert max(counts) - min(counts) <= 1
    assert everything(stream) == everything(iid(Y, CLASSES, CLASSES))  # the parts do not change the order


def test_iid_mixes_the_classes(digits: Dataset) -> None:
    for task in iid(digits.train_y, 10).tasks:
        assert len(set(digits.train_y[task.indices].tolist())) == 10


@kinds
def test_order_of_classes(make: Make) -> None:
    def order(**options: object) -> tuple[int, ...]:
        return sum((task.classes for task in make(Y, CLASSES, 2, **options).tasks), ())

    assert order() == order(seed=9) == tuple(range(CLASSES))
    random = [order(order="random", seed=seed) for seed in range(5)]
    assert len(set(random)) > 1
    assert random == [order(order="random", seed=seed) for seed in range(5)]


@kinds
def test_samples_are_shuffled_by_the_seed_alone(make: Make) -> None:
    with torch.random.fork_rng():
        streams = []
        for global_seed in (1, 2):
            torch.manual_seed(global_seed)
            before = torch.get_rng_state()
            streams.append(everything(make(Y, CLASSES, 2, order="random", seed=5)))
            assert torch.equal(torch.get_rng_state(), before)
    assert streams[0] == streams[1]
    assert streams[0] != everything(make(Y, CLASSES, 2, order="random", seed=6))
    first = make(Y, CLASSES, CLASSES).tasks[0].indices.tolist()
    assert first != sorted(first)


@kinds
@pytest.mark.parametrize("wrong", [-1, 0, CLASSES + 1])
def test_classes_per_task_is_between_1_and_the_number_of_classes(make: Make, wrong: int) -> None:
    with pytest.raises(UsageError, match=rf"classes_per_task is {wrong}; with 7 classes it must be in 1\.\.7"):
        make(Y, CLASSES, wrong)


@kinds
@pytest.mark.parametrize("wrong", [-1, 0])
def test_batch_size_is_at_least_1(make: Make, wrong: int) -> None:
    with pytest.raises(UsageError, match=f"batch_size is {wrong}; it must be at least 1"):
        make(Y, CLASSES, batch_size=wrong)


def test_a_task_without_samples_is_refused() -> None:
    without = Y[(Y != 2) & (Y != 3)]
    with pytest.raises(UsageError, match=r"no training sample has a class of task \(2, 3\)"):
        class_incremental(without, CLASSES, 2)
    assert class_incremental(without, CLASSES, 3).samples == len(without)  # accepted with another class in the task
    with pytest.raises(UsageError, match="6 samples do not fill 7 tasks; raise classes_per_task or add samples"):
        iid(Y[:6], CLASSES)


@kinds
def test_streams_are_equal_if_they_give_the_same_samples(make: Make) -> None:
    first, again, other = (make(Y, CLASSES, classes_per_task=2, seed=seed) for seed in (1, 1, 2))
    assert first == again == first.to("cpu")
    assert len({first, again}) == 1
    assert first != other
    assert other in [first, other]
    assert first != make(Y, CLASSES, classes_per_task=2, seed=1, batch_size=7)
    assert first != "stream"
    assert first.tasks[0] != first.tasks[0].indices
