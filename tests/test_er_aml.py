"""ER-AML: its loss, its draws, and what is left of it with one class per task."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import equations
from onebyone import Dataset, create
from onebyone.methods import Encoded
from onebyone.methods.er_aml import ERAML


def replay_loss(learner: ERAML, replay: Encoded) -> Tensor:
    scores = learner.head(replay.features).double()
    terms = [equations.softmax_loss(row, int(y), range(10)) for row, y in zip(scores, replay.y, strict=True)]
    return sum(terms) / len(terms)


@pytest.mark.parametrize("labels", [[4, 5, 4, 5, 0, 6], [4, 4, 5, 5], [0, 0, 1, 1, 0, 1]], ids=str)
def test_loss(halfway: Callable[..., Any], step: Callable[..., None], labels: list[int]) -> None:
    """Class 6 has one sample, in the memory too: its anchor and what it drew are left out."""
    learner: ERAML = halfway("er-aml", incoming_weight=0.5, replay_weight=2.0, contrast_temperature=0.2)

    def look(loss: Tensor, incoming: Encoded, replay: Encoded, positive: Encoded, negative: Encoded) -> None:
        kept = [i for i, label in enumerate(labels) if label != 6]
        assert (positive.weight * negative.weight).nonzero().flatten().tolist() == kept
        assert torch.equal(positive.y, incoming.y)  # where there is none, the sample itself is used
        assert all(negative.y[i] != incoming.y[i] and int(negative.y[i]) in labels for i in kept)
        drawn = torch.cat([positive.features[kept], negative.features[kept]]).double()
        drawn_y = [*positive.y[kept].tolist(), *negative.y[kept].tolist()]
        each = equations.contrast(incoming.features[kept].double(), [labels[i] for i in kept], drawn, drawn_y, 0.2)
        expected = 0.5 * 0.2 / 0.07 * sum(each) / len(each) + 2 * replay_loss(learner, replay)
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)

    step(learner, labels, look)


@pytest.mark.parametrize("label", [0, 4], ids=["of the past", "new"])
def test_a_single_class_has_replay_loss_only(
    halfway: Callable[..., Any], step: Callable[..., None], label: int
) -> None:
    """There is nothing to contrast with: the incoming loss is exactly zero, and so are its gradients."""
    learner: ERAML = halfway("er-aml", replay_weight=1.0)

    def look(loss: Tensor, incoming: Encoded, *drawn: Encoded) -> None:
        assert learner.incoming_loss(incoming, *drawn) == 0
        torch.testing.assert_close(loss.double(), replay_loss(learner, drawn[0]), rtol=1e-5, atol=0)

    step(learner, [label] * 5, look)
    assert all(weight.grad.isfinite().all() for weight in learner.parameters())
    assert learner.head.weight.grad.any()


def test_a_single_class_and_an_empty_memory_change_no_weight(few: Dataset) -> None:
    learner = create("er-aml", few.spec)
    before = [weight.detach().clone() for weight in learner.parameters()]
    assert learner.observe(few.train_x[:10], few.train_y[:10]) == 0
    assert all(torch.equal(now, then) for now, then in zip(learner.parameters(), before, strict=True))
