"""CCP: continual contrast of class prototypes, section 2.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from onebyone.errors import UsageError
from onebyone.methods.losses import batch_mates, class_means, gather_mates, positives, pull, repel
from onebyone.methods.prototypes import PrototypeOptions, PrototypeReplay
from onebyone.methods.registry import register
from onebyone.methods.replay_learner import Encoded
from onebyone.nets import unit
from onebyone.options import option


@dataclass(frozen=True, kw_only=True)
class CCPOptions(PrototypeOptions):
    learning_rate: float = option(0.01, "step size of plain SGD (paper: 0.1)", above=0)
    incoming_weight: float = option(0.03, "weight of equation 3 (the paper adds both losses as they are)", low=0)
    pull_weight: float = option(0.3, "weight of equation 3's first term: samples to their prototype", low=0)
    mates_weight: float = option(1.0, "weight of equation 3's second term: samples to their batch mates", low=0)
    repel_weight: float = option(1.0, "weight of equation 3's third term: prototypes repel each other", low=0)
    positives: Literal["batch", "replay", "detached"] = option(
        "batch",
        "P(x): the batch mates of the class (paper), also its replayed samples, or these without a gradient to them",
    )
    prototype_gradient: Literal["incoming", "all", "none"] = option(
        "incoming", "prototypes that get gradients: of the incoming classes (paper), all observed, or none"
    )
    prototype_momentum: float = option(0.999, "alpha: old prototypes follow the replayed features", low=0, high=1)


@register("ccp", CCPOptions, section="section 2.2, equation 3")
class CCP(PrototypeReplay[CCPOptions]):
    """Incoming samples are pulled to their class's prototype and to each other, and prototypes repel.

    Gradients reach only the prototypes of the incoming classes. Those of old classes follow the mean of the replayed
    features of their class, by momentum.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = CCP(CCPOptions(memory_per_class=5), digits.spec)
    >>> loss = learner.observe(digits.train_x[:10], digits.train_y[:10])
    """

    def build(self) -> None:
        super().build()
        weights = [*self.encoder.parameters(), *self.projector.parameters()]
        if self.options.prototype_gradient == "none" and not any(weight.requires_grad for weight in weights):
            raise UsageError(
                "nothing is left to train: the encoder is frozen, projector is none and prototype_gradient is none; "
                "give projector=linear or another prototype_gradient"
            )

    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        """Equation 3."""
        options, z, y, weight = self.options, self.unit(incoming.features), incoming.y, incoming.sample_weight
        prototypes = self.unit_prototypes(incoming)
        return (
            options.pull_weight * pull(z, y, prototypes, weight)
            + options.mates_weight * gather_mates(z, *self.positives(incoming, z, drawn[0]), weight)
            + options.repel_weight * repel(prototypes, self.observed)
        )

    def positives(self, incoming: Encoded, z: Tensor, replay: Encoded) -> tuple[Tensor, Tensor]:
        """[m, d] the samples that may be positives, scaled as ``z``, and [n, m] which ones are."""
        if self.options.positives == "batch":
            return z, batch_mates(incoming.y)
        features = replay.features.detach() if self.options.positives == "detached" else replay.features
        return torch.cat([z, self.unit(features)]), positives(incoming.y, replay.y, replay.weight > 0)

    def reachable(self, incoming: Encoded) -> Tensor:
        weight = self.prototypes.weight
        match self.options.prototype_gradient:
            case "incoming":
                return weight.where(self.in_batch(incoming.y)[:, None], weight.detach())
            case "none":
                return weight.detach()
            case "all":
                return weight

    @torch.no_grad()
    def after_update(self, incoming: Encoded, replay: Encoded, *others: Encoded) -> None:
        """Old prototypes: c <- alpha c + (1 - alpha) times the mean of the replayed features of the class.

        The features are those of before the step. Those of after it, as in the paper, would cost a forward pass.
        """
        means, present = class_means(unit(replay.features), self.one_hot(replay.y), replay.weight)
        old = present & ~self.in_batch(incoming.y)
        prototypes = self.prototypes.weight
        moved = prototypes.lerp(means, 1 - self.options.prototype_momentum)
        prototypes.copy_(moved.where(old[:, None], prototypes))
