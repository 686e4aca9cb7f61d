"""SupBYOL: BYOL with labels, section 2.1."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from onebyone.memory import Rows
from onebyone.methods.losses import batch_mates, byol
from onebyone.methods.partners import draw_partners
from onebyone.methods.prototypes import PrototypeOptions, PrototypeReplay
from onebyone.methods.registry import register
from onebyone.methods.replay_learner import Encoded
from onebyone.nets import multilayer
from onebyone.options import option


@dataclass(frozen=True, kw_only=True)
class SupBYOLOptions(PrototypeOptions):
    learning_rate: float = option(0.03, "step size of plain SGD (paper: 0.1)", above=0)
    temperature: float = option(0.2, "of sim in both equations (the paper does not print it)", above=0)
    incoming_weight: float = option(0.1, "weight of equation 1 (the paper adds both losses as they are)", low=0)
    predictor_hidden: int = option(256, "hidden units of the predictor q", low=1)
    target_momentum: float = option(0.99, "tau: the target follows the online network", low=0, high=1)
    positives: Literal["batch", "memory"] = option(
        "batch", "P(x): all batch mates of the class, or one sample of the class drawn from memory and batch"
    )


@register("supbyol", SupBYOLOptions, section="section 2.1, equations 1 and 2")
class SupBYOL(PrototypeReplay[SupBYOLOptions]):
    """Incoming samples predict the output of a slowly moving target network for other samples of their class.

    No negatives: a class is learnt by itself (equation 1), and classes are compared only in the replay (equation 2).
    The only sample of its class in a batch is its own positive, as in BYOL.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = SupBYOL(SupBYOLOptions(memory_per_class=5), digits.spec)
    >>> loss = learner.observe(digits.train_x[:10], digits.train_y[:10])
    """

    def build(self) -> None:
        super().build()
        depth = self.prototypes.weight.shape[1]
        self.predictor = multilayer(depth, self.options.predictor_hidden, depth)
        self.target = deepcopy(nn.Sequential(self.encoder, self.projector)).requires_grad_(False)

    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        """Equation 1."""
        prediction = self.predictor(incoming.features)
        own = torch.eye(len(incoming.y), dtype=torch.bool, device=incoming.y.device)
        if self.options.positives == "batch":
            partners = incoming.view
            mates = batch_mates(incoming.y)
            positive = mates | (own & ~mates.any(1))
        else:
            partners, positive = self.view(self.partners(incoming).x), own
        with torch.no_grad():
            joint = self.options.passes == "joint"  # together with the replayed ones, as in the online network
            views = torch.cat([partners, drawn[0].view]) if joint else partners
            target = self.target(views)[: len(partners)]
        return byol(self.unit(prediction), self.unit(target), positive, incoming.sample_weight)

    def partners(self, incoming: Rows) -> Rows:
        """For each sample another one of its class, or itself if there is none (in another view, as in BYOL)."""
        same = incoming.y[:, None] == torch.cat([self.memory.y[:-1], incoming.y])
        return self.fill_missing(draw_partners(self.memory, incoming, same, self.generator), incoming)

    def after_update(self, incoming: Encoded, replay: Encoded, *others: Encoded) -> None:
        online = [*self.encoder.parameters(), *self.projector.parameters()]
        follow = get_ema_multi_avg_fn(
            self.options.target_momentum
        )  # a closure, which could not be pickled with the learner
        follow(list(self.target.parameters()), online, 0)
