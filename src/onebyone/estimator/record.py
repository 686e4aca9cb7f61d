"""Predictions of samples before they were learnt: how good a classifier without left-out predictions is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from onebyone.errors import UsageError
from onebyone.methods import LeftOut

SIZE = 256  # predictions that are kept
ENOUGH = 20  # predictions from which a temperature and a threshold are computed
LOWEST = torch.finfo(torch.float32).min  # stored instead of minus infinity: files hold finite numbers only
FIELDS = ("scores", "y", "typicality")


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

    @cached_property
    def temperature(self) -> float:
        """The temperature of the scores."""
        return fitted_temperature(self.scores, self.y)

    @property
    def left_out(self) -> LeftOut:
        return LeftOut(self.scores, self.y, self.typicality)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors for a file."""
        return {f"record.{name}": getattr(self, name) for name in FIELDS}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], slots: set[int], room: int) -> Record:
        """The record in the tensors of a file, which are removed from them."""
        scores, y, typicality = (tensors.pop(f"record.{name}") for name in FIELDS)
        types = (scores.dtype, y.dtype, typicality.dtype) == (torch.float32, torch.int64, torch.float32)
        shapes = scores.dim() == 2 and y.shape == typicality.shape == (len(scores),) and len(scores) <= SIZE
        if not (types and shapes and scores.shape[1] <= room):
            raise UsageError("its record of predictions has tensors of another type or shape")
        if not set(y.tolist()) <= slots & set(range(scores.shape[1])):
            raise UsageError("its record of predictions has a class without a label")
        if not all(bool(values.isfinite().all()) for values in (scores, typicality)):
            raise UsageError("its record of predictions is not finite")
        return cls(scores, y, typicality)


def fitted_temperature(scores: Tensor, y: Tensor) -> float:
    """The temperature with the largest likelihood of labels [k], given scores [k, C].

    Labels are smoothed by one part in k + 1: if all predictions are right, confidence grows with their number.

    >>> fitted_temperature(torch.tensor([[2.0, 0.0]] * 3 + [[0.0, 2.0]]), torch.tensor([0, 0, 1, 1]))
    2.36...
    """
    known = scores > LOWEST
    relative = (scores.double() - scores.double().amax(1, keepdim=True)).where(known, 0)
    share = 1 / (len(y) + 1)
    target = (1 - share) * F.one_hot(y, scores.shape[1]) + share * known / known.sum(1, keepdim=True)
    expected = (target * relative).sum()
    low, high = -7.0, 7.0  # the logarithm of 1 / temperature, in which the derivative has one zero
    for _ in range(50):
        middle = (low + high) / 2
        probability = (relative * math.exp(middle)).masked_fill(~known, -torch.inf).softmax(1)
        low, high = (middle, high) if expected > (probability * relative).sum() else (low, middle)
    return math.exp(-(low + high) / 2)
