"""OnlineClassifier: the learners of this library as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from onebyone.errors import UsageError
from onebyone.estimator.calls import learning, prepare, train
from onebyone.estimator.inputs import read_batches
from onebyone.estimator.labels import Label
from onebyone.estimator.locking import synchronized
from onebyone.estimator.verbs import ChangingClassifier
from onebyone.methods import AUTO
from onebyone.seeding import generator


class OnlineClassifier(ChangingClassifier):
    """Classifier for streams: it learns a few samples per call, and new classes may appear at any time.

    Samples are vectors [n, features], gray images [n, height, width], or images with channels, as arrays or tensors. A
    PIL image, the path of an image file, or a list of either is also accepted. The first call fixes the number of
    features, or the size of images and whether they are gray or colour. Later images are resized and converted to
    match. PIL images and image files are rotated by their EXIF data, and their shorter side is reduced to at most 256
    pixels. They are gray if all images of the first call are gray. Transparent pixels become white.

    Bytes (uint8) are stored as bytes and scaled to [-1, 1]. Other numbers are converted to float32, which has 7
    significant digits, so subtract an offset from large values such as timestamps. Vectors are standardised by the mean
    and standard deviation of the samples seen so far, unless an encoder is given. Images of floating-point numbers are
    used unchanged, so they must have the same scale in all calls. A pretrained encoder by name expects values from 0
    (black) to 1 (white).

    Labels can have any hashable type except bytes, but all must have the same type. ``classes_`` holds the classes
    known so far, sorted if they can be sorted.

    A call that raises an error changes nothing, in memory or on disk, and can be repeated. Invalid input raises a
    ValueError. Sparse samples, and samples that are not numbers, raise a TypeError, as in scikit-learn.

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
        MB, or 17 MB for vectors), if they fit into ``memory``. Otherwise it is ``replay``, which trains a network.
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
            state, lesson = prepare(self, self._state, X, y, classes, sample_weight)
            with self._all_or_nothing(state):
                state = train(state, lesson, lesson.order, self.get_params(deep=False), in_sequence=True)
                self._accept(state, len(lesson.order))
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
            state, lesson = prepare(self, None, X, y, sample_weight=sample_weight)
            with self._all_or_nothing(state):
                random = generator(state.learner.seed, "fit")
                for epoch in range(self.epochs):
                    shuffled = lesson.order[torch.randperm(len(lesson.order), generator=random)]
                    state = train(state, lesson, shuffled, self.get_params(deep=False), again=epoch > 0)
                self._accept(state, len(lesson.order))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
