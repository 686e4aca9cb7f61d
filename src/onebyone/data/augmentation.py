"""Random crop and horizontal flip of a batch as one tensor operation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from onebyone.errors import UsageError


@dataclass(frozen=True)
class CropFlip:
    """The paper's augmentation: pad with zeros, crop at a random offset, flip half of the images.

    The offset and the flip are drawn for each sample from the given generator. The crop is one gather for the batch.

    >>> images = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).reshape(2, 3, 4, 4)
    >>> CropFlip(padding=1, flip=True)(images, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 4, 4])
    >>> torch.equal(CropFlip(padding=0, flip=False)(images, torch.Generator()), images)
    True
    """

    padding: int = 4  # pixels added on every side; 0: no crop
    flip: bool = True  # whether half of the images are flipped

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise UsageError(f"padding is {self.padding}; it must be 0 (no crop) or more")

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        if x.dim() != 4 or not (self.padding or self.flip):
            return x  # vectors cannot be cropped
        count, _, height, width = x.shape
        size = 2 * self.padding + 1
        draw = torch.randint(0, size * size * 2, (count,), generator=generator, device=x.device)
        # Every possible crop, as a view: [count, channels, size, size, height, width].
        crops = F.pad(x, [self.padding] * 4).unfold(2, height, 1).unfold(3, width, 1)
        crop = crops[torch.arange(count, device=x.device), :, draw % size, draw // size % size]
        if not self.flip:
            return crop
        return torch.where((draw < size * size).reshape(-1, 1, 1, 1), crop, crop.flip(3))
