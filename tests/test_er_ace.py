"""ER-ACE: which classes the softmax of the incoming samples runs over."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import equations
from onebyone.methods import Encoded
from onebyone.methods.er_ace import ERACE

UNSEEN = {4, 5, 6, 7, 8, 9}


def softmax_loss(learner: ERACE, batch: Encoded, among: set[int]) -> Tensor:
    scores = learner.head(batch.features).double()
    terms = [equations.softmax_loss(row, int(y), among) for row, y in zip(scores, batch.y, strict=True)]
    return sum(terms) / len(terms)


@pytest.mark.parametrize("contrast_unseen", [True, False])
@pytest.mark.parametrize("labels", [[4, 5, 4, 0], [0, 0, 1, 2], [4, 4, 4]], ids=str)
def test_loss(halfway: Callable[..., Any], step: Callable[..., None], labels: list[int], contrast_unseen: bool) -> None:
    """Incoming samples: over the classes of the batch and those never seen. Replayed samples: over all classes."""
    learner: ERACE = halfway("er-ace", contrast_unseen=contrast_unseen, incoming_weight=0.5, replay_weight=2.0)
    among = set(labels) | (UNSEEN if contrast_unseen else set())

    def look(loss: Tensor, incoming: Encoded, replay: Encoded) -> None:
        expected = 0.5 * softmax_loss(learner, incoming, among) + 2 * softmax_loss(learner, replay, set(range(10)))
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)

    step(learner, labels, look)


@pytest.mark.parametrize("label", [0, 4], ids=["of the past", "new"])
def test_a_single_class_has_no_incoming_loss(
    halfway: Callable[..., Any], samples: Callable[..., Any], label: int
) -> None:
    learner: ERACE = halfway("er-ace", contrast_unseen=False, replay_weight=0.0)
    assert learner.observe(*samples([label] * 5)) == 0
    assert not any(weight.grad.any() for weight in learner.parameters())
