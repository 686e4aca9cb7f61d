"""Room for more classes in a learner that continues exactly."""

from __future__ import annotations

from dataclasses import replace

import torch

from onebyone.methods.registry import AnyLearner


@torch.no_grad()
def grown(learner: AnyLearner, num_classes: int) -> AnyLearner:
    """A learner with room for more classes and the same weights, memory, counts and random generator.

    It is created with the same options and seed and copies the state of the old one (:meth:`Learner.take_over`), so a
    new class starts as in a fresh learner. The size of a memory must not depend on the number of classes: give
    ``memory_samples``, or a ``UsageError`` is raised.

    >>> from onebyone import Spec, create
    >>> learner = create("ccp", Spec(shape=(20,), num_classes=2, dtype=torch.float32), memory_samples=50)
    >>> larger = grown(learner, 4)
    >>> larger.prototypes.weight.shape, torch.equal(larger.prototypes.weight[:2], learner.prototypes.weight)
    (torch.Size([4, 128]), True)
    """
    spec = replace(learner.spec, num_classes=num_classes)
    larger = type(learner)(learner.options, spec, learner.seed, learner.device)
    larger.take_over(learner)
    return larger.train(learner.training)
