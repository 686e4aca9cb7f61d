"""Replay with a linear or a cosine head: the base classes of the baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor, nn

from onebyone.methods.losses import cross_entropy
from onebyone.methods.options import ReplayOptions
from onebyone.methods.replay_learner import Encoded, ReplayLearner
from onebyone.nets import CosineHead
from onebyone.options import option


@dataclass(frozen=True, kw_only=True)
class CosineOptions(ReplayOptions):
    temperature: float = option(0.1, "of the cosine head: scores are cosine / temperature", above=0)


R = TypeVar("R", bound=ReplayOptions)
C = TypeVar("C", bound=CosineOptions)


class HeadReplay(ReplayLearner[R]):
    """Cross-entropy on incoming and on replayed samples, over the scores of a head."""

    head: nn.Module

    def logits(self, features: Tensor) -> Tensor:
        scores: Tensor = self.head(features)
        return scores

    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        return cross_entropy(self.logits(incoming.features), incoming.y, incoming.weight)

    def replay_loss(self, replay: Encoded, incoming: Encoded, *others: Encoded) -> Tensor:
        return cross_entropy(self.logits(replay.features), replay.y, replay.weight)


class LinearReplay(HeadReplay[R]):
    """Replay learner with a linear head: the base class of ER, iCaRL, MIR, DER++ and replay."""

    def build(self) -> None:
        self.head = nn.Linear(self.encoder.width, self.spec.num_classes)


class CosineReplay(HeadReplay[C]):
    """Replay learner with a cosine head: the base class of ER-ACE and ER-AML."""

    def build(self) -> None:
        self.head = CosineHead(self.encoder.width, self.spec.num_classes, self.options.temperature)
