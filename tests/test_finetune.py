"""Fine-tuning and iid online: plain SGD on what comes in."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F

from onebyone import Dataset, create
from onebyone.streams import class_incremental, iid


@pytest.mark.parametrize("name", ["finetune", "iid"])
def test_a_step_is_plain_gradient_descent(few: Dataset, name: str) -> None:
    learner = create(name, few.spec, learning_rate=0.2, augment=False)
    copy, x, y = deepcopy(learner), few.train_x[::12], few.train_y[::12]
    loss = F.cross_entropy(copy.head(copy.encoder(copy.view(x))), y)
    gradients = torch.autograd.grad(loss, list(copy.parameters()))
    assert torch.equal(learner.observe(x, y), loss)
    for ours, before, gradient in zip(learner.parameters(), copy.parameters(), gradients, strict=True):
        torch.testing.assert_close(ours, before - 0.2 * gradient)


def test_finetune_forgets_and_iid_learns(digits: Dataset) -> None:
    right = {}
    for name, make in (("finetune", class_incremental), ("iid", iid)):
        learner = create(name, digits.spec, augment=False)
        assert learner.stream == ("iid" if make is iid else "disjoint")
        for index in make(digits.train_y, 10):
            learner.observe(digits.train_x[index], digits.train_y[index])
        right[name] = learner.predict(digits.test_x) == digits.test_y
    assert right["iid"].float().mean() > 0.9
    assert torch.equal(right["finetune"], digits.test_y == 9)  # all it knows is the last class
