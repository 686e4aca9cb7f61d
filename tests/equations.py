"""The paper's equations sample by sample and class by class, for the tests to compare the library with.

Written from section 2 of the paper and from the papers of the baselines. Vectors are rows; a class is its number.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def sim(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    return (a * b).sum() / (temperature * a.square().sum().sqrt() * b.square().sum().sqrt())


def mates(i: int, y: Sequence[int]) -> list[int]:
    """P(x_i): the other samples of its class in the batch."""
    return [p for p in range(len(y)) if p != i and y[p] == y[i]]


def equation_1(prediction: Tensor, target: Tensor, positives: Sequence[Sequence[int]], temperature: float) -> Tensor:
    total = torch.zeros((), dtype=prediction.dtype)
    for i, own in enumerate(positives):
        for p in own:
            total = total + sim(prediction[i], target[p], temperature) / len(own)
    return -total / len(prediction)


def softmax_loss(scores: Sequence[Tensor], label: int, among: Iterable[int]) -> Tensor:
    """Minus the logarithm of the share of its class in a softmax over some of the classes."""
    return -(scores[label].exp() / sum(scores[c].exp() for c in among)).log()


def equation_2(z: Tensor, y: Sequence[int], prototypes: Tensor, observed: Sequence[int], temperature: float) -> Tensor:
    total = torch.zeros((), dtype=z.dtype)
    for i, label in enumerate(y):
        total = total + softmax_loss([sim(c, z[i], temperature) for c in prototypes], label, observed)
    return total


def equation_3(
    z: Tensor,
    y: Sequence[int],
    prototypes: Tensor,
    observed: Sequence[int],
    temperature: float,
    weights: tuple[float, float, float] = (1, 1, 1),
) -> Tensor:
    total = torch.zeros((), dtype=z.dtype)
    for i, label in enumerate(y):
        total = total - weights[0] * sim(z[i], prototypes[label], temperature) / len(y)
        for p in mates(i, y):
            total = total - weights[1] * sim(z[i], z[p], temperature) / len(mates(i, y)) / len(y)
    for i in observed:
        for j in observed:
            if i != j:
                total = total + weights[2] * sim(prototypes[i], prototypes[j], temperature) / len(observed)
    return total


def contrast(
    anchors: Tensor, y: Sequence[int], drawn: Tensor, drawn_y: Sequence[int], temperature: float
) -> list[Tensor]:
    """The supervised contrastive loss of ER-AML, for each anchor, before it is averaged and scaled."""
    losses = []
    for i, label in enumerate(y):
        scores = [sim(anchors[i], other, temperature) for other in drawn]
        positives = [p for p in range(len(drawn)) if drawn_y[p] == label]
        terms = [softmax_loss(scores, p, range(len(drawn))) for p in positives]
        losses.append(sum(terms, torch.zeros((), dtype=anchors.dtype)) / max(1, len(positives)))
    return losses
