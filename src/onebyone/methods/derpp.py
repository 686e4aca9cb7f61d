"""Dark experience replay++ (Buzzega et al., 2020): replayed samples keep the logits they once had."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from onebyone.memory import Rows
from onebyone.methods.base import Encoded, ReplayOptions
from onebyone.methods.heads import LinearReplay
from onebyone.methods.losses import reduce
from onebyone.methods.registry import register
from onebyone.options import option


@dataclass(frozen=True, kw_only=True)
class DERppOptions(ReplayOptions):
    alpha: float = option(0.5, "weight of the distance to the stored logits", low=0)
    beta: float = option(0.5, "weight of the cross-entropy on a second draw", low=0)


@register("der++", DERppOptions, section="tables 1 and 2, DER++")
class DERpp(LinearReplay[DERppOptions]):
    """ER plus distillation: one draw is held to its stored logits, a second one to its labels.

    The logits stored are those of the augmented view, before the step on it.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = DERpp(DERppOptions(memory_per_class=5), digits.spec)
    >>> loss = learner.observe(digits.train_x[:10], digits.train_y[:10])
    >>> learner.memory.get_buffer("logits").shape
    torch.Size([51, 10])
    """

    extra_fields = ("logits",)

    def draw(self, incoming: Rows) -> tuple[Rows, ...]:
        return super().draw(incoming) + super().draw(incoming)

    def loss(self, incoming: Encoded, replay: Encoded, *others: Encoded) -> Tensor:
        (labelled,) = others
        distance = (self.logits(replay.features) - replay.extra["logits"]).square().mean(1)
        dark = self.options.alpha * reduce(distance, replay.weight)
        return self.options.incoming_weight * self.incoming_loss(incoming) + self.options.replay_weight * (
            dark + self.options.beta * self.replay_loss(labelled, incoming)
        )

    def keep(self, incoming: Encoded) -> dict[str, Tensor]:
        return {"logits": self.logits(incoming.features)}
