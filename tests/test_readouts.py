"""Answers by the nearest class mean of the memory, in each space that a method offers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import equations
from onebyone import Dataset
from onebyone.methods.replay_learner import COSINES

SPACES: dict[tuple[str, str], Callable[[Any], Callable[[Tensor], Tensor]]] = {
    ("er", "ncm"): lambda learner: learner.encoder,
    ("icarl", "ncm"): lambda learner: learner.encoder,
    ("ccp", "projector"): lambda learner: lambda view: learner.projector(learner.encoder(view)),
    ("ccp", "encoder"): lambda learner: learner.encoder,
    ("supbyol", "projector"): lambda learner: lambda view: learner.projector(learner.encoder(view)),
    ("supbyol", "encoder"): lambda learner: learner.encoder,
    ("supbyol", "target"): lambda learner: learner.target[0],
}


@pytest.mark.parametrize(("name", "readout"), SPACES, ids=str)
def test_nearest_class_mean(halfway: Callable[..., Any], few: Dataset, name: str, readout: str) -> None:
    """A class is the mean of the directions of its samples in the memory; scores are cosines."""
    projector = {} if (name, readout) not in SPACES or name in ("er", "icarl") else {"projector": "mlp"}
    learner = halfway(name, readout=readout, memory_per_class=1, **projector)  # ten rows
    scores = learner.scores(few.test_x)
    learner.eval()
    space = SPACES[name, readout](learner)

    def direction(x: Tensor) -> Tensor:
        z = space(learner.view(x[None], augment=False))[0].detach()
        return z / z.norm()

    stored = list(zip(learner.memory.x[:-1], learner.memory.y[:-1].tolist(), strict=True))
    for label in range(10):
        own = [direction(x) for x, y in stored if y == label]
        if own:
            mean = sum(own) / len(own)
            expected = torch.stack([direction(x) @ mean / mean.norm() for x in few.test_x])
            torch.testing.assert_close(scores[:, label], expected, rtol=1e-4, atol=1e-5)
        else:
            assert (scores[:, label] == float("-inf")).all()
    assert torch.equal(learner.predict(few.test_x), scores.argmax(1))
    assert learner.temperature() == COSINES


@pytest.mark.parametrize(("name", "readout"), SPACES, ids=str)
def test_the_readout_changes_no_step(
    halfway: Callable[..., Any], samples: Callable[..., Any], name: str, readout: str
) -> None:
    """It is chosen when a learner is asked, so a trained network can be read out in each way."""
    one, other = halfway(name, readout=readout), halfway(name)
    one.scores(samples([0, 1])[0])
    for learner in (one, other):
        learner.observe(*samples([4, 4, 5]))
    assert all(torch.equal(tensor, other.state_dict()[part]) for part, tensor in one.state_dict().items())


@pytest.mark.parametrize("passes", ["separate", "joint"])
def test_supbyol_has_replayed_samples_as_positives(
    halfway: Callable[..., Any], step: Callable[..., None], passes: str
) -> None:
    """The target's output for the batch mates and for the replayed samples of the class."""
    labels = [4, 4, 0, 5, 1, 0]  # 5 has none: its positive is its own view
    learner = halfway("supbyol", positives="replay", passes=passes, replay_weight=0.0)

    def look(loss: Tensor, incoming: Any, replay: Any) -> None:
        views = [incoming.view, replay.view]
        parts = learner.target(torch.cat(views)).split([len(view) for view in views])
        if passes == "separate":
            parts = [learner.target(view) for view in views]
        target, both = torch.cat(list(parts)).double(), [*labels, *replay.y.tolist()]
        own = [[p for p in range(len(both)) if p != i and both[p] == labels[i]] or [i] for i in range(len(labels))]
        assert own[3] == [3]
        assert max(own[4]) >= len(labels)
        prediction, options = learner.predictor(incoming.features).double(), learner.options
        expected = options.incoming_weight * equations.equation_1(prediction, target, own, options.temperature)
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)

    step(learner, labels, look)
