"""What a run reports while it works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onebyone.evaluation import Result


class Listener:
    """Called by a run about its progress; a progress bar overrides these methods."""

    def reading(self, what: str, done: int, total: int | None) -> None:
        """The data are being downloaded or read; ``total`` is None if it is not known."""

    def configured(self, config: Mapping[str, Any], ends: Sequence[int]) -> None:
        """The configuration as it is recorded, and the number of samples at the end of each task."""

    def started(self, title: str, samples: int, done: int, tasks: int) -> None:
        """The stream has ``samples`` samples; ``done`` of them were learnt before, if the run is resumed."""

    def stepped(self, task: int, samples: int) -> None:
        """A step on ``samples`` samples has been done in this task, counted from 0."""

    def evaluated(self, task: int, accuracy: float) -> None:
        """The accuracy over the classes seen up to the end of this task."""

    def finished(self, result: Result) -> None:
        """The run has finished."""

    def failed(self) -> None:
        """The run has failed, or was stopped."""
