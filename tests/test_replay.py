"""Replay done right: without its ingredients it is ER, and each of them does what it says."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from onebyone import Dataset, create
from onebyone.methods.replay import MixedReplay

PLAIN = {"passes": "separate", "average": 0.0, "memory_policy": "reservoir", "readout": "head", "learning_rate": 0.1}


def taught(few: Dataset, name: str, **options: Any) -> Any:
    learner = create(name, few.spec, memory_per_class=2, **options)
    for x, y in zip(few.train_x.split(12), few.train_y.split(12), strict=True):
        learner.observe(x, y)
    return learner


def test_without_its_ingredients_it_is_er(few: Dataset) -> None:
    plain, er = taught(few, "replay", **PLAIN), taught(few, "er", learning_rate=0.1)
    theirs = er.state_dict()
    assert theirs.keys() <= plain.state_dict().keys()
    for part, tensor in plain.state_dict().items():
        if part in theirs:
            assert torch.equal(tensor, theirs[part]), part
    assert torch.equal(plain.scores(few.test_x), er.scores(few.test_x))


@pytest.mark.parametrize("average", [0.0, 0.9, 1.0])
def test_the_average_of_the_weights(few: Dataset, average: float) -> None:
    """By hand, over the weights after every step; statistics of BatchNorm are averaged as weights are."""
    learner = create("replay", few.spec, memory_per_class=2, average=average)
    assert isinstance(learner, MixedReplay)
    names = [name for name, tensor in learner.encoder.state_dict().items() if tensor.is_floating_point()]
    expected = {name: learner.encoder.state_dict()[name].double() for name in names}
    for x, y in zip(few.train_x.split(12), few.train_y.split(12), strict=True):
        learner.observe(x, y)
        now = learner.encoder.state_dict()
        expected = {name: average * expected[name] + (1 - average) * now[name].double() for name in names}
    for name in names:
        found = learner.averaged[0].state_dict()[name].double()
        torch.testing.assert_close(found, expected[name], rtol=1e-5, atol=1e-6)


def test_answers_come_from_the_average(few: Dataset) -> None:
    learner = taught(few, "replay", average=0.9, readout="head")
    before = learner.scores(few.test_x)
    with torch.no_grad():
        for parameter in (*learner.encoder.parameters(), *learner.head.parameters()):
            parameter.zero_()
    assert torch.equal(learner.scores(few.test_x), before)


def test_how_often_a_class_was_shown_of_late(samples: Callable[..., Any], few: Dataset) -> None:
    learner = create("replay", few.spec, memory_per_class=1, average=0.5)
    learner.observe(*samples([3, 3, 4, 4]))  # nothing to replay yet
    expected = torch.zeros(10)
    expected[3] = expected[4] = 0.25
    torch.testing.assert_close(learner.shown, expected)
    learner.observe(*samples([5, 5, 5, 5]))  # and the four before, which are all there is to replay
    expected[5] = 0.25  # half of this step, and the others a quarter of both
    torch.testing.assert_close(learner.shown, expected)


def test_the_adjusted_answer(few: Dataset) -> None:
    """The head's scores less the logarithm of how often a class was shown of late."""
    adjusted, head = (taught(few, "replay", average=0.9, readout=readout) for readout in ("adjusted", "head"))
    difference = head.scores(few.test_x) - adjusted.scores(few.test_x)
    torch.testing.assert_close(difference, head.shown.log().expand_as(difference), rtol=1e-4, atol=1e-4)
    assert (head.shown > 0).all()
