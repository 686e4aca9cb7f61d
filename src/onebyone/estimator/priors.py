"""Checks of the parameters ``prior`` and ``unknown_rate``, and a prior after classes were renamed."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from onebyone.errors import UsageError
from onebyone.estimator.labels import Label


def check_prior(prior: Any, unknown_rate: Any) -> None:
    """Raise an error if one of these parameters is invalid."""
    if isinstance(prior, Mapping):
        if not prior or not all(map(is_share, prior.values())) or sum(prior.values()) > 1 + 1e-6:
            raise UsageError(
                f"prior is {prior!r}; its values must be probabilities, from 0 to 1, with a sum of at most 1"
            )
    elif not isinstance(prior, str) or prior not in ("uniform", "counts"):
        raise UsageError(f"prior is {prior!r}; it must be 'uniform', 'counts' or a dictionary {{label: probability}}")
    if not is_share(unknown_rate) or unknown_rate == 1:
        raise UsageError(f"unknown_rate is {unknown_rate!r}; it must be a number from 0 to less than 1")


def renamed_prior(prior: Any, names: Mapping[Label, Label]) -> Any:
    """The prior of the same classes with new labels. Classes that become one have the sum of their probabilities.

    >>> renamed_prior({"cat": 0.5, "dog": 0.25}, {"cat": "tiger"})
    {'tiger': 0.5, 'dog': 0.25}
    """
    if not isinstance(prior, Mapping) or prior.keys().isdisjoint(names):
        return prior
    found: dict[Label, float] = {}
    for label, share in prior.items():
        new = names.get(label, label)
        found[new] = found.get(new, 0) + share
    return found


def is_share(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1
