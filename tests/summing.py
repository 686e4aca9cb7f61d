"""A learner that keeps nothing but sums, so that every change of it can be computed by hand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Self

import pytest
import torch
from torch import Tensor

from onebyone.data import Spec
from onebyone.errors import UsageError
from onebyone.methods import Learner, register
from onebyone.methods.registry import METHODS
from onebyone.options import Checked


@dataclass(frozen=True, kw_only=True)
class SumOptions(Checked):
    pass


class Sums(Learner[SumOptions]):
    """Nearest class mean; class means are sums of samples over sums of weights."""

    mergeable = takes_weights = True

    def __init__(self, options: SumOptions, spec: Spec, seed: int = 0, device: torch.device | str = "cpu") -> None:
        super().__init__(options, spec, seed, device)
        zeros = torch.zeros(spec.num_classes, prod(spec.shape) + 1, dtype=torch.float64, device=device)
        self.register_buffer("sums", zeros)  # of values, and of weights

    def rows(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        values = torch.cat([x.flatten(1).double(), torch.ones(len(y), 1)], 1)
        values = values if weight is None else values * weight[:, None]
        return torch.zeros_like(self.sums).index_add_(0, y, values)

    def observe(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        self.count(y)
        self.sums += self.rows(x, y, weight)
        return torch.zeros(())

    def repeat(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        return torch.zeros(())

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1).double()

    def readout(self) -> Callable[[Tensor], Tensor]:
        means = self.sums[:, :-1] / self.sums[:, -1:].clamp(min=1e-9)
        return lambda features: -(features[:, None] - means).square().sum(2)

    def merge(self, other: Self) -> None:
        self.counts += other.counts
        self.sums += other.sums

    def forget(self, x: Tensor, y: Tensor) -> None:
        super().forget(x, y)
        self.sums -= self.rows(x, y)

    def unite(self, slot: int, into: int) -> None:
        self.sums[into] += self.sums[slot]
        super().unite(slot, into)

    def reorder(self, slots: Tensor) -> None:
        self.counts.copy_(self.counts[slots])
        self.sums.copy_(self.sums[slots])


class Refusing(Sums):
    """Fails in the middle of every change."""

    def merge(self, other: Self) -> None:
        super().merge(other)
        raise UsageError("refused")

    def forget(self, x: Tensor, y: Tensor) -> None:
        super().forget(x, y)
        raise UsageError("refused")

    def forget_class(self, slot: int) -> None:
        super().forget_class(slot)
        raise UsageError("refused")

    def unite(self, slot: int, into: int) -> None:
        super().unite(slot, into)
        raise UsageError("refused")


@contextmanager
def registered() -> Iterator[None]:
    """Within it, both are methods: "sums" and "refusing"."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(METHODS, "entries", dict(METHODS.entries))
        patch.setattr(METHODS, "origins", dict(METHODS.origins))
        register("sums", SumOptions)(Sums)
        register("refusing", SumOptions)(Refusing)
        yield
