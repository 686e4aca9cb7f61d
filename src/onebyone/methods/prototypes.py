"""What SupBYOL and CCP share: a projection, a prototype for every class, and equation 2 on the replayed samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from torch import Tensor, nn

from onebyone.methods.losses import Reduction, cross_entropy
from onebyone.methods.options import ReplayOptions
from onebyone.methods.replay_learner import Encoded, ReplayLearner
from onebyone.nets import CosineHead, multilayer, unit
from onebyone.options import option


@dataclass(frozen=True, kw_only=True)
class PrototypeOptions(ReplayOptions):
    temperature: float = option(0.1, "of sim in all equations (the paper does not print it)", above=0)
    projector: Literal["none", "linear", "mlp"] = option("linear", "g: the projector between features and prototypes")
    projection: int = option(128, "dimensions after the projector", low=1)
    hidden: int = option(512, "hidden units of an mlp projector", low=1)
    replay_reduction: Reduction = option(
        "mean", "equation 2 averaged over the replayed samples, or summed as it is printed"
    )
    readout: Literal["prototypes", "projector", "encoder"] = option(  # type: ignore[assignment]
        "prototypes",
        "answer by the prototypes, or by the nearest class mean of the memory in the space of the projector or of the "
        "encoder (the paper does not say)",
    )


P = TypeVar("P", bound=PrototypeOptions)


class PrototypeReplay(ReplayLearner[P]):
    """Replay learner with a prototype per class, with which z = g(f(x)) is compared by cosine: SupBYOL and CCP."""

    def build(self) -> None:
        options, width = self.options, self.encoder.width
        self.projector: nn.Module
        match options.projector:
            case "none":
                self.projector, depth = nn.Identity(), width
            case "linear":
                self.projector, depth = nn.Linear(width, options.projection), options.projection
            case "mlp":
                self.projector, depth = (multilayer(width, options.hidden, options.projection), options.projection)
        self.prototypes = CosineHead(depth, self.spec.num_classes, options.temperature)

    def embed(self, view: Tensor) -> Tensor:
        z: Tensor = self.projector(self.encoder(view))
        return z

    def embed_to_answer(self, view: Tensor) -> Tensor:
        return self.encoder(view) if self.options.readout == "encoder" else self.embed(view)

    @property
    def answers_by_means(self) -> bool:
        return self.options.readout != "prototypes"

    def logits(self, features: Tensor) -> Tensor:
        scores: Tensor = self.prototypes(features)
        return scores

    def reachable(self, incoming: Encoded) -> Tensor:
        """[C, d] the prototypes, as the gradients of this step may reach them."""
        return self.prototypes.weight

    def unit_prototypes(self, incoming: Encoded) -> Tensor:
        """[C, d] the reachable prototypes scaled by :meth:`unit`, computed once per step for both equations."""
        if "prototypes" not in incoming.shared:
            incoming.shared["prototypes"] = self.unit(self.reachable(incoming))
        return incoming.shared["prototypes"]

    def replay_loss(self, replay: Encoded, incoming: Encoded, *others: Encoded) -> Tensor:
        """Equation 2."""
        scores = self.unit(replay.features) @ self.unit_prototypes(incoming).T
        return cross_entropy(scores, replay.y, replay.weight, self.options.replay_reduction, among=self.observed)

    def unit(self, vectors: Tensor) -> Tensor:
        """Rows scaled so that the product of two is ``sim``: their cosine over the temperature."""
        return unit(vectors, self.options.temperature)
