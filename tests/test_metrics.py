from typing import Any

import pytest
import torch

from onebyone import UsageError, create
from onebyone.data import Dataset
from onebyone.evaluation import Metrics, metrics, right_answers
from onebyone.evaluation.metrics import Matrix, accuracy_matrix, anytime

# All computed by hand, from the definitions.
BY_HAND: dict[str, tuple[Matrix, bool, dict[str, Any]]] = {
    "three tasks, forgotten one by one": (
        ((0.9, 0.0, 0.0), (0.5, 0.8, 0.0), (0.3, 0.6, 0.75)),
        True,
        {
            "accuracy": 1.65 / 3,
            "forgetting": (0.6 + 0.2) / 2,
            "anytime": (0.9, 0.65, 0.55),
            "average_anytime": 2.1 / 3,
            "learning_accuracy": 2.45 / 3,
            "backward_transfer": (-0.6 - 0.2) / 2,
            "worst_case": 0.3,
        },
    ),
    "best some time after it was learnt": (  # so forgetting is more than minus the backward transfer
        ((0.5, 0.0, 0.0), (0.9, 0.4, 0.0), (0.6, 0.4, 1.0)),
        True,
        {
            "accuracy": 2.0 / 3,
            "forgetting": (0.3 + 0.0) / 2,
            "anytime": (0.5, 0.65, 2.0 / 3),
            "average_anytime": (0.5 + 0.65 + 2.0 / 3) / 3,
            "learning_accuracy": 1.9 / 3,
            "backward_transfer": (0.1 + 0.0) / 2,
            "worst_case": 0.4,
        },
    ),
    "better at the end than ever before": (  # negative forgetting
        ((0.5, 0.0), (0.75, 1.0)),
        True,
        {
            "accuracy": 0.875,
            "forgetting": -0.25,
            "anytime": (0.5, 0.875),
            "average_anytime": 0.6875,
            "learning_accuracy": 0.75,
            "backward_transfer": 0.25,
            "worst_case": 0.5 + 0.25,
        },
    ),
    "the last task is left out of forgetting": (
        ((1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (1.0, 1.0, 0.0)),
        True,
        {
            "accuracy": 2 / 3,
            "forgetting": 0.0,
            "anytime": (1.0, 1.0, 2 / 3),
            "average_anytime": 8 / 9,
            "learning_accuracy": 2 / 3,
            "backward_transfer": 0.0,
            "worst_case": 0.0,
        },
    ),
    "a task never learnt": (
        ((1.0, 0.0, 0.0), (0.5, 0.0, 0.0), (0.25, 0.0, 0.5)),
        True,
        {
            "accuracy": 0.25,
            "forgetting": (0.75 + 0.0) / 2,
            "anytime": (1.0, 0.25, 0.25),
            "average_anytime": 0.5,
            "learning_accuracy": 0.5,
            "backward_transfer": (-0.75 + 0.0) / 2,
            "worst_case": 0.0,
        },
    ),
    "a task answered by luck before it was met": (  # which is neither learnt nor forgotten
        ((1.0, 0.9, 0.0), (1.0, 0.5, 0.0), (1.0, 0.5, 0.75)),
        True,
        {
            "accuracy": 0.75,
            "forgetting": 0.0,
            "anytime": (1.0, 0.75, 0.75),
            "average_anytime": 2.5 / 3,
            "learning_accuracy": 0.75,
            "backward_transfer": 0.0,
            "worst_case": 0.5,
        },
    ),
    "one task": (
        ((0.7,),),
        True,
        {
            "accuracy": 0.7,
            "forgetting": None,
            "anytime": (0.7,),
            "average_anytime": 0.7,
            "learning_accuracy": 0.7,
            "backward_transfer": None,
            "worst_case": 0.7,
        },
    ),
    "all classes from the beginning": (
        ((0.25, 0.5), (0.75, 0.25)),
        False,
        {
            "accuracy": 0.5,
            "forgetting": None,
            "anytime": (0.375, 0.5),
            "average_anytime": 0.4375,
            "learning_accuracy": None,
            "backward_transfer": None,
            "worst_case": 0.25,
        },
    ),
    "classes shared between tasks, not all met at once": (  # what was not seen is left out, not zero
        ((0.5, None, None), (0.25, 0.75, None), (0.75, 0.5, 0.25)),
        False,
        {
            "accuracy": 0.5,
            "forgetting": None,
            "anytime": (0.5, 0.5, 0.5),
            "average_anytime": 0.5,
            "learning_accuracy": None,
            "backward_transfer": None,
            "worst_case": 0.25,
        },
    ),
}


@pytest.mark.parametrize(("matrix", "disjoint", "expected"), BY_HAND.values(), ids=BY_HAND)
def test_metrics_equal_those_computed_by_hand(matrix: Matrix, disjoint: bool, expected: dict[str, Any]) -> None:
    found = vars(metrics(matrix, disjoint))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == (None if value is None else pytest.approx(value, abs=1e-12)), name


@pytest.mark.parametrize("matrix", [(), ((),), ((1.0, 0.0),), ((1.0,), (1.0,)), ((1.0, 0.0), (1.0,))])
def test_only_a_square_matrix_has_metrics(matrix: Matrix) -> None:
    with pytest.raises(UsageError, match="square"):
        metrics(matrix)


@pytest.mark.parametrize(
    ("matrix", "disjoint"),
    [
        (((0.5, None), (0.5, 0.5)), True),  # where every class has its task, tasks to come are 0
        (((0.5, 0.5), (0.5, None)), False),
        (((None, None), (0.5, 0.5)), False),
    ],
)
def test_missing_entries_are_refused(matrix: Matrix, disjoint: bool) -> None:
    with pytest.raises(UsageError, match="gaps"):
        metrics(matrix, disjoint)


def test_an_entry_is_over_the_classes_seen() -> None:
    """Tasks (0, 1) and (2, 3); class 3 comes first, class 0 last; class 2 has no test samples."""
    right, total = [[0, 0, 0, 6], [2, 5, 0, 3], [4, 10, 0, 0]], [4, 10, 0, 8]
    matrix = accuracy_matrix(right, total, [(0, 1), (2, 3)], first={0: 2, 1: 1, 2: 0, 3: 0})
    assert matrix == ((None, 6 / 8), (5 / 10, 3 / 8), (14 / 14, 0.0))
    assert accuracy_matrix([[3]], [4], [(0,)], first={0: 0}) == ((0.75,),)
    assert accuracy_matrix([[0, 1], [1, 1]], [0, 2], [(0,), (1,)], first={0: 0, 1: 1}) == ((None, None), (None, 0.5))


def test_the_curve_can_be_drawn_before_the_end() -> None:
    rows = ((0.9, 0.0, 0.0), (0.5, 0.8, 0.0))
    assert anytime(rows) == pytest.approx((0.9, 0.65))
    assert anytime(rows, disjoint=False) == pytest.approx((0.3, 1.3 / 3))


def test_task_accuracy_is_over_samples_and_the_mean_is_over_tasks() -> None:
    """Tasks of two classes and of one, classes of 10, 90 and 5 test samples."""
    matrix = accuracy_matrix([[10, 45, 0], [0, 90, 5]], [10, 90, 5], [(0, 1), (2,)])
    assert matrix == ((0.55, 0.0), (0.9, 1.0))
    assert metrics(matrix).accuracy == pytest.approx(0.95)  # and not (90 + 5) / 105


def test_a_class_without_test_samples_leaves_its_task_to_the_others() -> None:
    assert accuracy_matrix([[3, 0]], [4, 0], [(0, 1)]) == ((0.75,),)


def test_the_columns_follow_the_order_in_which_classes_arrive() -> None:
    assert accuracy_matrix([[1, 2, 4]], [4, 4, 4], [(2,), (0,), (1,)]) == ((1.0, 0.25, 0.5),)


def test_metrics_are_frozen() -> None:
    with pytest.raises(AttributeError):
        metrics([[1.0]]).accuracy = 0.0  # type: ignore[misc]
    assert isinstance(metrics([[1.0]]), Metrics)


def test_right_answers_are_counted_per_class(few: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = create("finetune", few.spec)
    x, y = few.test_x[:8], torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
    assert right_answers(learner, x, y).tolist() == [0] * 10
    assert right_answers(learner, x[:0], y[:0]).tolist() == [0] * 10
    learner.counts[torch.tensor([0, 1])] = 5
    assert right_answers(learner, x[5:], y[5:]).tolist() == [0] * 10
    monkeypatch.setattr(learner, "predict", lambda x: torch.tensor([0, 1, 0, 1, 0, 0, 1, 0]))
    assert right_answers(learner, x, y).tolist() == [2, 1, *[0] * 8]
