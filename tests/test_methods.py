"""What holds for every method of this package: the contract, and what lies in their common base."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from onebyone import Dataset, UsageError, create, methods
from onebyone.methods import Options, method
from onebyone.testing import checks
from onebyone.testing.situations import SITUATIONS, Method

NAMES = list(methods())


@pytest.mark.parametrize(
    "check", [pytest.param(check, id=f"{name}: {title}") for name in NAMES for title, check in checks(name)]
)
def test_contract(check: Callable[[], None]) -> None:
    check()


def test_every_situation_is_met() -> None:
    assert all(any(Method(name).has(situation.options) for name in NAMES) for situation in SITUATIONS.values())


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_is_another_learner(few: Dataset, name: str) -> None:
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


def test_only_icarl_has_to_know_where_a_task_ends() -> None:
    assert [name for name in NAMES if method(name).learner.needs_boundaries] == ["icarl"]


def test_only_iid_is_meant_for_a_shuffled_stream() -> None:
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
def test_what_cannot_be_made_is_refused(few: Dataset, name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        create(name, replace(few.spec), **options)
