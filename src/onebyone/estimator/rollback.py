"""What a failed call has changed in a learner comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from onebyone.memory import Memory
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Adapted


def changeable(learner: AnyLearner) -> dict[str, Tensor]:
    """The tensors of a learner's state that steps may change, except the rows of memories, which keep a journal."""
    fixed = set()
    for prefix, part in learner.named_modules():
        if isinstance(part, Memory):
            fixed |= {f"{prefix}.{name}" for name in part.fields}
        elif isinstance(part, Adapted) and part.frozen:
            fixed |= {f"{prefix}.{name}" for name, _ in part.named_parameters()}
    return {name: tensor for name, tensor in learner.state_dict().items() if name not in fixed}


@contextmanager
def restored_on_error(learner: AnyLearner) -> Iterator[None]:
    """Put the learner back into its present state, bit for bit, if the block raises anything.

    The copy this needs has the size of the weights and statistics, which a step reads and writes anyway. Of a memory,
    which may be much larger, only the rows that are overwritten are kept.
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
