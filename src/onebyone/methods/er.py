"""Experience replay (Chaudhry et al., 2019)."""

from __future__ import annotations

from onebyone.methods.heads import LinearReplay
from onebyone.methods.options import ReplayOptions
from onebyone.methods.registry import register


@register("er", ReplayOptions, section="tables 1 and 2, ER")
class ER(LinearReplay[ReplayOptions]):
    """Experience replay: cross-entropy on incoming and on replayed samples.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = ER(ReplayOptions(memory_per_class=5), digits.spec)
    >>> loss = learner.observe(digits.train_x[:10], digits.train_y[:10])
    >>> int(learner.memory.filled.sum())
    10
    """
