"""MIR: the replayed samples are those whose loss a step on the incoming samples would raise most."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from onebyone import Dataset, Spec, create
from onebyone.memory import Rows
from onebyone.methods.mir import MIR

LABELS = [4, 0, 4, 5, 1]


@pytest.mark.parametrize("candidates", [3, 12, 50])
@pytest.mark.parametrize("replay_from", ["all", "others"])
@pytest.mark.parametrize("memory_per_class", [2, 8], ids=["full", "half-full"])
def test_samples_with_the_largest_increase_of_loss_are_replayed(
    halfway: Callable[..., Any],
    samples: Callable[..., Any],
    memory_per_class: int,
    replay_from: str,
    candidates: int,
) -> None:
    """Against a copy of the network that takes the step; BatchNorm in training mode, no augmentation."""
    learner: MIR = halfway(
        "mir",
        memory_per_class=memory_per_class,
        replay_from=replay_from,
        candidates=candidates,
        replay_size=5,
        incoming_weight=0.5,
    )
    x, y = samples(LABELS)
    incoming = Rows(x, y, torch.ones(5))
    state = learner.generator.get_state()
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    (rows,) = learner.draw(incoming)
    changed = [name for name, tensor in learner.state_dict().items() if not torch.equal(tensor, before[name])]
    assert changed == ["_extra_state"]  # the random generator: weights, BatchNorm statistics and memory are untouched

    learner.generator.set_state(state)
    count = min(max(candidates, 5), learner.memory.capacity)
    compared = learner.memory.sample(count, learner.generator, learner.allowed(incoming))
    incoming_view = learner.view(x)
    view = learner.view(learner.fill_missing(compared, incoming).x, augment=False)
    network = deepcopy(torch.nn.Sequential(learner.encoder, learner.head))
    losses = [F.cross_entropy(network(view), compared.y, reduction="none").detach()]
    optimizer = torch.optim.SGD(network.parameters(), learner.options.learning_rate)
    (0.5 * F.cross_entropy(network(incoming_view), y)).backward()
    optimizer.step()
    losses.append(F.cross_entropy(network(view), compared.y, reduction="none").detach())
    harm = {i: float(losses[1][i] - losses[0][i]) for i in range(count) if compared.weight[i]}
    worst = sorted(harm, key=lambda i: -harm[i])[:5]

    assert rows.weight.tolist() == [1.0] * len(worst) + [0.0] * (5 - len(worst))
    assert torch.equal(rows.x[: len(worst)], compared.x[worst])
    assert torch.equal(rows.y[: len(worst)], compared.y[worst])
    if replay_from == "others":
        assert not set(rows.y[: len(worst)].tolist()) & set(LABELS)


def test_an_empty_memory_replays_nothing(few: Dataset) -> None:
    learner = create("mir", few.spec)
    x, y = few.train_x[::12], few.train_y[::12]
    (rows,) = learner.draw(Rows(x, y, torch.ones(len(y))))
    assert rows.weight.tolist() == [0.0] * 10


@pytest.mark.parametrize("encoder", ["mlp", "scaled-mlp"])
def test_a_step_without_change_increases_no_loss(encoder: str) -> None:
    """Also with an encoder that updates statistics: evaluating candidates must not change them."""
    learner = create("mir", Spec((20,), 4, torch.float32), encoder=encoder, learning_rate=1e-30)
    assert isinstance(learner, MIR)
    x = torch.randn(40, 20, generator=torch.Generator().manual_seed(0)) + torch.arange(40)[:, None]
    for part in x[:30].split(10):
        learner.observe(part, torch.arange(10) % 4)
    incoming = Rows(x[30:], torch.arange(10) % 4, torch.ones(10))
    assert not learner.harm(incoming, learner.memory.sample(20, learner.generator)).any()
