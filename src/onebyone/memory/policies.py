"""Which samples a memory keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import torch
from torch import Tensor

from onebyone.errors import unknown
from onebyone.memory.memory import Memory

Policy = Literal["reservoir", "balanced"]


class Reservoir(Memory):
    """Vitter's algorithm R: at any time, every sample offered so far is kept with the same probability.

    >>> memory = Reservoir(2, shape=(1,))
    >>> g = torch.Generator().manual_seed(0)
    >>> memory.add(torch.tensor([[1], [2], [3]], dtype=torch.uint8), torch.tensor([0, 0, 1]), g)
    >>> int(memory.filled.sum()), memory.sample(4, g).weight
    (2, tensor([1., 1., 0., 0.]))
    """

    def slots(self, y: Tensor, generator: torch.Generator) -> Tensor:
        arrival = self.seen + torch.arange(len(y), device=y.device)
        # An integer below arrival + 1. The remainder of 62 random bits is uniform but for a part in 10^12.
        draw = torch.randint(2**62, (len(y),), generator=generator, device=y.device) % (arrival + 1)
        filled = self.filled.sum()
        # All rows are filled, unless samples were removed. Then the share of later samples that is kept is that of
        # the earlier ones, until all rows are filled again.
        seen, unused = self.seen.clamp(min=1), self.seen == 0
        share = ((filled + unused) * (arrival + 1) // seen).clamp(1, self.capacity)
        kept = (arrival < self.capacity) | (draw < share)
        free = filled + kept.cumsum(0) - 1
        return free.where(free < self.capacity, draw).where(kept, self.capacity)


class BalancedReservoir(Memory):
    """A reservoir per class with equal shares: a full memory removes a sample of its largest class.

    Every sample gets a random key when it arrives, and the largest class loses its lowest key. The samples kept of
    a class are those with its highest keys: a uniform sample of all that arrived, however the shares changed.

    >>> memory = BalancedReservoir(4, shape=(1,), num_classes=2)
    >>> y = torch.tensor([0] * 50 + [1] * 2)
    >>> memory.add(torch.zeros(52, 1, dtype=torch.uint8), y, torch.Generator().manual_seed(0))
    >>> memory.y[:4].bincount()
    tensor([2, 2])
    """

    key: Tensor
    held: Tensor

    def __init__(
        self,
        capacity: int,
        shape: tuple[int, ...],
        dtype: torch.dtype = torch.uint8,
        extra: Mapping[str, int] | None = None,
        *,
        num_classes: int,
    ) -> None:
        super().__init__(capacity, shape, dtype, extra)
        self.register_buffer("key", torch.zeros(capacity + 1))
        self.register_buffer("held", torch.zeros(num_classes, dtype=torch.int64))  # rows of each class

    def slots(self, y: Tensor, generator: torch.Generator) -> Tensor:
        keys = torch.rand(len(y), generator=generator, device=y.device)
        labels = self.y.clone()  # as they are once the samples before this one are written
        filled = self.filled.sum()
        slots = []
        for label, key in zip(y.split(1), keys.split(1), strict=True):
            full = filled >= self.capacity
            # The new sample is in the blank row while the largest class, its own included, loses one. If it is the only
            # row of its class, another class loses one: else a class could never return to a memory of few rows.
            labels[self.capacity :], self.key[self.capacity :] = label, key
            self.held.index_add_(0, label, torch.ones_like(label))
            alone = (self.held[label] == 1).long()
            largest = (2 * self.held).index_add_(0, label, -alone).argmax(keepdim=True)
            victim = self.key.masked_fill(labels != largest, 2.0).argmin(keepdim=True)
            self.held.index_add_(0, largest, -full.long().reshape(1))
            slot = victim.where(full, filled)
            filled = filled + ~full
            labels.index_copy_(0, slot, label)
            self.key.index_copy_(0, slot, key)
            slots.append(slot)
        self.key[self.capacity :] = 0
        return torch.cat(slots)

    def per_row(self) -> tuple[str, ...]:
        return (*self.fields, "key")

    def remove(self, rows: Tensor, forgotten: int) -> None:
        super().remove(rows, forgotten)
        self.count_rows()

    def relabel(self, label: int, new: int) -> None:
        super().relabel(label, new)
        self.count_rows()

    def count_rows(self) -> None:
        self.held.copy_(torch.bincount(self.y[:-1][self.filled], minlength=len(self.held)))


def create(
    policy: Policy,
    capacity: int,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    num_classes: int,
    extra: Mapping[str, int] | None = None,
) -> Memory:
    """Create a memory by the name of its policy.

    Parameters
    ----------
    policy
        ``"reservoir"`` or ``"balanced"``.
    capacity
        The number of samples it holds.
    shape, dtype
        Of one sample.
    num_classes
        The largest number of classes.
    extra
        Names and lengths of further values that are stored with each sample.

    Returns
    -------
    Memory
        An empty memory.

    Raises
    ------
    UsageError
        There is no policy of this name.

    >>> create("balanced", 20, (1, 8, 8), torch.uint8, num_classes=10).capacity
    20
    """
    match policy:
        case "reservoir":
            return Reservoir(capacity, shape, dtype, extra)
        case "balanced":
            return BalancedReservoir(capacity, shape, dtype, extra, num_classes=num_classes)
    raise unknown("memory policy", policy, get_args(Policy))
