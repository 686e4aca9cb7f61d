"""Errors and warnings for users. One exception is for all that they can fix: bad options, bad data, a wrong folder.

Its message is one sentence that says what was wrong, what was expected and what to do; the command line
prints it and exits with 2.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

# This package, and what calls its functions in between: cached properties and decorators.
WITHIN = (str(Path(__file__).parent), functools.__file__, contextlib.__file__)


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


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called this package, through however many of its functions."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(WITHIN):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
