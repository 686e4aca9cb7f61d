"""Labels of a classifier: their types, as JSON, and in ``score``."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from classifiers import vectors
from onebyone import OnlineClassifier, UsageError
from onebyone.estimator.labels import as_labels, from_json, to_json


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["b", "a", "c"], "U"),
        ([5, -3, 2**40], "i"),
        ([True, False], "b"),
        ([2.0, 1.0, 0.0], "f"),
        ([("b", 1), ("a", 2)], "O"),
        ([("b", 1), (2, 2)], "O"),
        ([2**70, 1], "O"),
        (["a\0", "a"], "O"),
        ([frozenset("b"), frozenset("a"), frozenset("ab")], "O"),
    ],
)
def test_labels_of_any_type(labels: list[Any], kind: str) -> None:
    x = np.eye(len(labels) + 1)[: len(labels)] * 10
    clf = OnlineClassifier("ccp", memory=50, batch_size=1)
    for _ in range(40):
        clf.partial_fit(x, labels)
    assert clf.classes_.dtype.kind == kind
    try:
        expected = sorted(labels) if not isinstance(labels[0], frozenset) else labels
    except TypeError:
        expected = labels
    assert clf.classes_.tolist() == expected
    assert clf.predict(x).tolist() == labels
    assert clf.score(x, labels) == 1.0
    assert clf.score(x, labels, sample_weight=range(1, len(labels) + 1)) == 1.0


def test_labels_that_are_tensors() -> None:
    x, _ = vectors(3)
    clf = OnlineClassifier().partial_fit(x, [torch.tensor(2), torch.tensor(1), torch.tensor(2)])
    assert clf.classes_.tolist() == [1, 2]
    with pytest.raises(UsageError, match=r"a tensor of shape \(2,\); give one value per sample"):
        clf.partial_fit(x, list(torch.eye(2)[[0, 1, 1]]))


def test_labels_are_converted_to_python_values() -> None:
    assert as_labels(np.array([1, 2], dtype=np.int8)) == [1, 2]
    assert as_labels(np.array(["a", "b"], dtype=object)) == ["a", "b"]
    assert as_labels([np.int64(3), 4]) == [3, 4]
    assert as_labels(torch.tensor([3, 4])) == [3, 4]
    assert {type(label) for label in as_labels([np.str_("a")])} == {str}


@pytest.mark.parametrize("label", ["a", "", 3, -1.0, True, None, (), ("a", (1, (None, True)))], ids=repr)
def test_labels_survive_conversion_to_json(label: Any) -> None:
    found = from_json(to_json(label))
    assert found == label
    assert type(found) is type(label)


@pytest.mark.parametrize("found", [[1], {"tuple": 1}, {"list": []}, {"tuple": [[1]]}, {}], ids=repr)
def test_other_json_values_are_refused_as_labels(found: Any) -> None:
    with pytest.raises(UsageError, match="is not a label"):
        from_json(found)


@pytest.mark.parametrize(
    ("known", "given", "names"),
    [
        ([0, 1], ["0", "1"], "int, str"),
        (["0", "1"], [0, 1], "int, str"),
        ([0, 1], np.array(["0", "1"]), "int, str"),
        ([0, 1], [("0",), ("1",)], "int, tuple"),
    ],
)
def test_score_refuses_labels_of_a_type_that_is_never_predicted(known: Any, given: Any, names: str) -> None:
    clf = OnlineClassifier().partial_fit(np.eye(2), known)
    with pytest.raises(UsageError, match=rf"y has labels of different types \({names}\); give all of them one type"):
        clf.score(np.eye(2), given)
    with pytest.raises(UsageError, match=rf"y has labels of different types \({names}\)"):
        clf.partial_fit(np.eye(2), given)


@pytest.mark.parametrize(
    ("known", "given", "expected"),
    [
        ([0, 1], [0.0, 1.0], 1.0),
        ([0.0, 1.0], [0, 1], 1.0),
        ([0, 1], [False, True], 1.0),
        ([0, 1], torch.tensor([0, 7]), 0.5),
        (["a", "b"], ["never seen", "b"], 0.5),
        (["a", "b"], ["never seen", "nor this"], 0.0),
    ],
)
def test_score_accepts_other_number_types_and_unknown_labels(known: Any, given: Any, expected: float) -> None:
    assert OnlineClassifier().partial_fit(np.eye(2), known).score(np.eye(2), given) == expected


def test_numpy_values_in_tuples_are_plain_values(tmp_path: Path) -> None:
    clf = OnlineClassifier("er", memory=5).partial_fit(np.eye(2), [("a", np.int64(1)), ("a", (np.str_("b"), np.True_))])
    clf.save(tmp_path / "file")
    assert OnlineClassifier.load(tmp_path / "file").classes_.tolist() == [("a", 1), ("a", ("b", True))]
