"""Test, then train, against a loop over single samples."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import MultinomialNB

from onebyone import Dataset, UsageError, blurry, class_incremental, iid
from onebyone.evaluation import evaluate_stream


class Majority:
    """Predicts the most frequent label so far; refuses to predict before the first."""

    def __init__(self) -> None:
        self.counts: Counter[Any] = Counter()
        self.asked = 0

    def partial_fit(self, X: Any, y: Any) -> "Majority":
        self.counts.update(np.asarray(y).tolist())
        return self

    def predict(self, X: Any) -> list[Any]:
        assert self.counts, "asked before it knew anything"
        self.asked += len(X)
        return [self.counts.most_common(1)[0][0]] * len(X)


def by_hand(clf: Any, chunks: list[tuple[Any, Any]], window: int, **first: Any) -> dict[str, Any]:
    right: list[bool] = []
    labels: list[Any] = []
    seen, recent, so_far = [], [], []
    for number, (x, y) in enumerate(chunks):
        answers = list(clf.predict(x)) if number else [None] * len(y)
        for answer, label in zip(answers, list(y), strict=True):
            right.append(answer is not None and bool(answer == label))
            labels.append(label)
        clf.partial_fit(x, y, **(first if number == 0 else {}))
        last = right[-window:]
        seen.append(len(right))
        recent.append(sum(last) / len(last))
        so_far.append(sum(right) / len(right))
    each = {k: [r for r, other in zip(right, labels, strict=True) if other == k] for k in labels}
    return {
        "samples": len(right),
        "accuracy": sum(right) / len(right),
        "class_accuracy": {label: sum(these) / len(these) for label, these in each.items()},
        "window": window,
        "seen": tuple(seen),
        "recent": tuple(recent),
        "so_far": tuple(so_far),
    }


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    window=st.integers(1, 40),
    names=st.sampled_from([(0, 1, 2), ("a", "bb", "c")]),
    data=st.data(),
)
def test_equals_a_loop(sizes: list[int], window: int, names: tuple[Any, ...], data: st.DataObject) -> None:
    labels = data.draw(st.lists(st.sampled_from(names), min_size=sum(sizes), max_size=sum(sizes)))
    cuts = np.cumsum([0, *sizes])
    chunks = [(np.zeros((b - a, 2)), np.array(labels[a:b])) for a, b in pairwise(cuts)]
    clf = Majority()
    found = vars(evaluate_stream(clf, iter(chunks), window=window))
    seconds = found.pop("seconds")
    assert found == by_hand(Majority(), chunks, window)
    assert clf.asked == sum(sizes[1:])
    assert seconds.keys() == {"predicting", "learning"}


def vectors(digits: Dataset, stream: Any) -> Iterator[tuple[Any, Any]]:
    for index in stream:
        yield digits.train_x[index].flatten(1).numpy(), digits.train_y[index].numpy()


@pytest.mark.parametrize("batch_size", [1, 50])
def test_classes_are_passed_to_scikit_learn(digits: Dataset, batch_size: int) -> None:
    stream = blurry(digits.train_y, 10, share=0.2, batch_size=batch_size)
    found = vars(evaluate_stream(MultinomialNB(), vectors(digits, stream), classes=range(10)))
    del found["seconds"]
    assert found == by_hand(MultinomialNB(), list(vectors(digits, stream)), 500, classes=np.arange(10))
    assert found["accuracy"] > 0.5
    assert list(found["class_accuracy"]) == list(dict.fromkeys(digits.train_y[torch.cat(list(stream))].tolist()))


def test_a_data_set_in_the_order_of_a_stream(digits: Dataset) -> None:
    stream = class_incremental(digits.train_y, 10, batch_size=100)
    shapes = []

    class Shapes(Majority):
        def partial_fit(self, X: Any, y: Any) -> "Majority":
            shapes.append((type(X), X.shape[1:], X.dtype, y.dtype))
            return super().partial_fit(X, y)

    found = evaluate_stream(Shapes(), stream, digits)
    assert set(shapes) == {(np.ndarray, (1, 8, 8), np.dtype("uint8"), np.dtype("int64"))}
    assert found == evaluate_stream(Majority(), vectors(digits, stream))  # seconds are not compared
    assert found.seen[-1] == found.samples == 1438
    assert found.so_far[-1] == found.accuracy
    assert set(found.class_accuracy) == set(range(10))


def test_a_fitted_classifier_is_asked_from_the_first_chunk(digits: Dataset) -> None:
    x, y = digits.train_x.flatten(1).numpy() / 16.0, digits.train_y.numpy()
    clf = SGDClassifier(random_state=0).fit(x, y)
    found = evaluate_stream(clf, [(x[:100], y[:100])])
    assert found.accuracy > 0.9


def test_a_sorted_stream_is_easy_to_predict_and_a_shuffled_one_is_not(digits: Dataset) -> None:
    """So prequential accuracy has to be read together with the stream."""

    class Last(Majority):
        def predict(self, X: Any) -> list[Any]:
            return [self.last] * len(X)

        def partial_fit(self, X: Any, y: Any) -> "Majority":
            self.last = y[-1]
            return self

    found = [evaluate_stream(Last(), make(digits.train_y, 10), digits).accuracy for make in (class_incremental, iid)]
    assert found[0] > 0.9
    assert found[1] < 0.2


def test_the_result_is_frozen() -> None:
    found = evaluate_stream(Majority(), [([[0.0]], [1])], window=3)
    assert (found.samples, found.accuracy, found.class_accuracy, found.recent) == (1, 0.0, {1: 0.0}, (0.0,))
    with pytest.raises(FrozenInstanceError):
        found.accuracy = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("stream", "options", "sentence"),
    [
        ([], {}, "the stream is empty; give at least one chunk"),
        ([([], [])], {}, "a chunk has samples of shape (0,) and labels of shape (0,); give at least one sample"),
        ([([[1.0]], [1, 2])], {}, "a chunk has samples of shape (1, 1) and labels of shape (2,); give at least"),
        ([([1.0], 1)], {}, "a chunk has samples of shape (1,) and labels of shape ()"),
        ([([[1.0]], [1])], {"window": 0}, "window is 0; it must be at least 1"),
        (class_incremental(torch.tensor([0]), 1), {}, "a Stream needs the Dataset whose samples it orders"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(stream: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        evaluate_stream(Majority(), stream, **options)


def test_chunks_need_no_data_set(digits: Dataset) -> None:
    with pytest.raises(UsageError, match="chunks of"):
        evaluate_stream(Majority(), [([[1.0]], [1])], digits)
