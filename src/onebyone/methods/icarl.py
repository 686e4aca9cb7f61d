"""iCaRL (Rebuffi et al., 2017), online: sigmoid outputs, distillation from the last task's network, class means."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onebyone.memory import Rows
from onebyone.methods.heads import LinearReplay
from onebyone.methods.losses import reduce
from onebyone.methods.options import ReplayOptions
from onebyone.methods.registry import register
from onebyone.methods.replay_learner import Encoded
from onebyone.options import option


@dataclass(frozen=True, kw_only=True)
class ICaRLOptions(ReplayOptions):
    replay_from: Literal["all", "others"] = option(
        "others", "replay from all of the memory, or only from the classes of earlier tasks (original: others)"
    )
    readout: Literal["head", "ncm"] = option("ncm", "answer by the nearest class mean of the memory, or by the head")


@register("icarl", ICaRLOptions, section="tables 1 and 2, iCaRL")
class ICaRL(LinearReplay[ICaRLOptions]):
    """Sigmoid outputs; replayed samples are distilled from a copy of the network frozen at the last task switch.

    The only method that needs task boundaries. Replay begins with the second task, unless
    ``replay_from=all``.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = ICaRL(ICaRLOptions(memory_per_class=5), digits.spec)
    >>> loss = learner.observe(digits.train_x[:10], digits.train_y[:10])
    >>> learner.end_task()
    """

    needs_boundaries = True
    old: Tensor

    def build(self) -> None:
        super().build()
        self.teacher = deepcopy(nn.Sequential(self.encoder, self.head)).requires_grad_(False).eval()
        self.register_buffer("old", torch.zeros(self.spec.num_classes, dtype=torch.bool))  # classes of earlier tasks

    def allowed(self, incoming: Rows) -> Tensor | None:
        return self.old[self.memory.y[:-1]] if self.options.replay_from == "others" else None

    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        return self.sigmoid_loss(incoming, self.one_hot(incoming.y).float())

    def replay_loss(self, replay: Encoded, incoming: Encoded, *others: Encoded) -> Tensor:
        with torch.no_grad():
            target = self.teacher(replay.view).sigmoid()
        return self.sigmoid_loss(replay, target)

    def sigmoid_loss(self, batch: Encoded, target: Tensor) -> Tensor:
        """Binary cross-entropy, summed over the classes and averaged over the samples."""
        loss = F.binary_cross_entropy_with_logits(self.logits(batch.features), target, reduction="none")
        return reduce(loss.sum(1), batch.weight)

    def end_task(self) -> None:
        self.teacher.load_state_dict(nn.Sequential(self.encoder, self.head).state_dict())
        self.old.copy_(self.observed)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.teacher.eval()  # it is frozen, its BatchNorm statistics too
        return self
