"""The temperature that turns the scores of a discriminant into probabilities."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from onebyone.methods.ridge import Ridge

TEMPERATURES = torch.logspace(-1.0, 1.5, 36, dtype=torch.float64)  # relative to the expected one


class Expectation(NamedTuple):
    """What is known of temperatures of one kind of features, relative to those of normally distributed features."""

    ratio: float
    doubt: float  # standard deviation of its logarithm


ANY_FEATURES = Expectation(2.2, 0.5)
PATCH_FEATURES = Expectation(2.0, 0.15)  # of scores that were divided by the distance; measured on held-out images


def fitted_temperature(ridge: Ridge, mixing: Tensor, scores: Tensor, y: Tensor, known: Expectation) -> float:
    """The number by which scores are divided to make their softmax a probability.

    The likelihood of left-out samples, ``scores`` [k, C] of classes ``y`` [k], decides together with an expectation
    that follows from the statistics. The maximum is found on a grid, and between its points by the parabola through
    the best one and its two neighbours.
    """
    if len(ridge.weights) == 1:
        return 1.0
    if not ridge.freedom:  # no class has a second sample: nothing is known of the variance, and little of the classes
        return 1.0 + ridge.means.shape[1] / float(ridge.weights.mean())
    expected = known.ratio * gaussian_temperature(ridge, mixing)
    scores, y = scores.cpu(), y.cpu()
    tried, highest = TEMPERATURES * expected, scores.amax(1)
    below = (scores - highest[:, None]).T.contiguous()[:, None]  # [C, 1, k]: a sum over the first axis is faster
    normalisers = (below / tried[:, None]).exp().sum(0).log().sum(1)
    likelihood = (scores.gather(1, y[:, None])[:, 0] - highest).sum() / tried - normalisers
    objective = likelihood - (TEMPERATURES.log() / known.doubt).square() / 2
    best = min(max(int(objective.argmax()), 1), len(TEMPERATURES) - 2)
    below, top, above = objective[best - 1 : best + 2].tolist()
    curvature = below - 2 * top + above
    shift = (below - above) / (2 * curvature) if curvature < 0 else 0.0
    step = float(TEMPERATURES[1] / TEMPERATURES[0])
    return float(TEMPERATURES[best]) * math.pow(step, min(max(shift, -1.0), 1.0)) * expected


def gaussian_temperature(ridge: Ridge, mixing: Tensor) -> float:
    """The temperature if features were normally distributed: variance of the scores over their signal."""
    signal, deviation = ridge.signal_and_deviation(mixing)
    return max(float(deviation.square().sum() / signal.sum().clamp(min=1e-9)), 1e-3)


def bounded_temperature(ridge: Ridge, mixing: Tensor) -> float:
    """The same, but at most the standard deviation of the scores: without a signal the temperature is infinite."""
    signal, deviation = ridge.signal_and_deviation(mixing)
    variance, usual = float(deviation.square().mean()), float(signal.mean())
    return min(variance / usual, math.sqrt(variance)) if usual > 0 else math.sqrt(variance)
