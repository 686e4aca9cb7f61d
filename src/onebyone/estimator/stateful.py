"""The state of a classifier: replaced after each call, saved, loaded and copied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from onebyone.errors import UsageError
from onebyone.estimator import autosave, persistence
from onebyone.estimator.autosave import Autosave
from onebyone.estimator.calls import learning
from onebyone.estimator.export import export
from onebyone.estimator.locking import synchronized
from onebyone.estimator.packing import pack, unpack
from onebyone.estimator.priors import check_prior
from onebyone.estimator.rollback import changeable, restored_on_error
from onebyone.estimator.state import State
from onebyone.files import given_path

NOT_COPIED = ("_lock", "_autosaver")  # attributes that belong to one object


class StatefulClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The part of :class:`OnlineClassifier` that holds its state. The subclass defines the parameters."""

    autosave: str | Path | None
    every: int
    prior: Any
    unknown_rate: float
    _state: State | None = None
    _autosaver: Autosave | None = None

    @contextmanager
    def _all_or_nothing(self, state: State) -> Iterator[None]:
        """If the block raises anything, restore the state in memory and on disk."""
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

    def _accept(self, state: State, samples: int) -> None:
        """Make this the state of the classifier, and save it if a save is due."""
        persistence.check_finite(changeable(state.learner))
        if self._autosaver is not None:
            self._autosaver.record(state, self.get_params(deep=False), samples, int(self.every))
        self._adopt(state)

    def _adopt(self, state: State | None) -> None:
        """Set the attributes of a fitted classifier, or remove them."""
        fitted = {} if state is None else state.attributes()
        for name in ("classes_", "n_features_in_", "method_", "feature_names_in_"):
            if name in fitted:
                setattr(self, name, fitted[name])
            else:
                self.__dict__.pop(name, None)
        self._state = state

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
        persistence.write(given_path(path), self._fitted(), self.get_params(deep=False))

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
        file = path / autosave.FILE if path.is_dir() else path
        if path.is_dir() and not file.exists():
            raise UsageError(
                f"{path} is a folder without {autosave.FILE}; give a saved file or an autosave folder (for a state "
                "folder of a server, download the file with GET /v1/model, or use onebyone info, predict and merge)"
            )
        version = autosave.version_of(file)  # before reading, so that a file written meanwhile is not overwritten
        with learning():
            state, parameters = persistence.read(file, cls().get_params(deep=False), encoder, device)
        classifier = cls(**parameters)
        if path.is_dir():  # a single file never sets the folder to write to
            classifier._autosaver = Autosave(classifier, path, version)
            classifier.autosave = str(classifier._autosaver.folder)
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
        if self._autosaver is not None:
            self._autosaver.close()

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
        state = self._fitted()
        check_prior(self.prior, self.unknown_rate)
        export(given_path(path), state, self.prior, float(self.unknown_rate))

    @property
    @synchronized
    def nbytes(self) -> int:
        """Size of a saved file in bytes, up to a few digits in its header. A frozen encoder is not included."""
        return persistence.size(self._fitted(), self.get_params(deep=False))

    @property
    @synchronized
    def encoder_nbytes(self) -> int:
        """Size of the frozen encoder in bytes, which a saved file does not contain. 0 if there is none."""
        fixed = persistence.fixed_encoders(self._fitted().learner)
        return sum(tensor.nbytes for tensor in fixed[0].state_dict().values()) if fixed else 0

    @property
    @synchronized
    def n_samples_seen_(self) -> int:
        """Number of samples learnt. After loading, this is the position in the stream from which to continue."""
        return int(self._fitted().counts.sum())

    def _fitted(self) -> State:
        check_is_fitted(self)
        assert self._state is not None
        return self._state

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
        """All attributes but those that belong to this object: the lock and the autosave folder."""
        found = {name: value for name, value in vars(self).items() if name not in NOT_COPIED}
        if self._state is not None:
            found["_state"] = replace(self._state)  # without what was computed from it
        return found

    def _with(self, attributes: dict[str, Any]) -> Self:
        other = type(self).__new__(type(self))
        other.__dict__.update(attributes)
        return other
