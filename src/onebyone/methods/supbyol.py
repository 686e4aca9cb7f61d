"""SupBYOL: BYOL with labels, section 2.1."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from onebyone.memory import Rows
from onebyone.methods.losses import batch_mates, byol, positives
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
    positives: Literal["batch", "replay", "memory"] = option(
        "batch",
        "P(x): all batch mates of the class, also its replayed samples, or one sample of the class drawn from memory "
        "and batch",
    )
    readout: Literal["prototypes", "projector", "encoder", "target"] = option(  # type: ignore[assignment]
        "prototypes",
        "answer by the prototypes, or by the nearest class mean of the memory in the space of the projector, of the "
        "encoder, or of the target's encoder (the paper does not say)",
    )


@register("supbyol", SupBYOLOptions, section="section 2.1, equations 1 and 2")
class SupBYOL(PrototypeReplay[SupBYOLOptions]):
    """Incoming samples predict the output of a slowly moving target network for other samples of their class.

    No negatives: a class is learnt by itself (equation 1), and classes are compared only in the replay (equation 2).
    A sample without a positive is compared with the target's output for its own view.

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
        prediction, replay = self.predictor(incoming.features), drawn[0]
        own = torch.eye(len(incoming.y), dtype=torch.bool, device=incoming.y.device)
        partners = incoming.view
        match self.options.positives:
            case "batch":
                mates = batch_mates(incoming.y)
            case "replay":
                mates = positives(incoming.y, replay.y, replay.weight > 0)
            case "memory":
                mates, partners = own, self.view(self.partners(incoming).x)
        alone = F.pad(own & ~mates.any(1), (0, mates.shape[1] - len(own)))
        with torch.no_grad():
            if self.options.passes == "joint":  # together with the replayed ones, as in the online network
                target = self.target(torch.cat([partners, replay.view]))[: mates.shape[1]]
            elif self.options.positives == "replay":
                target = torch.cat([self.target(partners), self.target(replay.view)])
            else:
                target = self.target(partners)
        return byol(self.unit(prediction), self.unit(target), mates | alone, incoming.sample_weight)

    def embed_to_answer(self, view: Tensor) -> Tensor:
        if self.options.readout != "target":
            return super().embed_to_answer(view)
        features: Tensor = self.target[0](view)
        return features

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
