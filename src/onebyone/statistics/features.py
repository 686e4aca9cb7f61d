"""Features of vectors: their values, projections of them, and random sums of values that are too many."""

from __future__ import annotations

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SMALL = 3e-7  # of a value: differences that may be rounding errors in single precision
LENGTH = 2.0  # of an encoder's features before they are projected, per square root of their number


class Directions(nn.Module):
    """The values of a vector, and their projections on random directions beyond a random threshold on either side.

    A projection gives 2 features, which separate classes that no hyperplane separates. Values are centred and scaled
    before they are projected (:meth:`set_units`), because their units are unknown, and compressed: a value beyond 1
    grows logarithmically. Until then, projections are zero. With ``raw`` false there are only ``filters`` features, for
    vectors that are too long for the statistics: values are distributed over the features at random, evenly, and each
    feature is a sum with random signs. This keeps a value as it is where there is room, and stores far fewer numbers
    than random directions would.

    Features of an encoder have a scale of their own: with ``normalised``, the square roots of the values are projected,
    as a vector of length 2 per square root of a dimension, so that projections have a standard deviation of about 2.

    >>> directions = Directions((6,), filters=5)
    >>> directions.fit(seed=0)
    >>> directions(torch.rand(20, 6, generator=torch.Generator().manual_seed(0))).shape
    torch.Size([20, 16])
    """

    filters: Tensor
    thresholds: Tensor
    location: Tensor
    factor: Tensor
    settled: Tensor
    order: Tensor
    signs: Tensor

    def __init__(self, shape: tuple[int, ...], filters: int, *, raw: bool = True, normalised: bool = False) -> None:
        super().__init__()
        (self.size,) = shape
        self.raw = raw
        self.normalised = normalised
        if raw:
            self.register_buffer("filters", torch.zeros(self.size, filters, dtype=torch.float16))
            self.register_buffer("thresholds", torch.zeros(2, filters))
        else:  # a column names the values of a feature
            rows = -(-self.size // filters)  # rounded up
            self.register_buffer("order", torch.zeros(rows, filters, dtype=torch.int32))
            self.register_buffer("signs", torch.zeros(rows, filters, dtype=torch.int8))
        self.needs_units = raw and filters > 0 and not normalised
        if self.needs_units:
            self.register_buffer("location", torch.zeros(self.size, dtype=torch.float64))
            self.register_buffer("factor", torch.zeros(self.size, dtype=torch.float64))
            self.register_buffer("settled", torch.zeros((), dtype=torch.bool))  # whether units are set
        self.count = filters
        self.width = self.size + 2 * filters if raw else filters

    def fit(self, seed: int) -> None:
        """Draw the directions, or how values are distributed."""
        if next(self.buffers()).is_meta:
            return
        generator = torch.Generator().manual_seed(seed)
        if not self.raw:
            self.order.view(-1)[: self.size] = torch.randperm(self.size, generator=generator)
            self.signs.view(-1)[: self.size] = 2 * torch.randint(2, (self.size,), generator=generator) - 1
            return
        draw = torch.randn(self.filters.shape, generator=generator)
        self.filters.copy_(draw / len(draw) ** 0.5)  # so that projections have about unit variance
        self.thresholds.uniform_(-1, 1, generator=generator)

    @torch.no_grad()
    def set_units(self, x: Tensor, copies: Tensor, settled: bool = True) -> None:
        """Take the units in which values are projected from samples [n, size], each of which counts ``copies`` times.

        They are ``settled`` if they will not change any more.

        The centre is the median, and the unit a power of two near the deviation: that of the middle four fifths of the
        samples, so that one wild value does not matter, or of all of them if the middle ones are equal. A value that is
        the same in all these samples is never projected.
        """
        x, order = x.double().sort(0)
        total = copies.sum().clamp(min=1e-300)
        below = copies.double()[order].cumsum(0) / total  # [n, size]

        def quantile(share: float) -> Tensor:
            index = (below < share - 1e-9).sum(0, keepdim=True).clamp(max=len(x) - 1)
            return x.gather(0, index)[0]

        low, middle, high = (quantile(share) for share in (0.1, 0.5, 0.9))
        least = SMALL * torch.maximum(low.abs(), high.abs())
        deviation = (high - low) / 2.56  # of a normal distribution
        others = ((x - middle).square() * copies.double()[order]).sum(0).div(total).sqrt()
        deviation = deviation.where(deviation > least, others)
        varies = deviation > least
        self.location.copy_(middle)
        self.factor.copy_(torch.where(varies, torch.exp2(-deviation.where(varies, 1).log2().round()), 0))
        self.settled.fill_(settled)

    def take_units(self, other: Self) -> None:
        """Project values in the same units as another one."""
        for name in ("location", "factor", "settled") if self.needs_units else ():
            getattr(self, name).copy_(getattr(other, name))

    def leave_out(self) -> None:
        """Never project values: all projections are zero."""
        self.factor.zero_()
        self.location.zero_()
        self.settled.fill_(True)

    def same_units(self, other: Self) -> bool:
        """Whether values are projected in the same units."""
        return torch.equal(self.location, other.location) and torch.equal(self.factor, other.factor)

    def columns(self, count: int) -> Tensor:
        """The features that are left with this number of filters."""
        if not self.raw:
            return torch.arange(count)
        projected = self.size + torch.arange(2 * self.count).reshape(2, -1)[:, :count].flatten()
        return torch.cat([torch.arange(self.size), projected])

    def forward(self, x: Tensor) -> Tensor:
        """[n, values] -> [n, d] features."""
        x = x.double()
        if not self.raw:
            return (x[:, self.order.long()] * self.signs).sum(1)
        if not self.count:
            return x
        if self.normalised:
            roots = x.sign() * x.abs().sqrt()
            compressed = LENGTH * self.size**0.5 * F.normalize(roots)
        else:
            z = (x - self.location) * self.factor
            compressed = z.sign() * torch.minimum(z.abs(), z.abs().clamp(min=1).log() + 1)
        answers = compressed @ self.filters.double()
        above, below = self.thresholds
        projected = torch.cat([(answers - above).relu(), (-answers - below).relu()], 1)
        if self.needs_units:
            projected = projected * (self.factor > 0).any()
        return torch.cat([x, projected], 1)
