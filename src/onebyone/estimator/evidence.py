"""Predictions of samples that were not learnt, or not yet: from them follow temperature, threshold and report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from onebyone.errors import UsageError
from onebyone.estimator.inputs import Layout
from onebyone.methods import LeftOut
from onebyone.methods.registry import AnyLearner
from onebyone.statistics.kept import EMPTY, keys, rank_in_class

EvidenceSource = Literal["left out", "held back", "left out by the statistics", "predicted before learnt"]
SIZE = 256  # predictions that are recorded
ENOUGH = 20  # predictions from which a temperature and a threshold are computed
LOWEST = torch.finfo(torch.float32).min  # stored instead of minus infinity: files hold finite numbers only
MOST = 64  # samples that are held back at a time
BYTES = 0.05  # that they may take, relative to the memory of the learner
FIRST = 10  # samples of each class that are learnt in any case
HELD_FIELDS = ("x", "y")
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

    def divide(self, x: Tensor, y: Tensor, learner: AnyLearner, share: float) -> tuple[HeldBack, Tensor, Tensor]:
        """Divide a batch that is not learnt yet, [n, *shape] and [n], into samples to hold back and samples to learn.

        About a ``share`` of its samples is held back. If there are too many then, some are learnt with the batch.
        """
        counts = learner.counts[y].cpu() + rank_in_class(y.cpu())
        offered = (counts >= FIRST) & (sample_keys(x) < int(share * EMPTY))
        if not offered.any():
            return self, x, y
        new = self.joined(x[offered.to(x.device)].cpu(), y[offered.to(y.device)].cpu())
        order = new.keys.argsort(stable=True)
        place = torch.empty_like(order).index_copy(0, order, rank_in_class(new.y[order]))
        kept = torch.zeros(len(new), dtype=torch.bool)
        kept[place.argsort(stable=True)[: most_held_back(learner)]] = True
        learnt = new.where(~kept)
        rest = ~offered.to(x.device)
        x, y = torch.cat([x[rest], learnt.x.to(x.device)]), torch.cat([y[rest], learnt.y.to(y.device)])
        return new.where(kept), x, y

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


def most_held_back(learner: AnyLearner) -> int:
    """How many samples may be held back."""
    size = learner.spec.sample_bytes + torch.int64.itemsize  # with its slot
    return min(MOST, int(BYTES * learner.memory_bytes / size)) if learner.memory_bytes else MOST


def sample_keys(x: Tensor) -> Tensor:
    """[n, *shape] -> [n] hashes of samples, on the CPU."""
    return keys(x.cpu().flatten(1))


class Evidence(NamedTuple):
    """Honest predictions of samples that were learnt."""

    predictions: LeftOut
    source: EvidenceSource
