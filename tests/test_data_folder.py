import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from onebyone import data
from onebyone.data import CropFlip, from_folder, load
from onebyone.errors import UsageError


def paint(path: Path, colour: tuple[int, int, int] = (200, 100, 50), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 12), colour).convert(mode).save(path)


@pytest.fixture
def images_folder(tmp_path: Path) -> Path:
    root = tmp_path / "images_folder"
    for number in range(10):
        paint(root / "zebra" / f"{number}.png", (number, 0, 0))
        paint(root / "ant" / f"{number}.bmp", (number, 255, 0))
    return root


def test_classes_in_sub_folders(images_folder: Path) -> None:
    dataset = load("folder", images_folder)
    assert dataset.name == "images_folder"
    assert dataset.classes == ("ant", "zebra")
    assert dataset.augmentation == CropFlip(padding=4, flip=True)
    assert dataset.train_x.shape == (16, 3, 32, 32)
    assert dataset.train_x.dtype == torch.uint8
    assert dataset.test_y.tolist() == [0, 0, 1, 1]
    assert torch.equal(dataset.train_x[:, 1, 0, 0] == 0, dataset.train_y == 1)
    red = torch.cat([dataset.train_x, dataset.test_x])[:, 0, 5, 5]
    assert sorted(red.tolist()) == sorted([*range(10), *range(10)])


def test_options(images_folder: Path) -> None:
    plain = CropFlip(0, False)
    dataset = from_folder(str(images_folder), size=9, augmentation=plain, test_fraction=0.5, seed=1)
    assert dataset.train_x.shape == (10, 3, 9, 9)
    assert dataset.augmentation == plain
    assert torch.equal(dataset.test_x, from_folder(images_folder, 9, test_fraction=0.5, seed=1).test_x)
    assert not torch.equal(dataset.test_x, from_folder(images_folder, 9, test_fraction=0.5, seed=2).test_x)
    with pytest.raises(UsageError, match="size is 0; images need at least 1 pixel per side"):
        from_folder(images_folder, size=0)


def test_progress(images_folder: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []
    load("folder", images_folder, progress=lambda *now: calls.append(now))
    assert calls == [(f"reading {images_folder}", number, 20) for number in range(1, 21)]


def test_train_and_test_folders(tmp_path: Path) -> None:
    paint(tmp_path / "train" / "a" / "1.png")
    paint(tmp_path / "train" / "b" / "1.png")
    paint(tmp_path / "train" / "b" / "2.png")
    paint(tmp_path / "test" / "b" / "1.png")  # a class without test images is no error
    dataset = from_folder(tmp_path)
    assert dataset.classes == ("a", "b")
    assert dataset.train_y.tolist() == [0, 1, 1]
    assert dataset.test_y.tolist() == [1]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    for number in range(2):
        paint(tmp_path / "train" / f"{number}.png")
        paint(tmp_path / "bus" / f"{number}.png")
    assert from_folder(tmp_path).classes == ("bus", "train")


def test_every_kind_of_image(tmp_path: Path) -> None:
    for mode, suffix in (
        ("RGB", "jpg"),
        ("RGB", "JPEG"),
        ("L", "png"),
        ("P", "gif"),
        ("RGBA", "webp"),
        ("1", "tif"),
        ("CMYK", "tiff"),
        ("RGB", "ppm"),
        ("L", "pgm"),
    ):
        paint(tmp_path / "a" / f"{mode}.{suffix}", (255, 255, 255), mode)
    palette = Image.new("P", (4, 4))
    palette.putpalette([255, 255, 255] * 256)
    palette.save(tmp_path / "a" / "transparent.png", transparency=bytes([0, 128, 255]))
    (tmp_path / "a" / "._1.png").write_bytes(b"what a Mac leaves behind")
    (tmp_path / ".git").mkdir()
    dataset = from_folder(tmp_path)
    x = torch.cat([dataset.train_x, dataset.test_x])
    assert len(x) == 10
    assert int(x.min()) > 250


def test_pixels_keep_their_position(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    for number in range(2):
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "a" / f"{number}.png")
    assert torch.equal(from_folder(tmp_path, size=8).train_x[0], torch.from_numpy(pixels).permute(2, 0, 1))


def test_folders_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a folder with a sub-folder for each class"):
        load("folder")
    with pytest.raises(UsageError, match="missing is not a folder; expected one with a sub-folder"):
        load("folder", tmp_path / "missing")
    with pytest.raises(UsageError, match="has no sub-folders; expected one for each class"):
        load("folder", tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes.txt").touch()
    with pytest.raises(
        UsageError, match=r"a has no images .*notes\.txt \(no image file\); add some, or remove the folder"
    ):
        load("folder", tmp_path)


def test_one_image_per_class_leaves_none_to_test(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png")
    paint(tmp_path / "b" / "1.png")
    with pytest.raises(UsageError, match="every class has a single sample, so none can be held out; give more"):
        load("folder", tmp_path)


def test_classes_one_level_too_deep(tmp_path: Path) -> None:
    paint(tmp_path / "train" / "a" / "1.png")
    with pytest.raises(UsageError, match=r"if these are the classes, give .*train as root"):
        load("folder", tmp_path)


def test_unknown_test_classes_are_refused(tmp_path: Path) -> None:
    paint(tmp_path / "train" / "a" / "1.png")
    paint(tmp_path / "test" / "b" / "1.png")
    with pytest.raises(UsageError, match=r"test has the classes b, which .*train does not have; remove them, or add"):
        load("folder", tmp_path)


@given(st.integers(0, 19), st.integers(0, 50))
def test_a_damaged_file_is_skipped_and_named(damaged: int, keep: int) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for number in range(20):
            paint(root / "ant" / f"{number}.png")
        path = root / "ant" / f"{damaged}.png"
        path.write_bytes(path.read_bytes()[:keep])  # the pixels begin at byte 41
        with pytest.warns(data.SkippedFilesWarning, match=rf"1 skipped, 19 images .*ant/{damaged}\.png \(.+\)$"):
            dataset = load("folder", root)
        assert len(dataset.train_y) + len(dataset.test_y) == 19
        with pytest.raises(UsageError, match=rf"ant/{damaged}\.png .*; fix or remove them, or read without strict"):
            load("folder", root, strict=True)


def test_everything_that_is_not_read_is_counted_and_named(images_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paint(images_folder / "ant" / "old" / "deep" / "1.png")
    paint(images_folder / "ant" / "old" / "2.png")
    for name in ("ant/1.heic", "zebra/1.avif", "zebra/notes.txt", "labels.csv"):
        (images_folder / name).touch()
    monkeypatch.setattr(data.folder, "suffixes", lambda: data.images.SUFFIXES)  # a Pillow without AVIF
    with pytest.warns(data.SkippedFilesWarning) as caught:
        assert len(from_folder(images_folder).train_y) == 16
    (warning,) = caught
    said = str(warning.message)
    assert said.startswith(f"{images_folder}: 5 skipped, 20 images read; skipped: ")
    for part in (
        "labels.csv (beside the class folders)",
        "ant/1.heic (Pillow cannot read .heic; pip install pillow-heif)",
        "ant/old (a nested folder with 2 files)",
        "zebra/1.avif (Pillow cannot read .avif)",
        "zebra/notes.txt (no image file)",
    ):
        assert part in said
    assert warning.filename == __file__
    for number in range(9):
        (images_folder / f"{number}.txt").touch()
    with pytest.warns(data.SkippedFilesWarning, match=r"14 skipped, .* and 9 more$"):
        from_folder(images_folder)


def test_a_pipe_is_not_opened(images_folder: Path) -> None:
    os.mkfifo(images_folder / "ant" / "pipe.png")
    with pytest.warns(data.SkippedFilesWarning, match=r"ant/pipe.png \(a pipe, socket or device\)"):
        assert len(from_folder(images_folder).train_y) == 16


def test_a_class_of_damaged_files_only_is_refused(images_folder: Path) -> None:
    for path in (images_folder / "ant").iterdir():
        path.write_bytes(b"")
    with pytest.raises(UsageError, match=r"ant has no images that can be read .*0\.bmp .* and 5 more; add some"):
        load("folder", images_folder)


def test_strict_is_for_folders(images_folder: Path) -> None:
    assert load("folder", images_folder, strict=True) == load("folder", images_folder)
    with pytest.raises(UsageError, match="strict is given, and digits is no image folder"):
        load("digits", strict=True)


def test_the_exif_orientation_is_applied(tmp_path: Path) -> None:
    image = Image.new("RGB", (4, 4), "red")
    image.paste("blue", (0, 0, 4, 2))  # blue above red
    stored = image.transpose(Image.Transpose.ROTATE_90)
    stored.getexif()[0x0112] = 6
    (tmp_path / "a").mkdir()
    for number in range(2):
        stored.save(tmp_path / "a" / f"{number}.png", exif=stored.getexif())
    assert from_folder(tmp_path, size=4).train_x[0, 2, :, 0].tolist() == [255, 255, 0, 0]


def test_sixteen_bit_images_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(2):
        Image.fromarray(np.full((4, 4), 40 * 257, np.uint16)).save(tmp_path / "a" / f"{number}.png")
    assert from_folder(tmp_path).train_x.unique().tolist() == [40]
