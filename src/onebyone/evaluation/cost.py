"""What a step costs, measured on the learner itself rather than declared by it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from onebyone.engine.static import shapes_only
from onebyone.methods import ReplayLearner
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Encoder


@dataclass(frozen=True)
class Cost:
    """Passes and operations for each incoming sample of a full batch, and bytes in all."""

    forward_passes: float  # samples through an encoder, per incoming sample
    backward_passes: float  # of these, with gradients
    flops: float  # floating-point operations of convolutions and matrix products, forward and backward
    network_bytes: int  # weights, prototypes and statistics, target and teacher networks included
    memory_bytes: int  # the replay memory, 0 for a method without


def measure_cost(learner: AnyLearner, batch_size: int = 10) -> Cost:
    """Count one step on a copy of the learner made of shapes only: nothing is computed and nothing changes.

    >>> from onebyone import create, load
    >>> cost = measure_cost(create("supbyol", load("digits").spec))
    >>> cost.forward_passes, cost.backward_passes
    (3.0, 2.0)
    """
    forward = backward = 0

    def count(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        nonlocal forward, backward
        forward += len(output)
        backward += len(output) * output.requires_grad

    spec = learner.spec
    with shapes_only(learner) as copy:
        for module in copy.modules():
            if isinstance(module, Encoder):
                module.register_forward_hook(count)
        x = torch.zeros(batch_size, *spec.shape, dtype=spec.dtype, device=learner.device)
        y = torch.zeros(batch_size, dtype=torch.int64, device=learner.device)
        with FlopCounterMode(display=False) as counter:
            copy.observe(x, y)
    kept = [tensor for name, tensor in learner.state_dict().items() if name != "_extra_state"]
    memory_bytes = learner.memory.nbytes if isinstance(learner, ReplayLearner) else 0
    return Cost(
        forward_passes=forward / batch_size,
        backward_passes=backward / batch_size,
        flops=counter.get_total_flops() / batch_size,
        network_bytes=sum(t.numel() * t.element_size() for t in kept) - memory_bytes,
        memory_bytes=memory_bytes,
    )
