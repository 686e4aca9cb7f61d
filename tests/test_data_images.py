"""Images of every mode, depth and orientation come out as a viewer shows them."""

import sys
import warnings
from io import BytesIO
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from onebyone.data import images
from onebyone.data.images import UnreadableImage, all_pixels, is_gray, pixels, suffixes

# For each EXIF orientation, how an upright image is turned into the one that is stored.
STORED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
COLOUR = ("RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")
GRAY = ("L", "LA", "La", "I", "F", "I;16", "I;16L", "I;16B")


def scene(colour: bool) -> Image.Image:
    """A smooth image with another colour in each corner."""
    down, right = np.mgrid[0:12, 0:20]
    channels = np.stack([right * 12, down * 20, 200 - right * 8], 2).astype(np.uint8)
    return Image.fromarray(channels if colour else channels[..., 0])


def in_mode(image: Image.Image, mode: str) -> Image.Image:
    if mode.startswith("I;16"):
        deep = np.asarray(image).astype(np.uint16) * 257
        if mode == "I;16B":
            return Image.frombytes(mode, image.size, deep.astype(">u2").tobytes())
        return Image.frombytes(mode, image.size, deep.astype("<u2").tobytes())
    return image.convert({"La": "LA", "RGBa": "RGBA"}.get(mode, mode)).convert(mode)


def rotated(image: Image.Image, orientation: int) -> Image.Image:
    """The image as a camera stores it that was held in this orientation."""
    turn = STORED[orientation]
    stored = image.transpose(turn) if turn is not None else image.copy()
    stored.getexif()[0x0112] = orientation
    return stored


def close(found: npt.NDArray[np.uint8], expected: Image.Image, tolerance: int = 3) -> bool:
    difference = np.abs(found.astype(int) - np.asarray(expected).astype(int))
    return found.shape == np.asarray(expected).shape and int(difference.max()) <= tolerance


@given(st.sampled_from(COLOUR + GRAY), st.sampled_from(sorted(STORED)), st.sampled_from(["RGB", "L"]))
def test_every_mode_and_orientation_gives_the_upright_image(mode: str, orientation: int, wanted: str) -> None:
    image = scene(mode in COLOUR)
    stored = rotated(in_mode(image, mode), orientation)
    assert is_gray(stored) == (mode in GRAY)
    tolerance = 40 if mode == "LAB" else 3  # 8 bits of LAB are coarse
    assert close(pixels(stored, wanted), image.convert(wanted), tolerance)  # type: ignore[arg-type]
    assert stored.mode == mode  # the caller's image is left alone


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
def test_files_of_a_turned_camera(tmp_path: Path, suffix: str) -> None:
    stored = rotated(scene(True), 6)
    stored.save(tmp_path / f"it.{suffix}", exif=stored.getexif(), quality=98)
    assert close(pixels(tmp_path / f"it.{suffix}"), scene(True), tolerance=40)
    assert pixels(tmp_path / f"it.{suffix}").shape == (12, 20, 3)


def test_transparent_pixels_become_white() -> None:
    for mode in ("RGBA", "LA", "PA"):
        image = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
        image.putpixel((1, 0), (0, 0, 0, 255))
        assert pixels(image.convert(mode), "L").tolist() == [[255, 0]]
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30] * 2)
    palette.putpixel((1, 0), 1)
    buffer = BytesIO()
    palette.save(buffer, "PNG", transparency=0)
    assert pixels(Image.open(buffer)).tolist() == [[[255, 255, 255], [10, 20, 30]]]
    assert pixels(Image.new("RGBA", (1, 1), (9, 9, 9, 77)), "RGBA").tolist() == [[[9, 9, 9, 77]]]


def test_bits_and_palettes() -> None:
    assert pixels(Image.new("1", (1, 1), 1)).tolist() == [[[255, 255, 255]]]
    assert pixels(Image.new("F", (1, 1), 0.5), "L").tolist() == [[128]]
    assert close(pixels(scene(True).convert("P", palette=Image.Palette.ADAPTIVE)), scene(True), tolerance=60)


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bits_are_scaled_and_not_cut(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 257, 40_000, 65_535]], np.uint16)
    Image.fromarray(values).save(tmp_path / f"deep.{suffix}")
    assert pixels(tmp_path / f"deep.{suffix}", "L").tolist() == [[0, 1, 156, 255]]


@pytest.mark.parametrize("value", [-1, 300, float("nan")])
def test_numbers_without_a_range_are_refused(value: float) -> None:
    with pytest.raises(UnreadableImage, match=r"an image of mode F cannot be read \(it.* values"):
        pixels(Image.new("F", (1, 1), value))


def test_size_is_height_and_width() -> None:
    assert pixels(scene(True), "RGB", (5, 7)).shape == (5, 7, 3)
    assert pixels(scene(True), "L", (5, 7)).shape == (5, 7)
    assert pixels(Image.new("RGB", (3, 2))).shape == (2, 3, 3)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (5, 60), (61, 40), (90, 70)])
def test_images_are_resized_as_by_pillow(
    shape: tuple[int, int], mode: images.Mode, interpolation: images.Interpolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*shape, *channels), dtype=np.uint8))
    resized = image.resize((40, 61), Image.Resampling[interpolation.upper()])
    fast = pixels(image, mode, (61, 40), interpolation)
    monkeypatch.setattr(images, "FAST_PIXELS", 0)
    slow = pixels(image, mode, (61, 40), interpolation)
    assert np.array_equal(slow, np.asarray(resized))
    assert fast.shape == slow.shape
    assert np.abs(fast.astype(int) - slow).max() <= (0 if mode == "RGBA" else 2)  # rounded twice
    assert (fast != slow).mean() < 0.03


def test_suffixes_are_those_that_pillow_knows() -> None:
    assert set(suffixes()) <= set(Image.registered_extensions())


def detailed(width: int, height: int) -> Image.Image:
    """Smooth colours with fine texture, which a reduced size must average."""
    down, right = np.mgrid[0:height, 0:width]
    waves = 40 * np.sin(right / 1.7) * np.cos(down / 2.3)
    values = (
        np.stack([200 * right / width, 200 * down / height, 200 - 200 * right / width], 2) + 28 + waves[..., None] / 2
    )
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize("orientation", [1, 6, 7])
@pytest.mark.parametrize("shape", [(801, 1203), (1203, 801), (640, 1280)], ids=str)
@pytest.mark.parametrize("size", [(32, 32), (20, 70), (150, 99)], ids=str)
def test_a_large_jpeg_is_decoded_at_a_reduced_size(
    tmp_path: Path, size: tuple[int, int], shape: tuple[int, int], orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the pixels of the whole image, resized: also if its sides are no multiples of 8."""
    decoded: list[int] = []
    converted = images._converted
    monkeypatch.setattr(images, "_converted", lambda *given: decoded.append(given[0].width) or converted(*given))
    stored = rotated(detailed(*shape), orientation)
    stored.save(tmp_path / "it.jpg", exif=stored.getexif(), quality=95)
    found = pixels(tmp_path / "it.jpg", "RGB", size)
    with Image.open(tmp_path / "it.jpg") as image:
        whole = pixels(image.copy() if orientation == 1 else image, "RGB", size)
    assert decoded[0] < decoded[1] == stored.width
    assert found.shape == (*size, 3)
    assert np.abs(found.astype(int) - whole).mean() < 2
    assert np.abs(found.astype(int) - whole).max() < 16


def test_a_jpeg_that_is_not_larger_is_decoded_as_it_is(tmp_path: Path) -> None:
    detailed(60, 40).save(tmp_path / "it.jpg")
    for size in [(40, 60), (39, 50), (80, 90)]:
        with Image.open(tmp_path / "it.jpg") as image:
            assert np.array_equal(pixels(tmp_path / "it.jpg", "RGB", size), pixels(image, "RGB", size))


@pytest.mark.parametrize("suffix", ["png", "gif", "bmp", "tif"])
def test_a_size_bomb_is_refused_before_it_is_decoded(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above Pillow's limit, and above twice that, which Pillow itself refuses; the message names file and limit."""
    path = tmp_path / f"bomb.{suffix}"
    Image.new("L", (50, 40)).save(path)
    monkeypatch.setattr(images, "_converted", lambda *_: pytest.fail("decoded"))
    for limit in (1500, 900):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with pytest.raises(
                UnreadableImage, match=r"bomb\..* cannot be read \(.*limit.*; reduce its size, or"
            ) as error:
                pixels(path, "RGB", (8, 8))
        assert any(text in str(error.value) for text in ("1,500", "1,800"))
    monkeypatch.undo()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert pixels(path, "RGB", (8, 8)).shape == (8, 8, 3)


def test_a_large_jpeg_is_no_bomb_if_it_is_decoded_at_a_reduced_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (500, 400)).save(tmp_path / "it.jpg")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 150_000)
    with pytest.warns(Image.DecompressionBombWarning):
        assert pixels(tmp_path / "it.jpg", "RGB", (8, 8)).shape == (8, 8, 3)


def test_images_are_read_in_order_and_not_far_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(40)]
    for number, path in enumerate(paths):
        Image.new("L", (2, 2), number).save(path)
    paths[7].write_bytes(b"broken")
    opened: list[Path] = []
    read = images.pixels
    monkeypatch.setattr(images, "pixels", lambda *given: opened.append(given[0]) or read(*given))
    for number, found in enumerate(all_pixels(paths, "L", (1, 1), ahead=5)):
        if number == 7:
            assert isinstance(found, UnreadableImage)
            assert found.reason == "it is no image, or of an unknown format"
        else:
            assert not isinstance(found, UnreadableImage)
            assert found.tolist() == [[number]]
        assert len(opened) <= number + 6
    assert len(opened) == 40
    opened.clear()
    first = all_pixels(paths, "L", (1, 1), ahead=3)
    next(first)
    first.close()
    assert len(opened) <= 4


def test_the_plugin_for_heic_is_registered_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    plugin = ModuleType("pillow_heif")
    plugin.register_heif_opener = lambda: calls.append("registered")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pillow_heif", plugin)
    images._register_heif.cache_clear()
    try:
        images.pillow()
        images.pillow()
    finally:
        images._register_heif.cache_clear()
    assert calls == ["registered"]
