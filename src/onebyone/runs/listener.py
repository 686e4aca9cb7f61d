"""Callbacks of a run about its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onebyone.evaluation import Result


class Listener:
    """Receives the progress of a run. Override the methods that you need; by default they do nothing.

    Pass it as ``run(config, listener=...)``. A progress bar, for example, overrides ``started`` and ``stepped``.
    """

    def reading(self, what: str, done: int, total: int | None) -> None:
        """Called while the data are downloaded or read.

        Parameters
        ----------
        what
            Description of the data that are read.
        done, total
            Number of bytes or files read so far, and in total. ``total`` is None if it is not known.
        """

    def configured(self, config: Mapping[str, Any], ends: Sequence[int]) -> None:
        """Called when the configuration is complete, before the run starts.

        Parameters
        ----------
        config
            The configuration, as it is recorded.
        ends
            The number of samples at the end of each task.
        """

    def started(self, title: str, samples: int, done: int, tasks: int) -> None:
        """Called before the first step.

        Parameters
        ----------
        title
            Method and data set, as text.
        samples, tasks
            Number of samples and tasks of the stream.
        done
            Number of samples that were learnt before, if the run is resumed.
        """

    def stepped(self, task: int, samples: int) -> None:
        """Called after each step.

        Parameters
        ----------
        task
            Number of the task, from 0.
        samples
            Number of samples in the step.
        """

    def evaluated(self, task: int, accuracy: float) -> None:
        """Called after each task, when the learner has been evaluated on the test set.

        Parameters
        ----------
        task
            Number of the task, from 0.
        accuracy
            Accuracy on the classes seen so far, from 0 to 1.
        """

    def finished(self, result: Result) -> None:
        """Called when the run has finished.

        Parameters
        ----------
        result
            The result, as :func:`run` returns it.
        """

    def failed(self) -> None:
        """Called when the run has failed or was stopped."""
