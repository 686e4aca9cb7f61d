"""An adapter for River: any classifier with ``partial_fit`` gets ``learn_one`` and ``predict_one``.

River is optional. If it is installed, the adapter is a subclass of ``river.base.MiniBatchClassifier`` and works with
River's pipelines, metrics and ``evaluate.progressive_val_score``.
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
        from river.base import MiniBatchClassifier as Base
    except ImportError:
        Base = object

Sample = Mapping[Any, float] | np.ndarray[Any, Any]
Array = np.ndarray[Any, Any]
ENCODE = (
    "encode it first, for example by preprocessing.OneHotEncoder of River, and give RiverClassifier features=N, "
    "the number of features to make room for"
)


class RiverClassifier(Base):
    """River's interface for a classifier with ``partial_fit``, ``predict`` and ``predict_proba``.

    A sample is a dictionary from feature names to numbers, in any order, or an array, for example an image. Many
    samples are a data frame or an array.

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
    features
        How many features to make room for, if samples are dictionaries or data frames and may have different features,
        as from ``OneHotEncoder``, ``BagOfWords`` or ``FeatureHasher`` of River. A feature that a sample does not have
        counts as 0, and so does a new feature until a sample with it is learnt. If None, all samples must have the
        features of the first one.

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
        self,
        classifier: Any,
        classes: Sequence[Hashable] | None = None,
        unknown: Hashable | None = None,
        features: int | None = None,
    ) -> None:
        if features is not None and (not isinstance(features, int) or features < 1):
            raise UsageError(f"features is {features!r}; give the number of features to make room for, or None")
        self.classifier = classifier
        self.classes = classes
        self.unknown = unknown
        self.features = features
        self.model: Any = deepcopy(classifier)
        self.columns: dict[Any, int] = {}  # of the features, by name, from the samples learnt
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
        if y is None:  # which predict_one returns for "no answer", and streams of River for "no label"
            raise UsageError("y is None, so the sample has no label; leave it out, or give its class another name")
        self._learn(*self._one(x, learning=True), [y], np.array([w]))

    def learn_many(self, X: Any, y: Any, w: Any = None) -> None:
        """Learn from many samples, in their order.

        Parameters
        ----------
        X
            The samples: a data frame, or an array [n, ...].
        y
            Their labels [n].
        w
            Their weights [n]. None: all are 1.

        Raises
        ------
        UsageError
            The samples have other features than the first one, or a sample has no label. Nothing is learnt.
        """
        labels = y.tolist() if hasattr(y, "tolist") else list(y)
        for row, label in enumerate(labels):
            if label is None or label != label:  # NaN
                raise UsageError(f"y is {label} in row {row}, so the sample has no label; leave it out")
        self._learn(*self._many(X, learning=True), labels, np.ones(len(labels)) if w is None else np.asarray(w))

    def _learn(self, rows: Array, columns: dict[Any, int], labels: list[Hashable], weights: Array) -> None:
        if not weights.all():
            labels = [label for label, weight in zip(labels, weights, strict=True) if weight]
            rows, weights = rows[weights != 0], weights[weights != 0]
        if not labels:
            return
        more: dict[str, Any] = {} if (weights == 1).all() else {"sample_weight": weights}
        if not self.fitted and self.classes is not None:
            more["classes"] = _array(self.classes)
        self.model.partial_fit(rows, _array(labels), **more)
        self.columns = columns
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
        label: Hashable = self._labels(self._one(x)[0])[0]
        return label

    def predict_many(self, X: Any, **_: Any) -> Any:
        """Predict the labels of many samples.

        Parameters
        ----------
        X
            The samples: a data frame, or an array [n, ...].

        Returns
        -------
        pandas.Series
            The labels; None before the first sample was learnt.

        Raises
        ------
        UsageError
            The samples have other features than the first one.
        """
        import pandas as pd

        found = self._labels(self._many(X)[0]) if self.fitted else [None] * len(X)
        return pd.Series(found, getattr(X, "index", None), dtype=None if self.fitted else object)

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
        (probabilities,) = np.asarray(self.model.predict_proba(self._one(x)[0])).tolist()
        return dict(zip(np.asarray(self.model.classes_).tolist(), probabilities, strict=True))

    def predict_proba_many(self, X: Any, **_: Any) -> Any:
        """Predict the probability of each class for many samples.

        Parameters
        ----------
        X
            The samples: a data frame, or an array [n, ...].

        Returns
        -------
        pandas.DataFrame
            The probability of each known class, as columns; without columns before the first sample was learnt.

        Raises
        ------
        UsageError
            The samples have other features than the first one.
        """
        import pandas as pd

        index = getattr(X, "index", None)
        if not self.fitted:
            return pd.DataFrame(index=range(len(X)) if index is None else index)
        found = pd.DataFrame(np.asarray(self.model.predict_proba(self._many(X)[0])), index)
        found.columns = pd.Index(np.asarray(self.model.classes_).tolist(), tupleize_cols=False)
        return found

    def _labels(self, rows: Array) -> list[Hashable]:
        more = {} if self.unknown is None else {"unknown": self.unknown}
        found: list[Hashable] = np.asarray(self.model.predict(rows, **more)).tolist()
        return found

    def _one(self, x: Sample, *, learning: bool = False) -> tuple[Array, dict[Any, int]]:
        """A batch of this one sample, and the columns of features then."""
        if not isinstance(x, Mapping):
            return np.asarray(x)[None], self.columns
        columns = self._columns(list(x), learning)
        for name, value in x.items():
            if not _is_number(value):
                raise UsageError(f"the feature {name!r} is {value!r}; expected a number: {ENCODE}")
        row = np.zeros((1, self.features or len(columns)))
        for name, value in x.items():
            if name in columns:
                row[0, columns[name]] = value
        return row, columns

    def _many(self, X: Any, *, learning: bool = False) -> tuple[Array, dict[Any, int]]:
        """A batch of these samples, and the columns of features then."""
        if not hasattr(X, "columns"):
            return np.asarray(X), self.columns
        columns = self._columns(list(X.columns), learning)
        rows = np.zeros((len(X), self.features or len(columns)))
        for name in X.columns:
            if name in columns:
                try:
                    rows[:, columns[name]] = X[name]
                except (TypeError, ValueError) as error:
                    raise UsageError(
                        f"the feature {name!r} has values that are not numbers ({error}); {ENCODE}"
                    ) from None
        return rows, columns

    def _columns(self, names: list[Any], learning: bool) -> dict[Any, int]:
        """The column of each feature. Learning gives free columns to new features."""
        if self.features is None:
            columns = self.columns or {name: column for column, name in enumerate(names)}
            if columns.keys() != set(names):
                raise UsageError(
                    f"a sample has features {sorted(names, key=str)}; expected those of the first sample, "
                    f"{sorted(columns, key=str)}; give features=N to RiverClassifier if samples have different "
                    "features, of which there are at most N"
                )
            return columns
        if not learning:
            return self.columns
        new = [name for name in names if name not in self.columns]
        if len(self.columns) + len(new) > self.features:
            raise UsageError(
                f"there are {len(self.columns) + len(new)} features, and features={self.features} is the room for "
                "them; start again with more, or map them to fewer, for example by preprocessing.FeatureHasher of River"
            )
        return self.columns | {name: len(self.columns) + number for number, name in enumerate(new)}


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
