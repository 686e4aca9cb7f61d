"""Fine-tuning: the lower end of every table."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from onebyone.methods.network import NetworkLearner
from onebyone.methods.options import Options
from onebyone.methods.registry import register


@register("finetune", Options, section="tables 1 and 2, fine-tuning")
class FineTune(NetworkLearner[Options]):
    """Plain SGD on incoming samples, without a memory: it forgets all but the last task.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = FineTune(Options(), digits.spec)
    >>> loss = learner.observe(digits.train_x[:10], digits.train_y[:10])
    """

    takes_weights = True

    def build(self) -> None:
        self.head = nn.Linear(self.encoder.width, self.spec.num_classes)

    def observe(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        self.count(y)
        logits = self.head(self.encoder(self.view(x)))
        if weight is None:
            loss = F.cross_entropy(logits, y)
        else:
            loss = (F.cross_entropy(logits, y, reduction="none") * weight.float()).mean()
        self.descend(loss)
        return loss.detach()

    def readout(self) -> Callable[[Tensor], Tensor]:
        return self.head
