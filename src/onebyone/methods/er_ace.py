"""ER-ACE (Caccia et al., 2021): incoming samples do not push the classes of the past away."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from onebyone.methods.heads import CosineOptions, CosineReplay
from onebyone.methods.losses import cross_entropy
from onebyone.methods.registry import register
from onebyone.methods.replay_learner import Encoded
from onebyone.options import option


@dataclass(frozen=True, kw_only=True)
class ERACEOptions(CosineOptions):
    contrast_unseen: bool = option(
        True, "keep classes that were never seen in the incoming softmax; this uses how many are still to come"
    )


@register("er-ace", ERACEOptions, section="table 2, ER-ACE")
class ERACE(CosineReplay[ERACEOptions]):
    """ER in which the softmax of incoming samples leaves out old classes (asymmetric cross-entropy).

    **With one class per task**, the incoming batch has a single class, and its softmax contrasts it only with classes
    that were never seen: the step lowers the logits of future classes. With ``contrast_unseen=no``, the softmax has one
    term, the incoming loss is exactly zero, and only cross-entropy on the memory remains. The paper calls the method
    inapplicable in this case, but it does run.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = ERACE(ERACEOptions(memory_per_class=5), digits.spec)
    >>> loss = learner.observe(digits.train_x[:10], digits.train_y[:10])
    """

    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        among = self.in_batch(incoming.y)
        if self.options.contrast_unseen:
            among = among | ~self.observed
        return cross_entropy(self.logits(incoming.features), incoming.y, incoming.weight, among=among)
