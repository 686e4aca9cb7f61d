"""What must hold after every step and for every answer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onebyone.methods import ReplayLearner
from onebyone.methods.registry import AnyLearner
from onebyone.testing.errors import BrokenContract, require
from onebyone.testing.situations import Tasks

State = dict[str, Tensor]


def learn(learner: AnyLearner, tasks: Tasks) -> list[Tensor]:
    """Learn tasks with :func:`observe`. Returns the losses, one per step."""
    losses = []
    for task in tasks:
        losses += [observe(learner, x, y) for x, y in task]
        if learner.needs_boundaries:
            learner.end_task()
    for name, tensor in learner.state_dict().items():
        require(bool(tensor.isfinite().all()), f"{name} is not finite any more; look for a division by zero")
    return losses


def observe(learner: AnyLearner, x: Tensor, y: Tensor) -> Tensor:
    """One step, and the checks that follow each."""
    given_x, given_y, shapes = x.clone(), y.clone(), _shapes(learner)
    counts, steps = learner.counts + torch.bincount(y, minlength=len(learner.counts)), learner.steps + 1
    loss = learner.observe(x, y)
    require(
        torch.equal(x, given_x) and torch.equal(y, given_y),
        "observe changes the samples or the labels it is given; work on a copy",
    )
    require(
        isinstance(loss, Tensor) and loss.shape == () and not loss.requires_grad,
        "observe must give its loss as a tensor of one number without a gradient; end it with: return loss.detach()",
    )
    require(bool(loss.isfinite()), f"the loss is {float(loss)}; look for a division or logarithm of zero")
    require(
        torch.equal(learner.counts, counts) and torch.equal(learner.steps, steps),
        "observe does not count what it is given; call self.count(y) in it, once, with all labels",
    )
    for name, shape in _shapes(learner).items():
        require(
            shape == shapes.get(name),
            f"the shape of {name} is {shapes.get(name)} before a step and {shape} after; create it in build",
        )
    if isinstance(learner, ReplayLearner):
        _memory_is_in_order(learner)
    return loss


def _memory_is_in_order(learner: ReplayLearner[Any]) -> None:
    memory, options = learner.memory, learner.options
    capacity = options.memory_samples or options.memory_per_class * learner.spec.num_classes
    require(
        len(memory.x) == len(memory.y) == capacity + 1,
        f"the memory holds {len(memory.x) - 1} samples; its options allow {capacity}",
    )
    seen, given = int(memory.seen), int(learner.counts.sum())
    require(
        seen == given,
        f"the memory was offered {seen} samples of {given}; call self.memory.add once per step, with all of them",
    )
    require(int(memory.filled.sum()) == min(seen, capacity), "the memory has empty rows among those it says are filled")
    require(bool(learner.observed[memory.y[:-1][memory.filled]].all()), "the memory holds labels that never arrived")
    require(not memory.x[-1].any(), "the last row of the memory, which stands for a missing one, is not zero")


def answer(learner: AnyLearner, x: Tensor) -> Tensor:
    """Its scores, which must be finite for the classes seen and minus infinity for all others."""
    known, classes = learner.observed.clone(), learner.spec.num_classes
    if isinstance(learner, ReplayLearner) and learner.answers_by_means:
        known &= learner.in_batch(learner.memory.y[:-1][learner.memory.filled])  # a mean needs a sample
    scores = learner.scores(x)
    require(
        scores.shape == (len(x), classes),
        f"the scores of {len(x)} samples have the shape {tuple(scores.shape)}; readout must give {classes} for each",
    )
    require(not scores.isnan().any(), "a score is not a number; look for a division by zero in readout")
    require(
        bool(scores[:, known].isfinite().all()),
        "the score of a class it has seen is infinite; readout must give a number for each of them",
    )
    require(
        bool((scores[:, ~known] == float("-inf")).all()),
        "a class it has never seen has a score above minus infinity; leave scores as it is in Learner, or mask it too",
    )
    best = scores.argmax(1) if known.any() else torch.full((len(x),), -1)
    require(
        torch.equal(learner.predict(x), best),
        "predict does not give the class with the highest score (-1 before any is known); leave it as it is in Learner",
    )
    return scores


def state(learner: AnyLearner) -> State:
    """A copy of its state."""
    return {name: tensor.clone() for name, tensor in learner.state_dict().items()}


def require_same(first: State, second: State, problem: str, advice: str) -> None:
    """Require that two states are equal, bit for bit; the message names the tensor that differs."""
    for name in {**first, **second}:
        if name not in first or name not in second or not torch.equal(first[name], second[name]):
            what = "the state of its random generator" if name == "_extra_state" else name
            raise BrokenContract(f"{problem} ({what} differs); {advice}")


def _shapes(learner: AnyLearner) -> dict[str, tuple[int, ...]]:
    """Without the state of optimizers, which appears with their first step."""
    found, later = learner.state_dict(), learner.optimizer_prefixes
    return {name: tuple(tensor.shape) for name, tensor in found.items() if not name.startswith(later)}
