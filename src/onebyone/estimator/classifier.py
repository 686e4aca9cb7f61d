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
    """A classifier that learns from a stream, a few samples per call. New classes may appear at any time.

    Samples are vectors [n, features], gray images [n, height, width], or images with channels, as arrays or tensors.
    Images may also be a PIL image, a path of an image file, or a list of either. The first call fixes the number of
    features, or the size of images and whether they are gray or colour. Later images are resized and converted to that.
    PIL images and image files are rotated as their EXIF data says. Their shorter side is reduced to at most 256 pixels.
    They are used as gray images if all images of the first call are gray. Transparent pixels become white.

    Bytes (uint8) are stored as bytes and scaled to [-1, 1]. Other numbers are converted to float32, which has 7 digits:
    subtract an offset from large values such as timestamps. Vectors are standardised by the mean and standard deviation
    of the samples seen so far, unless an encoder is given. Labels can have any hashable type, but all must have the
    same type. ``classes_`` holds the classes known so far, sorted if they can be sorted.

    A call that raises an error changes nothing, in memory or on disk, and can be repeated. Invalid input raises a
    ValueError. Sparse samples, and samples that are not numbers, raise a TypeError, as in scikit-learn.

    Threads can share a classifier. One call runs at a time, so learn few samples per call if predictions must not wait.

    >>> import numpy as np
    >>> from onebyone import load
    >>> digits = load("digits")
    >>> names = np.array("zero one two three four five six seven eight nine".split())
    >>> clf = OnlineClassifier(memory=200)
    >>> for label in range(10):  # one class at a time
    ...     x = digits.train_x[digits.train_y == label]
    ...     clf = clf.partial_fit(x, [str(names[label])] * len(x))
    >>> clf.score(digits.test_x, names[digits.test_y]) > 0.8
    True

    Parameters
    ----------
    method
        Name of a method, one of ``onebyone.methods()``. ``"auto"`` chooses a method in the first call and stores its
        name in ``method_``. It chooses statistics (``patch-lda``, at most 8 MB) if they fit into ``memory``. It chooses
        a network (``replay``) if they do not, or if an encoder is given or frozen.
    memory
        Number of samples to store, or a size such as ``"3MB"``. A size includes labels and everything else stored with
        a sample, and is converted to a number of samples in the first call. Methods that store statistics use at most
        this size, or the bytes of this number of samples.
    encoder
        ``"auto"`` (chosen by the shape and type of the samples), one of ``onebyone.nets.encoders()``, a module that
        maps samples to features, or ``"timm:NAME"`` for a pretrained model of timm. ``"resnet18"`` is the small network
        of this library. ``"timm:resnet18"`` is the pretrained one.
    freeze_encoder
        Whether to keep the weights of the encoder fixed.
    options
        Other options of the method, as a dictionary.
    batch_size
        Samples per step. ``partial_fit`` splits its samples into steps of this size, in the given order.
    epochs
        Passes of ``fit`` over the samples, each in another random order. Statistics use each sample in the first pass
        only. ``partial_fit`` always makes one pass, in the given order.
        For methods with tasks (``icarl``), all classes of ``fit`` are one task. A new class in ``partial_fit`` starts a
        new task.
    augment
        Augmentation of images: ``"none"``, ``"crop"``, ``"crop+flip"`` or ``"auto"``, which crops images of at least 24
        pixels. Use ``"crop+flip"`` if a mirrored image belongs to the same class, as for most photographs.
    channels
        Position of the channel axis of images: ``"first"``, ``"last"``, or ``"auto"``, which takes the axis of size at
        most 4 and raises an error if there is not exactly one.
    random_state
        Seed of the initial weights and of all random draws, as in scikit-learn. None gives different results each time.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``. ``"auto"`` uses a GPU if there is one.
    autosave
        Folder to save to while learning, or None. ``OnlineClassifier.load(folder)`` continues from there. The file
        always holds complete calls. It is written when ``every`` samples are unsaved, at most 5 seconds after a call
        returned, when the classifier is closed (``close``, or the end of a ``with`` block) or garbage collected, and
        when the program exits. A killed process loses fewer than ``every`` samples, from the last 5 seconds.
        A folder has one writer. Other classifiers can load it, and can learn after the first one is closed. Copies,
        pickles, clones and forked processes do not save to the folder of the original. To learn, they need another
        folder, or None.
    every
        Number of unsaved samples from which a call saves before it returns. With 1, each call saves before it returns.
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
        """Learn from more samples, in one pass and in the given order.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.
        y
            Labels [n], one per sample. They may be of new classes.
        classes
            Classes to add to ``classes_`` before their first sample. Their probability is 0 until then.

        Returns
        -------
        The classifier itself.

        Raises
        ------
        UsageError
            If a parameter, ``X``, ``y`` or ``classes`` is invalid, if training diverged, or if ``autosave`` failed. It
            is a ValueError. Nothing is learnt, and the call can be repeated.
        """
        with learning():
            state, x, slots = prepare(self, self._state, X, y, classes)
            with self._all_or_nothing(state):
                train(state.learner, x, slots, torch.arange(len(slots)), int(self.batch_size), in_sequence=True)
                self._accept(state, len(slots))
        return self

    @synchronized
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from scratch, in ``epochs`` passes over the samples in random order.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.
        y
            Labels [n], one per sample.

        Returns
        -------
        The classifier itself.

        Raises
        ------
        UsageError
            As for ``partial_fit``. The classifier keeps the state that it had before the call.
        """
        with learning():
            state, x, slots = prepare(self, None, X, y)
            with self._all_or_nothing(state):
                order = generator(state.learner.seed, "fit")
                for epoch in range(self.epochs):
                    shuffled = torch.randperm(len(slots), generator=order)
                    train(state.learner, x, slots, shuffled, int(self.batch_size), again=epoch > 0)
                self._accept(state, len(slots))
        return self

    # Prediction

    @synchronized
    def predict(self, X: Any) -> Array:
        """Predict the class of each sample.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.

        Returns
        -------
        Labels [n], of the type of ``classes_``.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` is invalid. It is a ValueError.
        """
        best = self._scores(X).argmax(1).numpy()
        predicted: Array = self.classes_[best]
        return predicted

    @synchronized
    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class: the softmax of the scores.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.

        Returns
        -------
        Probabilities [n, classes], in the order of ``classes_``.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` is invalid. It is a ValueError.
        """
        return self._scores(X).softmax(1).numpy()

    @synchronized
    def decision_function(self, X: Any) -> Array:
        """Compute the scores of each class.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.

        Returns
        -------
        Scores [n, classes], in the order of ``classes_``. With two classes [n]: the score of the second minus the score
        of the first. A class without samples, known from ``classes`` of ``partial_fit`` only, has minus infinity.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` is invalid. It is a ValueError.
        """
        scores = self._scores(X).numpy()
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the accuracy: the fraction of samples whose class is predicted correctly.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.
        y
            True labels [n]. They may be of classes that are not known.
        sample_weight
            Weights [n] of the samples.

        Returns
        -------
        The accuracy, from 0 to 1.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` or ``y`` is invalid. It is a ValueError.
        """
        labels, predicted = as_labels(y), self.predict(X).tolist()
        check_comparable(labels, predicted)
        if len(labels) != len(predicted):
            raise UsageError(
                f"X has {len(predicted)} samples and y has {len(labels)} labels; give one label per sample"
            )
        correct = [guess == label for guess, label in zip(predicted, labels, strict=True)]
        return float(np.average(correct, weights=sample_weight))

    def _scores(self, X: Any) -> Tensor:
        """[n, classes] in the order of ``classes_``, on the CPU."""
        state = self._fitted()
        learner, samples = state.learner, read_samples(X, state.layout, self.channels, self)
        with reproducible():
            parts = [learner.scores(part.to(learner.device)).cpu() for part in samples.chunks()]
        scores = torch.cat(parts)[:, state.columns]
        if scores.isnan().any():
            persistence.check_finite(persistence.contents(state))
            raise UsageError(
                "X has values so large that their scores are NaN; expected values as in training: scale or remove them"
            )
        return scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
