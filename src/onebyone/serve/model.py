"""A classifier that changes by operations only, so that a replay of them gives the same state, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import numpy as safetensors

from onebyone.errors import UsageError
from onebyone.estimator import OnlineClassifier
from onebyone.estimator.labels import Label
from onebyone.estimator.model import State, learner_parameters
from onebyone.estimator.storage import check_parameters, open_file
from onebyone.serve.journal import CannotStore, cannot_store
from onebyone.serve.operations import Operation
from onebyone.serve.settings import Settings
from onebyone.serve.teachings import Teaching, Teachings

Array = npt.NDArray[Any]
MOST_CLASSES = 1000
UPLOAD = "upload.safetensors"  # in the state folder, while an uploaded file is read


class Model:
    """A classifier, and what was taught lately.

    Parameters
    ----------
    folder
        The state folder, in which an uploaded file is put while it is read.
    settings
        What the folder was created for.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.classifier = OnlineClassifier(**settings.parameters())
        self.teachings = Teachings()

    @property
    def state(self) -> State | None:
        return self.classifier.state

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample: that of images, until something else was learnt."""
        return self.settings.shape if self.state is None else self.state.layout.shape

    @property
    def dtype(self) -> str:
        return "uint8" if self.state is None else str(self.state.layout.dtype).removeprefix("torch.")

    def counts(self) -> dict[str, int]:
        """How many samples of each class were learnt, in the order of ``classes_``."""
        if self.state is None:
            return {}
        counts = self.state.counts.tolist()
        return {str(label): counts[self.state.slots[label]] for label in self.state.labels}

    def apply(self, operation: Operation) -> dict[str, Any]:
        """Make a change, completely or not at all.

        Returns
        -------
        What changed, for the answer to the client.

        Raises
        ------
        UsageError
            If the operation is not possible in this state. Nothing is changed.
        CannotStore
            If the disk has no space for an uploaded file. Nothing is changed.
        """
        match operation.kind:
            case "learn":
                return self._learn(operation)
            case "forget":
                return self._forget(samples_of(operation), operation.labels)
            case "undo":
                return self._undo()
            case "forget-class":
                return self._forget_class(operation.labels[0])
            case "rename":
                self._rename(operation.names)
                return {"renamed": operation.names}
            case "merge":
                return self._merge(operation.content)
        raise UsageError(f"{operation.kind} is not a change")

    def _learn(self, operation: Operation) -> dict[str, Any]:
        samples, labels = samples_of(operation), operation.labels
        self._check(samples)
        before = self.counts()
        introduced = tuple(label for label in dict.fromkeys(labels) if label not in before)
        check_number_of_classes(len(before) + len(introduced))
        self.classifier.partial_fit(samples, list(labels))
        self.teachings.taught(Teaching(samples, labels, introduced), operation.right)
        return {"learnt": len(labels), "new_classes": list(introduced)}

    def _forget(self, samples: Array, labels: tuple[str, ...]) -> dict[str, Any]:
        self.check_fitted()
        self._check(samples)
        self.classifier.forget(samples, list(labels))
        self.teachings.forgotten(samples, labels)
        return {"forgotten": len(labels)}

    def _undo(self) -> dict[str, Any]:
        if not self.teachings.stack:
            raise UsageError("there is no teaching to undo; forget samples or classes instead")
        last = self.teachings.stack[-1]
        if sum(self.counts().values()) == len(last.labels):
            self._start_again()
        else:
            self.classifier.forget(last.samples, list(last.labels))
            for label in last.introduced:
                if self.counts().get(label) == 0:
                    self.classifier.forget_class(label)
        self.teachings.forgotten(last.samples, last.labels)
        return {"forgotten": len(last.labels), "labels": sorted(set(last.labels))}

    def _forget_class(self, label: str) -> dict[str, Any]:
        self.check_fitted()
        counts = self.counts()
        if label in counts and counts[label] == sum(counts.values()):
            self._start_again()
        else:
            self.classifier.forget_class(label)
        self.teachings.class_forgotten(label)
        return {"forgotten_class": label, "forgotten": counts[label]}

    def _rename(self, names: Mapping[str, str]) -> None:
        self.check_fitted()
        labels: dict[Label, Label] = dict(names.items())
        self.classifier.rename(labels)
        self.teachings.renamed(names)

    def _merge(self, content: bytes) -> dict[str, Any]:
        other = self._uploaded(content)
        labels = {str(label) for label in other.classes_.tolist()}
        check_number_of_classes(len(labels | set(self.counts())))
        before = sum(self.counts().values())
        self.classifier.merge(other)
        return {"merged": sum(self.counts().values()) - before, "classes": sorted(labels)}

    def _uploaded(self, content: bytes) -> OnlineClassifier:
        """The classifier in a file from a client. It is built only if its parameters are those of this server."""
        path = self.folder / UPLOAD
        try:
            try:
                path.write_bytes(content)
            except OSError as error:
                raise cannot_store(error) from error
            try:
                description, _ = open_file(path)
                own = learner_parameters(self.classifier.get_params(deep=False))
                defaults = OnlineClassifier().get_params(deep=False)
                theirs = learner_parameters(defaults | check_parameters(description, defaults))
                different = [name for name in own if name != "device" and own[name] != theirs[name]]
                labels, axes = description["labels"], description["layout"]["axes"]
            except (UsageError, OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
                reason = str(error).split("\n")[0][:200]
                raise UsageError(f"the file is damaged, or not a saved classifier ({reason})") from None
            if different:
                values = ", ".join(f"{name}={own[name]!r}" for name in different)
                raise UsageError(f"the file has other parameters; this server needs {values}")
            if axes == "first" or not all(isinstance(label, str) for label in labels):
                raise UsageError("the file has labels that are no text, or images with channels first")
            return OnlineClassifier.load(path, device=self.classifier.device)
        except CannotStore:
            raise
        except UsageError as error:
            raise UsageError(str(error).replace(f"{path} cannot be loaded", "the file cannot be read")) from None
        finally:
            path.unlink(missing_ok=True)

    def _check(self, samples: Array) -> None:
        if self.state is not None and (samples.shape[1:] != self.shape or str(samples.dtype) != self.dtype):
            raise UsageError(
                f"samples have the shape {samples.shape[1:]} and type {samples.dtype}; this classifier learns "
                f"{self.shape} {self.dtype}"
            )

    def check_fitted(self) -> None:
        """Raise an error if nothing was learnt."""
        if self.state is None:
            raise UsageError("nothing was learnt yet; teach something first")

    def _start_again(self) -> None:
        """Forget everything. The next sample may have another shape."""
        self.classifier = OnlineClassifier(**self.settings.parameters())
        self.teachings.stack, self.teachings.pictures = [], {}

    # Snapshots

    def save(self, path: Path) -> None:
        self.classifier.save(path)

    def base(self) -> Operation:
        """Everything that the saved classifier does not hold: the first entry of a journal."""
        about, arrays = self.teachings.to_json()
        content = safetensors.save({str(number): np.ascontiguousarray(array) for number, array in enumerate(arrays)})
        return Operation("base", about={"fitted": self.state is not None, "teachings": about}, content=content)

    def restore(self, base: Operation, snapshot: Path) -> None:
        """Continue from a snapshot and the base that was written with it."""
        found = safetensors.load(base.content)
        arrays = [found[str(number)] for number in range(len(found))]
        self.teachings = Teachings.from_json(base.about["teachings"], arrays)
        if base.about["fitted"]:
            self.classifier = OnlineClassifier.load(snapshot)


def samples_of(operation: Operation) -> Array:
    if operation.samples is None or len(operation.samples) != len(operation.labels):
        raise UsageError("the operation needs one label per sample")
    return operation.samples


def check_number_of_classes(number: int) -> None:
    if number > MOST_CLASSES:
        raise UsageError(f"there would be {number} classes, and the limit is {MOST_CLASSES}; forget some first")
