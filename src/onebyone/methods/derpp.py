"""Dark experience replay++ (Buzzega et al., 2020): distillation from logits stored with the samples."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from onebyone.memory import Rows
from onebyone.methods.heads import LinearReplay
from onebyone.methods.losses import reduce
from onebyone.methods.options import ReplayOptions
from onebyone.methods.registry import register
from onebyone.methods.replay_learner import Encoded
from onebyone.options import option


@dataclass(frozen=True, kw_only=True)
class DERppOptions(ReplayOptions):
    alpha: float = option(0.5, "weight of the distance to the stored logits", low=0)
    beta: float = option(0.5, "weight of the cross-entropy on a second draw", low=0)


@register("der++", DERppOptions, section="tables 1 and 2, DER++")
class DERpp(LinearReplay[DERppOptions]):
    """ER plus distillation: one replayed batch is trained on its stored logits, a second one on its labels.

    The stored logits are those of the augmented view, before the step on it.

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

    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        self.distillation(drawn[0])  # computed first: autograd then adds the gradients as in all published results
        return super().incoming_loss(incoming, *drawn)

    def replay_loss(self, replay: Encoded, incoming: Encoded, *others: Encoded) -> Tensor:
        (labelled,) = others
        return self.distillation(replay) + self.options.beta * super().replay_loss(labelled, incoming)

    def distillation(self, replay: Encoded) -> Tensor:
        """alpha times the mean squared distance between current and stored logits."""
        if "distillation" not in replay.shared:
            distance = (self.logits(replay.features) - replay.extra["logits"]).square().mean(1)
            replay.shared["distillation"] = self.options.alpha * reduce(distance, replay.weight)
        return replay.shared["distillation"]

    def keep(self, incoming: Encoded) -> dict[str, Tensor]:
        return {"logits": self.logits(incoming.features)}
