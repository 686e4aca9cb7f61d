"""Maximally interfered retrieval (Aljundi et al., 2019): replay what the next step would harm most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from onebyone.memory import Rows
from onebyone.methods.base import ReplayOptions
from onebyone.methods.heads import LinearReplay
from onebyone.methods.registry import register
from onebyone.options import option


@dataclass(frozen=True, kw_only=True)
class MIROptions(ReplayOptions):
    candidates: int = option(50, "samples of the memory that are compared; replay_size of them are replayed", low=1)
    replay_from: Literal["all", "others"] = option(
        "others",
        "replay from all of the memory, or only other classes than the incoming ones (original: others)",
    )


@register("mir", MIROptions, section="tables 1 and 2, MIR")
class MIR(LinearReplay[MIROptions]):
    """ER that replays the samples whose loss a step on the incoming batch alone would raise most.

    The virtual step and the two looks at the candidates leave the BatchNorm statistics alone.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = MIR(MIROptions(memory_per_class=5), digits.spec)
    >>> loss = learner.observe(digits.train_x[:10], digits.train_y[:10])
    """

    def draw(self, incoming: Rows) -> tuple[Rows, ...]:
        options, memory = self.options, self.memory
        count = min(max(options.candidates, options.replay_size), memory.capacity)
        rows = memory.sample(count, self.generator, self.allowed(incoming))
        harm = self.harm(incoming, rows).masked_fill(rows.weight == 0, float("-inf"))
        worst = harm.topk(min(options.replay_size, count)).indices
        return (Rows(rows.x[worst], rows.y[worst], rows.weight[worst]),)

    def harm(self, incoming: Rows, rows: Rows) -> Tensor:
        """[n] how much the loss of each candidate grows by one step on the incoming samples alone."""
        now = {name: value.detach().requires_grad_() for name, value in self.network.items()}
        loss = F.cross_entropy(self.forward_with(now, self.view(incoming.x)), incoming.y)
        gradients = torch.autograd.grad(loss, list(now.values()))
        with torch.no_grad():
            rate = self.options.learning_rate * self.options.incoming_weight
            then = {name: value - rate * g for (name, value), g in zip(now.items(), gradients, strict=True)}
            view = self.view(self.stand_in(rows, incoming).x, augment=False)
            before, after = (
                F.cross_entropy(self.forward_with(weights, view), rows.y, reduction="none") for weights in (now, then)
            )
        return after - before

    @property
    def network(self) -> dict[str, Tensor]:
        own = (item for item in self.named_parameters() if item[0].startswith(("encoder.", "head.")))
        return {name: value for name, value in own if value.requires_grad}  # an encoder may be frozen

    def forward_with(self, weights: dict[str, Tensor], view: Tensor) -> Tensor:
        """The logits this network would give with other weights; its own buffers are not touched."""
        parts = {}
        for part in ("encoder", "head"):
            own = {name.removeprefix(f"{part}."): value for name, value in weights.items() if name.startswith(part)}
            own |= {name: value.clone() for name, value in self.get_submodule(part).named_buffers()}
            parts[part] = own
        features = functional_call(self.encoder, parts["encoder"], (view,))
        logits: Tensor = functional_call(self.head, parts["head"], (features,))
        return logits
