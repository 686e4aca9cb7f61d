"""From the accuracy matrix to every metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onebyone.errors import UsageError

Row = Sequence[float | None]
Matrix = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Metrics:
    """Metrics computed from an accuracy matrix, as fractions. A metric that is not defined is None."""

    accuracy: float  # mean over the tasks, at the end
    forgetting: float | None  # mean over all tasks but the last: best accuracy before the end minus that at the end
    anytime: tuple[float, ...]  # after each task: mean over the tasks seen so far
    average_anytime: float  # mean of that curve
    learning_accuracy: float | None  # mean of each task's accuracy right after it was learnt
    backward_transfer: float | None  # mean over all tasks but the last: accuracy at the end minus right after
    worst_case: float  # the lowest task accuracy at the end


def accuracy_matrix(
    right: Sequence[Sequence[int]],
    total: Sequence[int],
    tasks: Sequence[Sequence[int]],
    first: Mapping[int, int] | None = None,
) -> Matrix:
    """From counts: ``right[t][c]`` correct answers for class c after task t, out of ``total[c]``.

    In a stream that is not disjoint, a class may arrive before or after the task that names it. ``first`` is then the
    task in which each class first arrives. An entry is over the classes that have arrived, None if there are none.

    >>> accuracy_matrix([[8, 0, 0], [4, 1, 2]], [8, 4, 4], [[0], [1, 2]])
    ((1.0, 0.0), (0.5, 0.375))
    >>> accuracy_matrix([[0, 3, 0], [4, 1, 2]], [8, 4, 4], [[0], [1, 2]], first={0: 1, 1: 0, 2: 1})
    ((None, 0.75), (0.5, 0.375))
    """

    def entry(t: int, task: Sequence[int]) -> float | None:
        asked = [c for c in task if total[c] and (first is None or first[c] <= t)]
        return sum(right[t][c] for c in asked) / sum(total[c] for c in asked) if asked else None

    return tuple(tuple(entry(t, task) for task in tasks) for t in range(len(right)))


def anytime(matrix: Sequence[Row], disjoint: bool = True) -> tuple[float, ...]:
    """After each task: the mean accuracy over the tasks seen so far."""
    return tuple(mean(row[: t + 1] if disjoint else row) for t, row in enumerate(matrix))


def metrics(matrix: Sequence[Row], disjoint: bool = True) -> Metrics:
    """Compute all metrics of a run from its accuracy matrix.

    Parameters
    ----------
    matrix
        ``matrix[t][j]`` is the accuracy on task j after learning task t, or None if no class of task j had been seen.
    disjoint
        Whether each class arrives in one task only. If not, the anytime curve includes every task of which a class was
        seen. Forgetting, learning accuracy and backward transfer are then None, because they need the time at which a
        task was learnt.

    Returns
    -------
    Metrics
        Fractions. With a single task, forgetting and backward transfer are None, not zero.

    Raises
    ------
    UsageError
        The matrix is not square, or has gaps.

    >>> m = metrics([[0.9, 0.0], [0.6, 0.8]])
    >>> round(m.accuracy, 3), round(m.forgetting, 3), round(m.backward_transfer, 3), round(m.learning_accuracy, 3)
    (0.7, 0.3, -0.3, 0.85)
    >>> m.anytime, m.worst_case
    ((0.9, 0.7), 0.6)
    """
    tasks = len(matrix)
    if tasks == 0 or any(len(row) != tasks for row in matrix):
        raise UsageError("an accuracy matrix must be square: one row and one column per task")
    rows = [[value for value in row if value is not None] for row in matrix]
    if not all(rows) or any(len(row) != tasks for row in (rows if disjoint else rows[-1:])):
        raise UsageError(
            "an accuracy matrix has gaps; only what is not seen yet in a stream of shared classes may be None"
        )
    final = rows[-1]
    curve = anytime(matrix, disjoint)
    forgetting = learning = transfer = None
    if disjoint:
        learning = mean([rows[j][j] for j in range(tasks)])
    if disjoint and tasks > 1:
        earlier = range(tasks - 1)
        forgetting = mean([max(rows[t][j] for t in range(j, tasks - 1)) - final[j] for j in earlier])
        transfer = mean([final[j] - rows[j][j] for j in earlier])
    return Metrics(
        accuracy=mean(final),
        forgetting=forgetting,
        anytime=curve,
        average_anytime=mean(curve),
        learning_accuracy=learning,
        backward_transfer=transfer,
        worst_case=min(final),
    )


def mean(values: Row) -> float:
    """The mean of the values that are not None."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers)
