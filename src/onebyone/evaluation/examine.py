"""How a learner answers the test set, in a few large forward passes."""

from __future__ import annotations

import torch
from torch import Tensor

from onebyone.methods.registry import AnyLearner


def right_answers(learner: AnyLearner, x: Tensor, y: Tensor) -> Tensor:
    """[C] how many samples of each class the learner gets right.

    Samples of classes it has never seen are not asked: it cannot answer with them, so it gets none right.

    >>> from onebyone import create, load
    >>> digits = load("digits")
    >>> learner = create("finetune", digits.spec)
    >>> loss = learner.observe(digits.train_x[:1], digits.train_y[:1])
    >>> right = right_answers(learner, digits.test_x, digits.test_y)
    >>> bool(right.sum() == (digits.test_y == digits.train_y[0]).sum())  # all it knows is one class
    True
    """
    asked = learner.observed[y].nonzero().flatten()
    if len(asked) == 0:
        return torch.zeros(learner.spec.num_classes, dtype=torch.int64, device=y.device)
    answers, truth = learner.predict(x[asked]), y[asked]
    return torch.bincount(truth[answers == truth], minlength=learner.spec.num_classes)
