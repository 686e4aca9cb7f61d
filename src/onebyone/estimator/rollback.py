"""Restoring a learner after a call that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from onebyone.memory import Memory
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Adapted


def changeable(learner: AnyLearner) -> dict[str, Tensor]:
    """The tensors of a state that a step may change, except the rows of memories, which have a journal."""
    found: dict[str, Tensor] = {}
    _collect(learner, "", found)
    return found


def _collect(module: nn.Module, prefix: str, found: dict[str, Tensor]) -> None:
    if isinstance(module, Adapted) and module.fixed:
        return  # without visiting its layers, which takes longer than learning a sample
    module._save_to_state_dict(found, prefix, keep_vars=False)
    for name, part in module.named_children():
        _collect(part, f"{prefix}{name}.", found)
    unchanged: Iterable[str] = ()
    if isinstance(module, Memory):
        unchanged = module.fields
    elif isinstance(module, Adapted) and module.frozen:
        unchanged = dict(module.named_parameters())
    for name in unchanged:
        found.pop(prefix + name, None)


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
        begun = changeable(learner).keys() - before.keys()  # state of an optimizer that had taken no step
        state = learner.state_dict() | before
        learner.load_state_dict({name: tensor for name, tensor in state.items() if name not in begun})
        raise
    finally:
        for memory in memories:
            memory.journal = None
