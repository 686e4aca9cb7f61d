"""What is copied before a step, so that a step that fails can be undone."""

import pytest
import torch
from torch import nn

import onebyone
from onebyone import nets
from onebyone.data import Spec
from onebyone.estimator.model import changeable, restored_on_error

SPEC = Spec((3, 8, 8), 4)


@pytest.mark.parametrize("method", ["ccp", "er", "icarl", "patch-lda", "hybrid"])
def test_all_of_the_state_is_changeable_but_the_rows_of_memories(method: str) -> None:
    learner = onebyone.create(method, SPEC)
    fixed = learner.state_dict().keys() - changeable(learner).keys()
    assert all(".memory." in f".{name}" for name in fixed)
    assert bool(fixed) == (method != "patch-lda")


def test_a_frozen_encoder_is_not_changeable() -> None:
    encoder = nets.Adapted(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), SPEC.shape, frozen=True)
    frozen = onebyone.create("lda", SPEC, encoder=encoder)
    names = changeable(frozen).keys()
    assert not any("encoder" in name for name in names)
    assert {name for name in frozen.state_dict() if "encoder" not in name} == names


def test_a_step_that_fails_is_undone() -> None:
    learner = onebyone.create("er", SPEC)
    x, y = torch.randint(256, (6, 3, 8, 8), dtype=torch.uint8), torch.tensor([0, 0, 1, 1, 2, 2])
    learner.observe(x, y)
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}

    def fail() -> None:
        learner.observe(x.flip(0), y)
        assert not all(torch.equal(tensor, before[name]) for name, tensor in learner.state_dict().items())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), restored_on_error(learner):
        fail()
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.state_dict().items())
