"""A fixed number of rows on the learner's device, written and sampled without reading a value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onebyone.errors import UsageError


@dataclass(frozen=True)
class Rows:
    """Rows drawn from a memory. If there are fewer than requested, the missing ones have a weight of zero."""

    x: Tensor  # [k, *shape] as stored
    y: Tensor  # [k]
    weight: Tensor  # [k] 1.0 for a stored row, 0.0 for a missing one
    extra: Mapping[str, Tensor] = field(default_factory=dict)  # the further fields, [k, ...] each


class Memory(nn.Module, ABC):
    """Replay memory of fixed size: ``capacity`` rows, each with a sample, its label and any further fields.

    A policy decides which samples are kept. One more row, the *blank* row, is allocated behind the last. A sample that
    is not kept is written there and wiped, and a missing row is read from there. So reading and writing always have
    the same shape, and no step has to read a value.

    Rows that hold samples come first. If samples are removed, the free rows behind them have the label -1, and later
    samples that the policy keeps are written there.
    """

    x: Tensor
    y: Tensor
    seen: Tensor
    journal: list[tuple[Tensor, dict[str, Tensor]]] | None = None  # if a list: rows as they were before ``add``

    def __init__(
        self,
        capacity: int,
        shape: tuple[int, ...],
        dtype: torch.dtype = torch.uint8,
        extra: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        if capacity < 1:
            raise UsageError(f"a memory of {capacity} samples was asked for; it must hold at least 1")
        self.capacity = capacity
        self.fields = ("x", "y", *(extra or {}))
        self.register_buffer("x", torch.zeros(capacity + 1, *shape, dtype=dtype))
        self.register_buffer("y", torch.zeros(capacity + 1, dtype=torch.int64))
        for name, width in (extra or {}).items():
            self.register_buffer(name, torch.zeros(capacity + 1, width))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))  # samples offered so far

    @abstractmethod
    def slots(self, y: Tensor, generator: torch.Generator) -> Tensor:
        """[n] the row each offered sample goes to, in order of arrival; ``capacity`` for one that is not kept."""

    @property
    def filled(self) -> Tensor:
        """[capacity] which rows hold a sample."""
        return (torch.arange(self.capacity, device=self.seen.device) < self.seen) & (self.y[:-1] >= 0)

    @property
    def nbytes(self) -> int:
        """Bytes of everything kept: samples, labels, further fields and the policy's own records."""
        return sum(buffer.numel() * buffer.element_size() for buffer in self.buffers())

    @torch.no_grad()
    def add(self, x: Tensor, y: Tensor, generator: torch.Generator, **extra: Tensor) -> None:
        """Offer samples; the policy decides which are kept and what they replace."""
        slots = self.slots(y, generator)
        # Two samples of a batch may be sent to the same row. The later one is kept, as if they had arrived one by one.
        overwritten = (slots[:, None] == slots).triu(1).any(1)
        slots = slots.masked_fill(overwritten, self.capacity)
        if self.journal is not None:
            self.journal.append((slots, {name: self.get_buffer(name)[slots] for name in self.fields}))
        for name, values in {"x": x, "y": y, **extra}.items():
            field = self.get_buffer(name)
            field.index_copy_(0, slots, values)
            field[self.capacity :] = 0
        self.seen += len(slots)

    @torch.no_grad()
    def find(self, x: Tensor, y: Tensor) -> Tensor:
        """[capacity] true for one row per given sample, [n, *shape] and [n], where there is a row equal to it."""
        found = torch.zeros_like(self.filled)
        for sample, label in zip(x, y, strict=True):
            equal = self.filled & ~found & (self.y[:-1] == label) & (self.x[:-1] == sample).flatten(1).all(1)
            found[equal.nonzero().flatten()[:1]] = True
        return found

    @torch.no_grad()
    def remove(self, rows: Tensor, forgotten: int) -> None:
        """Remove the rows with ``rows`` [capacity] true, and count ``forgotten`` samples less as offered."""
        left = (self.filled & ~rows).nonzero().flatten()
        for name in self.per_row():
            values = self.get_buffer(name)
            kept = values[left]
            values.zero_()
            values[: len(left)] = kept
        self.y[len(left) : self.capacity] = -1
        self.seen.sub_(forgotten).clamp_(min=len(left))

    @torch.no_grad()
    def forget_class(self, label: int, forgotten: int) -> None:
        """Remove all samples of a class, of which ``forgotten`` were offered."""
        self.remove(self.y[:-1] == label, forgotten)
        for name in self.fields[2:]:  # one number per class
            self.get_buffer(name)[:, label] = 0

    @torch.no_grad()
    def relabel(self, label: int, new: int) -> None:
        """Give all samples of a class to another one."""
        self.y[:-1].masked_fill_(self.filled & (self.y[:-1] == label), new)

    def per_row(self) -> tuple[str, ...]:
        """The names of the buffers with one entry per row."""
        return self.fields

    @torch.no_grad()
    def undo(self) -> None:
        """Write back all rows in the journal, the last one first; ``seen`` and a policy's records stay as they are."""
        for slots, rows in reversed(self.journal or []):
            for name, values in rows.items():
                self.get_buffer(name).index_copy_(0, slots, values)

    def sample(self, count: int, generator: torch.Generator, allowed: Tensor | None = None) -> Rows:
        """Draw ``count`` different rows at random, among those with ``allowed`` [capacity] true if it is given."""
        usable = self.filled if allowed is None else self.filled & allowed
        keys = torch.rand(self.capacity, generator=generator, device=self.seen.device)
        best = keys.where(usable, -1.0).topk(min(count, self.capacity))
        index = best.indices.masked_fill(best.values < 0, self.capacity)
        missing = count - len(index)
        return self.rows(F.pad(index, [0, missing], value=self.capacity) if missing else index)

    def rows(self, index: Tensor) -> Rows:
        """The rows at ``index``; ``capacity`` stands for a missing one."""
        extra = {name: self.get_buffer(name)[index] for name in self.fields[2:]}
        return Rows(self.x[index], self.y[index], (index < self.capacity).float(), extra)

    def everything(self) -> Rows:
        """All rows, missing ones included (they weigh nothing)."""
        rows = torch.arange(self.capacity, device=self.seen.device)
        return self.rows(rows.where(self.filled, self.capacity))
