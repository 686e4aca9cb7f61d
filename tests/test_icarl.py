"""iCaRL: sigmoid outputs, a teacher frozen at the end of each task, the nearest class mean."""

from collections.abc import Callable
from math import exp, log
from typing import Any

import pytest
import torch
from torch import Tensor

from onebyone import Dataset
from onebyone.methods import Encoded
from onebyone.methods.icarl import ICaRL

LABELS = [4, 0, 4, 5, 1]


def sigmoid_loss(scores: Tensor, targets: list[list[float]]) -> float:
    """Binary cross-entropy, summed over the classes and averaged over the samples."""
    total = 0.0
    for row, wanted in zip(scores.tolist(), targets, strict=True):
        for score, target in zip(row, wanted, strict=True):
            chance = 1 / (1 + exp(-score))
            total -= target * log(chance) + (1 - target) * log(1 - chance)
    return total / len(targets)


def test_before_the_first_boundary_nothing_is_replayed(halfway: Callable[..., Any], step: Callable[..., None]) -> None:
    def look(loss: Tensor, incoming: Encoded, replay: Encoded) -> None:
        assert not replay.weight.any()
        wanted = [[float(label == y) for label in range(10)] for y in LABELS]
        assert float(loss) == pytest.approx(sigmoid_loss(learner.head(incoming.features), wanted), rel=1e-5)

    learner: ICaRL = halfway("icarl")
    step(learner, LABELS, look)


def test_after_it_earlier_classes_are_distilled_from_the_teacher(
    halfway: Callable[..., Any], samples: Callable[..., Any], step: Callable[..., None]
) -> None:
    learner: ICaRL = halfway("icarl", incoming_weight=0.5, replay_weight=2.0)
    learner.end_task()
    learner.observe(*samples([6, 6, 6, 7, 7, 7] * 4))  # of this task: stored, but not replayed

    def look(loss: Tensor, incoming: Encoded, replay: Encoded) -> None:
        assert {6, 7} & set(learner.memory.y[:-1].tolist())
        assert replay.weight.any()
        there = replay.weight > 0
        assert set(replay.y[there].tolist()) <= {0, 1, 2, 3}
        wanted = [[float(label == y) for label in range(10)] for y in LABELS]
        new = sigmoid_loss(learner.head(incoming.features), wanted)
        said = learner.teacher(replay.view[there]).sigmoid().tolist()
        old = sigmoid_loss(learner.head(replay.features[there]), said)
        assert float(loss) == pytest.approx(0.5 * new + 2 * old, rel=1e-5)

    step(learner, LABELS, look)


def test_the_teacher_is_a_frozen_copy_made_at_the_boundary(
    halfway: Callable[..., Any], few: Dataset, samples: Callable[..., Any]
) -> None:
    learner: ICaRL = halfway("icarl")
    learner.end_task()
    view = learner.view(few.test_x, augment=False)
    student = torch.nn.Sequential(learner.encoder, learner.head)
    assert torch.equal(learner.teacher(view), student.eval()(view))
    student.train()
    frozen = {name: tensor.clone() for name, tensor in learner.teacher.state_dict().items()}
    for _ in range(3):  # predicting and learning in turn must not put it into training mode
        learner.observe(*samples(LABELS))
        learner.scores(few.test_x)
    assert learner.training
    assert not any(module.training for module in learner.teacher.modules())
    assert not any(weight.requires_grad or weight.grad is not None for weight in learner.teacher.parameters())
    assert all(torch.equal(tensor, frozen[name]) for name, tensor in learner.teacher.state_dict().items())
    assert not torch.equal(learner.teacher(view), student(view))
    learner.end_task()
    assert torch.equal(learner.teacher(view), student.eval()(view))
