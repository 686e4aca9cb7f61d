"""Pictures with the statistics of natural ones, out of nothing but a seed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LEAVES = 120  # that fall on a picture
FINER = 2  # pixels a side that a pixel is averaged over, so that borders are not jagged
LONGEST = 2  # powers of two that a leaf may be longer, or shorter, than it is wide
TINT = 0.3  # how far channels differ in colour, against how far leaves differ in brightness


def dead_leaves(count: int, channels: int, side: int, generator: torch.Generator) -> Tensor:
    """[count, channels, side, side] pictures of leaves that fell over each other.

    Ellipses and rectangles of any direction and colour, small ones more often than large ones by the power law that
    makes a picture look alike from near and far. That things hide each other gives pictures the edges, corners, flat
    regions and correlations of natural ones: filters made from these serve those.

    >>> dead_leaves(2, 3, 16, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 16, 16])
    """
    fine = side * FINER
    pictures = torch.zeros(count, channels, fine, fine)
    place = torch.arange(fine) + 0.5
    for _ in range(LEAVES):
        size, x, y, turn, shape, kind = torch.rand(6, count, 1, 1, generator=generator)
        radius = FINER / (1 - size * (1 - side**-2)).sqrt()  # from a pixel to the whole side, as often as 1 / radius^3
        x, y = (place - centre * (fine + 2 * radius) + radius for centre in (x, y))  # a leaf may lie half outside
        y, turn, length = y.mT, torch.pi * turn, torch.exp2((2 * shape - 1) * LONGEST)
        along = (x * turn.cos() + y * turn.sin()) / length / radius
        across = (y * turn.cos() - x * turn.sin()) * length / radius
        covered = torch.where(kind < 0.5, torch.maximum(along.abs(), across.abs()), along.hypot(across)) < 1
        brightness, tint = (torch.randn(count, n, 1, 1, generator=generator) for n in (1, channels))
        pictures = torch.where(covered[:, None], brightness + TINT * tint, pictures)
    return F.avg_pool2d(pictures, FINER)
