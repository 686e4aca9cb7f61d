"""Steps run one after another by the method's own code."""

from __future__ import annotations

from torch import Tensor

from onebyone.methods.registry import AnyLearner


class Eager:
    """Feeds a learner by index from data on its device: an index-select, then ``observe``."""

    def __init__(self, learner: AnyLearner, x: Tensor, y: Tensor) -> None:
        self.learner = learner
        self.x = x
        self.y = y

    def step(self, index: Tensor) -> None:
        """Let the learner observe the samples at ``index``."""
        self.learner.observe(self.x[index], self.y[index])

    def synchronize(self) -> None:
        """Wait until all steps are done. Call it before reading the learner's state."""

    def busy(self) -> bool:
        """Whether steps are still running, for callers that can do something else meanwhile."""
        return False
