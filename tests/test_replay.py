"""Method replay: without its additions it is ER, and each addition works as documented."""

import re
from collections.abc import Callable
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from onebyone import Dataset, class_incremental, create
from onebyone.methods.replay import MixedReplay, MixedReplayOptions
from onebyone.options import parse

PAGE = Path(__file__).parent.parent / "docs/methods/replay.md"


def taught(few: Dataset, name: str, **options: Any) -> Any:
    learner = create(name, few.spec, memory_per_class=2, **options)
    for x, y in zip(few.train_x.split(12), few.train_y.split(12), strict=True):
        learner.observe(x, y)
    return learner


def test_with_the_documented_options_it_is_er_with_its_defaults(digits: Dataset) -> None:
    """Step by step, bit for bit: weights, memory, random numbers and answers."""
    found = re.search(r"With `+(.+ readout=head)`+", str(MixedReplay.__doc__))
    assert found
    options = parse(MixedReplayOptions, dict(setting.split("=") for setting in found[1].split()))
    replay, er = MixedReplay(options, digits.spec), create("er", digits.spec)
    for step, index in enumerate(islice(class_incremental(digits.train_y, 10, 2), 60)):
        replay.observe(digits.train_x[index], digits.train_y[index])
        er.observe(digits.train_x[index], digits.train_y[index])
        state = replay.state_dict()
        assert all(torch.equal(state[part], tensor) for part, tensor in er.state_dict().items()), f"step {step}"
        if step % 20 == 0:
            assert torch.equal(replay.scores(digits.test_x), er.scores(digits.test_x)), f"step {step}"
    assert f"With `{found[1]}`" in PAGE.read_text(), "the page of the method says the same"


@pytest.mark.parametrize("average", [0.0, 0.9, 1.0])
def test_the_average_of_the_weights(few: Dataset, average: float) -> None:
    """Against a mean computed by hand over the weights after every step; BatchNorm statistics are averaged too."""
    learner = create("replay", few.spec, memory_per_class=2, average=average)
    assert isinstance(learner, MixedReplay)
    names = [name for name, tensor in learner.encoder.state_dict().items() if tensor.is_floating_point()]
    expected = {name: learner.encoder.state_dict()[name].double() for name in names}
    batches = zip(few.train_x.split(4), few.train_y.split(4), strict=True)
    for step, (x, y) in enumerate(batches, start=1):
        learner.observe(x, y)
        now = learner.encoder.state_dict()
        kept = min(average, 1 - 1 / step)  # the plain mean in the first steps, without the initial weights
        expected = {name: kept * expected[name] + (1 - kept) * now[name].double() for name in names}
    assert step > 1 / (1 - 0.9)
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


@pytest.mark.parametrize("average", [0.0, 0.99])
def test_recent_share_of_each_class(samples: Callable[..., Any], few: Dataset, average: float) -> None:
    """It does not depend on `average`: a share over one step would contain only the last class."""
    learner = create("replay", few.spec, memory_per_class=1, average=average)
    learner.observe(*samples([3, 3, 4, 4]))  # nothing to replay yet
    expected = torch.zeros(10)
    expected[3] = expected[4] = 0.5
    torch.testing.assert_close(learner.shown, expected)
    learner.observe(*samples([5, 5, 5, 5]))  # and the four samples before, which are all that is in the memory
    expected[3] = expected[4] = (0.5 + 0.25) / 2  # the mean of both steps
    expected[5] = 0.5 / 2
    torch.testing.assert_close(learner.shown, expected)
    learner.steps.fill_(999)
    before = learner.shown.clone()
    learner.observe(*samples([6]))  # and some of the others
    assert learner.shown[6] < 0.01
    torch.testing.assert_close(learner.shown, before, rtol=0, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["balanced", "reservoir"])
def test_a_class_without_recent_samples_is_never_the_adjusted_answer(digits: Dataset, policy: str) -> None:
    """Its recent share falls towards zero, which would raise its score without bound."""
    learner = create("replay", digits.spec, memory_samples=4, memory_policy=policy, readout="adjusted")
    for classes in range(5), range(5, 10):
        x, y = (v[torch.isin(digits.train_y, torch.tensor(classes))] for v in (digits.train_x, digits.train_y))
        for index in torch.arange(5 * 700).remainder(len(y)).split(5):
            learner.observe(x[index], y[index])
    kept = set(learner.memory.y[:4].tolist())
    scores = learner.scores(digits.test_x)
    assert {c for c in range(10) if (scores[:, c] > -torch.inf).all()} == kept | set(range(5, 10))
    present = digits.test_y >= 5
    assert (learner.predict(digits.test_x[present]) == digits.test_y[present]).float().mean() > 0.8


def test_the_adjusted_answer(few: Dataset) -> None:
    """The head's scores minus the logarithm of each class's share in recent steps."""
    adjusted, head = (taught(few, "replay", average=0.9, readout=readout) for readout in ("adjusted", "head"))
    difference = head.scores(few.test_x) - adjusted.scores(few.test_x)
    torch.testing.assert_close(difference, head.shown.log().expand_as(difference), rtol=1e-4, atol=1e-4)
    assert (head.shown > 0).all()


def test_class_means_are_computed_once_until_something_changes(few: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    plain = MixedReplay.memory_means
    monkeypatch.setattr(MixedReplay, "memory_means", lambda self: found.append(self) or plain(self))
    learner = taught(few, "replay")

    def asked(one: Any) -> int:
        """How often the means were computed for an answer, which must equal that of a learner that never answered."""
        found.clear()
        scores, times = one.scores(few.test_x), len(found)
        fresh = create("replay", few.spec, memory_per_class=2)
        fresh.load_state_dict(one.state_dict())
        assert torch.equal(scores, fresh.scores(few.test_x))
        return times

    assert [asked(learner), asked(learner)] == [1, 0]
    copy = deepcopy(learner)
    assert [asked(copy), asked(learner)] == [1, 0]
    for one in (learner, copy):  # as often as before, so that the numbers of their changes meet
        one.observe(few.train_x[:5], few.train_y[:5])
        assert [asked(one), asked(one)] == [1, 0]
    with torch.no_grad():
        learner.averaged[0].get_parameter(next(name for name, _ in learner.averaged[0].named_parameters())).mul_(2)
    learner.drop_solution()  # the weights were changed from outside
    assert [asked(learner), asked(learner)] == [1, 0]
    learner.load_state_dict(copy.state_dict())
    assert [asked(learner), asked(learner)] == [1, 0]
