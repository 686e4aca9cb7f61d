"""Learners whose first steps differ from all later ones."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self, TypeVar

from onebyone.methods.learner import Learner
from onebyone.options import Checked

C = TypeVar("C", bound=Checked)


class WarmUpLearner(Learner[C]):
    """A learner that may have to wait for some samples before it can use them."""

    warm_up: int = 0  # samples before the first captured step; a learner with any is never captured

    @abstractmethod
    def ready(self) -> Self:
        """A learner that answers with the samples seen so far: this one, or a copy while it still waits for more."""

    def answering_copy(self) -> Self:
        ready = self.ready()
        return super(WarmUpLearner, ready).answering_copy()


def warm_up_samples(learner: Learner[Any]) -> int:
    """How many samples a learner waits for before its steps are all alike; 0 for most."""
    return learner.warm_up if isinstance(learner, WarmUpLearner) else 0
