"""An adapter for River: any classifier with ``partial_fit`` gets ``learn_one`` and ``predict_one``.

River is optional. If it is installed, the adapter is a subclass of ``river.base.Classifier`` and works with River's
pipelines, metrics and ``evaluate.progressive_val_score``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from onebyone.errors import UsageError

if TYPE_CHECKING:
    Base = object
else:
    try:
        from river.base import Classifier as Base
    except ImportError:
        Base = object

Sample = Mapping[Any, float] | np.ndarray[Any, Any]


class RiverClassifier(Base):
    """River's interface for a classifier with ``partial_fit``, ``predict`` and ``predict_proba``.

    A sample is a dictionary from feature names to numbers, in any order, or an array, for example an image. All
    samples must have the feature names of the first one.

    Parameters
    ----------
    classifier
        The classifier to use. It is not changed: a copy of it, ``model``, is trained. So River's ``clone`` returns an
        untrained classifier.
    classes
        All classes, for classifiers of scikit-learn, which need them in the first call.
    unknown
        The label that ``predict_one`` returns for a sample that is unlike anything learnt. This needs a classifier that
        detects such samples (``OnlineClassifier``). If None, the prediction is always one of the classes.

    >>> from sklearn.linear_model import SGDClassifier
    >>> model = RiverClassifier(SGDClassifier(loss="log_loss", random_state=0), classes=["cold", "warm"])
    >>> model.predict_one({"degrees": 20, "wind": 1})  # None before the first learn_one
    >>> for degrees in range(10):
    ...     model.learn_one({"degrees": degrees, "wind": 1}, "cold")
    ...     model.learn_one({"wind": 1, "degrees": degrees + 15}, "warm")
    >>> model.predict_one({"degrees": 20, "wind": 1})
    'warm'
    >>> sorted(model.predict_proba_one({"degrees": 2, "wind": 1}))
    ['cold', 'warm']
    """

    def __init__(
        self, classifier: Any, classes: Sequence[Hashable] | None = None, unknown: Hashable | None = None
    ) -> None:
        self.classifier = classifier
        self.classes = classes
        self.unknown = unknown
        self.model: Any = deepcopy(classifier)
        self.names: tuple[Any, ...] | None = None  # of the features, from the first sample learnt
        self.fitted = hasattr(classifier, "classes_")  # an attribute of fitted classifiers in scikit-learn

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Sample, y: Hashable, w: float = 1.0) -> None:
        """Learn from one sample.

        Parameters
        ----------
        x
            The sample.
        y
            Its label. None is refused: it means that a sample has no label.
        w
            Its weight. A sample of weight 0 is ignored.

        Raises
        ------
        UsageError
            The sample has other features than the first one, or no label.
        """
        row = self._row(x)
        if y is None:  # which predict_one returns for "no answer", and streams of River for "no label"
            raise UsageError("y is None, so the sample has no label; leave it out, or give its class another name")
        if w == 0:
            return
        more: dict[str, Any] = {} if w == 1 else {"sample_weight": np.array([w])}
        if not self.fitted and self.classes is not None:
            more["classes"] = _array(self.classes)
        self.model.partial_fit(row, _array([y]), **more)
        if isinstance(x, Mapping):
            self.names = self.names or tuple(x)
        self.fitted = True

    def predict_one(self, x: Sample, **_: Any) -> Hashable:
        """Predict the label of a sample.

        Parameters
        ----------
        x
            The sample.

        Returns
        -------
        Hashable
            The label; None before the first ``learn_one``.

        Raises
        ------
        UsageError
            The sample has other features than the first one.
        """
        if not self.fitted:
            return None
        more = {} if self.unknown is None else {"unknown": self.unknown}
        label: Hashable = np.asarray(self.model.predict(self._row(x), **more)).tolist()[0]
        return label

    def predict_proba_one(self, x: Sample, **_: Any) -> dict[Hashable, float]:
        """Predict the probability of each class.

        Parameters
        ----------
        x
            The sample.

        Returns
        -------
        dict of Hashable to float
            The probability of each known class; empty before the first ``learn_one``.

        Raises
        ------
        UsageError
            The sample has other features than the first one.
        """
        if not self.fitted:
            return {}
        (probabilities,) = np.asarray(self.model.predict_proba(self._row(x))).tolist()
        return dict(zip(np.asarray(self.model.classes_).tolist(), probabilities, strict=True))

    def _row(self, x: Sample) -> np.ndarray[Any, Any]:
        """A batch of this one sample, with its features in the order of the first sample."""
        if not isinstance(x, Mapping):
            return np.asarray(x)[None]
        names = self.names or tuple(x)
        if x.keys() != set(names):
            raise UsageError(
                f"a sample has features {sorted(x, key=str)}; expected those of the first sample, "
                f"{sorted(names, key=str)}; add missing features, for example as 0, and remove the others"
            )
        try:
            return np.array([[x[name] for name in names]], dtype=np.float64)
        except (TypeError, ValueError):
            text = next((f"the feature {name!r} is {x[name]!r}" for name in names if not _is_number(x[name])), str(x))
            raise UsageError(
                f"{text}; expected a number: encode it first, for example by preprocessing.OneHotEncoder of River"
            ) from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _array(labels: Sequence[Hashable]) -> np.ndarray[Any, Any]:
    """[n] the labels, also if they are tuples, which NumPy would make a second axis of."""
    labels = list(labels)
    if not any(isinstance(label, tuple) for label in labels):
        return np.asarray(labels)
    array = np.empty(len(labels), dtype=object)
    for position, label in enumerate(labels):
        array[position] = label
    return array
