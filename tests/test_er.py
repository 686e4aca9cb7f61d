"""Experience replay, and with it the step that all methods with a memory share."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import equations
from onebyone import Dataset, create
from onebyone.methods import Encoded, ReplayLearner

LABELS = [4, 0, 4, 5, 1]


def cross_entropy(head: nn.Module, batch: Encoded) -> Tensor:
    """Averaged over the samples with a weight above zero."""
    rows = [row for row, weight in enumerate(batch.weight) if weight]
    scores = head(batch.features).double()
    terms = [equations.softmax_loss(scores[row], int(batch.y[row]), range(10)) for row in rows]
    return sum(terms, torch.zeros((), dtype=torch.float64)) / max(1, len(rows))


@pytest.mark.parametrize("passes", ["separate", "joint"])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.3, 2.0), (0.0, 1.0)])
def test_loss(
    halfway: Callable[..., Any], step: Callable[..., None], weights: tuple[float, float], passes: str
) -> None:
    learner = halfway("er", incoming_weight=weights[0], replay_weight=weights[1], passes=passes)

    def look(loss: Tensor, incoming: Encoded, replay: Encoded) -> None:
        expected = weights[0] * cross_entropy(learner.head, incoming) + weights[1] * cross_entropy(learner.head, replay)
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)
        assert incoming.y.tolist() == LABELS
        assert len(replay.y) == 10
        views = [incoming.view, replay.view]
        if passes == "joint":
            features = learner.encoder(torch.cat(views)).split([5, 10])
        else:
            features = tuple(learner.encoder(view) for view in views)
        torch.testing.assert_close(features, (incoming.features, replay.features))

    step(learner, LABELS, look)


def test_missing_rows_are_replaced_with_weight_zero(few: Dataset, step: Callable[..., None]) -> None:
    """Three samples are stored and ten are drawn: the other seven are incoming ones."""
    learner = create("er", few.spec)
    learner.observe(few.train_x[:3], few.train_y[:3])

    def look(loss: Tensor, incoming: Encoded, replay: Encoded) -> None:
        assert replay.weight.tolist() == [1.0] * 3 + [0.0] * 7
        assert sorted(replay.x[:3].flatten(1).tolist()) == sorted(few.train_x[:3].flatten(1).tolist())
        for row in range(3, 10):
            assert torch.equal(replay.x[row], incoming.x[row % 5])
            assert replay.y[row] == incoming.y[row % 5]
        expected = cross_entropy(learner.head, incoming) + cross_entropy(learner.head, replay)
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)

    step(learner, LABELS, look)


@pytest.mark.parametrize(("replay_from", "labels"), [("all", {0, 1, 2, 3}), ("others", {2, 3})])
def test_replay_from_all_or_other_classes(
    halfway: Callable[..., Any], step: Callable[..., None], replay_from: str, labels: set[int]
) -> None:
    learner: ReplayLearner[Any] = halfway("er", replay_from=replay_from, replay_size=20)

    def look(loss: Tensor, incoming: Encoded, replay: Encoded) -> None:
        kept = learner.memory.y[:-1]
        expected = sorted(label for label in kept.tolist() if label in labels)
        assert {0, 1, 2, 3} == set(kept.tolist())
        assert sorted(replay.y[replay.weight > 0].tolist()) == expected

    step(learner, LABELS, look)


def test_views_are_augmented_and_scaled(halfway: Callable[..., Any], step: Callable[..., None]) -> None:
    learner = halfway("er")

    def look(loss: Tensor, *batches: Encoded) -> None:
        for batch in batches:
            plain = learner.view(batch.x, augment=False)
            torch.testing.assert_close(plain, batch.x / 127.5 - 1)
            assert not torch.equal(batch.view, plain)
            assert batch.view.min() == -1

    step(learner, LABELS, look)


def test_the_memory_is_written_after_the_step(halfway: Callable[..., Any], step: Callable[..., None]) -> None:
    learner = halfway("er", memory_per_class=5)  # with capacity for two more
    stored = learner.memory.x.clone()
    step(learner, LABELS, lambda *_: torch.testing.assert_close(learner.memory.x, stored, rtol=0, atol=0))
    assert learner.memory.y[48:50].tolist() == LABELS[:2]
    assert int(learner.memory.seen) == 53
    assert int(learner.steps) == 7
    assert learner.counts.tolist() == [13, 13, 12, 12, 2, 1, 0, 0, 0, 0]
