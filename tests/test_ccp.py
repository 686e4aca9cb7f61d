"""CCP: equation 3 and 2 together, which prototypes get gradients, and which ones follow by momentum."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import equations
from onebyone.methods import Encoded
from onebyone.methods.ccp import CCP

LABELS = [4, 4, 0, 5, 4, 0]  # two new classes, one that returns; 5 has one sample
OBSERVED = [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("passes", ["separate", "joint"])
@pytest.mark.parametrize("projector", ["none", "linear", "mlp"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"incoming_weight": 1.0, "pull_weight": 1.0, "temperature": 0.3, "replay_reduction": "sum"},
        {"replay_weight": 0.5, "mates_weight": 0.7, "repel_weight": 0.2, "prototype_gradient": "all"},
    ],
)
def test_loss(
    halfway: Callable[..., Any],
    step: Callable[..., None],
    options: dict[str, Any],
    projector: str,
    passes: str,
) -> None:
    learner: CCP = halfway("ccp", projector=projector, passes=passes, **options)
    chosen = learner.options

    def look(loss: Tensor, incoming: Encoded, replay: Encoded) -> None:
        prototypes = learner.prototypes.weight.double()
        z_in, z_replay = incoming.features.double(), replay.features.double()
        common = prototypes, OBSERVED, chosen.temperature
        first = equations.equation_3(
            z_in, LABELS, *common, (chosen.pull_weight, chosen.mates_weight, chosen.repel_weight)
        )
        second = equations.equation_2(z_replay, replay.y.tolist(), *common)
        if chosen.replay_reduction == "mean":
            second = second / len(replay.y)
        expected = chosen.incoming_weight * first + chosen.replay_weight * second
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)
        assert replay.weight.all()

    step(learner, LABELS, look)


@pytest.mark.parametrize(("prototype_gradient", "reached"), [("incoming", [0, 4, 5]), ("all", OBSERVED), ("none", [])])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0)], ids=["both", "equation 3", "equation 2"])
def test_which_prototypes_get_gradients(
    halfway: Callable[..., Any],
    samples: Callable[..., Any],
    prototype_gradient: str,
    reached: list[int],
    weights: tuple[float, float],
) -> None:
    """All others get a gradient of exactly zero from both losses, and with momentum 1 they keep their bits."""
    learner: CCP = halfway(
        "ccp",
        prototype_gradient=prototype_gradient,
        incoming_weight=weights[0],
        replay_weight=weights[1],
        prototype_momentum=1.0,
    )
    prototypes = learner.prototypes.weight
    assert set(learner.memory.y[:-1].tolist()) == {0, 1, 2, 3}
    before = prototypes.detach().clone()
    learner.observe(*samples(LABELS))
    gradient = torch.zeros_like(prototypes) if prototypes.grad is None else prototypes.grad
    assert gradient.any(1).nonzero().flatten().tolist() == reached
    assert (prototypes != before).any(1).nonzero().flatten().tolist() == reached


@pytest.mark.parametrize("replay_size", [2, 20])
@pytest.mark.parametrize("momentum", [0.0, 0.6, 0.999, 1.0])
def test_old_prototypes_follow_the_replayed_features(
    halfway: Callable[..., Any],
    samples: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    momentum: float,
    replay_size: int,
) -> None:
    """Prototypes of incoming classes and of classes that are not replayed do not change."""
    learner: CCP = halfway("ccp", prototype_momentum=momentum, replay_size=replay_size)
    original, moved = learner.after_update, []

    def spy(incoming: Encoded, replay: Encoded) -> None:
        before = learner.prototypes.weight.detach().clone()
        original(incoming, replay)
        z = replay.features.detach()
        for label in range(10):
            mine = [row / row.norm() for row, own in zip(z, replay.y.tolist(), strict=True) if own == label]
            now = learner.prototypes.weight[label].detach()
            if label in LABELS or not mine:
                assert torch.equal(now, before[label])
            else:
                expected = momentum * before[label] + (1 - momentum) * sum(mine) / len(mine)
                torch.testing.assert_close(now, expected, rtol=1e-6, atol=1e-7)
                moved.append(label)

    monkeypatch.setattr(learner, "after_update", spy)
    learner.observe(*samples(LABELS))
    if replay_size == 20:  # all of the memory, class 0 included
        assert moved == [1, 2, 3]
    else:
        assert len(moved) in (1, 2)
