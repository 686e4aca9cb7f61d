"""Which folder belongs to a run: by its name, and by the configuration that an existing folder records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onebyone.runs.config import folder_name

CONFIG = "config.yaml"


def find_folder(parent: Path, resolved: Mapping[str, Any]) -> Path:
    """The folder under ``parent`` that holds the run of this resolved configuration, or the one to create for it.

    This includes folders of sweeps, which are one level further down, if their run was on the same data.
    """
    name = folder_name(resolved)
    if not (parent / name).exists():
        for path in sorted(parent.glob(f"*/{name}/{CONFIG}")):
            if read_config(path) == resolved:
                return path.parent
    return parent / name


def read_config(path: Path) -> Any:
    """The content of a ``config.yaml``, which may be that of another program; None if it cannot be read."""
    import yaml

    try:
        return yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, ValueError, OSError):  # a date that does not exist is a ValueError
        return None
