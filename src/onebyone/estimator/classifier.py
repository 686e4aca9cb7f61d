"""OnlineClassifier: the learners of this library as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from onebyone.engine import reproducible
from onebyone.errors import UsageError
from onebyone.estimator import persistence
from onebyone.estimator.calls import learning, prepare, train
from onebyone.estimator.inputs import read_samples
from onebyone.estimator.labels import Label, as_labels, check_comparable
from onebyone.estimator.locking import synchronized
from onebyone.estimator.stateful import StatefulClassifier
from onebyone.methods import AUTO
from onebyone.seeding import generator

Array = npt.NDArray[Any]


class OnlineClassifier(StatefulClassifier):
    """Learns a stream, a few samples at a time, and classes nobody announced.

    Samples are vectors [n, features], gray images [n, height, width], or images with channels, as arrays or tensors;
    images may also be lists of PIL images or of paths, or a single one of these. The first call fixes what a sample is:
    vectors of so many features, or images of one size, gray or colour. Later images of another size are resized, and
    converted between gray and colour. PIL images and files are made upright (EXIF), have at most 256 pixels on the
    shorter side, and are gray if all of the first call are; transparent pixels become white.

    Bytes (uint8) are kept as bytes and scaled, other numbers are used as
    float32 (vectors are standardised by their mean and spread so far, unless another encoder is given), which is why
    timestamps want an offset subtracted. Labels are of any hashable type, all of one. ``classes_`` is what is known so
    far, sorted where labels can be.

    A call that raises an error changes nothing, in memory or on disk: it can be repeated. Input that is refused raises
    a ValueError; only samples that are sparse, or no numbers at all, raise a TypeError, as everywhere in scikit-learn.

    Threads may share a classifier: one call runs at a time. Where answers must not wait for long, learn a few samples
    per call.

    >>> import numpy as np
    >>> from onebyone import load
    >>> digits = load("digits")
    >>> names = np.array("zero one two three four five six seven eight nine".split())
    >>> clf = OnlineClassifier(memory=200)
    >>> for label in range(10):  # one class after the other
    ...     x = digits.train_x[digits.train_y == label]
    ...     clf = clf.partial_fit(x, [str(names[label])] * len(x))
    >>> clf.score(digits.test_x, names[digits.test_y]) > 0.8
    True

    Parameters
    ----------
    method
        Name of a method, as ``onebyone.methods()`` lists them. ``"auto"`` chooses one when learning begins, and
        ``method_`` says which: statistics (``patch-lda``) if they fit into the memory, of which they use up to 8 MB; a
        network (``replay``) if they do not, or if an encoder is given or frozen.
    memory
        Samples it may keep, or a size such as ``"3MB"`` (samples, labels and all that is kept with them, counted when
        learning begins). A method that keeps statistics instead takes at most the bytes of so many samples.
    encoder
        ``"auto"`` (by what the samples are), a name of ``onebyone.nets.encoders()``, any module that turns samples into
        features, or ``"timm:NAME"`` for a pretrained model of timm. ``"resnet18"`` is this library's small network,
        ``"timm:resnet18"`` the pretrained one.
    freeze_encoder
        Whether the weights of the encoder stay as they are.
    options
        Further options of the method, as a dictionary.
    batch_size
        A call with more samples is learnt in steps of so many, in order of arrival.
    epochs
        Passes over the samples in ``fit``, in random order; one where there is no network to train, since statistics
        count a sample as often as they see it. ``partial_fit`` learns them once, as they come.
        For methods with tasks (``icarl``), all classes of a ``fit`` are one task; in ``partial_fit`` a new class begins
        the next task.
    augment
        Of images: ``"none"``, ``"crop"``, ``"crop+flip"`` (where a mirrored image is of the same class, as of most
        photographs: worth saying), or ``"auto"``: crop, unless they are small.
    channels
        ``"first"`` or ``"last"``, where the shape of the images does not say (one axis of at most 4).
    random_state
        Seed of the first weights and of all that is drawn; None for another one each time.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:N"``.
    autosave
        A folder. What is learnt is saved there while learning goes on, and ``OnlineClassifier.load(folder)`` goes on
        from there. A call is saved as a whole. It is saved when ``every`` samples are not saved yet, at most 5 seconds
        after it returned, when the classifier is closed (``close``, or the end of a ``with`` block) or collected, and
        when the program ends. So a killed process loses less than ``every`` samples and the calls of 5 seconds.
        A folder has one writer: others may load it, and learn once the first is closed. Copies, pickles, clones and
        forked processes do not save there. They learn once they are given another folder, or None.
    every
        The number of unsaved samples that a call saves at once. With 1, a call that has returned is on disk.
    """

    def __init__(
        self,
        method: str = AUTO,
        *,
        memory: int | str = 2000,
        encoder: str | nn.Module = "auto",
        freeze_encoder: bool = False,
        options: Mapping[str, Any] | None = None,
        batch_size: int = 10,
        epochs: int = 3,
        augment: str = "auto",
        channels: str = "auto",
        random_state: Any = 0,
        device: str = "auto",
        autosave: str | Path | None = None,
        every: int = 1000,
    ) -> None:
        self.method = method
        self.memory = memory
        self.encoder = encoder
        self.freeze_encoder = freeze_encoder
        self.options = options
        self.batch_size = batch_size
        self.epochs = epochs
        self.augment = augment
        self.channels = channels
        self.random_state = random_state
        self.device = device
        self.autosave = autosave
        self.every = every

    # Learning

    @synchronized
    def partial_fit(self, X: Any, y: Any = None, classes: Iterable[Label] | None = None) -> Self:
        """Learn these samples, once and in this order, on top of all before; ``classes`` announces some to come."""
        with learning():
            state, x, slots = prepare(self, self._state, X, y, classes)
            with self._all_or_nothing(state):
                train(state.learner, x, slots, torch.arange(len(slots)), int(self.batch_size), in_sequence=True)
                self._accept(state, len(slots))
        return self

    @synchronized
    def fit(self, X: Any, y: Any = None) -> Self:
        """Forget everything, then learn these samples in random order, a network ``epochs`` times."""
        with learning():
            state, x, slots = prepare(self, None, X, y)
            with self._all_or_nothing(state):
                order = generator(state.learner.seed, "fit")
                for epoch in range(self.epochs):
                    shuffled = torch.randperm(len(slots), generator=order)
                    train(state.learner, x, slots, shuffled, int(self.batch_size), again=epoch > 0)
                self._accept(state, len(slots))
        return self

    # Answering

    @synchronized
    def predict(self, X: Any) -> Array:
        """The most likely class of each sample."""
        best = self._scores(X).argmax(1).numpy()
        answer: Array = self.classes_[best]
        return answer

    @synchronized
    def predict_proba(self, X: Any) -> Array:
        """[n, classes] probabilities, the softmax of the scores, in the order of ``classes_``."""
        return self._scores(X).softmax(1).numpy()

    @synchronized
    def decision_function(self, X: Any) -> Array:
        """[n, classes] the learner's scores; with two classes [n], the second's minus the first's.

        A class that was announced and never seen has minus infinity.
        """
        scores = self._scores(X).numpy()
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of samples it gets right."""
        labels, answers = as_labels(y), self.predict(X).tolist()
        check_comparable(labels, answers)
        if len(labels) != len(answers):
            raise UsageError(f"X has {len(answers)} samples and y has {len(labels)} labels; give one label a sample")
        right = [answer == label for answer, label in zip(answers, labels, strict=True)]
        return float(np.average(right, weights=sample_weight))

    def _scores(self, X: Any) -> Tensor:
        """[n, classes] in the order of ``classes_``, on the CPU."""
        state = self._fitted()
        learner, samples = state.learner, read_samples(X, state.layout, self.channels, self)
        with reproducible():
            parts = [learner.scores(part.to(learner.device)).cpu() for part in samples.chunks()]
        scores = torch.cat(parts)[:, state.columns]
        if scores.isnan().any():
            persistence.check_finite(persistence.contents(state))
            raise UsageError("X has values too large for what was learnt, and no scores; scale or remove them")
        return scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
