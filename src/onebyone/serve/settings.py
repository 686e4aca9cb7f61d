"""What a state folder was created for."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from onebyone.errors import UsageError
from onebyone.estimator import OnlineClassifier
from onebyone.files import atomic_write
from onebyone.formats import SERVER, newer

FILE = "settings.json"


@dataclass(frozen=True)
class Settings:
    """The classifier of a state folder. It is fixed when the folder is created.

    Parameters
    ----------
    method
        Name of a method, or ``"auto"``.
    encoder
        Name of a pretrained encoder, whose weights are frozen, or ``"auto"`` for none.
    memory
        Size of the memory or of the statistics, such as ``"3MB"``.
    size
        Height and width in pixels that images are resized to.
    gray
        Whether images are converted to gray.
    samples
        Which built-in samples the page offers: ``"shapes"`` or ``"digits"``.
    """

    method: str = "auto"
    encoder: str = "auto"
    memory: str = "3MB"
    size: int = 32
    gray: bool = False
    samples: str = "shapes"

    def __post_init__(self) -> None:
        if not 4 <= self.size <= 512:
            raise UsageError(f"size is {self.size}; it must be from 4 to 512 pixels")
        if self.samples not in ("shapes", "digits"):
            raise UsageError(f"samples is {self.samples!r}; it must be 'shapes' or 'digits'")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an image, before anything was learnt."""
        return (self.size, self.size) if self.gray else (self.size, self.size, 3)

    def parameters(self) -> dict[str, Any]:
        """The parameters of the classifier."""
        frozen = self.encoder != "auto"
        return {"method": self.method, "encoder": self.encoder, "freeze_encoder": frozen, "memory": self.memory}


def settings_of(folder: Path, given: dict[str, Any]) -> Settings:
    """The settings of a state folder, which is created with those ``given`` if it does not exist.

    Raises
    ------
    UsageError
        If the folder was created with other values, or is not a state folder.
    """
    given = {name: value for name, value in given.items() if value is not None}
    file = folder / FILE
    if not file.exists():
        if any(folder.glob("journal-*")) or any(folder.glob("snapshot-*")):
            raise UsageError(f"{folder} has a journal but no {FILE}; restore that file from a copy")
        settings = replace(Settings(), **given)
        if settings.encoder != "auto" and "size" not in given:
            settings = replace(settings, size=224)  # what pretrained encoders expect
        if given.keys() & {"method", "encoder", "memory"}:
            check_usable(settings)
        with atomic_write(file) as temporary:
            temporary.write_text(json.dumps(SERVER.stamp | asdict(settings), indent=2))
        return settings
    try:
        found = json.loads(file.read_text())
        SERVER.update(found)
        known = {item.name for item in fields(Settings)}
        if unknown := found.keys() - known - SERVER.stamp.keys():
            raise newer(found, f"the setting {min(unknown)!r}")
        settings = Settings(**{name: value for name, value in found.items() if name in known})
    except UsageError as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{file} cannot be read ({error}); restore it from a copy") from None
    for name, value in given.items():
        if getattr(settings, name) != value:
            raise UsageError(
                f"{folder} was created with {name} {getattr(settings, name)!r}, and {value!r} is given now; leave it "
                "out, or choose another folder"
            )
    return settings


def check_usable(settings: Settings) -> None:
    """Raise an error now if the first teaching would: an unknown method, an encoder that is not installed."""
    sample = np.zeros((1, *settings.shape), np.uint8)
    OnlineClassifier(**settings.parameters()).partial_fit(sample, ["class"])
