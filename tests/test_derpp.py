"""DER++: stored logits, and the loss that compares replayed samples with them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from onebyone import Dataset, create
from onebyone.methods import Encoded
from onebyone.methods.derpp import DERpp

LABELS = [4, 0, 4, 5, 1]


@pytest.mark.parametrize("passes", ["separate", "joint"])
@pytest.mark.parametrize("options", [{}, {"alpha": 0.2, "beta": 3.0, "incoming_weight": 0.3, "replay_weight": 2.0}])
def test_loss(halfway: Callable[..., Any], step: Callable[..., None], options: dict[str, float], passes: str) -> None:
    learner: DERpp = halfway("der++", passes=passes, **options)
    chosen = learner.options

    def look(loss: Tensor, incoming: Encoded, dark: Encoded, labelled: Encoded) -> None:
        rows = learner.memory.x[:-1].flatten(1).tolist()
        distances = []
        for x, scores in zip(dark.x.flatten(1).tolist(), learner.head(dark.features), strict=True):
            stored = learner.memory.get_buffer("logits")[rows.index(x)]
            distances += [(a - b) ** 2 for a, b in zip(scores.tolist(), stored.tolist(), strict=True)]
        replay = chosen.alpha * sum(distances) / len(distances)
        replay += chosen.beta * float(F.cross_entropy(learner.head(labelled.features), labelled.y))
        new = float(F.cross_entropy(learner.head(incoming.features), incoming.y))
        assert float(loss) == pytest.approx(chosen.incoming_weight * new + chosen.replay_weight * replay, rel=1e-5)
        assert not torch.equal(dark.x, labelled.x)  # two draws

    step(learner, LABELS, look)


def test_missing_rows_have_no_loss(few: Dataset, step: Callable[..., None]) -> None:
    learner = create("der++", few.spec)

    def look(loss: Tensor, incoming: Encoded, *drawn: Encoded) -> None:
        torch.testing.assert_close(loss, F.cross_entropy(learner.head(incoming.features), incoming.y))

    step(learner, LABELS, look)


def test_stored_logits_are_those_of_the_augmented_view_before_the_step(
    halfway: Callable[..., Any], step: Callable[..., None]
) -> None:
    learner: DERpp = halfway("der++", memory_per_class=6)  # with a memory for all samples
    logits = []

    def look(loss: Tensor, incoming: Encoded, *drawn: Encoded) -> None:
        logits.append(learner.head(learner.encoder(incoming.view)))
        plain = learner.head(learner.encoder(learner.view(incoming.x, augment=False)))
        assert not torch.allclose(logits[0], plain)

    step(learner, LABELS, look)
    assert learner.memory.y[48:53].tolist() == LABELS
    torch.testing.assert_close(learner.memory.get_buffer("logits")[48:53], logits[0])
