"""Restoring a learner after a call that failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from onebyone.memory import Memory
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Adapted


def changeable(learner: AnyLearner) -> dict[str, Tensor]:
    """The tensors of a state that a step may change, except the rows of memories, which have a journal."""
    fixed = set()
    for prefix, part in learner.named_modules():
        if isinstance(part, Memory):
            fixed |= {f"{prefix}.{name}" for name in part.fields}
        elif isinstance(part, Adapted) and part.frozen:
            tensors = part.state_dict() if part.fixed else dict(part.named_parameters())
            fixed |= {f"{prefix}.{name}" for name in tensors}
    return {name: tensor for name, tensor in learner.state_dict().items() if name not in fixed}


@contextmanager
def restored_on_error(learner: AnyLearner) -> Iterator[None]:
    """If the block raises anything, restore the current state of the learner bit for bit.

    Weights and statistics are copied, which costs no more than a step that reads and writes all of them. A memory may
    be much larger, so only the rows that are overwritten are copied.
    """
    before = {name: tensor.clone() for name, tensor in changeable(learner).items()}
    memories = [part for part in learner.modules() if isinstance(part, Memory)]
    for memory in memories:
        memory.journal = []
    try:
        yield
    except BaseException:
        for memory in memories:
            memory.undo()
        learner.load_state_dict(learner.state_dict() | before)
        raise
    finally:
        for memory in memories:
            memory.journal = None
