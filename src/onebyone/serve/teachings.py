"""What was taught lately: for undo, for the pictures of a class, and for the curve of right predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
MOST_TEACHINGS = 50  # that can be undone
MOST_BYTES = 8_000_000  # of their samples
PICTURES = 6  # of each class
MOST_PICTURE_BYTES = 8_000_000
OUTCOMES = 1000


@dataclass(frozen=True)
class Teaching:
    """The samples of one call, and the classes that it introduced."""

    samples: Array
    labels: tuple[str, ...]
    introduced: tuple[str, ...]

    def renamed(self, names: Mapping[str, str]) -> Teaching:
        def new(labels: Iterable[str]) -> tuple[str, ...]:
            return tuple(names.get(label, label) for label in labels)

        return Teaching(self.samples, new(self.labels), new(self.introduced))

    def without(self, position: int) -> Teaching:
        rest = [index for index in range(len(self.labels)) if index != position]
        return Teaching(self.samples[rest], tuple(self.labels[index] for index in rest), self.introduced)


@dataclass
class Teachings:
    """The last teachings, and the last predictions of samples before they were learnt."""

    stack: list[Teaching] = field(default_factory=list)
    pictures: dict[str, list[Array]] = field(default_factory=dict)  # the newest last
    outcomes: list[bool] = field(default_factory=list)
    predicted: int = 0  # how many predictions there were in all

    def taught(self, teaching: Teaching, right: Iterable[bool | None]) -> None:
        self.stack.append(teaching)
        while self.stack and (
            len(self.stack) > MOST_TEACHINGS or sum(each.samples.nbytes for each in self.stack) > MOST_BYTES
        ):
            del self.stack[0]
        known = [bool(each) for each in right if each is not None]
        self.outcomes = (self.outcomes + known)[-OUTCOMES:]
        self.predicted += len(known)
        for sample, label in zip(teaching.samples, teaching.labels, strict=True):
            self.pictures[label] = [*self.pictures.get(label, []), sample][-PICTURES:]
        if sum(sample.nbytes for kept in self.pictures.values() for sample in kept) > MOST_PICTURE_BYTES:
            self.pictures = {label: kept[-1:] for label, kept in self.pictures.items()}

    def forgotten(self, samples: Array, labels: Iterable[str]) -> None:
        """Remove samples that were forgotten, from the pictures and from the teachings that could be undone."""
        for sample, label in zip(samples, labels, strict=True):
            remove(self.pictures.get(label, []), sample)
            for number in reversed(range(len(self.stack))):
                each = self.stack[number]
                same = [
                    index
                    for index, own in enumerate(each.labels)
                    if own == label and np.array_equal(each.samples[index], sample)
                ]
                if same:
                    self.stack[number] = each.without(same[-1])
                    break
        self.stack = [each for each in self.stack if each.labels]

    def class_forgotten(self, label: str) -> None:
        self.pictures.pop(label, None)
        for number, each in enumerate(self.stack):
            while label in each.labels:
                each = each.without(each.labels.index(label))
            self.stack[number] = Teaching(
                each.samples, each.labels, tuple(own for own in each.introduced if own != label)
            )
        self.stack = [each for each in self.stack if each.labels]

    def renamed(self, names: Mapping[str, str]) -> None:
        self.stack = [each.renamed(names) for each in self.stack]
        pictures: dict[str, list[Array]] = {}
        for label, kept in self.pictures.items():
            new = names.get(label, label)
            pictures[new] = [*pictures.get(new, []), *kept][-PICTURES:]
        self.pictures = pictures

    def to_json(self) -> tuple[dict[str, Any], list[Array]]:
        """A JSON object and the arrays that it refers to by position."""
        arrays = [each.samples for each in self.stack]
        pictures = {}
        for label, kept in self.pictures.items():
            if kept:
                pictures[label] = len(arrays)
                arrays.append(np.stack(kept))
        stack = [{"labels": each.labels, "introduced": each.introduced} for each in self.stack]
        outcomes = "".join("1" if each else "0" for each in self.outcomes)
        return {"stack": stack, "pictures": pictures, "outcomes": outcomes, "predicted": self.predicted}, arrays

    @classmethod
    def from_json(cls, found: Mapping[str, Any], arrays: list[Array]) -> Teachings:
        stack = [
            Teaching(arrays[number], tuple(each["labels"]), tuple(each["introduced"]))
            for number, each in enumerate(found["stack"])
        ]
        pictures = {label: list(arrays[number]) for label, number in found["pictures"].items()}
        return cls(stack, pictures, [each == "1" for each in found["outcomes"]], found["predicted"])


def remove(kept: list[Array], sample: Array) -> None:
    """Remove the newest picture that equals the sample."""
    for index in reversed(range(len(kept))):
        if np.array_equal(kept[index], sample):
            del kept[index]
            return
