"""What the API shows of a service: classes with pictures, built-in samples, the saved file, the files of the page."""

from __future__ import annotations

import base64
import io
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from onebyone.data import load
from onebyone.data.images import pillow
from onebyone.errors import UsageError
from onebyone.serve.journal import cannot_store
from onebyone.serve.model import Model
from onebyone.serve.service import Service

Array = npt.NDArray[Any]
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
NAMES = {"index.html": "/", "docs.html": "/docs"}  # the address of a file, if it is not its name
PER_CLASS = 12  # built-in samples
SIDE = 96  # pixels of a built-in sample
SHAPES = ("circle", "square", "triangle")
DOWNLOAD = "download.safetensors"  # in the state folder, while a saved file is read


def pages() -> dict[str, tuple[bytes, str]]:
    """The content and type of each file of the page, by its address. No other file can be asked for."""
    folder = files("onebyone.serve") / "page"
    return {
        NAMES.get(file.name, f"/{file.name}"): (file.read_bytes(), KINDS[f".{file.name.rsplit('.', 1)[1]}"])
        for file in folder.iterdir()
    }


def classes(service: Service, with_pictures: bool) -> dict[str, Any]:
    """The classes, with their last samples as pictures, and how predictions went."""

    def look(model: Model) -> dict[str, Any]:
        teachings = model.teachings
        last = teachings.stack[-1] if teachings.stack else None
        pictures = teachings.pictures if with_pictures else {}
        return {
            "classes": [
                {"label": label, "samples": count, "pictures": list(pictures.get(label, []))}
                for label, count in model.counts().items()
            ],
            "sequence": service.sequence,
            "fitted": model.state is not None,
            "shape": list(model.shape),
            "undo": None if last is None else {"samples": len(last.labels), "labels": sorted(set(last.labels))},
            "outcomes": "".join("1" if each else "0" for each in teachings.outcomes),
            "predicted": teachings.predicted,
        }

    found = service.look(look)
    for each in found["classes"]:  # arrays are encoded after the model was released
        each["pictures"] = [data_url(array) for array in each["pictures"] if array.ndim > 1]
    answer = service.answer
    return found | {
        "solved": service.solved,
        "answers": answer is not None,
        "report": answer is not None and answer.report is not None,
    }


def data_url(array: Array) -> str:
    return "data:image/png;base64," + base64.b64encode(png(array)).decode()


def png(array: Array) -> bytes:
    content = io.BytesIO()
    pillow().fromarray(np.ascontiguousarray(array)).save(content, "PNG")
    return content.getvalue()


def saved(model: Model) -> bytes:
    """The saved file of the classifier. Raises ``CannotStore`` if the disk is full: the file is written there first."""
    model.check_fitted()
    path = model.folder / DOWNLOAD
    try:
        model.save(path)
        return path.read_bytes()
    except UsageError as error:
        if isinstance(error.__cause__, OSError):
            raise cannot_store(error.__cause__) from error
        raise
    finally:
        path.unlink(missing_ok=True)


def built_in(kind: str) -> list[dict[str, Any]]:
    """Samples to teach without a camera: for each class a label and pictures."""
    if kind == "digits":
        digits = load("digits")
        return [
            {
                "label": str(digit),
                "pictures": [
                    data_url(enlarged(image[0].numpy()))
                    for image in digits.train_x[digits.train_y == digit][:PER_CLASS]
                ],
            }
            for digit in range(10)
        ]
    random = np.random.default_rng(0)
    return [
        {"label": shape, "pictures": [data_url(drawn(shape, random)) for _ in range(PER_CLASS)]} for shape in SHAPES
    ]


def enlarged(digit: Array) -> Array:
    """A digit as dark strokes on white, like the drawing pad."""
    image = pillow().fromarray(255 - digit).resize((SIDE, SIDE), pillow().Resampling.BICUBIC)
    return np.asarray(image)


def drawn(shape: str, random: np.random.Generator) -> Array:
    """A shape as a person might draw it: closed, but of uneven radius, and slightly turned."""
    from PIL import ImageDraw

    corners = {"circle": 40, "square": 4, "triangle": 3}[shape]
    scale = 4
    image = pillow().new("RGB", (SIDE * scale, SIDE * scale), "white")
    start = {"circle": 0.0, "square": np.pi / 4, "triangle": -np.pi / 2}[shape] + random.uniform(-0.2, 0.2)
    angles = start + 2 * np.pi * np.arange(corners) / corners
    wobble = 1 + (0.06 * np.cos(2 * angles + random.uniform(0, 6)) if shape == "circle" else 0)
    radius = random.uniform(0.36, 0.44) * wobble * (1 + random.normal(0, 0.03, corners) * (corners < 10))
    middle = 0.5 + random.uniform(-0.02, 0.02, 2)
    x, y = (middle[0] + radius * np.cos(angles)), (middle[1] + radius * np.sin(angles))
    points = [(float(a * SIDE * scale), float(b * SIDE * scale)) for a, b in zip(x, y, strict=True)]
    draw = ImageDraw.Draw(image)
    draw.line([*points, *points[:2]], fill=(30, 30, 40), width=7 * scale, joint="curve")
    return np.asarray(image.resize((SIDE, SIDE), pillow().Resampling.LANCZOS))
