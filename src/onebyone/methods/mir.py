"""Maximally interfered retrieval (Aljundi et al., 2019): replay what the next step would harm most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from onebyone.memory import Rows
from onebyone.methods.heads import LinearReplay
from onebyone.methods.options import ReplayOptions
from onebyone.methods.registry import register
from onebyone.options import option


@dataclass(frozen=True, kw_only=True)
class MIROptions(ReplayOptions):
    candidates: int = option(50, "samples of the memory that are compared; replay_size of them are replayed", low=1)
    replay_from: Literal["all", "others"] = option(
        "others", "replay from all of the memory, or only other classes than the incoming ones (original: others)"
    )


@register("mir", MIROptions, section="tables 1 and 2, MIR")
class MIR(LinearReplay[MIROptions]):
    """ER that replays the samples whose loss would increase most after a step on the incoming batch alone.

    The virtual step and both evaluations of the candidates do not change the BatchNorm statistics. The virtual step
    uses plain cross-entropy, also if ``incoming_loss`` is overridden.

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
        network = nn.Sequential(self.encoder, self.head)

        def losses(weights: dict[str, Tensor], view: Tensor, y: Tensor) -> Tensor:
            buffers = copies(dict(network.named_buffers()))  # copied each time: an encoder may update its statistics
            return F.cross_entropy(functional_call(network, (weights, buffers), (view,)), y, reduction="none")

        trained = {name: value for name, value in network.named_parameters() if value.requires_grad}  # some are frozen
        now = {name: value.detach().requires_grad_() for name, value in trained.items()}
        loss = losses(now, self.view(incoming.x), incoming.y).mean()
        gradients = torch.autograd.grad(loss, list(now.values()))
        with torch.no_grad():
            rate = self.options.learning_rate * self.options.incoming_weight
            stepped = torch._foreach_sub(list(now.values()), list(gradients), alpha=rate)
            view = self.view(self.fill_missing(rows, incoming).x, augment=False)
            before, after = (losses(weights, view, rows.y) for weights in (now, dict(zip(now, stepped, strict=True))))
        return after - before


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies that may be written to, made together: one kernel per dtype instead of one per tensor.

    >>> copies({"a": torch.tensor(1), "b": torch.tensor(0.5)})
    {'a': tensor(1), 'b': tensor(0.5000)}
    """
    made: dict[str, Tensor] = {}
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors.values()):
        names = [name for name, tensor in tensors.items() if tensor.dtype == dtype]
        made |= zip(names, torch._foreach_add([tensors[name] for name in names], 0), strict=True)
    return made
