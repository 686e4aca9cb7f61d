"""The temperature that turns scores into probabilities."""

from __future__ import annotations

import math

import torch
from torch import Tensor

DOUBT = 0.5  # standard deviation of the logarithm of a temperature around the expected one; measured on images
STEPS = 4  # of the grid of temperatures, for a factor of 2
TEMPERATURES = 0.1 * 2 ** (
    torch.arange(9 * STEPS, dtype=torch.float64, device="cpu") / STEPS
)  # relative to the expected one


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


def fitted_temperature(expected: float, scores: Tensor, y: Tensor) -> float:
    """The number by which scores are divided for :func:`probabilities`.

    The likelihood of left-out samples, ``scores`` [k, C] of classes ``y`` [k], decides together with the expected
    temperature. The result is the geometric mean over a grid,
    weighted by probability: it is continuous in the scores.
    """
    scores, y = scores.cpu(), y.cpu()
    tried = expected * torch.cat([TEMPERATURES[:STEPS] / 2, TEMPERATURES, TEMPERATURES[-STEPS:] * 2])
    highest = scores.amax(1)
    below = (scores - highest[:, None]).T.contiguous()[:, None]  # [C, 1, k]: a sum over the first axis is faster
    own = (scores.gather(1, y[:, None])[:, 0] - highest) / tried[:, None]
    each = (own - (below / tried[:, None]).exp().sum(0).log()).exp()  # [temperatures, k] probability of the own class
    mean = averaged(each[: -2 * STEPS], each[STEPS:-STEPS], each[2 * STEPS :])
    likelihood = mean.clamp(min=1e-300).log().sum(1)
    objective = likelihood - (TEMPERATURES.log() / DOUBT).square() / 2
    return expected * math.exp(float(objective.softmax(0) @ TEMPERATURES.log()))
