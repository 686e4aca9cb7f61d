"""Images as the library reads them: upright, 8 bits per channel, gray or RGB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from onebyone.errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

    Source = Image | str | PathLike[str]  # an image, or the path of an image file

Mode = Literal["L", "RGB", "RGBA"]
Size = tuple[int, int]  # height, width
Bytes = npt.NDArray[np.uint8]

SUFFIXES = (".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
# These are read if Pillow can: AVIF depends on how it was built, HEIC needs the plugin pillow-heif.
OPTIONAL_SUFFIXES = (".avif", ".heic", ".heif", ".jp2")
DEEP_FORMATS = ("PNG", "PPM")  # whose images of mode I have 16 bits


class UnreadableImage(UsageError):
    """An image that cannot be read; ``reason`` says why, without its path."""

    def __init__(self, source: Source, error: Exception) -> None:
        self.reason, remedy = str(error), "repair or remove it, or save it as 8-bit PNG"
        if isinstance(error, FileNotFoundError):
            self.reason, remedy = "there is no such file", "correct the path"
        elif isinstance(error, IsADirectoryError):
            self.reason, remedy = "it is a folder", "give the files in it"
        elif type(error).__name__ == "UnidentifiedImageError":
            self.reason = "it is no image, or of an unknown format"
        name = source if isinstance(source, (str, PathLike)) else f"an image of mode {source.mode}"
        super().__init__(f"{name} cannot be read ({self.reason}); {remedy}")


def is_gray(image: Image) -> bool:
    """Whether an image has brightness only; a palette counts as colour."""
    return image.mode[0] in "1LIF" and image.mode != "LAB"


def upright(image: Image, mode: Mode = "RGB") -> Image:
    """The image as a viewer shows it, in ``mode``: L (gray) or RGB, with 8 bits per channel.

    The EXIF orientation is applied. Transparent pixels are blended over white, as most viewers and browsers do; their
    stored colour is arbitrary, often black. 16-bit values are divided by 257, so that full brightness stays full
    brightness. Of an animation, the first frame counts. Mode RGBA keeps the transparency instead of blending it.

    >>> from PIL import Image
    >>> upright(Image.new("HSV", (4, 2), (0, 255, 255))).getpixel((0, 0))
    (255, 0, 0)
    >>> upright(Image.new("I;16", (4, 2), 40 * 257), "L").getpixel((0, 0))
    40
    """
    from PIL import Image, ImageOps

    deep = image.mode.startswith("I;16") or (image.mode == "I" and image.format in DEEP_FORMATS)
    image = ImageOps.exif_transpose(image)
    if image.mode[0] in "IF":
        image = Image.fromarray(_eight_bits(image, deep))
    if "transparency" in image.info or image.mode in ("RGBA", "RGBa", "LA", "La", "PA"):
        if image.mode == "La":  # which Pillow converts to LA only
            image = image.convert("LA")
        image = image.convert("RGBA")
        if mode == "RGBA":
            return image
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    # By way of RGB, as Pillow converts HSV and others to nothing else.
    return image if image.mode == mode else image.convert("RGB").convert(mode)


def _eight_bits(image: Image, deep: bool) -> Bytes:
    """Gray values as bytes: of 16 bits if ``deep``, otherwise from 0 to 1 (mode F only) or from 0 to 255."""
    values = np.asarray(image).astype(np.float64)
    if not np.isfinite(values).all():
        raise UsageError("it has NaN or infinite values")
    low, high = values.min(), values.max()
    if deep:
        values = values / 257
    elif image.mode == "F" and low >= 0 and high <= 1:
        values = values * 255
    elif low < 0 or high > 255:  # these modes have no fixed range
        raise UsageError(f"its values of mode {image.mode} range from {low:g} to {high:g}, not from 0 to 255")
    return values.round().astype(np.uint8)


def pixels(source: Source, mode: Mode = "RGB", size: Size | None = None) -> Bytes:
    """[height, width] or [height, width, channels] of an image or an image file, resized to ``size`` if given.

    Raises :class:`UnreadableImage` if it cannot be read.
    """
    resampling = pillow().Resampling.BILINEAR
    try:
        with opened(source) as image:
            found = upright(image, mode)
        if size is not None and (found.height, found.width) != size:
            found = found.resize(size[::-1], resampling)
        return np.asarray(found)
    except Exception as error:  # a damaged image can raise anything
        raise UnreadableImage(source, error) from error


def all_pixels(sources: Sequence[Source], mode: Mode, size: Size) -> Iterator[Bytes | UnreadableImage]:
    """The pixels of each image in order, or why it cannot be read; files are decoded by several threads."""

    def read(source: Source) -> Bytes | UnreadableImage:
        try:
            return pixels(source, mode, size)
        except UnreadableImage as error:
            return error

    pillow()  # without it, the error is about all images and not about each
    with ThreadPoolExecutor() as pool:  # decoding is most of the work, and Pillow releases the interpreter lock
        yield from pool.map(read, sources)


def opened(source: Source) -> AbstractContextManager[Image]:
    """The image with its header read; a file is closed at the end, an image of the caller stays open."""
    if isinstance(source, (str, PathLike)):
        return pillow().open(source)  # type: ignore[no-any-return]
    return nullcontext(source)


def suffixes() -> tuple[str, ...]:
    """Endings of the files that are read as images."""
    known = pillow().registered_extensions()
    return (*SUFFIXES, *(suffix for suffix in OPTIONAL_SUFFIXES if suffix in known))


def pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError:
        raise UsageError(
            "reading images needs Pillow, which is not installed; run `pip install 'onebyone[cli]'`"
        ) from None
    return Image
