"""The folder of a run: which one it is, by its name or by the configuration that it records; and why its run failed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from onebyone.errors import UsageError
from onebyone.files import atomic_write
from onebyone.runs.config import folder_name, readable_name
from onebyone.runs.formats import configuration

CONFIG = "config.yaml"
CHECKPOINT = "checkpoint.safetensors"
RESULT = "result.json"
CURVE = "curve.csv"
ERROR = "error.txt"


def find_folder(parent: Path, resolved: Mapping[str, Any]) -> Path:
    """The folder under ``parent`` that holds the run of this resolved configuration, or the one to create for it.

    A folder is recognised by its ``config.yaml``, because a version that adds an option to the method changes names.
    This includes folders of sweeps, which are one level further down.
    """
    named = parent / folder_name(resolved)
    if named.exists():
        return named
    pattern = f"{readable_name(resolved)}-*/{CONFIG}"
    paths = sorted([*parent.glob(pattern), *parent.glob(f"*/{pattern}")])
    return next((path.parent for path in paths if read_config(path) == resolved), named)


def read_config(path: Path) -> dict[str, Any] | None:
    """The configuration in a file; None if it is damaged, or the file of another program."""
    import yaml

    try:
        return configuration(yaml.safe_load(path.read_bytes()))
    except (yaml.YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def leave_error(folder: Path, text: str) -> None:
    """Write why a run failed."""
    with suppress(UsageError), atomic_write(folder / ERROR) as temporary:  # the disk may be what has failed
        temporary.write_text(text)


def forget_error(folder: Path) -> None:
    """Remove what earlier attempts of a run wrote about their failures."""
    for path in folder.glob(f"*{ERROR}*"):
        path.unlink(missing_ok=True)
