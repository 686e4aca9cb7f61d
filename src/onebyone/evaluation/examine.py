"""Correct answers on the test set, in a few large forward passes."""

from __future__ import annotations

import torch
from torch import Tensor

from onebyone.methods.registry import AnyLearner


def right_answers(learner: AnyLearner, x: Tensor, y: Tensor) -> Tensor:
    """Count the samples of each class that a learner predicts correctly.

    No value is read, so a GPU can do other work until the result is needed.

    Parameters
    ----------
    learner
        The learner to ask.
    x, y
        Samples and their labels.

    Returns
    -------
    Tensor
        [C] right predictions per class; 0 for a class that the learner has never seen.

    >>> from onebyone import create, load
    >>> digits = load("digits")
    >>> learner = create("finetune", digits.spec)
    >>> loss = learner.observe(digits.train_x[:1], digits.train_y[:1])
    >>> right = right_answers(learner, digits.test_x, digits.test_y)
    >>> bool(right.sum() == (digits.test_y == digits.train_y[0]).sum())  # the only class it knows
    True
    """
    right = torch.zeros(learner.spec.num_classes, dtype=torch.int64, device=y.device)
    return right.index_add_(0, y, (learner.predict(x) == y).long()) if len(y) else right
