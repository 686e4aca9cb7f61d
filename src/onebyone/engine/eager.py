"""One step after another, as the method's own code says."""

from __future__ import annotations

from torch import Tensor

from onebyone.methods.registry import AnyLearner


class Eager:
    """Feeds a learner by index from data that already lie on its device: an index-select, then ``observe``."""

    def __init__(self, learner: AnyLearner, x: Tensor, y: Tensor) -> None:
        self.learner = learner
        self.x = x
        self.y = y

    def step(self, index: Tensor) -> None:
        """Let the learner observe the samples at ``index``."""
        self.learner.observe(self.x[index], self.y[index])

    def settle(self) -> None:
        """Wait until all steps are done; needed before anyone else looks at the learner."""

    def busy(self) -> bool:
        """Whether steps are still under way, for those who would rather do something else than wait."""
        return False
