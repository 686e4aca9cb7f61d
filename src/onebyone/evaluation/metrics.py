"""From the accuracy matrix to every number: nothing here knows of learners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onebyone.errors import UsageError

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Metrics:
    """What an accuracy matrix says. Fractions, not per cent; None where a number has no meaning."""

    accuracy: float  # mean over the tasks, at the end
    forgetting: float | None  # mean over all tasks but the last: best accuracy before the end minus that at the end
    anytime: tuple[float, ...]  # after each task: mean over the tasks met so far
    average_anytime: float  # mean of that curve
    learning_accuracy: float | None  # mean of each task's accuracy right after it was learnt
    backward_transfer: float | None  # mean over all tasks but the last: accuracy at the end minus right after
    worst_case: float  # the lowest task accuracy at the end


def accuracy_matrix(right: Sequence[Sequence[int]], total: Sequence[int], tasks: Sequence[Sequence[int]]) -> Matrix:
    """From counts: ``right[t][c]`` answers right of class c after task t, out of ``total[c]``; tasks by their classes.

    >>> accuracy_matrix([[8, 0, 0], [4, 1, 2]], [8, 4, 4], [[0], [1, 2]])
    ((1.0, 0.0), (0.5, 0.375))
    """
    return tuple(tuple(sum(row[c] for c in task) / sum(total[c] for c in task) for task in tasks) for row in right)


def anytime(matrix: Sequence[Sequence[float]], disjoint: bool = True) -> tuple[float, ...]:
    """After each task: the mean accuracy over the tasks met so far (all of them, if the stream is not disjoint)."""
    return tuple(mean(row[: t + 1] if disjoint else row) for t, row in enumerate(matrix))


def metrics(matrix: Sequence[Sequence[float]], disjoint: bool = True) -> Metrics:
    """Metrics of ``matrix[t][j]``: accuracy on task j after learning task t.

    With a stream that is not ``disjoint`` no task is met before another: the anytime curve is over all groups of
    classes, and forgetting, learning accuracy and backward transfer have no meaning. With one task only, nothing
    can have been forgotten, and forgetting and backward transfer have no meaning either (they are not zero).

    >>> m = metrics([[0.9, 0.0], [0.6, 0.8]])
    >>> round(m.accuracy, 3), round(m.forgetting, 3), round(m.backward_transfer, 3), round(m.learning_accuracy, 3)
    (0.7, 0.3, -0.3, 0.85)
    >>> m.anytime, m.worst_case
    ((0.9, 0.7), 0.6)
    """
    tasks = len(matrix)
    if tasks == 0 or any(len(row) != tasks for row in matrix):
        raise UsageError("an accuracy matrix must be square, a row and a column for each task")
    final = matrix[-1]
    curve = anytime(matrix, disjoint)
    forgetting = learning = transfer = None
    if disjoint:
        learning = mean([matrix[j][j] for j in range(tasks)])
    if disjoint and tasks > 1:
        earlier = range(tasks - 1)
        forgetting = mean([max(matrix[t][j] for t in range(j, tasks - 1)) - final[j] for j in earlier])
        transfer = mean([final[j] - matrix[j][j] for j in earlier])
    return Metrics(
        accuracy=mean(final),
        forgetting=forgetting,
        anytime=curve,
        average_anytime=mean(curve),
        learning_accuracy=learning,
        backward_transfer=transfer,
        worst_case=min(final),
    )


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
