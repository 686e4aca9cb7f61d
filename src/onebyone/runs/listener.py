"""Callbacks of a run or a sweep about its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from onebyone.evaluation import Result
from onebyone.executors import Failed, Status

L = TypeVar("L")


class Listener:
    """Receives the progress of a run or a sweep. Override the methods that you need; by default they do nothing.

    Pass it as ``run(config, listener=...)`` or ``sweep(configs, out, listener=...)``. A progress bar, for example,
    overrides ``started`` and ``stepped``. A sweep calls ``reading`` and the methods from ``planned`` on, in its own
    thread.
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

    def planned(self, waiting: Sequence[str], found: Mapping[str, Result]) -> None:
        """Called before the first run of a sweep.

        Parameters
        ----------
        waiting
            The runs that will be done, by the names of their folders.
        found
            The results of those that were finished before.
        """

    def progressed(self, name: str, status: Status) -> None:
        """Called a few times a second for each run of a sweep that is worked on.

        Parameters
        ----------
        name
            The name of its folder.
        status
            How far it is.
        """

    def ended(self, name: str, outcome: Result | Failed) -> None:
        """Called when a run of a sweep has finished or failed.

        Parameters
        ----------
        name
            The name of its folder.
        outcome
            Its result, or why it failed.
        """

    def stopping(self) -> None:
        """Called when the user has asked a sweep to stop, and its runs write checkpoints."""

    def closed(self) -> None:
        """Called when a sweep has ended, with or without an error."""


class Together:
    """Passes every call to several listeners."""

    def __init__(self, listeners: Sequence[Any]) -> None:
        self.listeners = listeners

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> None:
            for listener in self.listeners:
                getattr(listener, name)(*arguments)

        return call


def together(*listeners: L) -> L:
    """Several listeners as one."""
    return Together(listeners)  # type: ignore[return-value]
