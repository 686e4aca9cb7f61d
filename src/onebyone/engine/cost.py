"""What a step costs, measured on a copy of the learner."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from onebyone.engine.static import StepCache, blank_batch, step_copy
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Encoder


@dataclass(frozen=True)
class Cost:
    """The cost of a step: passes and operations per incoming sample of a full batch, and bytes in all."""

    forward_passes: float  # samples through an encoder, per incoming sample
    backward_passes: float  # of these, with gradients
    flops: float  # floating-point operations of convolutions and matrix products, forward and backward
    network_bytes: int  # weights, prototypes and statistics, target and teacher networks included
    memory_bytes: int  # replay memory, or statistics of the samples; 0 for a method without


def measure_cost(learner: AnyLearner, batch_size: int = 10) -> Cost:
    """Count the operations of one step on a copy of the learner, which itself does not change.

    The copy has shapes but no values, so nothing is computed, unless its step reads values.

    Parameters
    ----------
    learner
        The learner to copy.
    batch_size
        Incoming samples of the step.

    Returns
    -------
    Cost
        The cost per incoming sample.

    >>> from onebyone import create, load
    >>> cost = measure_cost(create("supbyol", load("digits").spec))
    >>> cost.forward_passes, cost.backward_passes
    (3.0, 2.0)
    """
    forward, backward, flops = _counted.get(learner, batch_size, lambda: _count(learner, batch_size))
    kept = [tensor for name, tensor in learner.state_dict().items() if not name.endswith("_extra_state")]
    memory_bytes = learner.memory_bytes
    return Cost(
        forward_passes=forward / batch_size,
        backward_passes=backward / batch_size,
        flops=flops / batch_size,
        network_bytes=sum(t.numel() * t.element_size() for t in kept) - memory_bytes,
        memory_bytes=memory_bytes,
    )


_counted: StepCache[tuple[int, int, int]] = StepCache()


def _count(learner: AnyLearner, batch_size: int) -> tuple[int, int, int]:
    """Samples forward and backward through encoders, and floating-point operations, of one step."""
    forward = backward = 0

    def count(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        nonlocal forward, backward
        forward += len(output)
        backward += len(output) * output.requires_grad

    with step_copy(learner, batch_size) as copy:
        for module in copy.modules():
            if isinstance(module, Encoder):
                module.register_forward_hook(count)
        with FlopCounterMode(display=False) as counter:
            copy.observe(*blank_batch(learner, batch_size))
    return forward, backward, counter.get_total_flops()
