"""The temperature that turns the scores of a discriminant into probabilities."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from onebyone.methods.ridge import Ridge, peak

# Measured with 2 to 10 images per class of 2 to 10 classes: patches, and features of an encoder.
SMALL_SAMPLE = 1.4  # temperature after few samples, relative to the standard deviation of the scores
LARGEST = 4.0  # expected temperature, relative to the same
ENOUGH = 30.0  # degrees of freedom, from which the signal of the scores says more than their deviation
STEPS = 4  # of the grid of temperatures, for a factor of 2
TEMPERATURES = 0.1 * 2 ** (torch.arange(9 * STEPS, dtype=torch.float64) / STEPS)  # relative to the expected one


class Expectation(NamedTuple):
    """What is known of temperatures of one kind of features, relative to those of normally distributed features."""

    ratio: float  # times the sixth root of the number of classes: with more classes, the nearest ones are more alike
    doubt: float  # standard deviation of its logarithm


# Measured on held-out images.
ANY_FEATURES = Expectation(1.5, 0.5)
PATCH_FEATURES = Expectation(1.3, 0.2)  # of scores that were divided by the distance


def probabilities(scores: Tensor) -> Tensor:
    """[n, C] scores divided by the temperature -> [n, C] probabilities.

    No single temperature suits all samples: the scores of some are more reliable than those of others, and one cannot
    tell which. So the softmax is averaged over half, once and twice the temperature, as if its logarithm were normally
    distributed with a standard deviation of 0.4. The class with the largest score is the most probable one.
    """
    return averaged(*((scores / times).softmax(1) for times in (0.5, 1, 2)))


def averaged(half: Tensor, once: Tensor, twice: Tensor) -> Tensor:
    """The mean of values at half, once and twice the temperature."""
    return (half + 4 * once + twice) / 6


def fitted_temperature(expected: float, scores: Tensor, y: Tensor, doubt: float) -> float:
    """The number by which scores are divided for :func:`probabilities`.

    The likelihood of left-out samples, ``scores`` [k, C] of classes ``y`` [k], decides together with an expectation
    that follows from the statistics. The maximum is found on a grid, and between its points by the parabola through
    the best one and its two neighbours.
    """
    scores, y = scores.cpu(), y.cpu()
    tried = expected * torch.cat([TEMPERATURES[:STEPS] / 2, TEMPERATURES, TEMPERATURES[-STEPS:] * 2])
    highest = scores.amax(1)
    below = (scores - highest[:, None]).T.contiguous()[:, None]  # [C, 1, k]: a sum over the first axis is faster
    own = (scores.gather(1, y[:, None])[:, 0] - highest) / tried[:, None]
    each = (own - (below / tried[:, None]).exp().sum(0).log()).exp()  # [temperatures, k] probability of the own class
    mean = averaged(each[: -2 * STEPS], each[STEPS:-STEPS], each[2 * STEPS :])
    likelihood = mean.clamp(min=1e-300).log().sum(1)
    objective = likelihood - (TEMPERATURES.log() / doubt).square() / 2
    best = min(max(int(objective.argmax()), 1), len(TEMPERATURES) - 2)
    between = peak(*objective[best - 1 : best + 2].tolist())
    return float(TEMPERATURES[best]) * math.pow(2, between / STEPS) * expected


def expected_temperature(ridge: Ridge, mixing: Tensor, known: Expectation) -> float:
    """The temperature that the statistics let expect.

    With few samples the estimate for normally distributed features is unreliable, above all if there are few classes.
    Then the standard deviation of the scores says more.
    """
    usual = SMALL_SAMPLE * score_deviation(ridge, mixing)
    gaussian = known.ratio * math.pow(len(ridge.weights), 1 / 6) * gaussian_temperature(ridge, mixing, LARGEST)
    share = ridge.freedom / (ridge.freedom + ENOUGH)
    return max(math.pow(gaussian, share) * math.pow(usual, 1 - share), 1e-3)


def gaussian_temperature(ridge: Ridge, mixing: Tensor, most: float) -> float:
    """The temperature if features were normally distributed: variance of the scores over their signal.

    It is at most ``most`` standard deviations of the scores: without a signal it would be infinite.
    """
    signal, deviation = ridge.signal_and_deviation(mixing)
    variance, usual = float(deviation.square().mean()), float(signal.mean())
    largest = most * math.sqrt(variance)
    return min(variance / usual, largest) if usual > 0 else largest


def score_deviation(ridge: Ridge, mixing: Tensor) -> float:
    _, deviation = ridge.signal_and_deviation(mixing)
    return math.sqrt(float(deviation.square().mean()))
