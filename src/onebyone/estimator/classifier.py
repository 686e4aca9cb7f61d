"""OnlineClassifier: the learners of this library as a scikit-learn estimator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from onebyone.errors import UsageError
from onebyone.estimator import storage
from onebyone.estimator.inputs import Samples, check_settings, read_batches, read_pairs, read_samples, renamed_prior
from onebyone.estimator.known_files import Taught, pixel_keys
from onebyone.estimator.labels import Label, as_array, as_labels, check_comparable, plain
from onebyone.estimator.model import (
    State,
    check_finite,
    check_unchanged,
    learner_parameters,
    prepare,
    restored_on_error,
    train,
)
from onebyone.estimator.predictor import Predictor, export
from onebyone.estimator.report import Report, report
from onebyone.estimator.storage import Autosave, pack, unpack
from onebyone.files import given_path
from onebyone.methods import AUTO
from onebyone.methods.learner import NOT_MERGEABLE
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Adapted
from onebyone.seeding import generator
from onebyone.tensors import nbytes

Array = npt.NDArray[Any]
S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")
NOTHING_LEFT = "no other sample was learnt, so nothing would be left; create a new classifier instead"


@contextmanager
def learning() -> Iterator[None]:
    """Enable gradients, even inside ``torch.no_grad`` or ``torch.inference_mode``.

    A learner that is built in inference mode cannot be trained later.
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield


@dataclass(eq=False)
class Workings:
    """The lock of an object, its autosave folder, and values derived from its state. Copies have their own.

    Derived values are kept until the parameters or the state that they were derived from are replaced.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    autosave: Autosave | None = None
    valid: Mapping[str, Any] | None = None  # parameters that were checked
    suit: Mapping[str, Any] | None = None  # parameters of a state, which these suit
    predictor: Predictor | None = None


def workings_of(shared: Any) -> Workings:
    """The workings of an object that threads share. All threads get the same ones.

    They are created on first use, because the constructor of a scikit-learn estimator sets nothing but its parameters.
    ``dict.setdefault`` is atomic, so two threads cannot create two locks.
    """
    own = vars(shared)
    found: Workings = own["_workings"] if "_workings" in own else own.setdefault("_workings", Workings())
    return found


def synchronized(call: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorate a method so that no two synchronized methods of an object run at the same time in different threads.

    >>> class Counter:
    ...     count = 0
    ...     @synchronized
    ...     def add(self) -> None:
    ...         self.count += 1
    >>> counter = Counter()
    >>> counter.add()
    >>> counter.count
    1
    """

    @wraps(call)
    def locked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with workings_of(self).lock:
            return call(self, *args, **kwargs)

    return locked


class Answers(NamedTuple):
    """Predictions of samples, and how far they can be trusted."""

    labels: Array  # [n] the most probable class
    probabilities: Array  # [n, classes] in the order of ``classes_``
    typicality: Array  # [n] larger for samples that are more like something learnt
    unknown: Array  # [n] whether a sample is like nothing learnt, as ``predict(X, unknown=...)`` decides it


class OnlineClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier for streams: it learns a few samples per call, and new classes may appear at any time.

    Samples are vectors [n, features], gray images [n, height, width], or images with channels, as arrays or tensors. A
    PIL image, the path of an image file, or a list of either is also accepted. The first call fixes the number of
    features, or the size of images and whether they are gray or colour. Later images are resized and converted to
    match. PIL images and image files are rotated by their EXIF data, and their shorter side is reduced to at most 256
    pixels. They are gray if all images of the first call are gray. Transparent pixels become white.

    Bytes (uint8) are stored as bytes and scaled to [-1, 1]. Other numbers are converted to float32, which has 7
    significant digits, so subtract an offset from large values such as timestamps. Vectors are standardised, unless an
    encoder is given: by the samples seen so far. With methods that keep statistics, the units in which values are
    projected follow from the first 50 samples, and belong to the classifier from then on. Images of floating-point
    numbers are used unchanged, so they must have the same scale in all calls. A pretrained encoder by name expects
    values from 0 (black) to 1 (white).

    Labels can have any hashable type except bytes, but all must have the same type. ``classes_`` holds the classes
    known so far, sorted if they can be sorted.

    A call that raises an error changes nothing, in memory or on disk, and can be repeated. Invalid input raises a
    ValueError. Sparse samples, and samples that are not numbers, raise a TypeError, as in scikit-learn.

    With methods that keep statistics, an answer takes all samples into account. While samples come in calls of up to
    32, the settings may lag behind: the units of features, how much projections count, the ridge, the shrinkage of
    class means and the temperature. They are chosen again when the samples have grown by a fifth, for vectors when a
    class is new, and after a larger call, ``merge``, ``forget`` and a ``rename`` that unites classes. Asking, copying,
    saving and loading change no answer.

    Several threads can use the same classifier. Only one call runs at a time, so learn few samples per call if
    predictions must not wait long.

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
        name in ``method_``. With a pretrained encoder or a frozen module, it is ``lda``, which keeps statistics of the
        features (at most 32 MB). Without one, it is ``patch-lda``, which keeps statistics of fixed features (at most 8
        MB, or 64 MB for vectors), if they fit into ``memory``. Otherwise it is ``replay``, which trains a network.
    memory
        Number of samples to store, or a size such as ``"3MB"``. A size includes labels and everything else stored with
        a sample, and is converted to a number of samples in the first call. Methods that keep statistics use at most
        this size, or the bytes of this number of samples. With an encoder, these are the bytes of images in the size
        that it reads. The weights of an encoder are not counted. A saved file (``nbytes``) holds in addition about 2 KB
        of parameters, the names of classes and features, and keys of the files learnt by ``onebyone learn``.
    encoder
        A pretrained network, a network to train, or ``"auto"`` (chosen by the shape and type of the samples).
        Pretrained: ``"lite0"`` (EfficientNet-Lite0, for photographs; needs the extra ``photos``), ``"timm:NAME"`` (a
        model of timm), ``"onnx:FILE"``, or a module that maps samples to features, with ``onebyone.nets.Preprocess``
        before it if it needs images of one size. To train: one of ``onebyone.nets.encoders()``. ``"resnet18"`` is the
        small untrained network of this library, and ``"timm:resnet18"`` the pretrained model of timm. Images from files
        are read in the size that the encoder needs.
    freeze_encoder
        Whether to keep the weights of the encoder fixed. ``lda`` always does.
    options
        Other options of the method, as a dictionary.
    batch_size
        Samples per training step. ``partial_fit`` splits its samples into steps of this size, in the given order.
        Methods that keep statistics use larger steps, which give the same sums in less time.
    epochs
        Number of passes of ``fit`` over the samples, each in another random order. Methods that keep statistics make
        only one pass. ``partial_fit`` always makes one pass, in the given order. For a method that needs task
        boundaries (``icarl``), all classes of ``fit`` are one task, and a new class in ``partial_fit`` starts a new
        task.
    validation_fraction
        Share of the samples that a network holds back instead of learning them, from 0 to 0.5. Probabilities,
        ``report`` and ``predict(X, unknown=...)`` are based on its predictions of these samples. The first 10 samples
        of a class are always learnt. At most 64 samples are held back at a time, and they take at most 5 % of the bytes
        of ``memory``. A sample that is replaced by another one is learnt then. No sample is held back if ``memory``
        holds fewer than about 400 samples, or if ``sample_weight`` is given. Methods that keep statistics learn all
        samples. ``validation_fraction`` may change between calls.
    augment
        Augmentation of images: ``"none"``, ``"crop"``, ``"crop+flip"`` or ``"auto"``, which crops images of at least 24
        pixels. Use ``"crop+flip"`` if a mirrored image belongs to the same class, as for most photographs.
    channels
        Position of the channel axis of images: ``"first"``, ``"last"``, or ``"auto"``, which takes the axis of size at
        most 4 and raises an error if there is not exactly one.
    random_state
        Seed of the initial weights and of all random draws, as in scikit-learn. None gives different results each time.
    prior
        How frequent the classes are among the samples to predict: ``"uniform"`` (equally frequent), ``"counts"`` (as
        frequent as among the learnt samples), or a dictionary ``{label: probability}``. Classes that the dictionary
        does not contain share the remaining probability. Predictions warn of classes in it of which no sample was
        learnt. ``prior`` may change between calls.
    unknown_rate
        Share of the samples of known classes that ``predict(X, unknown=...)`` may call unknown, from 0 to less than 1.
        It may change between calls.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``. ``"auto"`` uses a GPU if there is one.
    autosave
        Folder to save to while learning, or None. ``OnlineClassifier.load(folder)`` continues from there. The file
        always holds complete calls. It is written when there are ``every`` unsaved samples, at most 5 seconds after a
        call returned, when the classifier is closed (``close``, or the end of a ``with`` block) or garbage collected,
        and when the program exits. If the process is killed, fewer than ``every`` samples are lost, all from the last 5
        seconds. Only one classifier at a time writes to a folder. Other classifiers can load it, and can learn once the
        first one is closed. Copies, pickles, clones and forked processes do not save to the folder of the original. To
        learn, they need another folder, or None.
    every
        Number of unsaved samples at which a call saves before it returns. With 1, every call does.
    """

    _state: State | None = None

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
        validation_fraction: float = 0.05,
        augment: str = "auto",
        channels: str = "auto",
        random_state: Any = 0,
        prior: str | Mapping[Label, float] = "uniform",
        unknown_rate: float = 0.05,
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
        self.validation_fraction = validation_fraction
        self.augment = augment
        self.channels = channels
        self.random_state = random_state
        self.prior = prior
        self.unknown_rate = unknown_rate
        self.device = device
        self.autosave = autosave
        self.every = every

    # Learning

    @synchronized
    def partial_fit(
        self, X: Any, y: Any = None, classes: Iterable[Label] | None = None, sample_weight: Any = None
    ) -> Self:
        """Learn from more samples, in one pass and in the given order.

        With methods that keep statistics, the samples count from the next answer on. After a call with at most 32
        samples, the settings of the discriminant may be those of before: they are chosen again when the samples have
        grown by a fifth.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.
        y
            Labels [n], one per sample. They may be of new classes.
        classes
            Classes to add to ``classes_`` before their first sample. Their probability is 0 until then.
        sample_weight
            Weights [n] of the samples, 0 or larger. For statistics, a sample of weight 2 is the same as two samples,
            except that it is counted once. So a class of few samples with large weights is no longer treated as a rare
            class, and ``report`` is too optimistic about it: to predict rare classes more often, use ``prior``. Sums of
            images are whole numbers, so weights far below 1 are rounded. For networks, the weight multiplies the
            sample's share of the loss when it is learnt; later it is replayed like any other. A sample of weight 0 is
            ignored. None: all weights are 1.

        Returns
        -------
        The classifier itself.

        Raises
        ------
        UsageError
            If a parameter, ``X``, ``y``, ``classes`` or ``sample_weight`` is invalid, if training diverged, or if
            ``autosave`` failed. It is a ValueError. Nothing is learnt, and the call can be repeated.
        """
        with learning():
            parameters = self._settings(self._state)
            state, lesson = prepare(self, parameters, self._state, X, y, classes, sample_weight)
            self.change(state, lesson.size, lambda state: train(state, lesson, in_sequence=True))
        return self

    def learn_from(self, batches: Any) -> Self:
        """Learn from a stream that does not fit into memory: an iterable of batches, a DataLoader or a torch Dataset.

        Each batch is one call of ``partial_fit``. If a batch raises an error, the batches before it stay learnt, and
        ``n_samples_seen_`` is the number of samples learnt so far.

        Parameters
        ----------
        batches
            An iterable that yields pairs ``(X, y)`` of samples and labels. A torch Dataset yields single samples with
            their labels. These may be PIL images, or images of different sizes. They are learnt in batches of 64, in
            the order of the Dataset.

        Returns
        -------
        The classifier itself.

        Raises
        ------
        UsageError
            As for ``partial_fit``, or if a batch is not a pair. It is a ValueError.
        """
        for number, batch in enumerate(read_batches(batches)):
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                raise UsageError(
                    f"batch {number} is a {type(batch).__name__}; expected a pair (X, y) of samples and labels"
                )
            self.partial_fit(*batch)
        return self

    @synchronized
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from scratch, in ``epochs`` passes over the samples in random order.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.
        y
            Labels [n], one per sample.
        sample_weight
            Weights [n] of the samples, as in ``partial_fit``.

        Returns
        -------
        The classifier itself.

        Raises
        ------
        UsageError
            As for ``partial_fit``. The classifier keeps the state that it had before the call.
        """
        with learning():
            state, lesson = prepare(self, self._settings(), None, X, y, sample_weight=sample_weight)

            def work(state: State) -> State:
                random = generator(state.learner.seed, "fit")
                for epoch in range(self.epochs):
                    order = torch.randperm(lesson.size, generator=random)
                    order = order if lesson.rows is None else lesson.rows[order]
                    state = train(state, lesson, order, again=epoch > 0)
                return state

            self.change(state, lesson.size, work)
        return self

    # Predicting

    @synchronized
    def predict(self, X: Any, *, unknown: Label | None = None) -> Array:
        """Predict the class of each sample.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.
        unknown
            The label to return for samples that are unlike anything learnt, which must not be one of ``classes_``. If
            None, every sample gets one of ``classes_``. A sample is unknown if its ``typicality`` is below a threshold,
            which is chosen such that about a share ``unknown_rate`` of the samples of known classes is below it. At
            least 20 samples must be learnt first. If fewer than ``2 / unknown_rate`` samples are available to choose
            the threshold, it is set lower, and only unknown samples that are far from all classes are found.

        Returns
        -------
        Labels [n], of the type of ``classes_``.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` or ``unknown`` is invalid. It is a ValueError.
        """
        if unknown is None:
            predictor, x = self._question(X)
            predicted: Array = self.classes_[predictor.decisions(x).argmax(1).numpy()]
            return predicted
        found, state = self.examine(X), self._fitted()
        label = plain(unknown)
        if label in state.labels and isinstance(label, bool) == isinstance(state.labels[0], bool):  # 0 equals False
            raise UsageError(f"unknown is {label!r}, which is a known class; give a label that no class has")
        labels: Array = as_array([*state.labels, label])
        return labels[np.where(found.unknown, len(state.labels), found.probabilities.argmax(1))]

    @synchronized
    def examine(self, X: Any) -> Answers:
        """Compute labels, probabilities and typicality together, with one pass through the encoder instead of three.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.

        Returns
        -------
        A named tuple with the results of ``predict``, ``predict_proba`` and ``typicality`` as ``labels`` [n],
        ``probabilities`` [n, classes] and ``typicality`` [n]. ``unknown`` [n] tells which samples are unknown.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` is invalid. It is a ValueError.
        """
        predictor, x = self._question(X)
        decision, typicality = predictor.examined(x)
        probabilities, rejected = predictor.probabilities(decision), predictor.is_unknown(typicality)
        labels = self.classes_[decision.argmax(1).numpy()]
        return Answers(labels, probabilities.numpy(), typicality.numpy(), rejected.numpy())

    @synchronized
    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class.

        Probabilities are the softmax of the scores divided by a temperature, averaged over half, once and twice this
        temperature, and depend on ``prior``. The temperature is chosen such that a class that is predicted with the
        probability 0.8 is right in about 80 % of the cases. It is fitted to the predictions from which ``report`` is
        computed, so it needs no test set.

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
        predictor, x = self._question(X)
        return predictor.probabilities(predictor.decisions(x)).numpy()

    @synchronized
    def decision_function(self, X: Any) -> Array:
        """Compute the scores of each class, as the logarithm of their softmax.

        What is common to the scores of all classes is not part of them. So the scores of different samples can be
        compared, as calibration, one-vs-rest and ROC curves do.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.

        Returns
        -------
        Scores [n, classes], in the order of ``classes_``, of which none is above 0. With two classes [n]: the score of
        the second minus the score of the first. The score of a class that has no samples yet is minus infinity.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` is invalid. It is a ValueError.
        """
        predictor, x = self._question(X)
        scores = predictor.decisions(x)
        if scores.shape[1] == 2:
            return (scores[:, 1] - scores[:, 0]).numpy()
        # The offset that scores of a sample have in common differs more between samples than scores between classes.
        # A maximum would make all predicted classes equal, and a mean would depend on classes that are far away.
        return scores.double().log_softmax(1).to(scores).numpy()

    @synchronized
    def typicality(self, X: Any) -> Array:
        """Compute how similar each sample is to the samples of the nearest class.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.

        Returns
        -------
        Numbers [n], larger for samples that are more like the samples of some class. Their scale depends on the method.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` is invalid. It is a ValueError.
        """
        predictor, x = self._question(X)
        return predictor.typicality(x).numpy()

    @synchronized
    def report(self) -> Report:
        """Estimate how good the classifier is now, without a test set.

        Methods that keep statistics predict some of the learnt samples as if these had been left out. Networks predict
        samples that are held back (``validation_fraction``). While fewer than 20 are held back, they use the last 256
        predictions of samples that they had not learnt yet, without those of the first samples of a class. Until
        ``hybrid`` has 20 of these, the report is that of its statistics alone. ``source`` says which predictions were
        used.

        The accuracy is that for classes as frequent as ``prior`` says: by default, all classes count the same, even if
        few samples of one were predicted. It is too high if the samples of a class are nearly equal, such as pictures
        that a camera took within seconds, because a sample that is left out has nearly equal ones among the others.

        Returns
        -------
        A :class:`Report`: accuracy with an interval, accuracy per class, calibration error, most confused classes.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If there is no such prediction yet. It is a ValueError.
        """
        return report(self._predictor())

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

    # Changing what was learnt

    def merge(self, other: Self) -> Self:
        """Merge another classifier into this one, as if this one had learnt the samples of both.

        This works for methods that keep statistics, such as ``patch-lda``. The sums are exact, and the order of merges
        does not matter. The settings are chosen again, from the kept samples of both. Classes with the same label
        become one class. Both classifiers must have the same parameters, and samples of the same shape and type. A
        classifier that has learnt nothing becomes a copy of ``other``.

        Vectors are projected in units that follow from the first 50 samples of a classifier. If two classifiers have
        different units, merging keeps the sums of values and drops the projections, with a warning. Copies of one
        classifier that has learnt 50 samples have the same units. Let each copy but one ``forget`` these samples before
        it is merged, because they would count twice.

        Parameters
        ----------
        other
            The other classifier. It is not changed.

        Returns
        -------
        The classifier itself.

        Raises
        ------
        NotFittedError
            If ``other`` has learnt nothing.
        UsageError
            If the classifiers have different parameters or samples, or if the method cannot merge. It is a ValueError.
            Nothing is changed.
        """
        if not isinstance(other, OnlineClassifier):
            raise UsageError(f"a classifier can be merged with an OnlineClassifier, not with a {type(other).__name__}")
        with learning():
            with workings_of(
                other
            ).lock:  # released before the own lock is taken, so that two merges cannot wait for each other
                theirs = other._fitted().copied()
            with workings_of(self).lock:
                self.replace_state(self._merged(theirs))
        return self

    @synchronized
    def forget(self, X: Any, y: Any) -> Self:
        """Forget samples that were learnt.

        With methods that keep statistics, the sums are then as if these samples had never been learnt. The settings are
        chosen again from the samples that are still kept, and samples that were dropped do not come back. So scores
        equal those of one pass given the same kept samples. They may differ a little from those of one pass over the
        remaining samples. The units in which vectors are projected stay as they are. Networks remove the samples from
        their memory and counts, but the effect of the samples on the weights stays. To remove it, train a new
        classifier without them. The samples are assumed to have been learnt with weight 1. If all samples of a class
        are forgotten, the class stays in ``classes_`` with the probability 0. Use ``forget_class`` to remove it.

        Samples are not stored, so whether these were learnt cannot be checked. Some mistakes are refused: more samples
        than were learnt of a class, or sums that no samples can have. Other samples that were never learnt are
        subtracted, and samples that are given twice are subtracted twice, which damages the statistics without a
        message. Keep a record of what was forgotten, and if a call may have succeeded before, compare
        ``n_samples_seen_`` before it is repeated.

        Images that were learnt from files by ``onebyone learn`` can be learnt from these files again. They are
        recognised by their pixels, so give their paths, or the pixels as they were learnt.

        Parameters
        ----------
        X
            Samples [n, ...] that were learnt, in the form in which they were given.
        y
            Their labels [n].

        Returns
        -------
        The classifier itself.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If it is noticed that the samples cannot have been learnt, or if nothing else was learnt. It is a
            ValueError. Nothing is changed.
        """
        state = self._fitted()
        x, labels = read_pairs(X, y, state.layout, self.channels, self, state.labels)
        known = [state.slot_of(label) for label in labels]
        if len(labels) >= int(state.counts.sum()):
            raise UsageError(NOTHING_LEFT)
        with learning():
            state = state.copied()
            learner, slots = state.learner, torch.tensor(known, device=state.learner.device)
            start, keys, held = 0, list[int](), state.held_back
            for part in x.chunks():
                own = slots[start : start + len(part)]
                held, found = held.forget(part, own)
                learner.forget(part[~found].to(learner.device), own[~found.to(own.device)])
                start += len(part)
                keys += pixel_keys(part) if state.files.entries else ()
            if not learner.counts.any():
                raise UsageError(NOTHING_LEFT)
            files = state.files.without(map(Taught, labels, keys))
            self.replace_state(replace(state, held_back=held, files=files))
        return self

    @synchronized
    def forget_class(self, label: Label) -> Self:
        """Remove a class from ``classes_``, the counts, the memory and all predictions.

        In statistics, the variation of its samples around their mean stays a part of the shared covariance. In
        networks, the effect of its samples on the weights of the encoder stays.

        Parameters
        ----------
        label
            One of ``classes_``, but not the only one with samples.

        Returns
        -------
        The classifier itself.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If the label is not known, or if no other class was learnt. It is a ValueError. Nothing is changed.
        """
        state = self._fitted()
        (label,) = as_labels([label], state.labels)
        slot, counts = state.slot_of(label), state.counts
        if counts[slot] == counts.sum():
            raise UsageError(f"{label!r} is the only class that was learnt; create a new classifier instead")
        with learning():
            state = state.copied()
            state.learner.forget_class(slot)
            slots = {each: own for each, own in state.slots.items() if own != slot}
            files = state.files.without_class(label)
            record, held = state.record.without(slot), state.held_back.without(slot)
            self.replace_state(replace(state, slots=slots, record=record, held_back=held, files=files))
        return self

    @synchronized
    def rename(self, names: Mapping[Label, Label]) -> Self:
        """Give classes new labels. If a new label is the label of another class, the two become one class.

        All labels are replaced at the same time, so ``{"a": "b", "b": "a"}`` exchanges two labels. When classes become
        one, statistics are as if all samples had been learnt with the new label. Networks relabel the samples in their
        memory and learn the rest by replay. If ``prior`` is a dictionary, its labels are renamed too.

        Parameters
        ----------
        names
            A dictionary from each label to replace to its new label. The new labels must be different from each other.

        Returns
        -------
        The classifier itself.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If a label is not known, if two labels get the same new one, or if ``names`` is not a dictionary. It is a
            ValueError. Nothing is changed.
        """
        state = self._fitted()
        if not isinstance(names, Mapping):
            raise UsageError(f"names is a {type(names).__name__}; give a dictionary {{old label: new label}}")
        old = as_labels(list(names), state.labels, "names") if names else []
        new = as_labels(list(names.values()), name="names") if names else []
        for label in old:
            state.slot_of(label)
        if len(set(new)) < len(new):
            raise UsageError(f"two labels get the same new label in {dict(names)!r}; unite classes in separate calls")
        renamed = dict(zip(old, new, strict=True))
        as_labels([renamed.get(label, label) for label in state.slots], name="the result")  # raises if the types differ
        with learning():
            state = state.copied()
            for before, after in renamed.items():
                if after in state.slots and after not in renamed:
                    state = state.united(before, after)
            slots = {renamed.get(label, label): slot for label, slot in state.slots.items()}
            before, self.prior = self.prior, renamed_prior(self.prior, renamed)
            try:
                self.replace_state(replace(state, slots=slots, files=state.files.renamed(renamed)))
            except BaseException:
                self.prior = before
                raise
        return self

    # Saving

    @synchronized
    def save(self, path: str | Path) -> None:
        """Save the classifier to one file, atomically: safetensors, with parameters and labels as JSON in its header.

        The code of an encoder that was given as a module is not saved, so ``load`` needs the module again. The file
        holds the weights of a trained module, and a hash of the weights of a frozen one.

        Parameters
        ----------
        path
            The file to write.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If the file cannot be written, or if labels have a type that JSON cannot represent. It is a ValueError.
        """
        state, file = self._fitted(), given_path(path)
        weights = storage.encoder_hash(state.learner)
        storage.write(file, state, storage.describe(state, self.get_params(deep=False), weights))

    @classmethod
    def load(cls, path: str | Path, *, encoder: nn.Module | None = None, device: str | None = None) -> Self:
        """Load a saved classifier. On the same device, it continues bit for bit as the saved one would have.

        Loading runs no code from the file. Files of every earlier release from 0.3.0 on can be loaded.

        Parameters
        ----------
        path
            A file written by ``save``, or a folder of ``autosave``. From a folder, saving continues there.
        encoder
            The encoder, if the saved classifier was given a module.
        device
            The device to use instead of the saved one.

        Returns
        -------
        The classifier.

        Raises
        ------
        UsageError
            If the file does not exist, is damaged, is not a saved classifier, or was written by a newer version, which
            is named. It is a ValueError.
        """
        path = given_path(path)
        file = path / storage.FILE if path.is_dir() else path
        if path.is_dir() and not file.exists():
            raise UsageError(
                f"{path} is a folder without {storage.FILE}; give a saved file or an autosave folder (for a state "
                "folder of a server, download the file with GET /v1/model, or use onebyone info, predict and merge)"
            )
        version = storage.version_of(file)  # before reading, so that a file written meanwhile is not overwritten
        with learning():
            state, parameters = storage.read(file, cls().get_params(deep=False), encoder, device)
        classifier = cls(**parameters)
        if path.is_dir():  # a single file never sets the folder to write to
            own = workings_of(classifier)
            own.autosave = Autosave(classifier, own.lock, path, version)
            classifier.autosave = str(own.autosave.folder)
        classifier._adopt(state)
        return classifier

    @synchronized
    def close(self) -> None:
        """Save what ``autosave`` has not saved yet, and release its folder for other classifiers.

        Without ``autosave`` it does nothing. A closed classifier can still predict. If it learns, it locks the folder
        again, unless another classifier has written to it.

        Raises
        ------
        UsageError
            If the file cannot be written. The folder stays locked, and ``close`` can be called again.
        """
        saver = workings_of(self).autosave
        if saver is not None:
            saver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @synchronized
    def export(self, path: str | Path) -> None:
        """Export ``predict_proba`` and ``typicality`` for other programs. The file cannot learn, and holds no samples.

        The input is a batch of samples [n, ...] with the shape and type of the first call, for any n. The outputs are
        ``probabilities`` [n, classes], with the current temperature and prior, and ``typicality`` [n]. The file
        contains ``classes`` (``classes_``), ``temperature`` and ``unknown_threshold`` as JSON: in the metadata of ONNX,
        or in the extra files ``classes.json`` and so on of ``torch.export``. A sample whose typicality is below the
        threshold is unknown; the threshold is null if too few samples were learnt.

        Parameters
        ----------
        path
            The file to write: ``*.onnx``, or ``*.pt2`` for ``torch.export.load``.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If the path has another suffix, or cannot be written. It is a ValueError.
        """
        export(given_path(path), self._predictor())

    @property
    @synchronized
    def nbytes(self) -> int:
        """Size of a saved file in bytes, up to a few digits in its header. A frozen encoder is not included."""
        return storage.size(self._fitted(), self.get_params(deep=False))

    @property
    @synchronized
    def encoder_nbytes(self) -> int:
        """Size of the frozen encoder in bytes, which a saved file does not contain. 0 if there is none."""
        fixed = list(self._fitted().learner.fixed_encoders.values())  # all with the same weights
        return nbytes(fixed[0]) if fixed else 0

    @property
    @synchronized
    def n_samples_seen_(self) -> int:
        """Number of samples learnt. After loading, this is the position in the stream from which to continue."""
        return int(self._fitted().counts.sum())

    # Copies and pickles

    @synchronized
    def __getstate__(self) -> dict[str, Any]:
        """The state for pickles, as bytes: complete when the lock is released, and without tensors to be shared."""
        return {"packed": pack(self._to_copy())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        with learning():  # tensors that are made in inference mode cannot be trained
            super().__setstate__(unpack(state["packed"]))

    @synchronized
    def __copy__(self) -> Self:
        """A classifier with the same parameters. What it has learnt is its own."""
        attributes = self._to_copy()
        if (state := self._state) is not None:
            with learning():
                attributes["_state"] = replace(state, learner=deepcopy(state.learner), files=state.files.copy())
        return self._with(attributes)

    @synchronized
    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if self._state is not None:
            memo[id(self._state.files)] = self._state.files.copy()  # faster, for a million files
        with learning():
            return self._with(deepcopy(self._to_copy(), memo))

    def _to_copy(self) -> dict[str, Any]:
        """All attributes but those that belong to this object."""
        found = {name: value for name, value in vars(self).items() if name != "_workings"}
        if self._state is not None:
            found["_state"] = replace(self._state)  # without what was computed from it
        return found

    def _with(self, attributes: dict[str, Any]) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(attributes)
        return other

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        """As scikit-learn finds them in the signature, which takes as long as reading a sample."""
        names: list[str] = super()._get_param_names()
        return names

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = tags.input_tags.sparse = True
        return tags

    # The state: each call replaces it

    @property
    def state(self) -> State | None:
        """The state, for programs that read or move it; None before the first call. Each call replaces it."""
        return self._state

    @synchronized
    def replace_state(self, state: State) -> None:
        """Make another state that of the classifier. The folder of ``autosave`` has it when the call returns.

        Parameters
        ----------
        state
            The new state. Its learner belongs to this classifier from now on.

        Raises
        ------
        UsageError
            If a parameter is invalid, if the state is not finite, or if ``autosave`` failed. It is a ValueError.
            Nothing is changed.
        """
        self._settings()
        check_finite(state.learner)
        self.change(state, int(self.every))

    def change(
        self,
        state: State,
        samples: int,
        work: Callable[[State], State] | None = None,
        undo: Callable[[], object] | None = None,
    ) -> None:
        """Replace the state completely or not at all, in memory and in the folder of ``autosave``.

        Hold the lock of the classifier. If this raises anything, the classifier is as before.

        Parameters
        ----------
        state
            The state of the classifier, or a new one.
        samples
            The number of new samples, which decides with ``every`` whether the folder is written.
        work
            A function that changes the learner of ``state`` and returns the state after that. None: ``state`` is it.
        undo
            A function that takes back what else ``work`` changes.

        Raises
        ------
        UsageError
            If the folder is that of another classifier, or cannot be written. It is a ValueError.
        """
        before, parameters, own = self._state, self._settings(), workings_of(self)
        saver = own.autosave
        if saver is not None and saver.given != self.autosave and not saver.is_for(self.autosave):
            saver.detach()
            saver = own.autosave = None
        if saver is None and self.autosave is not None:
            saver = own.autosave = Autosave(self, own.lock, self.autosave)
        changed = before is not None and before.learner is state.learner
        with (
            saver.transaction(state, parameters) if saver is not None else nullcontext(),
            restored_on_error(state.learner) if changed else nullcontext(),
        ):
            try:
                if work is not None:
                    state = work(state)
                self._adopt(state)
                if saver is not None:
                    saver.accept(state, parameters, samples, int(self.every))
            except BaseException:
                if undo is not None:
                    undo()
                self._adopt(before)
                raise

    def _fitted(self) -> State:
        if self._state is None or not self._state.slots:
            check_is_fitted(self)  # raises the error of scikit-learn
        assert self._state is not None
        return self._state

    def _adopt(self, state: State | None) -> None:
        """Make this the state, and drop what was computed from the one before."""
        before, self._state, workings_of(self).predictor = self._state, state, None
        if before is not None and state is not None and before.slots is state.slots and "classes_" in vars(self):
            return
        fitted = {} if state is None else state.attributes()
        for name in ("classes_", "n_features_in_", "method_", "feature_names_in_"):
            if name in fitted:
                setattr(self, name, fitted[name])
            else:
                self.__dict__.pop(name, None)

    def _settings(self, state: State | None = None) -> Mapping[str, Any]:
        """The parameters, which are valid and suit the state. They are checked again only if one was replaced."""
        own, given = workings_of(self), vars(self)
        found = own.valid
        if found is None or any(given.get(name, self) is not value for name, value in found.items()):
            found = self.get_params(deep=False)
            check_settings(found)
            can_change = isinstance(found["prior"], Mapping) or found["options"]  # without being replaced
            own.valid, own.suit = None if can_change else found, None
        if state is not None and (own.valid is None or own.suit is not state.parameters):
            check_unchanged(state, found)
            own.suit = state.parameters
        return found

    def _merged(self, theirs: State) -> State:
        parameters = self.get_params(deep=False)
        if self._state is None:
            own = learner_parameters(parameters)
            check_same(own, theirs.parameters)
            return replace(theirs, parameters=own, files=theirs.files.copy())  # the device may be another one
        mine = self._state.copied()
        if not mine.learner.mergeable:  # whatever the parameters are
            raise UsageError(NOT_MERGEABLE)
        check_mergeable(mine, theirs)
        as_labels(list(theirs.slots), mine.labels, "the result")  # raises if the types differ
        mine = mine.with_labels(theirs.slots)
        theirs = theirs.in_slots_of(mine)
        mine.learner.merge(theirs.learner)
        return replace(mine, files=mine.files.united(theirs.files))

    def _predictor(self) -> Predictor:
        """The predictor of the present state and parameters."""
        state, parameters = self._fitted(), self._settings()
        own = workings_of(self)
        if own.predictor is None or own.predictor.parameters is not parameters:
            own.predictor = Predictor(state, parameters)
        return own.predictor

    def _question(self, X: Any) -> tuple[Predictor, Samples]:
        """The present predictor, and the samples for it."""
        predictor = self._predictor()
        return predictor, read_samples(X, predictor.state.layout, self.channels, self)


def check_same(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    different = []
    for name, value in mine.items():
        if name != "device" and value != theirs[name]:
            short = not isinstance(value, nn.Module) and not isinstance(theirs[name], nn.Module)
            different.append(f"{name} ({value!r} and {theirs[name]!r})" if short else name)
    if different:
        raise UsageError(
            f"the classifiers have different values of {', '.join(different)}; only classifiers with the same "
            "parameters can be merged"
        )


def check_mergeable(mine: State, theirs: State) -> None:
    """Raise an error if the two states are not those of equal learners for the same kind of samples."""
    check_same(mine.parameters, theirs.parameters)
    if mine.feature_names != theirs.feature_names:
        one, two = (", ".join(each.feature_names[:10]) if each.feature_names else "none" for each in (mine, theirs))
        raise UsageError(
            f"the classifiers have different names of features: {one} and {two}; give both samples with the same "
            "columns, or both without names"
        )
    if mine.layout != theirs.layout:
        one, two = (f"{each.layout.dtype} {each.layout.shape}".removeprefix("torch.") for each in (mine, theirs))
        raise UsageError(
            f"the classifiers learn different samples: {one} and {two}; only samples of one shape, type and axes can "
            "be merged"
        )
    own, other = mine.learner, theirs.learner
    if storage.encoder_hash(own) != storage.encoder_hash(other):
        raise UsageError("the encoders of the classifiers have different weights; give both the same encoder")
    if (mine.method, comparable(own), own.seed) != (theirs.method, comparable(other), other.seed):
        raise UsageError(
            "the classifiers chose another method, other options or another seed in their first call; give both the "
            "same method and a whole number as random_state"
        )


def comparable(learner: AnyLearner) -> dict[str, Any]:
    """The options without a frozen encoder, which is compared by its weights."""
    found = vars(learner.options)
    fixed = isinstance(encoder := found.get("encoder"), Adapted) and encoder.fixed
    return found | ({"encoder": None} if fixed else {})
