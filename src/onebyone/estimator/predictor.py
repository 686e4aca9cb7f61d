"""Answers of a classifier in one state: from scores to probabilities, and which samples are unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor

from onebyone.errors import UsageError, warn
from onebyone.estimator.labels import Label
from onebyone.estimator.model import State, known_labels
from onebyone.estimator.record import ENOUGH
from onebyone.methods import Learner, LeftOut

Source = Literal["left out", "held back", "left out by the statistics", "predicted before learnt"]
SUPPORT = 2  # values that must be expected below a quantile of values
CONFIDENCE = 0.95  # of a limit where fewer are


class Predictor:
    """How a classifier answers in one state. What takes long to compute is computed when it is first needed.

    ``predict``, ``export`` and the server turn scores into answers here. It belongs to its state: a classifier makes
    one for each question. For answers that last while the classifier learns on, give a copy of the state and call
    :meth:`freeze`.

    Parameters
    ----------
    state
        The state of a classifier. It must not change while this object is used.
    prior, unknown_rate
        Parameters of the classifier.
    """

    def __init__(self, state: State, prior: Any, unknown_rate: float) -> None:
        self.state, self.prior, self.unknown_rate = state, prior, unknown_rate
        self._frozen: tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor], Tensor] | None = None

    @torch.no_grad()
    def freeze(self) -> Self:
        """Compute everything that answers depend on. The learner must be a copy, which nobody else uses."""
        learner = self.state.learner.eval().requires_grad_(False)
        self._frozen = learner.readout(), learner.typicality_readout(), ~learner.observed
        _ = self.temperature, self.probabilities, self.shift, self.threshold, self._columns
        for part in learner.modules():
            if isinstance(part, Learner):
                part.drop_solution()  # it refers to the learner, so neither would be freed before garbage is collected
        return self

    def scores(self, x: Tensor) -> Tensor:
        """[n, *shape] as the learner reads samples -> [n, C] scores of all slots."""
        return self.state.learner.scores(x)

    def scores_and_typicality(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[n, *shape] as the learner reads samples -> [n, C] scores of all slots, and [n]."""
        learner = self.state.learner
        if self._frozen is None:
            return learner.scores_and_typicality(x)
        readout, typicality, unseen = self._frozen
        features = learner.features(x)
        scores = readout(features).masked_fill(unseen, -torch.inf)
        return scores, typicality(features, scores)

    def decision(self, scores: Tensor) -> Tensor:
        """[n, C] scores of all slots -> [n, C] with the prior, to be divided by the temperature."""
        # The temperature takes a while to compute, and is not needed if all classes are equally probable.
        return scores if self.shift is None else scores + (self.temperature * self.shift).to(scores)

    def in_order(self, decision: Tensor) -> Tensor:
        """[n, C] of all slots -> [n, classes] in the order of ``classes_``."""
        return decision[:, self._columns]

    def probabilities_of(self, decision: Tensor) -> Tensor:
        """[n, classes] -> [n, classes]."""
        return self.probabilities(decision / self.temperature)

    def is_unknown(self, typicality: Tensor) -> Tensor:
        """[n] whether samples are like nothing learnt."""
        return ~(typicality.double() >= self.threshold)

    @cached_property
    def temperature(self) -> float:
        """The number that scores are divided by before probabilities are computed."""
        if uses_held_back(self.state):
            return self.state.held_back_temperature
        return self.state.record.temperature if uses_predictions(self.state) else self.state.learner.temperature()

    @cached_property
    def probabilities(self) -> Callable[[Tensor], Tensor]:
        """The function from scores, divided by the temperature, to probabilities, for which that was fitted.

        The temperature of predictions is that of a softmax. ``hybrid`` has the temperature of its statistics before,
        which is that of their mean of three.
        """
        return softmax if uses_predictions(self.state) else self.state.learner.probabilities

    @cached_property
    def shift(self) -> Tensor | None:
        """[C] the logarithm of the probability of each slot's class, relative to equal ones; None if all are equal."""
        return log_prior(self.state, self.prior)

    @cached_property
    def threshold(self) -> float:
        """The typicality below which a sample is unknown; minus infinity while there are too few predictions.

        A new sample like those that were learnt is below it with the probability ``unknown_rate``, on average over
        samples.
        """
        found = self.state.learner.typical_values()
        values = (evidence(self.state).predictions.typicality if found is None else found.cpu()).double()
        enough = len(values) >= ENOUGH and self.unknown_rate
        return low_quantile(values, self.unknown_rate) if enough else -math.inf

    @cached_property
    def _columns(self) -> Tensor:
        return torch.tensor(self.state.columns)


class Evidence(NamedTuple):
    """Honest predictions of samples that were learnt."""

    predictions: LeftOut
    source: Source


def evidence(state: State) -> Evidence:
    """Predictions that the learner makes without the sample, or made before it learnt the sample.

    The second kind serves while few samples are held back. ``hybrid`` has those of its statistics without the sample
    until it has predicted enough samples itself.
    """
    learner = state.learner
    source: Source = "left out"
    if uses_held_back(state):
        return Evidence(state.held_back_predictions, "held back")
    if learner.leaving_out is not learner and not uses_predictions(state):
        learner, source = learner.leaving_out, "left out by the statistics"
    if learner.leaves_out:
        found = learner.left_out()
        if found is not None:
            return Evidence(LeftOut(*(values.cpu() for values in found)), source)
    return Evidence(state.record.left_out, "predicted before learnt")


def softmax(scores: Tensor) -> Tensor:
    return scores.softmax(1)


def uses_predictions(state: State) -> bool:
    """Whether predictions of samples that were not learnt, or not yet, decide how confident the classifier is."""
    enough = max(len(state.held_back), len(state.record.y)) >= ENOUGH
    return enough and not state.learner.leaves_out


def uses_held_back(state: State) -> bool:
    """Whether these are predictions of samples that are held back."""
    return len(state.held_back) >= ENOUGH


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
        warn_of_missing_classes(state, prior, seen)
    elif prior == "counts":
        shares = counts
    else:
        return None
    return (shares / shares.sum() * seen.sum()).log()


def warn_of_missing_classes(state: State, prior: Mapping[Label, float], seen: Tensor) -> None:
    """Warn if the prior has classes of which no sample was learnt: perhaps their labels are misspelt."""
    missing = [label for label in prior if not (label in state.slots and seen[state.slots[label]])]
    if missing:
        names = ", ".join(map(repr, missing[:5])) + ", ..." * (len(missing) > 5)
        warn(
            f"prior has {names}, of which no sample was learnt, so the other classes share the probability; known "
            f"are {known_labels(state)}"
        )


def low_quantile(values: Tensor, rate: float) -> float:
    """A number that a new value, drawn like the ``values`` [k], is below with the probability ``rate``, or less.

    It is the quantile of the values if at least two of them are expected below it. The smallest of few values is a
    matter of chance: of 20, the share of new ones below it is 5 % on average, and above 10 % in every eighth case. So
    with fewer, the number is at most :func:`tolerance_limit`, and new values are rarely below it.
    """
    ordered, count = values.sort().values, len(values)
    expected = rate * (count + 1)
    position = max(0.0, min(expected - 1, count - 1))
    below = int(position)
    above = min(below + 1, count - 1)
    quantile = float(ordered[below] + (position - below) * (ordered[above] - ordered[below]))
    return quantile if expected >= SUPPORT else min(quantile, tolerance_limit(values, rate))


def tolerance_limit(values: Tensor, rate: float) -> float:
    """A number that at most the share ``rate`` of new values is below, with a confidence of 95 %.

    This is the tolerance limit of a normal distribution with the mean and standard deviation of the values, by the
    approximation of Natrella. Values that are all negative are minus distances: their logarithms are taken as normal.

    >>> values = torch.linspace(-1, 1, 20)
    >>> round(tolerance_limit(values, 0.05) / float(values.std()), 2)  # 2.40 in tables
    -2.38
    """
    are_distances = bool((values < 0).all())
    spread = (-values).log() if are_distances else -values
    share, confidence, count = NormalDist().inv_cdf(1 - rate), NormalDist().inv_cdf(CONFIDENCE), len(values)
    first = 1 - confidence**2 / (2 * (count - 1))
    second = share**2 - confidence**2 / count
    factor = (share + math.sqrt(share**2 - first * second)) / first
    limit = float(spread.mean() + factor * spread.std())
    return -math.exp(limit) if are_distances else -limit
