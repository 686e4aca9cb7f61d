"""Class means and one shared covariance of a stream, without rounding errors that grow with the stream."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onebyone.errors import UsageError

BITS = 30  # of a code, without its sign and one spare bit for rounding
BLOCK = 256  # rows of the matrix updated at once: few enough to stay in the processor's cache


class Moments(nn.Module):
    """Mean of every class, and the covariance of samples around the mean of their class.

    Kept in fixed point. A sum in float32 rounds every addition at 24 bits, and a stream has many; float64 takes twice
    the bytes, most of them for exponents that are not needed. A correlation lies between -1 and 1: as an integer of 32
    bits, with one power of two for each feature and one half of the symmetric matrix, it takes 4 bytes and rounds at
    30 bits. Means are stored in the same way. All arithmetic is in float64. Apart from that rounding, the result does
    not depend on batch sizes or on the order of samples.

    >>> moments = Moments(width=2, num_classes=2)
    >>> moments.add(torch.tensor([[1.0, 0.0], [3.0, 0.0], [4.0, 1.0], [4.0, 1.0]]), torch.tensor([0, 0, 1, 1]))
    >>> moments.means().tolist(), moments.covariance().tolist()
    ([[2.0, 0.0], [4.0, 1.0]], [[0.5, 0.0], [0.0, 0.0]])
    """

    counts: Tensor
    mean_codes: Tensor
    mean_exponents: Tensor
    covariance_codes: Tensor
    covariance_exponents: Tensor

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__()
        if width % 2:
            raise UsageError(f"moments of {width} features were asked for; it must be an even number")
        self.register_buffer("counts", torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer("mean_codes", torch.zeros(num_classes, width, dtype=torch.int32))
        self.register_buffer("mean_exponents", torch.zeros(width, dtype=torch.int8))
        self.register_buffer("covariance_codes", torch.zeros(width + 1, width // 2, dtype=torch.int32))
        self.register_buffer("covariance_exponents", torch.zeros(width, dtype=torch.int8))

    def means(self) -> Tensor:
        """[C, d] in float64; zero for a class without samples."""
        return self.mean_codes * powers(self.mean_exponents)

    def covariance(self) -> Tensor:
        """[d, d] in float64: of samples around the mean of their class, averaged over all samples."""
        scale = self.scale()
        return unfold(self.covariance_codes.double()).mul_(scale[:, None]).mul_(scale)

    def scale(self) -> Tensor:
        """[d] one factor per feature: a code times the factors of its two features is a covariance."""
        return torch.exp2(self.covariance_exponents.double() - BITS // 2)

    @torch.no_grad()
    def add(self, features: Tensor, y: Tensor) -> None:
        """Add samples, [n, d] and [n]."""
        features = features.double()
        one_hot = (y[:, None] == torch.arange(len(self.counts), device=y.device)).double()
        before, added = self.counts.double(), one_hot.sum(0)
        after = before + added
        means = self.means()
        batch_means = (one_hot.T @ features) / added.clamp(min=1)[:, None]
        moved = (batch_means - means) * (added > 0)[:, None]
        # The squares of a class around its new mean: those around its old mean, those of the batch around its own, and
        # those of the way between both means, weighted. Adding a share of that way to every sample of the batch gives
        # the last two in one product, since the samples' differences from their mean sum to zero.
        share = (before / after.clamp(min=1)).sqrt()
        rows = features + (share[:, None] * moved - batch_means)[y]
        self.set_means(after, means + moved * (added / after.clamp(min=1))[:, None])
        self.add_squares(rows / after.sum().sqrt(), before.sum() / after.sum())

    def set_means(self, counts: Tensor, means: Tensor) -> None:
        """Store these counts [C] and means [C, d]."""
        self.counts.copy_(counts)
        self.mean_exponents.copy_(exponents(means.abs().amax(0)))
        self.mean_codes.copy_(codes(means / powers(self.mean_exponents)))

    def set_covariance(self, covariance: Tensor) -> None:
        """Store this covariance, [d, d]."""
        self.covariance_exponents.copy_(exponents(covariance.diagonal().clamp(min=0).sqrt()))
        self.covariance_codes.copy_(codes(fold(covariance / self.scale()[:, None] / self.scale())))

    def add_squares(self, rows: Tensor, share: Tensor) -> None:
        """Multiply the covariance by ``share`` and add the sum of squares of rows [n, d].

        Equal to ``set_covariance`` of that sum, but block by block on the folded codes: with small batches this takes
        all the time, and the whole matrix in float64 would take much longer to write and read than to compute.
        """
        codes_of, old = self.covariance_codes, self.scale()
        half = codes_of.shape[1]
        variance = torch.cat([codes_of[1:].diagonal(), codes_of.diagonal()]) * old.square()
        self.covariance_exponents.copy_(exponents((share * variance + rows.square().sum(0)).sqrt()))
        rows, factor = rows / self.scale(), share.sqrt() * old / self.scale()
        below, below_factor = F.pad(rows, (1, 0)), F.pad(factor, (1, 0))  # folded, the lower half begins at row 1
        (left, right), (left_factor, right_factor) = rows.split(half, 1), factor.split(half)
        for first in (*range(0, half, BLOCK), *range(half, 2 * half + 1, BLOCK)):
            last = min(first + BLOCK, half if first < half else 2 * half + 1)
            block = codes_of[first:last]
            new = (below_factor[first:last, None] * left_factor).mul_(block)
            new = torch.addmm(new, below[:, first:last].T, left)
            if first < half:  # here the other triangle is in the same rows
                end = (right_factor[first:last, None] * right_factor).mul_(block)
                end = torch.addmm(end, right[:, first:last].T, right)
                new = new.tril_(first - 1).add_(end.triu_(first))
            block.copy_(codes(new))


def exponents(largest: Tensor) -> Tensor:
    """Exponents of the next powers of two above these numbers."""
    return (largest.log2().floor() + 1).clamp(-100, 100)


def powers(exponents: Tensor) -> Tensor:
    """The value of a code of 1."""
    return torch.exp2(exponents.double() - BITS)


def codes(values: Tensor) -> Tensor:
    """The nearest whole numbers."""
    return values.round_()


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
