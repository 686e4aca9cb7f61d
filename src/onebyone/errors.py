"""The one exception for errors that a user can fix: bad options, bad data, a folder of another run.

Its message is one sentence that says what was wrong, what was expected and what to do; the command line
prints it and exits with 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UsageError(ValueError):
    """An error that the caller can fix. It is a ValueError.

    >>> raise UsageError("memory_per_class is 0; it must be at least 1")
    Traceback (most recent call last):
        ...
    onebyone.errors.UsageError: memory_per_class is 0; it must be at least 1
    """


class Interrupted(Exception):
    """The user stopped a command, which can be continued: what was done is saved."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not in a registry, with the nearest one that is.

    >>> str(unknown("method", "cpp", ["ccp", "er"]))
    "unknown method 'cpp'; did you mean 'ccp'? Known: ccp, er"
    """
    names = sorted(known)
    nearest = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return UsageError(f"unknown {kind} {name!r}; {hint}Known: {', '.join(names)}")
