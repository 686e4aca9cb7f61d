"""From scores to probabilities, and from typicality to a decision that a sample is unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from onebyone.errors import UsageError
from onebyone.estimator.building import State
from onebyone.estimator.record import ENOUGH, keeps_left_out
from onebyone.methods import LeftOut

Source = Literal["left out", "predicted before learnt"]


class Evidence(NamedTuple):
    """Honest predictions of samples that were learnt."""

    predictions: LeftOut
    source: Source


def evidence(state: State) -> Evidence:
    """Predictions that the learner made without the sample, or before it learnt the sample."""
    if keeps_left_out(state.learner):
        found = state.learner.left_out()
        if found is not None:
            return Evidence(LeftOut(*(values.cpu() for values in found)), "left out")
    return Evidence(state.record.left_out, "predicted before learnt")


def temperature(state: State) -> float:
    """The number that scores are divided by before the softmax."""
    enough = len(state.record.y) >= ENOUGH and not keeps_left_out(state.learner)
    return state.record.temperature if enough else state.learner.temperature()


def log_prior(state: State, prior: Any) -> Tensor | None:
    """[C] the logarithm of the probability of each slot's class, relative to equal ones; None if all are equal.

    Classes that a dictionary does not have share what is left to a sum of 1.
    """
    counts = state.learner.counts.cpu().double()
    seen = counts > 0
    if isinstance(prior, Mapping):
        shares = torch.zeros_like(counts)
        others = []
        for label, slot in state.slots.items():
            if label in prior:
                shares[slot] = float(prior[label])
            elif seen[slot]:
                others.append(slot)
        if others:
            shares[others] = max(0.0, 1 - sum(map(float, prior.values()))) / len(others)
        shares = shares.where(seen, 0)
        if not shares.sum() > 0:
            raise UsageError(f"prior is {prior!r}, and every class that was learnt has the probability 0; raise one")
    elif prior == "counts":
        shares = counts
    else:
        return None
    return (shares / shares.sum() * seen.sum()).log()


def decision(state: State, scores: Tensor, prior: Any) -> Tensor:
    """[n, C] scores with the prior: divided by the temperature, their softmax is probabilities.

    The temperature takes a while to compute, and is not needed if all classes are equally probable.
    """
    shift = log_prior(state, prior)
    return scores if shift is None else scores + (temperature(state) * shift).to(scores)


def threshold(state: State, unknown_rate: float) -> float:
    """The typicality below which a sample is unknown; minus infinity while there are too few predictions.

    A new sample like those that were learnt is below it with the probability ``unknown_rate``, on average over samples.
    """
    found = state.learner.typical_values()
    values = (state.record.typicality if found is None else found.cpu()).double().sort().values
    if len(values) < ENOUGH:
        return -math.inf
    position = max(0.0, min(unknown_rate * (len(values) + 1) - 1, len(values) - 1))
    below = int(position)
    above = min(below + 1, len(values) - 1)
    return float(values[below] + (position - below) * (values[above] - values[below])) if unknown_rate else -math.inf
