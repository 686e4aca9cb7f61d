"""For users of River: a classifier that learns in parts, behind ``learn_one`` and ``predict_one``.

River need not be installed. Where it is, the adapter is one of its classifiers, so that its pipelines, metrics and
``evaluate.progressive_val_score`` take it.
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
    """Learns one sample at a time with anything that has ``partial_fit``, ``predict`` and ``predict_proba``.

    A sample is a dictionary of numbers by name, in any order, or an array, for example an image. The names of the
    first sample hold for all: a sample that lacks one or has another is refused. The classifier given is a pattern:
    a copy of it learns, ``model``, so that River's ``clone`` is one that has learnt nothing. ``classes`` is for
    scikit-learn's own classifiers, which have to be told all classes in advance.

    >>> from sklearn.linear_model import SGDClassifier
    >>> model = RiverClassifier(SGDClassifier(loss="log_loss", random_state=0), classes=["cold", "warm"])
    >>> model.predict_one({"degrees": 20, "wind": 1})  # it knows nothing yet
    >>> for degrees in range(10):
    ...     model.learn_one({"degrees": degrees, "wind": 1}, "cold")
    ...     model.learn_one({"wind": 1, "degrees": degrees + 15}, "warm")
    >>> model.predict_one({"degrees": 20, "wind": 1})
    'warm'
    >>> sorted(model.predict_proba_one({"degrees": 2, "wind": 1}))
    ['cold', 'warm']
    """

    def __init__(self, classifier: Any, classes: Sequence[Hashable] | None = None) -> None:
        self.classifier = classifier
        self.classes = classes
        self.model: Any = deepcopy(classifier)
        self.names: tuple[Any, ...] | None = None  # of the features, from the first sample learnt
        self.knows = hasattr(classifier, "classes_")  # what scikit-learn's classifiers have once they learnt something

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Sample, y: Hashable) -> None:
        """Learn from one sample."""
        row = self._row(x)
        first = {} if self.knows or self.classes is None else {"classes": np.asarray(self.classes)}
        self.model.partial_fit(row, np.asarray([y]), **first)
        if isinstance(x, Mapping):
            self.names = self.names or tuple(x)
        self.knows = True

    def predict_one(self, x: Sample, **_: Any) -> Hashable:
        """The label, or None while nothing was learnt."""
        return np.asarray(self.model.predict(self._row(x))).tolist()[0] if self.knows else None

    def predict_proba_one(self, x: Sample, **_: Any) -> dict[Hashable, float]:
        """The probability of each class known; none while nothing was learnt."""
        if not self.knows:
            return {}
        (chances,) = np.asarray(self.model.predict_proba(self._row(x))).tolist()
        return dict(zip(np.asarray(self.model.classes_).tolist(), chances, strict=True))

    def _row(self, x: Sample) -> np.ndarray[Any, Any]:
        """A batch of this one sample, its features in the order of the first."""
        if not isinstance(x, Mapping):
            return np.asarray(x)[None]
        names = self.names or tuple(x)
        if x.keys() != set(names):
            raise UsageError(
                f"a sample has features {sorted(x, key=str)}; expected those of the first, {sorted(names, key=str)}: "
                "add what is missing (0 for none) and leave out the rest"
            )
        return np.array([[x[name] for name in names]], dtype=np.float64)
