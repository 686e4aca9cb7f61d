"""OnlineClassifier: the learners of this library as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import replace
from math import prod
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from onebyone.engine import choose_device, reproducible
from onebyone.errors import UsageError
from onebyone.estimator import autosave, persistence
from onebyone.estimator.autosave import Autosave
from onebyone.estimator.export import export
from onebyone.estimator.inputs import Samples, check_batch, is_image, read_samples
from onebyone.estimator.labels import Label, as_labels, check_comparable
from onebyone.estimator.locking import synchronized
from onebyone.estimator.making import State, check_settings, make_learner, making, method_in_use, with_room
from onebyone.estimator.rollback import changeable, restored_on_error
from onebyone.estimator.samples import Layout
from onebyone.methods import AUTO
from onebyone.seeding import generator

Array = npt.NDArray[Any]
OWN = ("_lock", "_autosaver")  # attributes that a copy does not get


@contextmanager
def learning() -> Iterator[None]:
    """Gradients on, whatever the caller has switched off to answer faster, and reproducible steps on a GPU.

    A learner that is made in inference mode could never learn.
    """
    with torch.inference_mode(False), torch.enable_grad(), reproducible():
        yield


class OnlineClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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

    _state: State | None = None
    _autosaver: Autosave | None = None

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
            state, x, slots = self._prepare(self._state, X, y, classes)
            with self._all_or_nothing(state):
                self._learn(state, x, slots, torch.arange(len(slots)), in_sequence=True)
                self._accept(state, len(slots))
        return self

    @synchronized
    def fit(self, X: Any, y: Any = None) -> Self:
        """Forget everything, then learn these samples in random order, a network ``epochs`` times."""
        with learning():
            state, x, slots = self._prepare(None, X, y)
            with self._all_or_nothing(state):
                order = generator(state.learner.seed, "fit")
                for epoch in range(self.epochs):
                    self._learn(state, x, slots, torch.randperm(len(slots), generator=order), again=epoch > 0)
                self._accept(state, len(slots))
        return self

    def _prepare(
        self, state: State | None, X: Any, y: Any, classes: Iterable[Label] | None = None
    ) -> tuple[State, Samples, Tensor]:
        """Check everything, and give the state to learn with and the samples and classes as it reads them."""
        check_settings(self.get_params(deep=False))
        check_batch(X)
        one = is_image(X) and np.ndim(y) == 0 and y is not None  # a single image may come with a single label
        labels = as_labels([y] if one else y, state.labels if state else ())
        announced = as_labels(list(classes), labels) if classes is not None else []
        x = read_samples(X, state.layout if state else None, self.channels, self)
        if len(x) != len(labels):
            raise UsageError(f"X has {len(x)} samples and y has {len(labels)} labels; give one label a sample")
        if state is None:
            state = self._begin(x.layout, X)
        else:
            self._check_unchanged(state)
        known = list(dict.fromkeys([*state.labels, *announced, *labels]))
        if len(known) > len(state.labels):
            state = replace(state, labels=known, learner=with_room(state, len(known)))
        slot_of = {label: slot for slot, label in enumerate(known)}
        slots = torch.tensor([slot_of[label] for label in labels])
        if self.autosave is not None:  # what cannot be saved is refused before it is learnt
            persistence.describe(state, self.get_params(deep=False))
        return state, x, slots.to(state.learner.device)

    def _begin(self, layout: Layout, X: Any) -> State:
        random, seed = check_random_state(self.random_state), self.random_state
        seed = int(seed) if isinstance(seed, Integral) else int(random.randint(2**31))
        parameters = making(self.get_params(deep=False))
        method = method_in_use(parameters, layout)
        learner = make_learner(method, parameters, layout, seed, choose_device(self.device))
        names = None
        if layout.axes == "vector":
            table = BaseEstimator()
            validate_data(table, X, reset=True, skip_check_array=True)  # notes the names of columns
            names = getattr(table, "feature_names_in_", None)
        return State(parameters, layout, [], learner, method, None if names is None else tuple(map(str, names)))

    @contextmanager
    def _all_or_nothing(self, state: State) -> Iterator[None]:
        """If the block raises anything, what was learnt and what is on disk are as they were before."""
        before = self._state
        with ExitStack() as stack:
            if self._autosaver is not None and not self._autosaver.is_for(self.autosave):
                self._autosaver.detach()
                self._autosaver = None
            if self.autosave is not None:
                self._autosaver = self._autosaver or Autosave(self, self.autosave)
                stack.enter_context(self._autosaver.transaction())
            if before is not None and before.learner is state.learner:
                stack.enter_context(restored_on_error(state.learner))
            try:
                yield
            except BaseException:
                self._adopt(before)
                raise

    def _learn(
        self, state: State, x: Samples, slots: Tensor, order: Tensor, *, again: bool = False, in_sequence: bool = False
    ) -> None:
        learner = state.learner
        boundaries = in_sequence and learner.needs_boundaries  # shuffled samples have no task boundaries
        for index in order.split(int(self.batch_size)):  # torch takes no integers of numpy's
            batch, classes = x[index].to(learner.device), slots[index.to(slots.device)]
            if boundaries and learner.observed.any() and not learner.observed[classes].all():
                learner.end_task()  # a stream does not say where a task ends; a new class begins one
            (learner.repeat if again else learner.observe)(batch, classes)

    def _accept(self, state: State, samples: int) -> None:
        """Make this the classifier's state, on disk too if it is time to save."""
        persistence.check_finite(changeable(state.learner))
        if self._autosaver is not None:
            self._autosaver.record(state, self.get_params(deep=False), samples, int(self.every))
        self._adopt(state)

    def _adopt(self, state: State | None) -> None:
        """Set the attributes of a fitted classifier, or remove them."""
        fitted = (
            {}
            if state is None
            else {
                "classes_": state.classes,
                "n_features_in_": prod(state.layout.shape),
                "method_": state.method,
            }
        )
        if state is not None and state.feature_names is not None:
            fitted["feature_names_in_"] = np.array(state.feature_names, dtype=object)
        for name in ("classes_", "n_features_in_", "method_", "feature_names_in_"):
            if name in fitted:
                setattr(self, name, fitted[name])
            else:
                self.__dict__.pop(name, None)
        self._state = state

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

    # Saving

    @synchronized
    def save(self, path: str | Path) -> None:
        """Write all of it to one file, which is whole or not there: safetensors, with the rest as JSON inside.

        An encoder that is a module of yours is saved by its weights, and has to be given again when loading.
        """
        persistence.write(Path(path), self._fitted(), self.get_params(deep=False))

    @classmethod
    def load(cls, path: str | Path, *, encoder: nn.Module | None = None, device: str | None = None) -> Self:
        """What was saved; the next ``partial_fit`` gives bit for bit what it would have given, on the same device.

        ``path`` is a file, or a folder of ``autosave``, which goes on there. No code of the file is run, and one that
        is damaged or was tampered with is refused with a ValueError. ``encoder`` is needed if it was a module.
        """
        path = Path(path)
        file = path / autosave.FILE if path.is_dir() else path
        version = autosave.version_of(file)  # before reading: a later one would be refused, not overwritten
        with learning():
            state, parameters = persistence.read(file, cls._get_param_names(), encoder, device)
        classifier = cls(**parameters)
        if path.is_dir():  # a file from elsewhere never says where to write
            classifier._autosaver = Autosave(classifier, path, version)
            classifier.autosave = str(classifier._autosaver.folder)
        classifier._adopt(state)
        return classifier

    @synchronized
    def close(self) -> None:
        """Save what ``autosave`` has not saved yet, and let another classifier write to the folder.

        Without ``autosave`` it does nothing. A closed classifier still answers, and takes the folder again when it
        learns, unless another one has written there.

        Raises
        ------
        UsageError
            If it cannot be saved. Then the folder stays with this classifier, so that ``close`` can be called again.
        """
        if self._autosaver is not None:
            self._autosaver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @synchronized
    def export(self, path: str | Path) -> None:
        """Write what answers, without what learns: ``*.onnx``, or ``*.pt2`` for ``torch.export.load``.

        Samples as they come in, [n, ...] for any n, ``predict_proba`` out. The classes travel along, as JSON: in the
        ONNX file's metadata under ``classes``, in the other as its extra file ``classes.json``.
        """
        export(Path(path), self._fitted())

    @property
    @synchronized
    def nbytes(self) -> int:
        """Bytes of everything it keeps; a saved file has this size."""
        return persistence.size(self._fitted(), self.get_params(deep=False))

    @property
    @synchronized
    def n_samples_seen_(self) -> int:
        """How many samples were learnt; where to go on in a stream, after loading."""
        return int(self._fitted().learner.counts.sum())

    # Checking

    def _check_unchanged(self, state: State) -> None:
        now = making(self.get_params(deep=False))
        changed = [name for name, value in state.parameters.items() if value != now[name]]
        if changed:
            raise UsageError(
                f"{', '.join(changed)} changed since learning began; set it back, or call fit to begin anew"
            )

    def _fitted(self) -> State:
        check_is_fitted(self)
        assert self._state is not None
        return self._state

    @synchronized
    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: all but the folder of autosave, which stays with this one.

        The lock is released before they are made, so the learner given out is one that no other thread changes.
        """
        given = {name: value for name, value in super().__getstate__().items() if name not in OWN}
        if self._state is not None:
            given["_state"] = replace(self._state, learner=deepcopy(self._state.learner))
        return given

    def __setstate__(self, given: dict[str, Any]) -> None:
        super().__setstate__(given)
        if torch.is_inference_mode_enabled() and self._state is not None:  # in which what was copied cannot learn
            with learning():
                self._state = replace(self._state, learner=deepcopy(self._state.learner))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
