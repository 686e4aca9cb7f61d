"""Batches from image files: order, sizes, files that cannot be read, and decoding ahead."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onebyone.data import images
from onebyone.data.images import UnreadableImage
from onebyone.data.loading import load_batches


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Ten files whose brightness is their position; two of them cannot be read."""
    paths = [tmp_path / f"{number}.png" for number in range(10)]
    for number, path in enumerate(paths):
        Image.new("RGB", (5 + number, 7), (number, 0, 0)).save(path)
    paths[3].write_bytes(paths[3].read_bytes()[:40])
    paths[9].unlink()
    return paths


@pytest.mark.parametrize("batch_size", [1, 3, 8, 100])
def test_every_readable_image_once_and_in_order(files: list[Path], batch_size: int) -> None:
    errors: dict[int, UnreadableImage] = {}
    batches = list(load_batches(files, (6, 4), batch_size=batch_size, unreadable=errors.__setitem__))
    assert [len(batch.positions) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert [position for batch in batches for position in batch.positions] == [0, 1, 2, 4, 5, 6, 7, 8]
    for batch in batches:
        assert batch.images.dtype == torch.uint8
        assert batch.images.shape == (len(batch.positions), 3, 6, 4)
        assert batch.images[:, 0, 2, 2].tolist() == batch.positions
    assert sorted(errors) == [3, 9]
    assert str(files[3]) in str(errors[3])
    assert errors[9].reason == "there is no such file"


def test_without_a_callback_an_unreadable_image_is_an_error(files: list[Path]) -> None:
    batches = load_batches(files, (6, 4), batch_size=3)
    assert next(batches).positions == [0, 1, 2]
    with pytest.raises(UnreadableImage, match=r"3\.png cannot be read"):
        next(batches)


def test_gray_and_interpolation(files: list[Path]) -> None:
    edge = Image.fromarray(np.repeat(np.array([[0, 255]], np.uint8), 2, 0))
    linear, cubic = (
        next(load_batches([edge], (8, 8), mode="L", interpolation=kind)).images  # type: ignore[arg-type]
        for kind in ("bilinear", "bicubic")
    )
    assert linear.shape == cubic.shape == (1, 1, 8, 8)
    assert not torch.equal(linear, cubic)
    assert list(load_batches([], (8, 8))) == []


def test_the_next_batches_are_decoded_while_one_is_used(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches ahead, and no more."""
    decoded: list[object] = []
    enough = threading.Event()
    read = images.pixels

    def pixels(*given: object) -> object:
        found = read(*given)  # type: ignore[arg-type]
        decoded.append(given[0])
        if len(decoded) == 6:
            enough.set()
        return found

    monkeypatch.setattr(images, "pixels", pixels)
    batches = load_batches([files[0]] * 30, (4, 4), batch_size=2)
    assert next(batches).positions == [0, 1]
    assert enough.wait(10)
    assert len(decoded) == 6
    batches.close()
