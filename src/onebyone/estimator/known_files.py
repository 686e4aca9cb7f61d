"""The image files that a classifier has learnt, so that none is learnt twice."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from onebyone.errors import UsageError
from onebyone.estimator.labels import Label
from onebyone.statistics.kept import as_words, keys

TENSORS = {  # in a saved classifier
    "files.keys": torch.int64,
    "files.slots": torch.int32,
    "files.samples": torch.int64,
    "files.names": torch.int32,
}
OWN_NAME = -1  # instead of the number of a former name: the file was found under the label that its class has now


class Taught(NamedTuple):
    """The class and the pixels that a file was learnt with."""

    label: Label  # of its class now
    sample: int  # key of its pixels, as ``forget`` gets them


@dataclass(frozen=True)
class KnownFiles:
    """The learnt files, by the key of their contents and a name of their class.

    A file has one entry for each name that its class has had: it may still be in a folder of an old name.
    """

    entries: dict[tuple[int, Label], Taught] = field(default_factory=dict)

    def add(self, new: Mapping[tuple[int, Label], Taught]) -> None:
        """Add new files.

        All methods but this one and :meth:`remove` return new objects. Copying a million entries for each batch would
        take longer than learning small images. The caller holds the lock of the classifier.
        """
        self.entries.update(new)

    def remove(self, new: Iterable[tuple[int, Label]]) -> None:
        """Remove files that were just added, or were to be."""
        for file in new:
            self.entries.pop(file, None)

    def without_contents(self, keys: Collection[int]) -> KnownFiles:
        return KnownFiles({file: taught for file, taught in self.entries.items() if file[0] not in keys})

    def copy(self) -> KnownFiles:
        return KnownFiles(self.entries.copy())

    def without(self, samples: Iterable[Taught]) -> KnownFiles:
        """Without one file for each of these samples, if it was learnt from a file."""
        contents = dict[Taught, set[int]]()
        for (key, _), taught in self.entries.items():
            contents.setdefault(taught, set()).add(key)
        forgotten = {(contents[sample].pop(), sample) for sample in samples if contents.get(sample)}
        kept = {file: taught for file, taught in self.entries.items() if (file[0], taught) not in forgotten}
        return KnownFiles(kept)

    def without_class(self, label: Label) -> KnownFiles:
        return KnownFiles({file: taught for file, taught in self.entries.items() if taught.label != label})

    def renamed(self, names: Mapping[Label, Label]) -> KnownFiles:
        """With new labels. The files are known by their old names too."""
        now = {
            file: taught._replace(label=names.get(taught.label, taught.label)) for file, taught in self.entries.items()
        }
        return KnownFiles(now | {(key, taught.label): taught for (key, _), taught in now.items()})

    def without_former_names(self, labels: Collection[Label]) -> KnownFiles:
        """Without the names that the classes with these labels had before."""
        own = {file: taught for file, taught in self.entries.items() if file[1] == taught.label}
        return KnownFiles(own | {file: taught for file, taught in self.entries.items() if taught.label not in labels})

    def united(self, other: KnownFiles) -> KnownFiles:
        return KnownFiles({**self.entries, **other.entries})

    @property
    def contents(self) -> set[int]:
        """The keys of the contents."""
        return {key for key, _ in self.entries}

    def names(self) -> dict[int, tuple[Label, ...]]:
        """The names that files are known by, by their contents."""
        found, shared = dict[int, tuple[Label, ...]](), dict[tuple[Label, ...], tuple[Label, ...]]()
        for key, name in self.entries:
            names = (*found.get(key, ()), name)
            found[key] = shared.setdefault(names, names)  # of a million files, most have equal names
        return found

    @property
    def former_names(self) -> list[Label]:
        """The names of classes that files were found under, if their classes have other labels now."""
        return list(dict.fromkeys(name for (_, name), taught in self.entries.items() if name != taught.label))

    def tensors(self, slots: Mapping[Label, int]) -> dict[str, Tensor]:
        """The tensors for a file of the classifier: 24 bytes per entry. Nothing if there are none."""
        if not self.entries:
            return {}
        former = {name: number for number, name in enumerate(self.former_names)}
        files = self.entries.items()
        columns = (
            [key for (key, _), _ in files],
            [slots[taught.label] for taught in self.entries.values()],
            [taught.sample for taught in self.entries.values()],
            [OWN_NAME if name == taught.label else former[name] for (_, name), taught in files],
        )
        order = torch.from_numpy(np.lexsort(columns[::-1]))  # so that equal sets of files have equal bytes
        named = zip(TENSORS.items(), columns, strict=True)
        return {name: torch.tensor(column, dtype=kind)[order] for (name, kind), column in named}

    @classmethod
    def from_tensors(
        cls, tensors: dict[str, Tensor], slots: Mapping[Label, int], former_names: Sequence[Label]
    ) -> KnownFiles:
        """The files in the tensors of a saved classifier, which are removed from them."""
        columns = [tensors.pop(name, torch.zeros(0, dtype=kind)) for name, kind in TENSORS.items()]
        _, found, _, names = columns
        label_of = {slot: label for label, slot in slots.items()}
        kinds = zip(columns, TENSORS.values(), strict=True)
        alike = all(column.dtype == kind and column.dim() == 1 for column, kind in kinds)
        if not alike or len({len(column) for column in columns}) > 1 or not set(found.tolist()) <= label_of.keys():
            raise UsageError("its list of files that were learnt does not match its labels")
        if not set(names.tolist()) <= set(range(OWN_NAME, len(former_names))):
            raise UsageError("its list of files that were learnt has a name that is missing")
        entries = {}
        for key, slot, sample, name in zip(*(column.tolist() for column in columns), strict=True):
            label = label_of[slot]
            entries[key, label if name == OWN_NAME else former_names[name]] = Taught(label, sample)
        return cls(entries)


def pixel_keys(images: Tensor) -> list[int]:
    """A number of 64 bits for each of the images [n, channels, height, width] of bytes, which depends on its pixels."""
    # Channels last, as decoded images are in memory, so that these are not copied.
    found: list[int] = keys(as_words(images.movedim(1, -1).flatten(1))).tolist()
    return found
