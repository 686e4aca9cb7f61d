import pytest
import torch
from torch import Tensor

from onebyone.data import CropFlip
from onebyone.errors import UsageError


def literal(x: Tensor, padding: int, flip: bool, generator: torch.Generator) -> Tensor:
    """The same operation in loops over images and pixels, from the same random numbers."""
    size = 2 * padding + 1
    draws = torch.randint(0, size * size * 2, (len(x),), generator=generator).tolist()
    out = torch.zeros_like(x)
    height, width = x.shape[2:]
    for image, draw in enumerate(draws):
        down, right, mirrored = draw % size, draw // size % size, flip and draw >= size * size
        for row in range(height):
            for column in range(width):
                source_row = row + down - padding
                source_column = (width - 1 - column if mirrored else column) + right - padding
                if 0 <= source_row < height and 0 <= source_column < width:
                    out[image, :, row, column] = x[image, :, source_row, source_column]
    return out


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_against_a_loop(padding: int, flip: bool, dtype: torch.dtype) -> None:
    x = torch.randint(1, 256, (20, 3, 5, 7), generator=torch.Generator().manual_seed(0)).to(dtype)
    out = CropFlip(padding, flip)(x, torch.Generator().manual_seed(1))
    assert out.dtype == dtype
    assert torch.equal(out, literal(x, padding, flip, torch.Generator().manual_seed(1)))


def test_all_shifts_and_flips_are_equally_likely() -> None:
    # A single bright pixel off the centre line shows where its picture went: 3 x 3 shifts x 2 sides.
    count = 18_000
    x = torch.zeros(count, 1, 9, 9, dtype=torch.uint8)
    x[:, 0, 4, 1] = 1
    position = CropFlip(padding=1, flip=True)(x, torch.Generator().manual_seed(0)).flatten(1).float().argmax(1)
    seen, times = position.unique(return_counts=True)
    expected = [row * 9 + column for row in (3, 4, 5) for column in (0, 1, 2, 6, 7, 8)]
    assert seen.tolist() == expected
    chi_square = float(((times - count / 18) ** 2 / (count / 18)).sum())
    assert chi_square < 40.8  # 17 degrees of freedom: exceeded by chance once in a thousand seeds


def test_each_image_draws_its_own_crop() -> None:
    x = torch.arange(64, dtype=torch.uint8).reshape(1, 1, 8, 8).expand(50, 1, 8, 8)
    out = CropFlip(2, True)(x, torch.Generator().manual_seed(0))
    assert len(out.flatten(1).unique(dim=0)) > 20


def test_vectors_are_not_augmented_and_draw_no_random_number() -> None:
    x, generator = torch.rand(5, 8), torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert CropFlip()(x, generator) is x
    assert torch.equal(generator.get_state(), before)


def test_no_padding_and_no_flip_is_the_identity() -> None:
    x = torch.rand(5, 1, 4, 4)
    assert CropFlip(0, False)(x, torch.Generator()) is x


def test_without_padding_images_are_only_mirrored() -> None:
    x = torch.rand(100, 1, 4, 4)
    out = CropFlip(0, True)(x, torch.Generator().manual_seed(0))
    mirrored = (out == x.flip(3)).flatten(1).all(1)
    assert torch.equal(mirrored, ~(out == x).flatten(1).all(1))
    assert 30 < int(mirrored.sum()) < 70


def test_negative_padding_is_refused() -> None:
    with pytest.raises(UsageError, match="padding is -1; it must be 0"):
        CropFlip(padding=-1)
