"""Room for more classes, in a learner that goes on exactly where it was."""

from __future__ import annotations

from dataclasses import replace

import torch

from onebyone.errors import UsageError
from onebyone.methods.registry import AnyLearner


@torch.no_grad()
def grown(learner: AnyLearner, num_classes: int) -> AnyLearner:
    """A learner with room for more classes and the same life: weights, memory, counts, random generator.

    It is built anew with the same options and seed, and every tensor of the old state is laid into the leading corner
    of the new one. So a new class begins as it would in a fresh learner, and no method has to know that it can grow. A
    memory keeps its size only where that does not hang on the number of classes: give ``memory_samples``. A method that
    divides a budget among its classes cannot grow once it has learnt something, and is refused.

    >>> from onebyone import Spec, create
    >>> learner = create("ccp", Spec(shape=(20,), num_classes=2, dtype=torch.float32), memory_samples=50)
    >>> larger = grown(learner, 4)
    >>> larger.prototypes.weight.shape, torch.equal(larger.prototypes.weight[:2], learner.prototypes.weight)
    (torch.Size([4, 128]), True)
    """
    spec = replace(learner.spec, num_classes=num_classes)
    larger = type(learner)(learner.options, spec, learner.seed, learner.device)
    if not learner.steps:
        return larger  # nothing was learnt yet
    state = larger.state_dict()
    for name, old in learner.state_dict().items():
        if any(new < had for new, had in zip(state[name].shape, old.shape, strict=True)):
            raise UsageError(
                f"{type(learner).__name__} learnt with room for {learner.spec.num_classes} classes and has no way to "
                f"make more; announce all classes with the first samples"
            )
        state[name][tuple(slice(size) for size in old.shape)] = old
    larger.load_state_dict(state)  # what was written above is all there already but the generator, which is no tensor
    return larger.train(learner.training)
