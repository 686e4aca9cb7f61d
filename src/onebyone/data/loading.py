"""Batches of images from files, which threads decode while earlier batches are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from onebyone.data.images import Bytes, Interpolation, Mode, Size, UnreadableImage, all_pixels

if TYPE_CHECKING:
    from onebyone.data.images import Source


@dataclass(frozen=True)
class Batch:
    """Images of one size, and the position of each among the sources."""

    positions: list[int]
    images: Tensor  # [n, channels, height, width] bytes


def load_batches(
    sources: Iterable[Source],
    size: Size,
    *,
    batch_size: int = 64,
    mode: Mode = "RGB",
    interpolation: Interpolation = "bicubic",
    unreadable: Callable[[int, UnreadableImage], object] | None = None,
) -> Iterator[Batch]:
    """The images in batches, in order, resized to ``size``; while one batch is used, the next two are decoded.

    Parameters
    ----------
    sources : iterable of path or PIL image
        The images. Not more than three batches of them are in memory.
    size : (int, int)
        Height and width in pixels; :func:`onebyone.nets.image_size` is that of an encoder.
    batch_size : int
        Images per batch, except the last. Images that cannot be read do not count.
    mode, interpolation
        As in :func:`onebyone.data.images.pixels`.
    unreadable : callable, optional
        Called with the position and the :class:`UnreadableImage` of each image that cannot be read, which is then left
        out. Without it, the error is raised.

    Examples
    --------
    >>> from PIL import Image
    >>> colours = [Image.new("RGB", (4, 4), colour) for colour in ("red", "green", "blue")]
    >>> [(batch.positions, tuple(batch.images.shape)) for batch in load_batches(colours, (8, 8), batch_size=2)]
    [([0, 1], (2, 3, 8, 8)), ([2], (1, 3, 8, 8))]
    """
    positions: list[int] = []
    images: list[Bytes] = []
    found = all_pixels(sources, mode, size, interpolation, ahead=2 * batch_size)
    for position, image in enumerate(found):
        if isinstance(image, UnreadableImage):
            if unreadable is None:
                raise image
            unreadable(position, image)
            continue
        positions.append(position)
        images.append(image)
        if len(images) == batch_size:
            yield Batch(positions, _stacked(images))
            positions, images = [], []
    if images:
        yield Batch(positions, _stacked(images))


def _stacked(images: Sequence[Bytes]) -> Tensor:
    x = torch.from_numpy(np.stack(images))
    return x[:, None] if x.dim() == 3 else x.permute(0, 3, 1, 2)
