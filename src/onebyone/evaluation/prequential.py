"""Prequential evaluation: every sample is first predicted and then learnt."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from onebyone.data import Dataset
from onebyone.errors import UsageError
from onebyone.streams import Stream


class Classifier(Protocol):
    """What can be evaluated: any classifier with scikit-learn's ``partial_fit`` and ``predict``."""

    def partial_fit(self, X: Any, y: Any) -> Any: ...

    def predict(self, X: Any) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Prequential:
    """The accuracy on a stream whose samples were predicted before they were learnt. Accuracies are fractions.

    ``recent`` and ``so_far`` are curves, with a value for each of ``seen``: ``plot(found.seen, found.recent)``.
    """

    samples: int  # samples of the stream
    accuracy: float  # accuracy of all samples
    class_accuracy: Mapping[Hashable, float]  # accuracy by label, in order of first arrival
    window: int  # samples that ``recent`` is over
    seen: tuple[int, ...]  # samples so far, after each chunk
    recent: tuple[float, ...]  # accuracy of the last ``window`` samples (of all, while there are fewer)
    so_far: tuple[float, ...]  # accuracy of all samples so far
    seconds: Mapping[str, float] = field(compare=False)  # seconds of predicting and of learning


def evaluate_stream(
    clf: Classifier,
    stream: Iterable[tuple[Any, Any]] | Stream,
    data: Dataset | None = None,
    *,
    window: int = 500,
    classes: Sequence[Any] | None = None,
) -> Prequential:
    """Evaluate a classifier on a stream: predict each chunk, then learn it.

    Parameters
    ----------
    clf
        A classifier with ``partial_fit`` and ``predict``. If it has learnt nothing, the first chunk counts as wrong.
    stream, data
        An iterable of chunks ``(X, y)``, or a :class:`Stream` and the data set whose training samples it orders.
    window
        Number of samples over which ``recent`` is computed.
    classes
        All classes, passed to the first ``partial_fit``. The classifiers of scikit-learn need them in advance.

    Returns
    -------
    Prequential
        Accuracy over the whole stream, per class, and as curves.

    Raises
    ------
    UsageError
        The stream is empty, or samples and labels of a chunk do not match.

    >>> from sklearn.linear_model import SGDClassifier
    >>> from onebyone import blurry, load
    >>> digits = load("digits")
    >>> x, y = digits.train_x.flatten(1), digits.train_y
    >>> chunks = ((x[index].numpy(), y[index].numpy()) for index in blurry(y, digits.num_classes, share=0.3))
    >>> found = evaluate_stream(SGDClassifier(random_state=0), chunks, classes=range(10))
    >>> found.samples, len(found.recent) == len(found.seen), 0.5 < found.accuracy < 1
    (1438, True, True)
    """
    if window < 1:
        raise UsageError(f"window is {window}; it must be at least 1")
    seconds = {"predicting": 0.0, "learning": 0.0}
    labels, right, seen = list[Hashable](), list[bool](), list[int]()
    knows = hasattr(clf, "classes_")  # what scikit-learn's classifiers have once they learnt something
    first = {} if classes is None else {"classes": np.asarray(classes)}
    for X, y in _chunks(stream, data):
        _check_chunk(X, y)
        truth = np.asarray(y).tolist()
        with _timed(seconds, "predicting"):
            answers = np.asarray(clf.predict(X)).tolist() if knows else [None] * len(truth)
        with _timed(seconds, "learning"):
            clf.partial_fit(X, y, **first)
        knows, first = True, {}
        labels += truth
        right += [answer == label for answer, label in zip(answers, truth, strict=True)]
        seen.append(len(right))
    if not seen:
        raise UsageError("the stream is empty; give at least one chunk (an iterator can be used only once)")
    return _summary(labels, right, seen, window, seconds)


@contextmanager
def _timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    """Add the time that a block takes."""
    started = time.perf_counter()
    yield
    seconds[what] += time.perf_counter() - started


def _summary(
    labels: list[Hashable], right: list[bool], seen: list[int], window: int, seconds: Mapping[str, float]
) -> Prequential:
    """The accuracies of a stream from every label, whether its answer was right, and where chunks end."""
    total, ends = np.cumsum([0, *right]), np.array(seen)
    begins = np.maximum(ends - window, 0)
    return Prequential(
        samples=len(right),
        accuracy=float(total[-1] / len(right)),
        class_accuracy=_by_class(labels, right),
        window=window,
        seen=tuple(seen),
        recent=tuple(((total[ends] - total[begins]) / (ends - begins)).tolist()),
        so_far=tuple((total[ends] / ends).tolist()),
        seconds=seconds,
    )


def _chunks(stream: Iterable[tuple[Any, Any]] | Stream, data: Dataset | None) -> Iterator[tuple[Any, Any]]:
    if isinstance(stream, Stream) != (data is not None):
        raise UsageError("a Stream needs the Dataset whose samples it orders, and chunks of (X, y) need none")
    if isinstance(stream, Stream) and data is not None:
        return ((data.train_x[index].cpu().numpy(), data.train_y[index].cpu().numpy()) for index in stream)
    return iter(stream)  # type: ignore[arg-type]  # checked above


def _check_chunk(X: Any, y: Any) -> None:
    if np.ndim(y) != 1 or len(y) == 0 or len(X) != len(y):
        shapes = f"samples of shape {np.shape(X)} and labels of shape {np.shape(y)}"
        raise UsageError(f"a chunk has {shapes}; give at least one sample, and one label for each")


def _by_class(labels: list[Hashable], right: list[bool]) -> dict[Hashable, float]:
    answers: dict[Hashable, list[bool]] = {}
    for label, was_right in zip(labels, right, strict=True):
        answers.setdefault(label, []).append(was_right)
    return {label: sum(these) / len(these) for label, these in answers.items()}
