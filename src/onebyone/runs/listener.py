"""What a run reports while it works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onebyone.evaluation import Result


class Listener:
    """Called by a run about its progress; a progress bar overrides these methods."""

    def reading(self, what: str, done: int, total: int | None) -> None:
        """The data are being downloaded or read.

        Parameters
        ----------
        what
            What is being read, in words.
        done, total
            Bytes or files; ``total`` is None if it is not known.
        """

    def configured(self, config: Mapping[str, Any], ends: Sequence[int]) -> None:
        """The configuration is known.

        Parameters
        ----------
        config
            As it is recorded.
        ends
            The number of samples at the end of each task.
        """

    def started(self, title: str, samples: int, done: int, tasks: int) -> None:
        """The first step follows.

        Parameters
        ----------
        title
            Method and data set.
        samples, tasks
            Of the stream.
        done
            Samples that were learnt before, if the run is resumed.
        """

    def stepped(self, task: int, samples: int) -> None:
        """A step has been done.

        Parameters
        ----------
        task
            Its number, from 0.
        samples
            Samples of the step.
        """

    def evaluated(self, task: int, accuracy: float) -> None:
        """A task has ended, and the test set was predicted.

        Parameters
        ----------
        task
            Its number, from 0.
        accuracy
            Over the classes seen so far.
        """

    def finished(self, result: Result) -> None:
        """The run has finished.

        Parameters
        ----------
        result
            As :func:`run` returns it.
        """

    def failed(self) -> None:
        """The run has failed, or was stopped."""
