"""A random sample of every class of a stream that does not depend on its order."""

from __future__ import annotations

from functools import lru_cache
from typing import Self

import torch
from torch import Tensor, nn

EMPTY = 2**62  # key of a row that holds no sample
CACHED = 2**19  # numbers that are multiplied at once
MIX = (-7046029254386353131, -4417276706812531889)  # odd numbers with irregular bits


class KeptSample(nn.Module):
    """As many samples of each class as ``capacity`` allows: those with the smallest keys.

    A key is a hash of the sample. First comes the sample with the smallest key of each class, then the second one of
    each class, and so on. So a rare class is represented like the others. Equal samples of a class take one row, which
    counts them. Which samples are kept depends on the samples alone, not on their order, and two such sets can be
    merged exactly: a sample that is dropped would be dropped from any larger set too.

    >>> kept = KeptSample(2, 3, torch.int8)
    >>> kept.add(torch.tensor([[1, 2, 3], [4, 5, 6], [4, 5, 6]], dtype=torch.int8), torch.tensor([0, 1, 1]))
    >>> len(kept), kept.values.shape, kept.copies[kept.labels == 1]
    (2, torch.Size([2, 3]), tensor([2.], dtype=torch.float64))
    """

    keys: Tensor
    values: Tensor
    labels: Tensor
    copies: Tensor

    def __init__(self, capacity: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("keys", torch.full((capacity,), EMPTY))
        self.register_buffer("values", torch.zeros(capacity, width, dtype=dtype))
        self.register_buffer("labels", torch.zeros(capacity, dtype=torch.int32))
        self.register_buffer(
            "copies", torch.zeros(capacity, dtype=torch.float64)
        )  # how many equal samples were added, by weight

    def __len__(self) -> int:
        return int(self.used().sum())

    def used(self) -> Tensor:
        return self.keys != EMPTY

    @torch.no_grad()
    def add(self, values: Tensor, y: Tensor, weight: Tensor | None = None, identity: Tensor | None = None) -> None:
        """Add samples [n, width] of classes [n], except those of weight 0.

        Keys are computed from ``identity`` [n, any], or from the values.
        """
        new = keys(values if identity is None else identity)
        copies = torch.ones(len(y), dtype=torch.float64, device=y.device) if weight is None else weight
        self.replace(new if weight is None else new.where(weight > 0, EMPTY), values, y, copies)

    def replace(self, new: Tensor, values: Tensor, y: Tensor, copies: Tensor) -> None:
        """Choose from the present and the new samples. Keys stay in ascending order."""
        labels, by_label = torch.cat([self.labels, y.to(torch.int32)]).sort(stable=True)
        every, by_key = torch.cat([self.keys, new])[by_label].sort(stable=True)
        order, labels = by_label[by_key], labels[by_key]
        sample = every != EMPTY
        first = sample.clone()  # of equal samples of a class
        first[1:] &= (every[1:] != every[:-1]) | (labels[1:] != labels[:-1])
        # Empty rows come after all samples. They are those that were empty before, which hold zeros.
        place = rank_in_class(labels.where(first, -1)).where(first, len(every)).add_(sample ^ first)
        chosen = place.argsort(stable=True)[: len(self.keys)].sort().values
        self.keys.copy_(every[chosen])
        rows = order[chosen]
        every_value = torch.cat([self.values, values.to(self.values.dtype)])
        self.values.copy_(every_value.index_select(0, rows))  # copies whole rows, eight times as fast as [...]
        self.labels.copy_(labels[chosen])
        group = first.cumsum(0)
        amounts = torch.cat([self.copies, copies.to(self.copies)])[order]
        counts = amounts.new_zeros(len(amounts) + 1).index_add_(0, group, amounts)
        self.copies.copy_(counts[group[chosen]].mul_(first[chosen]))

    def drawn(self) -> Tensor:
        """[k] the rows of kept samples, in ascending order and each as often as its sample was added.

        If a class has more samples than its share of the rows, they are thinned out in proportion.
        """
        used = len(self)
        copies, labels = self.copies[:used].cpu(), self.labels[:used].cpu()
        times = torch.ones(used, dtype=torch.int64)
        if used and float(copies.max()) > 1:
            classes = labels.unique()
            for label in classes:
                own = labels == label
                share = max(int(own.sum()), len(self.keys) // len(classes)) / float(copies[own].sum())
                ends = (copies[own].cumsum(0) * min(share, 1.0)).round().long()
                times[own] = ends.diff(prepend=ends.new_zeros(1))
        return torch.arange(used).repeat_interleave(times).to(self.keys.device)

    @torch.no_grad()
    def merge(self, other: Self) -> None:
        self.replace(other.keys, other.values, other.labels, other.copies)

    @torch.no_grad()
    def remove(self, identity: Tensor, y: Tensor) -> None:
        """Remove these samples, as far as they are here; of equal ones as many as are given."""
        for key, label in zip(keys(identity).tolist(), y.tolist(), strict=True):
            found = ((self.keys == key) & (self.labels == label)).nonzero()[:1, 0]
            self.copies[found] -= 1
            self.blank(found[self.copies[found] <= 0])

    @torch.no_grad()
    def forget_class(self, label: int) -> None:
        self.blank((self.used() & (self.labels == label)).nonzero()[:, 0])

    @torch.no_grad()
    def unite(self, label: int, into: int) -> None:
        self.labels.masked_fill_(self.used() & (self.labels == label), into)
        equal = (self.keys[:, None] == self.keys) & (self.labels[:, None] == self.labels)
        first = equal.int().argmax(1)
        again = (self.used() & (first < torch.arange(len(first), device=first.device))).nonzero()[:, 0]
        self.copies.index_add_(0, first[again], self.copies[again])
        self.blank(again)

    def blank(self, rows: Tensor) -> None:
        """Empty rows hold zeros and come last, so that equal sets of samples have equal bits."""
        self.keys[rows], self.labels[rows] = EMPTY, 0
        self.values[rows], self.copies[rows] = 0, 0
        order = self.labels.argsort(stable=True)
        order = order[self.keys[order].argsort(stable=True)]
        for tensor in (self.keys, self.values, self.labels, self.copies):
            tensor.copy_(tensor[order])


def rank_in_class(labels: Tensor) -> Tensor:
    """[n] how many samples before this one are of its class.

    >>> rank_in_class(torch.tensor([3, 0, 3, 3, 0])).tolist()
    [0, 0, 1, 2, 1]
    """
    grouped, order = labels.sort(stable=True)
    rank = torch.arange(len(labels), device=labels.device) - torch.searchsorted(grouped, grouped)
    return torch.empty_like(rank).index_copy(0, order, rank)


def keys(values: Tensor) -> Tensor:
    """[n, width] -> [n] whole numbers from 0 to 2^62 - 1 that look random and depend on the values alone."""
    bits = values.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32}[values.element_size()])
    known = type(bits) is Tensor and bits.device.type == "cpu"  # not a tensor without values, which must not be kept
    factors = factors_on_cpu(bits.shape[1]) if known else hash_factors(bits.shape[1], bits.device)
    # As many rows at a time as stay in a processor's cache: products take up to eight times the bytes of the values.
    sums = torch.cat([(part * factors).sum(1) for part in bits.split(max(1, CACHED // bits.shape[1]))])
    return scrambled(sums) & (EMPTY - 1)


@lru_cache(maxsize=8)
def factors_on_cpu(width: int) -> Tensor:
    """As :func:`hash_factors`, computed once: it takes a third of the time of a hash of ten images."""
    with torch.inference_mode(False):
        return hash_factors(width, torch.device("cpu"))


def hash_factors(width: int, device: torch.device) -> Tensor:
    """[width] odd numbers with irregular bits."""
    return scrambled(torch.arange(1, width + 1, device=device)) | 1


def as_words(x: Tensor) -> Tensor:
    """[n, width] bytes as whole numbers of four bytes, of which :func:`keys` hashes a quarter as many; others as is."""
    return x.contiguous().view(torch.int32) if x.dtype == torch.uint8 and x.shape[1] % 4 == 0 else x


def scrambled(numbers: Tensor) -> Tensor:
    """Numbers of 64 bits, each of which depends on all bits of one given number."""
    for factor in MIX:
        numbers = (numbers ^ (numbers >> 29)) * factor
    return numbers ^ (numbers >> 32)
