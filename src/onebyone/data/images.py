"""Images as the library reads them: upright, 8 bits per channel, gray or RGB."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from importlib import import_module
from os import PathLike
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from onebyone.errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

    Source = Image | str | PathLike[str]  # an image, or the path of an image file

Mode = Literal["L", "RGB", "RGBA"]
Size = tuple[int, int]  # height, width
Bytes = npt.NDArray[np.uint8]
Interpolation = Literal["bilinear", "bicubic"]

SUFFIXES = (".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
# These are read if Pillow can: AVIF depends on how it was built, HEIC needs the plugin pillow-heif.
OPTIONAL_SUFFIXES = (".avif", ".heic", ".heif", ".jp2")
DRAFT = 1.5  # size at which a large JPEG file is decoded, relative to the size that is asked for, at least
FAST_PIXELS = 2**20  # up to which torch resizes faster than Pillow, from which pixels have to be copied
AHEAD = 128  # decoded images that wait to be used
DEEP_FORMATS = ("PNG", "PPM")  # whose images of mode I have 16 bits


class TooLarge(ValueError):
    """An image that would take too much memory."""


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
        elif type(error).__name__ == "DecompressionBombError" or isinstance(error, TooLarge):
            if not isinstance(error, TooLarge):  # Pillow's own words are a warning of an attack
                limit = pillow().MAX_IMAGE_PIXELS
                self.reason = f"it has more than {2 * limit:,} pixels, and the limit is {limit:,} pixels"
            remedy = "reduce its size, or set PIL.Image.MAX_IMAGE_PIXELS to a larger number if you trust it"
        name = source if isinstance(source, (str, PathLike)) else f"an image of mode {source.mode}"
        super().__init__(f"{name} cannot be read ({self.reason}); {remedy}")


def is_gray(image: Image) -> bool:
    """Whether an image has brightness only; a palette counts as colour."""
    return image.mode[0] in "1LIF" and image.mode != "LAB"


def _orientation(image: Image) -> int:
    return int(image.getexif().get(0x0112, 1))


def _stored(size: Size, orientation: int) -> tuple[int, int]:
    """Width and height, before an image of this EXIF orientation is turned, of one that has ``size`` when upright."""
    height, width = size
    return (height, width) if orientation in (5, 6, 7, 8) else (width, height)


def _turned(image: Image, orientation: int) -> Image:
    """A stored image of this EXIF orientation, turned or mirrored so that it is upright."""
    turn = pillow().Transpose
    turns = {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_270,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_90,
    }
    return image.transpose(turns[orientation]) if orientation in turns else image


def _converted(image: Image, mode: Mode) -> Image:
    """The image in ``mode``, as it is stored."""
    from PIL import Image

    image.load()
    if image.mode[0] in "IF":
        deep = image.mode.startswith("I;16") or (image.mode == "I" and image.format in DEEP_FORMATS)
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


def pixels(
    source: Source, mode: Mode = "RGB", size: Size | None = None, interpolation: Interpolation = "bilinear"
) -> Bytes:
    """[height, width] or [height, width, channels] of an image or an image file, resized to ``size`` if given.

    The image is as a viewer shows it: the EXIF orientation is applied, and transparent pixels are blended over white,
    because their stored colour is arbitrary, often black. Mode RGBA keeps the transparency instead. 16-bit values are
    divided by 257, so that full brightness stays full brightness. Of an animation, the first frame is read.

    A JPEG file that is much larger than ``size`` is decoded at a half, a quarter or an eighth of its size, which takes
    a fifth of the time. Raises :class:`UnreadableImage` if an image cannot be read, or is too large to be decoded.

    >>> from PIL import Image
    >>> pixels(Image.new("HSV", (1, 1), (0, 255, 255))).tolist()
    [[[255, 0, 0]]]
    >>> pixels(Image.new("I;16", (1, 1), 40 * 257), "L").tolist()
    [[40]]
    """
    try:
        with opened(source) as image:
            box = None
            if size is not None and image is not source:  # an image of the caller is not changed
                # Larger than the result, so that the filter below decides how it looks: pixels differ by less than one
                # gray level on average. Twice the size would decode 12 megapixels at a quarter instead of an eighth.
                width, height = (math.ceil(DRAFT * side) for side in _stored(size, _orientation(image)))
                drafted = image.draft(None, (width, height))
                box = drafted and drafted[1]  # the last block of pixels may be partly filled
            _check_size(image)
            found = _converted(image, mode)
            orientation = _orientation(image)  # Pillow turns some formats when they are decoded
            whole = box in (None, (0, 0, *found.size))
            by_torch = whole and mode != "RGBA" and found.width * found.height <= FAST_PIXELS
            if size is not None and not by_torch and found.size != _stored(size, orientation):
                found = found.resize(_stored(size, orientation), pillow().Resampling[interpolation.upper()], box)
            upright = np.asarray(_turned(found, orientation))
            return upright if size is None or upright.shape[:2] == size else _resized(upright, size, interpolation)
    except Exception as error:  # a damaged image can raise anything
        raise UnreadableImage(source, error) from error


def _resized(image: Bytes, size: Size, interpolation: Interpolation) -> Bytes:
    """[height, width] or [height, width, channels], as Pillow resizes it up to one gray level, but faster.

    Not for images with transparency, whose colours Pillow weights by their opacity.
    """
    x = torch.from_numpy(image if image.flags.writeable else image.copy())
    x = x[None, None] if x.dim() == 2 else x.permute(2, 0, 1)[None]
    x = F.interpolate(x, size, mode=interpolation, antialias=True)[0]
    return (x[0] if image.ndim == 2 else x.permute(1, 2, 0)).numpy()


def _check_size(image: Image) -> None:
    """Raise an error for an image with more pixels than Pillow decodes without a warning."""
    limit = pillow().MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise TooLarge(f"it has {image.width} x {image.height} pixels, and the limit is {limit:,} pixels")


def all_pixels(
    sources: Iterable[Source], mode: Mode, size: Size, interpolation: Interpolation = "bilinear", *, ahead: int = AHEAD
) -> Iterator[Bytes | UnreadableImage]:
    """The pixels of each image in order, or why it cannot be read.

    Several threads decode files while the caller uses the images before, at most ``ahead`` of them.
    """

    def read(source: Source) -> Bytes | UnreadableImage:
        try:
            return pixels(source, mode, size, interpolation)
        except UnreadableImage as error:
            return error

    pillow()  # without it, the error is about all images and not about each
    pool = ThreadPoolExecutor()  # decoding is most of the work, and Pillow releases the interpreter lock
    waiting: deque[Future[Bytes | UnreadableImage]] = deque()
    try:
        for source in sources:
            waiting.append(pool.submit(read, source))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # also if the caller stops early
        pool.shutdown(wait=False, cancel_futures=True)


def opened(source: Source) -> AbstractContextManager[Image]:
    """The image with its header read; a file is closed at the end, an image of the caller stays open."""
    if isinstance(source, (str, PathLike)):
        if Path(source).is_fifo():  # opening it would wait for its other end
            raise ValueError("it is a pipe")
        return pillow().open(source)  # type: ignore[no-any-return]
    return nullcontext(source)


def suffixes() -> tuple[str, ...]:
    """Endings of the files that are read as images."""
    known = pillow().registered_extensions()
    return (*SUFFIXES, *(suffix for suffix in OPTIONAL_SUFFIXES if suffix in known))


def named_as_image(path: PurePath) -> bool:
    """Whether the ending of a name is that of an image, also if images of this kind cannot be read here.

    >>> named_as_image(Path("a.HEIC")), named_as_image(Path("Thumbs.db"))
    (True, False)
    """
    return path.suffix.lower() in SUFFIXES + OPTIONAL_SUFFIXES


def why_no_image(path: PurePath) -> str:
    """Why a file is not read as an image, by the ending of its name."""
    suffix = path.suffix.lower()
    if not suffix:
        return "its name has no ending such as .jpg"
    remedy = "; pip install pillow-heif" if suffix in (".heic", ".heif") else ""
    return f"Pillow cannot read {suffix}{remedy}" if suffix in OPTIONAL_SUFFIXES else "no image file"


def pillow() -> ModuleType:
    """Pillow's module Image, which reads HEIC files too if the package pillow-heif is installed."""
    from PIL import Image

    _register_heif()
    return Image


@cache
def _register_heif() -> None:
    with suppress(ImportError):
        import_module("pillow_heif").register_heif_opener()
