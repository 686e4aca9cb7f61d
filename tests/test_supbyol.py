"""SupBYOL: equations 1 and 2 together, and a target that follows without being trained."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import equations
from onebyone.memory import Rows
from onebyone.methods import Encoded
from onebyone.methods.supbyol import SupBYOL

LABELS = [4, 4, 0, 5, 4, 0]  # 5 has one sample, in the batch and in the memory


def equation_2(learner: SupBYOL, replay: Encoded) -> Tensor:
    z, prototypes = replay.features.double(), learner.prototypes.weight.double()
    return equations.equation_2(z, replay.y.tolist(), prototypes, range(6), learner.options.temperature) / len(z)


@pytest.mark.parametrize("passes", ["separate", "joint"])
@pytest.mark.parametrize("projector", ["none", "linear", "mlp"])
@pytest.mark.parametrize("options", [{}, {"incoming_weight": 0.3, "replay_weight": 2.0, "temperature": 0.5}], ids=str)
def test_loss(
    halfway: Callable[..., Any], step: Callable[..., None], options: dict[str, Any], projector: str, passes: str
) -> None:
    learner: SupBYOL = halfway("supbyol", projector=projector, passes=passes, **options)
    chosen = learner.options

    def look(loss: Tensor, incoming: Encoded, replay: Encoded) -> None:
        prediction = learner.predictor(incoming.features).double()
        views = [incoming.view, replay.view] if passes == "joint" else [incoming.view]
        target = learner.target(torch.cat(views))[: len(LABELS)].double()
        positives = [equations.mates(i, LABELS) or [i] for i in range(len(LABELS))]
        first = equations.equation_1(prediction, target, positives, chosen.temperature)
        expected = chosen.incoming_weight * first + chosen.replay_weight * equation_2(learner, replay)
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)

    step(learner, LABELS, look)


def test_positives_from_the_memory(
    halfway: Callable[..., Any], step: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is compared with one other sample of its class, or with another view of itself if there is none."""
    learner: SupBYOL = halfway("supbyol", positives="memory", incoming_weight=0.5)
    original, original_view, drawn, views = learner.partners, learner.view, [], []

    def partners(incoming: Rows) -> Rows:
        drawn.append(original(incoming))
        return drawn[-1]

    def view(x: Tensor, augment: bool = True) -> Tensor:
        views.append(original_view(x, augment))
        return views[-1]

    def look(loss: Tensor, incoming: Encoded, replay: Encoded) -> None:
        (partner,) = drawn
        assert partner.y.tolist() == LABELS
        stored, labels = learner.memory.x.flatten(1).tolist(), learner.memory.y.tolist()
        batch = incoming.x.flatten(1).tolist()
        for i, own in enumerate(partner.x.flatten(1).tolist()):
            others = [x for x, label in zip(stored[:-1], labels, strict=False) if label == LABELS[i]]
            others += [batch[p] for p in equations.mates(i, LABELS)]
            assert own in (others or [batch[i]])
        assert not torch.equal(views[-1][3], incoming.view[3])
        prediction = learner.predictor(incoming.features).double()
        positives = [[i] for i in range(len(LABELS))]
        target, temperature = learner.target(views[-1]).double(), learner.options.temperature
        expected = 0.5 * equations.equation_1(prediction, target, positives, temperature) + equation_2(learner, replay)
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)

    monkeypatch.setattr(learner, "partners", partners)
    monkeypatch.setattr(learner, "view", view)
    step(learner, LABELS, look)


@pytest.mark.parametrize("momentum", [0.0, 0.7, 0.99, 1.0])
def test_the_target_follows_by_momentum(
    halfway: Callable[..., Any], samples: Callable[..., Any], momentum: float
) -> None:
    """xi <- tau xi + (1 - tau) theta, after the step."""
    learner: SupBYOL = halfway("supbyol", target_momentum=momentum, projector="mlp")
    before = {name: weight.clone() for name, weight in learner.target.named_parameters()}
    learner.observe(*samples(LABELS))
    online = [*learner.encoder.named_parameters(), *learner.projector.named_parameters()]
    for (name, target), (own_name, theta) in zip(learner.target.named_parameters(), online, strict=True):
        assert name.endswith(own_name)
        expected = momentum * before[name] + (1 - momentum) * theta
        torch.testing.assert_close(target, expected.detach(), rtol=1e-6, atol=1e-8)


def test_which_parameters_are_trained(halfway: Callable[..., Any], samples: Callable[..., Any]) -> None:
    learner: SupBYOL = halfway("supbyol", incoming_weight=1.0, replay_weight=0.0, projector="mlp")
    learner.observe(*samples(LABELS))
    for weight in learner.target.parameters():
        assert not weight.requires_grad
        assert weight.grad is None
    for part in (learner.encoder, learner.projector, learner.predictor):
        assert all(weight.grad.any() for weight in part.parameters() if weight.dim() > 1)
    assert not learner.prototypes.weight.grad.any()  # no equation compares them with the incoming samples
