"""Synthetic images with the statistics of natural ones, drawn from a seed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LEAVES = 120  # per image
FINER = 2  # each pixel averages FINER x FINER finer ones, so that edges are smooth
LONGEST = 2  # log2 of the largest ratio between length and width
TINT = 0.3  # standard deviation of colour, relative to that of brightness


def dead_leaves(count: int, channels: int, side: int, generator: torch.Generator) -> Tensor:
    """[count, channels, side, side] images of the dead leaves model: shapes that occlude each other.

    Ellipses and rectangles of random direction and colour, with sizes from a power law, which makes the images scale
    invariant. Occlusion gives them the edges, corners, flat regions and correlations of natural images, so filters
    fitted to them suit natural images.

    >>> dead_leaves(2, 3, 16, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 16, 16])
    """
    fine = side * FINER
    pictures = torch.zeros(count, channels, fine, fine)
    position = torch.arange(fine) + 0.5
    for _ in range(LEAVES):
        size, x, y, turn, shape, form = torch.rand(6, count, 1, 1, generator=generator)
        radius = FINER / (1 - size * (1 - side**-2)).sqrt()  # from one pixel to the whole side, density 1 / radius^3
        x, y = (position - centre * (fine + 2 * radius) + radius for centre in (x, y))  # may be partly outside
        y, turn, length = y.mT, torch.pi * turn, torch.exp2((2 * shape - 1) * LONGEST)
        along = (x * turn.cos() + y * turn.sin()) / length / radius
        across = (y * turn.cos() - x * turn.sin()) * length / radius
        covered = torch.where(form < 0.5, torch.maximum(along.abs(), across.abs()), along.hypot(across)) < 1
        brightness, tint = (torch.randn(count, n, 1, 1, generator=generator) for n in (1, channels))
        pictures = torch.where(covered[:, None], brightness + TINT * tint, pictures)
    return F.avg_pool2d(pictures, FINER)
