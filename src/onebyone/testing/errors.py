"""The exception for a broken contract, and its message."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onebyone.testing.situations import Method


class BrokenContract(AssertionError):
    """A rule that a learner breaks, and how to fix it."""


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise BrokenContract(sentence)


def run(rule: Callable[..., None], title: str, subject: Method, *arguments: Any) -> None:
    """Apply a rule. A failure, or an exception of the method's code, is raised with the title of the check."""
    try:
        rule(subject, *arguments)
    except BrokenContract as error:
        line = _line(error.__cause__ or error, subject)
        raise BrokenContract(f"{subject.name} ({title}): {error}{line}") from error.__cause__
    except Exception as error:  # whatever the method's code raises
        reason = str(error).strip().split("\n")[0]
        line = _line(error, subject)
        raise BrokenContract(
            f"{subject.name} ({title}): it fails with {type(error).__name__}: {reason}{line}"
        ) from error


def _line(error: BaseException, subject: Method) -> str:
    """The last line of the learner's classes that an error came through, in brackets; empty if there is none."""
    homes = (sys.modules.get(kind.__module__) for kind in subject.entry.learner.__mro__)
    files = {getattr(home, "__file__", None) for home in homes if home and not home.__name__.startswith("torch")}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f" [{Path(frames[-1].filename).name}, line {frames[-1].lineno}: {frames[-1].line}]" if frames else ""
