from typing import Any

import pytest
import torch
from torch import nn

from onebyone import Spec, create, methods
from onebyone.engine import measure_cost
from onebyone.nets import Adapted

IMAGES = Spec(shape=(1, 8, 8), num_classes=10)
VECTORS = Spec(shape=(6,), num_classes=3, dtype=torch.float32)

# The MLP 6 -> 256 -> 128 with a linear head for 3 classes; the convolutional network for 8x8 pixels, whose
# second layer halves the image, with one for 10.
PERCEPTRON_WEIGHTS = (6 * 256 + 256) + (256 * 128 + 128) + (128 * 3 + 3)
CONV_WEIGHTS = 9 * (1 * 32 + 32 * 64 + 64 * 64) + 2 * (32 + 64 + 64) + (64 * 10 + 10)
CONV_STATISTICS = 4 * 2 * (32 + 64 + 64) + 3 * 8  # mean, variance, and a count for each BatchNorm


@pytest.mark.parametrize(
    ("method", "options", "forward", "backward"),
    [
        ("finetune", {}, 1, 1),
        ("iid", {}, 1, 1),
        ("er", {}, 2, 2),  # incoming, replayed
        ("er", {"passes": "joint"}, 2, 2),
        ("er", {"replay_size": 30}, 4, 4),
        ("icarl", {}, 3, 2),  # and the frozen copy on the replayed ones
        ("mir", {}, 1 + 2 * 5 + 2, 1 + 2),  # a virtual step, 50 candidates before and after it, then as ER
        ("mir", {"candidates": 20}, 1 + 2 * 2 + 2, 1 + 2),
        ("der++", {}, 3, 3),  # a second draw
        ("er-aml", {}, 4, 4),  # a positive and a negative for each incoming sample
        ("er-ace", {}, 2, 2),
        ("supbyol", {}, 3, 2),  # the target network on the incoming ones
        ("supbyol", {"positives": "memory"}, 3, 2),  # or on their partners
        ("supbyol", {"passes": "joint"}, 4, 2),  # whose target also sees the replayed ones
        ("ccp", {}, 2, 2),
        ("replay", {}, 2, 2),
        ("patch-lda", {}, 0, 0),  # no network
        ("lda", {}, 0, 0),  # without an encoder
        ("lda", {"encoder": Adapted(nn.Flatten(), (1, 8, 8), frozen=True), "budget": 50_000}, 1, 0),
        ("hybrid", {}, 2, 2),  # as replay
    ],
)
def test_passes_per_incoming_sample(method: str, options: dict[str, Any], forward: int, backward: int) -> None:
    cost = measure_cost(create(method, IMAGES, **options))
    assert (cost.forward_passes, cost.backward_passes) == (forward, backward)


def test_the_expected_passes_cover_every_method() -> None:
    (table,) = (mark for mark in test_passes_per_incoming_sample.pytestmark if mark.name == "parametrize")
    assert {row[0] for row in table.args[1]} == methods().keys()


def test_passes_depend_on_the_batch_size() -> None:
    assert measure_cost(create("er", IMAGES), batch_size=5).forward_passes == 3  # 5 incoming and 10 replayed
    assert measure_cost(create("er", IMAGES), batch_size=40).forward_passes == 1.25


@pytest.mark.parametrize(("method", "passes"), [("finetune", 1), ("er", 2), ("der++", 3)])
def test_flops_of_an_mlp(method: str, passes: int) -> None:
    """One multiplication and one addition per weight: forward, for its gradient, and for the gradient of its input.

    The samples themselves have no gradient. The head of DER++ runs once more, for the logits to store.
    """
    first, second, head = 6 * 256, 256 * 128, 128 * 3
    expected = passes * 2 * (2 * first + 3 * second + 3 * head) + (2 * head if method == "der++" else 0)
    assert measure_cost(create(method, VECTORS)).flops == expected


def test_flops_of_convolutions() -> None:
    first, second, third, head = 8 * 8 * 9 * 1 * 32, 4 * 4 * 9 * 32 * 64, 4 * 4 * 9 * 64 * 64, 64 * 10
    cost = measure_cost(create("finetune", IMAGES))
    assert cost.flops == 2 * (2 * first + 3 * (second + third + head))


@pytest.mark.parametrize(
    ("method", "options", "network", "memory"),
    [
        ("finetune", {}, 4 * PERCEPTRON_WEIGHTS, 0),
        # 2 samples for each of 3 classes and the blank row: 6 numbers and a label each; how many were seen
        ("er", {"memory_per_class": 2}, 4 * PERCEPTRON_WEIGHTS, 7 * (6 * 4 + 8) + 8),
        # and the logits
        ("der++", {"memory_per_class": 2}, 4 * PERCEPTRON_WEIGHTS, 7 * (6 * 4 + 8 + 3 * 4) + 8),
        # and a key for each row, a count for each class
        (
            "er",
            {"memory_per_class": 2, "memory_policy": "balanced"},
            4 * PERCEPTRON_WEIGHTS,
            7 * (6 * 4 + 8 + 4) + 8 + 3 * 8,
        ),
        # the network twice, and which classes are old
        ("icarl", {"memory_per_class": 2}, 2 * 4 * PERCEPTRON_WEIGHTS + 3, 7 * (6 * 4 + 8) + 8),
    ],
)
def test_bytes_of_an_mlp(method: str, options: dict[str, Any], network: int, memory: int) -> None:
    cost = measure_cost(create(method, VECTORS, **options))
    counters = 3 * 8 + 8  # samples seen of each class, steps
    assert (cost.network_bytes, cost.memory_bytes) == (network + counters, memory)


def test_bytes_of_convolutions_and_of_stored_images() -> None:
    cost = measure_cost(create("er", IMAGES, memory_per_class=20))
    assert cost.network_bytes == 4 * CONV_WEIGHTS + CONV_STATISTICS + 10 * 8 + 8
    assert cost.memory_bytes == 201 * (64 * 1 + 8) + 8


@pytest.mark.slow
@pytest.mark.parametrize("method", methods())
def test_measuring_changes_nothing(method: str) -> None:
    x = torch.randint(256, (10, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    y = torch.arange(10) % 3
    measured, other = (create(method, IMAGES) for _ in range(2))
    for learner in (measured, other):
        learner.observe(x, y)
    gradients = [parameter.grad for parameter in measured.parameters()]
    before = {name: value.clone() for name, value in measured.state_dict().items()}
    measure_cost(measured)
    for name, value in measured.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(new.grad is old for new, old in zip(measured.parameters(), gradients, strict=True))
    assert not any(module._forward_hooks for module in measured.modules())
    assert measured.training == other.training
    assert torch.equal(measured.observe(x, y), other.observe(x, y))
    for name, value in measured.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
