"""The equations, as pure functions of tensors.

Shapes: n samples, d dimensions, C classes. Vectors that are compared are as ``nets.unit`` gives them with the
temperature, so that the product of two is the paper's sim, and each is scaled once however often it is compared. Masks
are boolean; a weight of zero takes a sample out of a loss without changing a shape. Every function here has a test
against a loop-by-loop transcription of its equation.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Reduction = Literal["mean", "sum"]


def reduce(values: Tensor, weight: Tensor, reduction: Reduction = "mean") -> Tensor:
    """[n] values and [n] weights -> their weighted sum, or mean over what has weight (0 where nothing has).

    >>> reduce(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([1.0, 1.0, 0.0]))
    tensor(2.)
    """
    total = (values * weight).sum()
    return total if reduction == "sum" else total / weight.sum().clamp(min=1)


def average(values: Tensor, weight: Tensor | None = None) -> Tensor:
    """[n] values -> their mean, or their weighted mean."""
    return values.mean() if weight is None else reduce(values, weight)


def cross_entropy(
    logits: Tensor, y: Tensor, weight: Tensor, reduction: Reduction = "mean", among: Tensor | None = None
) -> Tensor:
    """Cross-entropy of [n, C] logits; ``among`` [C] leaves only these classes in the softmax.

    With cosine logits among the classes observed this is equation 2: there, printed as a sum.
    """
    if among is not None:
        logits = logits.masked_fill(~among, -torch.inf)
    return reduce(F.cross_entropy(logits, y, reduction="none"), weight, reduction)


def batch_mates(y: Tensor) -> Tensor:
    """P(x_i) of equations 1 and 3: [n, n], true where two different samples of the batch share a class.

    >>> batch_mates(torch.tensor([7, 3, 7])).long()
    tensor([[0, 0, 1], [0, 0, 0], [1, 0, 0]])
    """
    return (y[:, None] == y).fill_diagonal_(False)


def positives(y: Tensor, replay_y: Tensor, drawn: Tensor) -> Tensor:
    """[n, n + m] the batch mates of each sample, then the replayed samples of its class that exist (``drawn`` [m]).

    >>> positives(torch.tensor([7, 3]), torch.tensor([7, 7]), torch.tensor([True, False])).long()
    tensor([[0, 0, 1, 0],
            [0, 0, 0, 0]])
    """
    return torch.cat([batch_mates(y), (y[:, None] == replay_y) & drawn], 1)


def mean_over(values: Tensor, mask: Tensor) -> Tensor:
    """[n, m] values and mask -> [n] mean of each row over its mask, 0 for an empty one."""
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)


def byol(prediction: Tensor, target: Tensor, positive: Tensor, weight: Tensor | None = None) -> Tensor:
    """Equation 1: minus the mean similarity of q(z) of x_i [n, d] to the target's z of its positives [m, d]."""
    return -average(mean_over(prediction @ target.T, positive), weight)


def pull(z: Tensor, y: Tensor, prototypes: Tensor, weight: Tensor | None = None) -> Tensor:
    """First term of equation 3: minus the mean similarity of each sample to its class's prototype [C, d]."""
    return -average((z @ prototypes.T).gather(1, y[:, None]).flatten(), weight)


def gather_mates(z: Tensor, others: Tensor, positive: Tensor, weight: Tensor | None = None) -> Tensor:
    """Second term of equation 3: minus the mean similarity of each sample [n, d] to its positives among [m, d]."""
    return byol(z, others, positive, weight)  # equation 1 has this form too


def repel(prototypes: Tensor, observed: Tensor) -> Tensor:
    """Third term of equation 3: each observed prototype's summed similarity to the others, averaged."""
    pairs = (observed[:, None] & observed).fill_diagonal_(False)
    return (prototypes @ prototypes.T * pairs).sum() / observed.sum().clamp(min=1)


def supervised_contrast(
    anchor: Tensor, contrast: Tensor, positive: Tensor, usable: Tensor, weight: Tensor, temperature: float
) -> Tensor:
    """The SupCon loss of ER-AML: anchors [n, d] against one shared set of drawn samples [m, d].

    ``positive`` [n, m] marks same-class pairs, ``usable`` [m] the drawn samples that exist and ``weight`` [n] the
    anchors that found both a positive and a negative. Scaled by temperature / 0.07, as in the original code.
    """
    logits = (anchor @ contrast.T).masked_fill(~usable, -torch.inf)
    # An anchor without any usable contrast would give NaN even at weight zero.
    logits = logits.masked_fill(~usable.any(), 0.0)
    log_probability = F.log_softmax(logits, 1).masked_fill(~usable, 0.0)
    loss = -mean_over(log_probability, positive & usable)
    return temperature / 0.07 * reduce(loss, weight)


def class_means(z: Tensor, member: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """[n, d] vectors and [n, C] their classes -> the mean of each class [C, d], and which classes have one [C].

    >>> one_hot = torch.tensor([[False, True, False], [False, True, False]])
    >>> means, present = class_means(torch.tensor([[1.0], [3.0]]), one_hot, torch.ones(2))
    >>> means.flatten(), present
    (tensor([0., 2., 0.]), tensor([False,  True, False]))
    """
    share = (member * weight[:, None]).to(z)
    count = share.sum(0)
    return share.T @ z / count.clamp(min=1)[:, None], count > 0
