"""Sums of a stream from which class means and one shared covariance follow exactly."""

from __future__ import annotations

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onebyone.errors import UsageError

IMPOSSIBLE = "these samples cannot all have been learnt; give samples that were learnt, with their labels"
BLOCK = 256  # rows of the matrix updated at once: few enough to stay in the processor's cache
LARGEST_CODE = 127  # of an integer feature, positive or negative
CAPACITY = 2**31 - 1  # of a sum of products of integers
TINY = 1e-150  # a sum of squares that counts as a rounding error in any unit
ROUNDING = 1e-12  # of the squares of a feature: less may be rounding errors of their sums
SINGLE = 1e-7  # relative rounding error of a number in single precision
EXACT_ROWS = 2**24 // LARGEST_CODE**2  # so many products of two codes are summed in float32 without rounding


class Moments(nn.Module):
    """Weight of every class, sum of its features, and the sum of products of all features, over one stream.

    Sums can be added and subtracted. So two streams can be merged, samples removed, and classes united, in any order
    and grouping.

    Features are one of two kinds:

    - integers from -127 to 127 (``dtype=torch.int32``). All sums are integers of 4 bytes, and exact to the bit. Should
      they overflow, after several million samples, all codes are halved (``halvings``), which rounds once.
    - numbers (``dtype=torch.float64``). Sums take 8 bytes and round at 53 bits. They are of differences from
      ``origin``, the first sample, so that a large offset common to all samples does not cost precision.

    >>> moments = Moments(width=2, num_classes=2, dtype=torch.float64)
    >>> moments.add(torch.tensor([[1.0, 0.0], [3.0, 0.0], [4.0, 1.0], [4.0, 1.0]]), torch.tensor([0, 0, 1, 1]))
    >>> moments.means().tolist(), moments.scatter().tolist()
    ([[2.0, 0.0], [4.0, 1.0]], [[2.0, 0.0], [0.0, 0.0]])
    """

    weights: Tensor
    sums: Tensor
    products: Tensor
    origin: Tensor
    removed: Tensor
    halvings: Tensor

    def __init__(self, width: int, num_classes: int, dtype: torch.dtype = torch.int32) -> None:
        super().__init__()
        self.width = width
        even = width + width % 2
        self.register_buffer("weights", torch.zeros(num_classes, dtype=torch.float64))
        self.register_buffer("sums", torch.zeros(num_classes, even, dtype=dtype))
        self.register_buffer("products", torch.zeros(even + 1, even // 2, dtype=dtype))
        self.integer = not dtype.is_floating_point
        self.register_buffer("origin", torch.zeros(0 if self.integer else even))
        # The largest sum of squares of each feature before samples were removed: their rounding errors are left.
        self.register_buffer("removed", torch.zeros(0 if self.integer else even, dtype=torch.float64))
        self.register_buffer("halvings", torch.zeros((), dtype=torch.int64))
        # Known without reading a tensor: ``halvings``, and a number that no entry of ``products`` exceeds.
        self.halved, self.bound = 0, 0.0
        self.register_load_state_dict_post_hook(Moments.measure)  # type: ignore[no-untyped-call]

    def means(self) -> Tensor:
        """[C, d] in float64; zero for a class without samples."""
        means = self.sums * self.unit() / self.divisor()
        if not self.integer:
            means = means + self.origin
        return means.where(self.weights[:, None] > 0, 0)[:, : self.width]

    def scatter(self) -> Tensor:
        """[d, d] in float64: the sum over samples of squared differences from the mean of their class."""
        sums = self.sums.double()
        scatter = torch.addmm(unfold(self.products).double(), sums.T, sums / self.divisor(), alpha=-1)
        return scatter[: self.width, : self.width].mul_(self.unit() ** 2)

    def rounding(self) -> Tensor | None:
        """[d] the scatter of each feature up to which it may be rounding errors; None if all sums are exact."""
        if self.integer:
            return None
        return ROUNDING * torch.maximum(self.squares(), self.removed)[: self.width]

    def divisor(self) -> Tensor:
        """[C, 1] the weights, and a positive number for classes without samples."""
        return self.weights.where(self.weights > 0, 1.0)[:, None]

    def unit(self) -> Tensor:
        return torch.exp2(self.halvings.double())

    @torch.no_grad()
    def add(self, features: Tensor, y: Tensor, weight: Tensor | None = None) -> None:
        """Add samples [n, d] of classes [n], each ``weight`` times. A negative weight removes samples.

        Integer features must be whole numbers from -127 to 127. With weights that are not whole numbers, sums of
        integers are rounded.
        """
        rows = F.pad(features, (0, self.sums.shape[1] - self.width))
        if self.integer:
            self.make_room(len(rows) if weight is None else float(weight.abs().sum()))
            if weight is not None or self.halved:
                rows = (rows.double() / self.unit()).round()
        else:
            first = (self.weights > 0).any()
            self.origin.copy_(torch.where(first, self.origin, rows[0]))
            rows = rows.double() - self.origin
        if len(rows) == 1 and weight is None and rows.device.type == "cpu":
            rows = rows.to(self.sums.dtype)  # one sample after the other: whole numbers need no rounding
        weighted = rows if weight is None else rows * weight.to(rows)[:, None]
        amounts = torch.ones(len(y), dtype=torch.float64, device=y.device) if weight is None else weight.double()
        add_by_class(self.weights[:, None], y, amounts[:, None])
        if self.integer and weight is not None:  # rounded once, and not for each sample
            sums = torch.zeros_like(self.sums, dtype=torch.float64)
            add_by_class(sums, y, weighted.double())
            self.sums += self.rounded(sums)
        else:
            add_by_class(self.sums, y, weighted.to(self.sums.dtype))
        size = EXACT_ROWS if rows.dtype == torch.float32 else max(1, len(rows))
        for left, right in zip(weighted.split(size), rows.split(size), strict=True):
            self.add_products(left, right)

    def rounded(self, values: Tensor) -> Tensor:
        return values.round_().to(self.sums.dtype) if self.integer else values

    def add_products(self, rows: Tensor, others: Tensor) -> None:
        """Add the sum of products of rows [n, d] with others [n, d], block by block on the folded matrix."""
        half = self.products.shape[1]
        below = F.pad(others, (1, 0))  # folded, the lower half begins at row 1
        left, right, others_right = rows[:, :half], rows[:, half:], others[:, half:]
        for first in range(0, half, BLOCK):  # here the other triangle is in the same rows
            last = min(first + BLOCK, half)
            block, low, high = self.products[first:last], below[:, first:last], others_right[:, first:last]
            self.add_product(block[:, :first], low, left[:, :first])
            self.add_product(block[:, last:], high, right[:, last:])
            corner = (low.T @ left[:, first:last]).tril_(-1).add_((high.T @ right[:, first:last]).triu_())
            block[:, first:last] += self.rounded(corner)
        for first in range(half, 2 * half + 1, BLOCK):
            self.add_product(self.products[first : first + BLOCK], below[:, first : first + BLOCK], left)

    def add_product(self, sums: Tensor, rows: Tensor, others: Tensor) -> None:
        """Add the product of rows [n, r], transposed, with others [n, c] to a part [r, c] of the matrix."""
        if len(rows) == 1 and rows.dtype == sums.dtype:
            sums.addr_(rows[0], others[0])
        else:
            sums += self.rounded(rows.T @ others)

    def make_room(self, weight: float) -> None:
        """Halve the codes as often as samples of this total weight could make a sum overflow."""
        self.bound += weight * LARGEST_CODE**2
        if self.bound > CAPACITY:
            self.measure()
            self.bound += weight * LARGEST_CODE**2
            while self.bound > CAPACITY:
                self.halve()

    def halve(self) -> None:
        self.products.copy_((self.products.double() / 4).round_())
        self.sums.copy_((self.sums.double() / 2).round_())
        self.halvings += 1
        self.halved += 1
        self.bound /= 4

    def measure(self, keys: object = None) -> None:
        """Read the largest entry. It is on the diagonal, as in every matrix of products."""
        if self.integer and self.products.device.type != "meta":
            self.bound = float(torch.cat([self.products[1:].diagonal(), self.products.diagonal()]).max())
            self.halved = int(self.halvings)

    @torch.no_grad()
    def merge(self, other: Self) -> None:
        """Add the sums of another stream."""
        if self.integer:
            while self.halved < other.halved:
                self.halve()
            sums, products = other.sums.double(), other.products.double()
            ratio = 2.0 ** (self.halved - other.halved)
            self.bound += other.bound / ratio**2
            while self.bound > CAPACITY:
                self.halve()
                ratio *= 2
            self.sums += (sums / ratio).round_().int()
            self.products += (products / ratio**2).round_().int()
        elif bool((other.weights > 0).any()):
            if not bool((self.weights > 0).any()):
                self.origin.copy_(other.origin)
            shift = other.origin.double() - self.origin.double()
            total, moved = other.sums.sum(0), other.weights.sum() * shift
            self.sums += other.sums + other.weights[:, None] * shift
            self.products += other.products
            cross = total[:, None] * shift
            self.products += fold(cross + cross.T + moved[:, None] * shift)
            self.removed += other.removed
        self.weights += other.weights

    def clear(self) -> None:
        """Remove everything."""
        for tensor in self.buffers():
            tensor.zero_()
        self.halved, self.bound = 0, 0.0

    def blank(self, first: int) -> None:
        """Make all sums zero in which features from the ``first`` on take part."""
        square = unfold(self.products)
        square[first:], square[:, first:] = 0, 0
        self.products.copy_(fold(square))
        for tensor in (self.sums, self.origin, self.removed):
            tensor[..., first:] = 0

    @torch.no_grad()
    def take_over(self, old: Self, columns: Tensor) -> None:
        """Continue as ``old``, which has fewer classes, with these of its features."""
        self.weights[: len(old.weights)] = old.weights
        self.sums[: len(old.weights), : self.width] = old.sums[:, columns]
        square = torch.zeros(2 * [self.sums.shape[1]], dtype=self.sums.dtype, device=self.sums.device)
        square[: self.width, : self.width] = unfold(old.products)[columns][:, columns]
        self.products.copy_(fold(square))
        self.halvings.copy_(old.halvings)
        if not self.integer:
            self.origin[: self.width] = old.origin[columns]
            self.removed[: self.width] = old.removed[columns]
        self.measure()

    def squares(self) -> Tensor:
        """[d] the sum of squares of each feature: the scale of its rounding errors."""
        squares = torch.cat([self.products[1:].diagonal(), self.products.diagonal()]).double().abs()
        if self.integer:
            return squares
        # Equal samples differ from the origin, which is one of them, by its rounding to single precision at most.
        return squares + self.weights.sum() * (SINGLE * self.origin.double()).square()

    @torch.no_grad()
    def check_possible(self, before: Tensor) -> None:
        """Raise a ``UsageError`` if no samples have these sums, after samples were removed that were never added.

        A class without samples must have no sums. What rounding left of them is removed. ``before`` are the
        :meth:`squares` before the removal: what is left may be much smaller, and the rounding errors are not.
        """
        if not self.integer:
            before = self.removed.copy_(torch.maximum(before, self.removed))
        tolerance = 0.0 if self.integer else 1e-9
        empty = self.weights.abs() < 1e-9
        left = self.sums.double().square() > tolerance * before * max(float(self.weights.abs().sum()), 1.0)
        if bool((self.weights < -1e-9).any()) or bool((left & empty[:, None]).any()):
            raise UsageError(IMPOSSIBLE)
        self.sums[empty] = 0
        self.weights[empty] = 0
        if bool(empty.all()):
            if self.integer and bool(self.products.any()):
                raise UsageError(IMPOSSIBLE)
            self.products.zero_()
            self.removed.zero_()
        if not self.is_covariance(before):
            raise UsageError(IMPOSSIBLE)

    def is_covariance(self, squares: Tensor | None = None) -> bool:
        """Whether the scatter can be that of samples, up to rounding errors relative to these squares of features."""
        squares = self.squares() if squares is None else squares
        scale = squares[: self.width].sqrt() * self.unit()
        # Of a feature that is zero in all samples that are left, earlier removals have left rounding errors only.
        scale = scale.clamp(min=1e-4 * float(scale.max()) + 1e-150)
        relative = self.scatter() / scale[:, None] / scale
        relative.diagonal().add_(1e-9 * self.width)
        return not bool(torch.linalg.cholesky_ex(relative)[1])

    @torch.no_grad()
    def forget_class(self, label: int) -> None:
        """Remove a class. The scatter of its samples around its mean stays in the shared covariance."""
        if self.weights[label] > 0:
            if not self.integer:
                self.removed.copy_(torch.maximum(self.removed, self.squares()))
            mean = self.sums[label].double() / self.weights[label].sqrt()
            self.products -= self.rounded(fold(mean[:, None] * mean))
            self.sums[label] = 0
            self.weights[label] = 0

    @torch.no_grad()
    def unite(self, label: int, into: int) -> None:
        """Make two classes one."""
        for tensor in (self.sums, self.weights):
            tensor[into] += tensor[label]
            tensor[label] = 0


def add_by_class(sums: Tensor, y: Tensor, values: Tensor) -> None:
    """Add values [n, d] of classes [n] to sums [C, d]; without a product with [n, C], as C may be thousands.

    >>> sums = torch.zeros(2, 1)
    >>> add_by_class(sums, torch.tensor([1, 0, 1]), torch.tensor([[1.0], [2.0], [3.0]]))
    >>> sums.tolist()
    [[2.0], [4.0]]
    """
    if sums.is_cuda and sums.is_floating_point():  # there the order of additions, and so the last bits, would vary
        sums += (y == torch.arange(len(sums), device=y.device)[:, None]).to(sums) @ values
    else:
        sums.index_add_(0, y, values)


def fold(square: Tensor) -> Tensor:
    """A symmetric [d, d], d even, as [d + 1, d / 2] with every entry once.

    The lower half of the matrix leaves a triangle free in its left columns, and the lower triangle of its right
    columns, mirrored, fits in there.
    """
    half = len(square) // 2
    left = F.pad(square[:, :half], (0, 0, 1, 0))
    left[:half] = left[:half].tril(-1) + square[half:, half:].triu()
    return left


def unfold(folded: Tensor) -> Tensor:
    """What :func:`fold` was given.

    >>> square = torch.tensor([[1, 2, 3, 4], [2, 5, 6, 7], [3, 6, 8, 9], [4, 7, 9, 0]])
    >>> torch.equal(unfold(fold(square)), square)
    True
    """
    half = folded.shape[1]
    corner, side, end = folded[1 : half + 1].tril(), folded[half + 1 :], folded[:half].triu()
    corner, end = corner + corner.tril(-1).T, end + end.triu(1).T
    return torch.cat([torch.cat([corner, side.T], 1), torch.cat([side, end], 1)])
