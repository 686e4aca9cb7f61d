"""Which folder belongs to a run: by its name, and by the configuration that an existing folder records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onebyone.runs.config import absolute, folder_name

CONFIG = "config.yaml"


def find_folder(parent: Path, resolved: Mapping[str, Any]) -> Path:
    """The folder under ``parent`` that holds the run of this resolved configuration, or the one to create for it.

    A folder is recognised by its ``config.yaml``. This includes folders of sweeps, which are one level further down,
    and folders that version 0.1.0 of ``onebyone run`` gave other names.
    """
    named = parent / folder_name(resolved)
    if named.exists():
        return named
    pattern = f"{resolved['method'].rpartition(':')[2]}-{resolved['dataset']}-*seed{resolved['seed']}-*/{CONFIG}"
    paths = [*parent.glob(pattern), *parent.glob(f"*/{pattern}")]
    return next((path.parent for path in sorted(paths) if _recorded(path) == resolved), named)


def _recorded(path: Path) -> dict[str, Any]:
    """The configuration in a file; empty if the file is damaged, which is reported when its folder is opened."""
    import yaml

    try:
        found = yaml.safe_load(path.read_bytes())
        return found | {"method": absolute(found["method"])}  # type: ignore[no-any-return]
    except (yaml.YAMLError, TypeError, KeyError):
        return {}
