"""What holds for every method of this package: the contract, and their common base classes."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from onebyone import Dataset, UsageError, create, methods
from onebyone.methods import Encoded, Options, ReplayLearner, method
from onebyone.testing import checks, thorough_checks
from onebyone.testing.situations import SITUATIONS, Method, Situation, choices, pairs

NAMES = list(methods())


@pytest.mark.parametrize(
    "check", [pytest.param(check, id=f"{name}: {title}") for name in NAMES for title, check in checks(name)]
)
def test_contract(check: Callable[[], None]) -> None:
    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_contract_with_every_combination_of_options(name: str) -> None:
    for _, check in thorough_checks(name):
        check()


def test_every_two_values_of_two_options_are_tried_together() -> None:
    """The sample of combinations that the fast tests use, checked with loops."""
    for name in NAMES:
        values, found = choices(method(name).options), pairs(method(name).options)
        for first, second in combinations(values, 2):
            for one, other in product(values[first], values[second]):
                assert any(row[first] == one and row[second] == other for row in found), (name, first, second)


def test_methods_learn_every_situation() -> None:
    assert all(any(Method(name).has(situation.options) for name in NAMES) for situation in SITUATIONS.values())


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_gives_other_weights(few: Dataset, name: str) -> None:
    first, second = (create(name, few.spec, seed=seed) for seed in (0, 1))
    assert not torch.equal(first.generator.get_state(), second.generator.get_state())
    for (part, weight), other in zip(first.named_parameters(), second.parameters(), strict=True):
        # One-dimensional weights and BatchNorm's start at their constants.
        assert torch.equal(weight, other) == (weight.dim() == 1 and len(weight.unique()) == 1), part


@pytest.mark.parametrize("name", [name for name in NAMES if issubclass(method(name).options, Options)])
def test_memory_layout_changes_no_more_than_rounding(few: Dataset, name: str) -> None:
    batch = few.train_x[::6], few.train_y[::6]
    losses = [create(name, few.spec, channels_last=layout).observe(*batch) for layout in (True, False)]
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("hook", "weight"), [("incoming_loss", "incoming_weight"), ("replay_loss", "replay_weight")])
@pytest.mark.parametrize("name", [name for name in NAMES if issubclass(method(name).learner, ReplayLearner)])
def test_the_step_minimises_what_the_two_loss_methods_return(few: Dataset, name: str, hook: str, weight: str) -> None:
    """An override of either method is used, once per step, for every registered method that has them."""
    learner_class, calls = method(name).learner, 0

    def override(self: Any, *encoded: Encoded) -> Tensor:
        nonlocal calls
        calls += 1
        loss: Tensor = getattr(super(type(self), self), hook)(*encoded)
        return loss + next(self.parameters()).sum()

    changed_class = type("Changed", (learner_class,), {hook: override})
    options = method(name).options(memory_per_class=2, **{weight: 0.5})  # type: ignore[call-arg]
    learner, changed = (make(options, few.spec) for make in (learner_class, changed_class))
    for x, y in zip(few.train_x.split(30), few.train_y.split(30), strict=True):
        changed.load_state_dict(learner.state_dict())
        extra = 0.5 * next(learner.parameters()).sum().detach()
        losses = [one.observe(x, y) for one in (learner, changed)]
        torch.testing.assert_close(losses[1], losses[0] + extra, rtol=1e-5, atol=1e-5)
        weights = [next(one.parameters()) for one in (learner, changed)]
        assert not torch.equal(*weights), "the override reached the reported loss, not the gradients"
    assert calls == len(few.train_x) / 30


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in NAMES]
    + [(name, {"readout": way}) for name in NAMES for way in choices(method(name).options).get("readout", ())],
    ids=str,
)
def test_scores_follow_every_change_of_the_state(few: Dataset, name: str, options: dict[str, Any]) -> None:
    """After ``drop_solution``, a learner that was written to answers as one that loads the same state."""
    learner, fresh = (Method(name, options).make(memory_per_class=2) for _ in range(2))
    for x, y in zip(few.train_x.split(30), few.train_y.split(30), strict=True):
        learner.observe(x, y)
    learner.scores(few.test_x[:3])
    for part, tensor in learner.state_dict().items():
        if tensor.is_floating_point() or part == "memory.x":
            tensor.data[...] = tensor.flip(0) if tensor.dim() else tensor / 2
        elif "codes" in part:
            tensor.data //= 2
        learner.drop_solution()
        fresh.load_state_dict(learner.state_dict())
        assert torch.equal(learner.scores(few.test_x[:3]), fresh.scores(few.test_x[:3])), part


@pytest.mark.parametrize("name", [name for name in NAMES if "ncm" in choices(method(name).options).get("readout", ())])
def test_class_means_follow_every_change(few: Dataset, name: str) -> None:
    """Each method that changes a learner drops what was computed from its state, and asking drops nothing."""
    learner, fresh = (Method(name, {"readout": "ncm"}).make(memory_per_class=4) for _ in range(2))
    x, y = few.train_x[:60], few.train_y[:60]
    learner.observe(x, y)
    other = {key: tensor.clone() for key, tensor in learner.state_dict().items()}
    changes: dict[str, Callable[[], object]] = {
        "observe": lambda: learner.observe(few.train_x[60:90], few.train_y[60:90]),
        "repeat": lambda: learner.repeat(x[:30], y[:30]),
        "forget": lambda: learner.forget(x[:20], y[:20]),
        "unite": lambda: learner.unite(*learner.counts.topk(2).indices.tolist()),
        "forget_class": lambda: learner.forget_class(int(learner.counts.argmax())),
        "load_state_dict": lambda: learner.load_state_dict(other),
    }
    for change, call in changes.items():
        before = learner.scores(few.test_x[:3])
        with mock.patch.object(
            getattr(learner, "network", learner), "memory_means", side_effect=AssertionError("computed again")
        ):
            assert torch.equal(learner.scores(few.test_x[:3]), before)
        call()
        fresh.load_state_dict(learner.state_dict())
        assert torch.equal(learner.scores(few.test_x[:3]), fresh.scores(few.test_x[:3])), change
        assert not torch.equal(learner.scores(few.test_x[:3]), before), change


def test_only_icarl_needs_task_boundaries() -> None:
    assert [name for name in NAMES if method(name).learner.needs_boundaries] == ["icarl"]


def test_only_iid_has_a_shuffled_stream() -> None:
    assert [name for name in NAMES if method(name).learner.stream == "iid"] == ["iid"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cpp", {}, "unknown method 'cpp'; did you mean 'ccp'"),
        ("er", {"memory_per_class": 0}, "memory_per_class is 0; it must be at least 1"),
        ("ccp", {"readout": "head"}, "unknown readout 'head'"),
        ("ccp", {"encoder": "resnet"}, "unknown encoder 'resnet'; did you mean 'resnet18'"),
    ],
)
def test_learners_that_cannot_be_created_are_refused(
    few: Dataset, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        create(name, replace(few.spec), **options)


@pytest.mark.slow
def test_which_data_the_methods_refuse() -> None:
    """A situation that is refused passes the contract, so this test lists all that may be refused."""

    def refuses(name: str, situation: Situation) -> bool:
        try:
            Method(name, dict(situation.options)).make(situation.spec)
        except UsageError:
            return True
        return False

    refused = {
        (name, title)
        for name, (title, situation) in product(NAMES, SITUATIONS.items())
        if Method(name).has(situation.options) and refuses(name, situation)
    }
    too_small = "batches above the memory", "many drawn from few", "a small balanced memory"
    assert refused == {
        *(("hybrid", title) for title in too_small),  # too small for statistics and a network's memory
        ("lda", "a last batch of one, down to one pixel"),  # it does not train an encoder
    }


@pytest.mark.parametrize("name", [name for name in NAMES if issubclass(method(name).options, Options)])
def test_bf16_changes_the_encoder_only(few: Dataset, name: str) -> None:
    """State and gradients stay float32; the loss differs from that of float32, by little."""
    batch = few.train_x[::6], few.train_y[::6]
    exact, rounded = (create(name, few.spec, precision=precision) for precision in ("float32", "bf16"))
    losses = [learner.observe(*batch) for learner in (exact, rounded)]
    assert losses[0] != losses[1]
    torch.testing.assert_close(*losses, rtol=0.03, atol=0.01)
    for key, tensor in rounded.state_dict().items():
        assert tensor.dtype == exact.state_dict()[key].dtype, key
    assert all(weight.grad is None or weight.grad.dtype == torch.float32 for weight in rounded.parameters())
    assert rounded.scores(few.test_x).dtype == exact.scores(few.test_x).dtype
