"""Everything that a model keeps beside its learner: predictions, samples that are held back, and files it learnt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from onebyone.errors import UsageError
from onebyone.estimator.inputs import Layout
from onebyone.estimator.labels import Label
from onebyone.statistics.kept import EMPTY, as_words, keys, rank_in_class
from onebyone.methods import LeftOut
from onebyone.methods.registry import AnyLearner

SIZE = 256  # predictions that are kept
ENOUGH = 20  # predictions from which a temperature and a threshold are computed
LOWEST = torch.finfo(torch.float32).min  # stored instead of minus infinity: files hold finite numbers only
MOST = 64  # samples that are held back at a time
BYTES = 0.05  # that they may take, relative to the memory of the learner
FIRST = 10  # samples of each class that are learnt in any case
HELD_FIELDS = ("x", "y")
FILE_TENSORS = ("files.keys", "files.slots", "files.samples", "files.names")  # in a saved classifier
FILE_TYPES = (torch.int64, torch.int32, torch.int64, torch.int32)
OWN_NAME = -1  # instead of the number of a former name: the file was found under the label that its class has now
RECORD_FIELDS = ("scores", "y", "typicality")


@dataclass(frozen=True)
class Record:
    """The last predictions of samples that were then learnt. It is never changed, only replaced."""

    scores: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # [k, C] float32 on the CPU
    y: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))  # [k]
    typicality: Tensor = field(default_factory=lambda: torch.zeros(0))  # [k] float32

    def added(self, scores: Tensor, y: Tensor, typicality: Tensor) -> Record:
        """A record with more predictions; the oldest ones are dropped."""
        usable = scores.gather(1, y[:, None])[:, 0].isfinite() & typicality.isfinite()  # not of a class never seen
        scores, y, typicality = (values[usable].cpu() for values in (scores, y, typicality))
        before = F.pad(self.scores, (0, scores.shape[1] - self.scores.shape[1]), value=LOWEST)
        return Record(
            torch.cat([before, scores.float().clamp(LOWEST, -LOWEST)])[-SIZE:],
            torch.cat([self.y, y])[-SIZE:],
            torch.cat([self.typicality, typicality.float()])[-SIZE:],
        )

    def without(self, slot: int) -> Record:
        """A record without the predictions of samples of a class, and without its scores."""
        kept = self.y != slot
        scores = self.scores[kept]
        scores[:, slot : slot + 1] = LOWEST
        return Record(scores, self.y[kept], self.typicality[kept])

    def united(self, slot: int, into: int) -> Record:
        """A record after two classes became one: its score is the larger one."""
        scores = F.pad(self.scores, (0, max(0, into + 1 - self.scores.shape[1])), value=LOWEST).clone()
        if slot < scores.shape[1]:
            scores[:, into] = scores[:, [slot, into]].amax(1)
        return Record(scores, self.y.masked_fill(self.y == slot, into), self.typicality).without(slot)

    @property
    def left_out(self) -> LeftOut:
        return LeftOut(self.scores, self.y, self.typicality)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors for a file."""
        return {f"record.{name}": getattr(self, name) for name in RECORD_FIELDS}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], slots: set[int], room: int) -> Record:
        """The record in the tensors of a file, which are removed from them."""
        scores, y, typicality = (tensors.pop(f"record.{name}") for name in RECORD_FIELDS)
        types = (scores.dtype, y.dtype, typicality.dtype) == (torch.float32, torch.int64, torch.float32)
        shapes = scores.dim() == 2 and y.shape == typicality.shape == (len(scores),) and len(scores) <= SIZE
        if not (types and shapes and scores.shape[1] <= room):
            raise UsageError("its record of predictions has tensors of another type or shape")
        if not set(y.tolist()) <= slots & set(range(scores.shape[1])):
            raise UsageError("its record of predictions has a class without a label")
        if not all(bool(values.isfinite().all()) for values in (scores, typicality)):
            raise UsageError("its record of predictions is not finite")
        return cls(scores, y, typicality)


class Division(NamedTuple):
    """A batch, divided into samples to hold back and samples to learn."""

    held: HeldBack
    x: Tensor  # [n, *shape] to learn
    y: Tensor  # [n]


@dataclass(frozen=True)
class HeldBack:
    """The samples that are held back. They are never changed, only replaced.

    Which samples are held back depends on a hash of their values: a sample that is given again is held back again.
    Each class has about the same number of them.
    """

    x: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # [k, *shape] as learners read them, on the CPU
    y: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))  # [k] slots

    def __len__(self) -> int:
        return len(self.y)

    @property
    def keys(self) -> Tensor:
        return sample_keys(self.x) if len(self) else torch.zeros(0, dtype=torch.int64)

    def divide(self, x: Tensor, y: Tensor, learner: AnyLearner, share: float) -> Division:
        """Divide a batch, [n, *shape] and [n] on the device of the learner, which has not learnt it yet.

        About a ``share`` of its samples is held back. If there are too many then, some are learnt with the batch.
        """
        counts = learner.counts[y].cpu() + rank_in_class(y.cpu())
        offered = (counts >= FIRST) & (sample_keys(x) < int(share * EMPTY))
        if not offered.any():
            return Division(self, x, y)
        new = self.joined(x[offered.to(x.device)].cpu(), y[offered.to(y.device)].cpu())
        order = new.keys.argsort(stable=True)
        place = torch.empty_like(order).index_copy(0, order, rank_in_class(new.y[order]))
        kept = torch.zeros(len(new), dtype=torch.bool)
        kept[place.argsort(stable=True)[: room(learner)]] = True
        learnt = new.where(~kept)
        rest = ~offered.to(x.device)
        return Division(
            new.where(kept), torch.cat([x[rest], learnt.x.to(x.device)]), torch.cat([y[rest], learnt.y.to(y.device)])
        )

    def joined(self, x: Tensor, y: Tensor) -> HeldBack:
        return HeldBack(torch.cat([self.x, x]), torch.cat([self.y, y])) if len(self) else HeldBack(x, y)

    def where(self, mask: Tensor) -> HeldBack:
        """The samples with ``mask`` [k] true."""
        return HeldBack(self.x[mask], self.y[mask])

    def contains(self, x: Tensor) -> Tensor:
        """[n] which of the samples [n, *shape] are held back."""
        return torch.isin(sample_keys(x), self.keys)

    def without(self, slot: int) -> HeldBack:
        return self.where(self.y != slot)

    def united(self, slot: int, into: int) -> HeldBack:
        return HeldBack(self.x, self.y.masked_fill(self.y == slot, into))

    def forget(self, x: Tensor, y: Tensor) -> tuple[HeldBack, Tensor]:
        """Without one sample for each of the given ones, [n, *shape] and [n]; and which of these [n] were found."""
        left, found = torch.ones(len(self), dtype=torch.bool), torch.zeros(len(y), dtype=torch.bool)
        own = self.keys
        for row, (key, slot) in enumerate(zip(sample_keys(x).tolist(), y.tolist(), strict=True)):
            equal = (left & (own == key) & (self.y == slot)).nonzero()[:1, 0]
            left[equal], found[row] = False, len(equal) > 0
        return self.where(left), found

    def predictions(self, learner: AnyLearner) -> LeftOut:
        """Predictions of these samples by the learner as it is now."""
        x = self.x.to(learner.device)
        scores, typicality = learner.scores_and_typicality(x)
        return LeftOut(scores.cpu(), self.y, typicality.cpu())

    def tensors(self) -> dict[str, Tensor]:
        """The tensors for a file. Nothing if there are no samples."""
        return {f"held_back.{name}": getattr(self, name) for name in HELD_FIELDS} if len(self) else {}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], slots: set[int], layout: Layout) -> Self:
        """The samples in the tensors of a file, which are removed from them."""
        found = [tensors.pop(name) for name in (f"held_back.{name}" for name in HELD_FIELDS) if name in tensors]
        if not found:
            return cls()
        x, y = found
        if x.dtype != layout.dtype or y.dtype != torch.int64 or x.shape != (len(y), *layout.sample_shape):
            raise UsageError("its samples that are held back have tensors of another type or shape")
        if not 0 < len(y) <= MOST or not set(y.tolist()) <= slots or not bool(x.isfinite().all()):
            raise UsageError("its samples that are held back are not those of its classes")
        return cls(x, y)


def room(learner: AnyLearner) -> int:
    """How many samples may be held back."""
    size = learner.spec.sample_bytes + torch.int64.itemsize  # with its slot
    return min(MOST, int(BYTES * learner.memory_bytes / size)) if learner.memory_bytes else MOST


def sample_keys(x: Tensor) -> Tensor:
    """[n, *shape] -> [n] hashes of samples, on the CPU."""
    return keys(x.cpu().flatten(1))


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
        return {
            name: torch.tensor(column, dtype=kind)[order]
            for name, column, kind in zip(FILE_TENSORS, columns, FILE_TYPES, strict=True)
        }

    @classmethod
    def from_tensors(
        cls, tensors: dict[str, Tensor], slots: Mapping[Label, int], former_names: Sequence[Label]
    ) -> KnownFiles:
        """The files in the tensors of a saved classifier, which are removed from them."""
        columns = [
            tensors.pop(name, torch.zeros(0, dtype=kind)) for name, kind in zip(FILE_TENSORS, FILE_TYPES, strict=True)
        ]
        _, found, _, names = columns
        label_of = {slot: label for label, slot in slots.items()}
        alike = all(
            column.dtype == kind and column.dim() == 1 for column, kind in zip(columns, FILE_TYPES, strict=True)
        )
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


def kept_tensors(record: Record, held: HeldBack, files: KnownFiles, slots: Mapping[Label, int]) -> dict[str, Tensor]:
    """The tensors for a file."""
    return record.tensors() | held.tensors() | files.tensors(slots)
