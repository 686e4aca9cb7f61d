"""Which folder belongs to a run: by its name, and by the configuration that an existing folder records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onebyone.runs.config import folder_name, readable_name
from onebyone.runs.formats import configuration

CONFIG = "config.yaml"


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
