"""ER-AML (Caccia et al., 2021): asymmetric metric learning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from onebyone.memory import Rows
from onebyone.methods.heads import CosineOptions, CosineReplay
from onebyone.methods.losses import supervised_contrast
from onebyone.methods.partners import draw_partners
from onebyone.methods.registry import register
from onebyone.methods.replay_learner import Encoded
from onebyone.nets import unit
from onebyone.options import option


@dataclass(frozen=True, kw_only=True)
class ERAMLOptions(CosineOptions):
    contrast_temperature: float = option(0.2, "of the contrastive loss on incoming samples", above=0)


@register("er-aml", ERAMLOptions, section="table 2, ER-AML")
class ERAML(CosineReplay[ERAMLOptions]):
    """A supervised contrastive loss on incoming samples, with negatives among the incoming classes only.

    Every incoming sample draws one positive and one negative from the memory and the batch; the negative's class has
    to be among those of the batch, so that classes of the past are not pushed away.

    **With one class per task** no such negative exists. The incoming loss is then exactly zero, on purpose (a weight of
    zero on every anchor), and what is left is cross-entropy on the memory. The paper calls the method inapplicable
    there; it runs.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = ERAML(ERAMLOptions(memory_per_class=5), digits.spec)
    >>> loss = learner.observe(digits.train_x[:10], digits.train_y[:10])
    """

    def draw(self, incoming: Rows) -> tuple[Rows, ...]:
        same, here = self.candidates(incoming)
        positive = draw_partners(self.memory, incoming, same, self.generator)
        negative = draw_partners(self.memory, incoming, ~same & here, self.generator)
        return (*super().draw(incoming), positive, negative)

    def candidates(self, incoming: Rows) -> tuple[Tensor, Tensor]:
        """[n, rows] pairs of one class, and [rows] candidates whose class is in the batch."""
        labels = torch.cat([self.memory.y[:-1], incoming.y])
        return incoming.y[:, None] == labels, self.in_batch(incoming.y)[labels]

    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        temperature, (_, positive, negative) = self.options.contrast_temperature, drawn
        complete = positive.weight * negative.weight  # anchors that found both
        return supervised_contrast(
            unit(incoming.features, temperature),
            unit(torch.cat([positive.features, negative.features]), temperature),
            incoming.y[:, None] == torch.cat([positive.y, negative.y]),
            complete.bool().repeat(2),
            complete * incoming.weight,
            temperature,
        )
