"""Versions of files: which are read, and how the content of an earlier one becomes that of the present one.

From release 0.3.0 on, every version opens what each earlier one wrote. If the content of a file changes, its format
here gets the next number, and a conversion from the number before. A new parameter or option with a default is no
change: a file without it means the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onebyone import __version__
from onebyone.errors import UsageError

Conversion = Callable[[dict[str, Any], dict[str, Any]], None]


@dataclass(frozen=True)
class Format:
    """A kind of file: a JSON object with its version, and tensors by name."""

    version: int  # that is written
    conversions: Mapping[int, Conversion] = field(default_factory=dict)  # by the version that each changes to the next

    @property
    def stamp(self) -> dict[str, Any]:
        """What is written into the JSON object."""
        return {"version": self.version, "written_by": __version__}

    def update(self, found: dict[str, Any], tensors: dict[str, Any] | None = None) -> None:
        """Change the content of a file to that of the present version, in place.

        Raises
        ------
        UsageError
            If a newer version wrote it, or one before release 0.3.0.
        """
        version = found.get("version")
        if not isinstance(version, int) or isinstance(version, bool):
            raise UsageError(f"its version is {version!r}, so it is damaged; use another copy")
        if version > self.version:
            raise newer(found, f"version {version} of its format")
        if version < min(self.conversions, default=self.version):
            raise UsageError(
                "it was written before release 0.3.0, and such files are not read; open it with the commit that wrote "
                "it, or train a new classifier"
            )
        for each in range(version, self.version):
            self.conversions[each](found, {} if tensors is None else tensors)


def newer(found: Mapping[str, Any], what: str) -> UsageError:
    """The error for a file with something that this version does not know."""
    by = found.get("written_by")
    if not isinstance(by, str) or by == __version__:
        return UsageError(f"it has {what}, which onebyone {__version__} does not know; update onebyone")
    return UsageError(
        f"onebyone {by} wrote it, with {what}, which onebyone {__version__} does not know; run "
        f"`pip install --upgrade 'onebyone>={by}'`"
    )


CLASSIFIER = Format(6)  # a saved classifier, also in an autosave folder and as the snapshot of a server
SERVER = Format(2)  # the settings of a state folder, and with them its journal
