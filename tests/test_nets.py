"""Encoders and what stands on them."""

import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from onebyone import nets
from onebyone.errors import UsageError
from onebyone.nets import Adapted, CosineHead, cosine, multilayer, separate_batches, unit
from onebyone.nets.conv import SmallConv
from onebyone.nets.normalization import LoneBatchNorm1d, LoneBatchNorm2d, Standardize

ENCODERS = {"resnet18": 160, "conv": 64, "mlp": 128, "scaled-mlp": 128}
SHAPES = [(1, 8, 8), (3, 32, 32), (1, 28, 28), (3, 84, 84), (4, 9, 17), (2, 1, 1)]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ENCODERS)
def test_any_image_and_any_number_of_them(name: str, shape: tuple[int, ...], count: int, training: bool) -> None:
    net = nets.create(name, shape).train(training)
    features = net(torch.rand(count, *shape))
    assert features.shape == (count, net.width) == (count, ENCODERS[name])
    assert features.isfinite().all()


def test_the_names_are_those_tested() -> None:
    assert set(nets.encoders()) == set(ENCODERS)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((20,), "MLP"), ((1, 8, 8), "SmallConv"), ((3, 23, 40), "SmallConv"), ((3, 24, 24), "ResNet18")],
    ids=str,
)
def test_auto(shape: tuple[int, ...], expected: str) -> None:
    assert type(nets.create("auto", shape)).__name__ == expected


@pytest.mark.parametrize(("name", "shape"), [("resnet18", (3, 16, 16)), ("conv", (1, 8, 8)), ("mlp", (20,))])
def test_gradients_reach_every_weight(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    net = nets.create(name, shape)
    net(torch.randn(8, *shape)).square().sum().backward()
    for weight in net.parameters():
        assert weight.grad is not None
        assert weight.grad.any()


@pytest.mark.parametrize("sizes", [[4, 4], [3, 1, 5], [1, 1], [6]], ids=str)
@pytest.mark.parametrize("name", [name for name in ENCODERS if nets.create(name, (1, 8, 8)).one_pass])
def test_batches_apart_are_as_many_passes(name: str, sizes: list[int]) -> None:
    """Features, gradients and running statistics, of an encoder with a projector on top."""
    torch.manual_seed(0)
    net = nets.create(name, (3, 9, 9))
    one = nn.Sequential(net, multilayer(net.width, 16, 8)).double()
    many = deepcopy(one)
    x = torch.randn(sum(sizes), 3, 9, 9, dtype=torch.float64)
    with separate_batches(sizes):
        together = one(x)
    separate = torch.cat([many(part) for part in x.split(sizes)])
    torch.testing.assert_close(together, separate, rtol=1e-9, atol=1e-9)
    for features in (together, separate):
        features.pow(3).sum().backward()
    for (name, mine), theirs in zip(one.named_parameters(), many.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-8, atol=1e-8, msg=name)
    for mine, theirs in zip(one.buffers(), many.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 3])
def test_resnet18_is_the_reduced_one(channels: int) -> None:
    """20 filters, doubled three times; counted by hand: convolutions, and two numbers a channel for BatchNorm."""
    expected, inputs = channels * 20 * 9 + 2 * 20, 20
    for outputs in (20, 40, 80, 160):
        expected += (inputs + 3 * outputs) * outputs * 9 + 4 * 2 * outputs
        expected += (inputs * outputs + 2 * outputs) * (inputs != outputs)  # the shortcut
        inputs = outputs
    assert sum(weight.numel() for weight in nets.create("resnet18", (channels, 32, 32)).parameters()) == expected
    assert 1.05e6 < expected < 1.1e6


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet", "unknown encoder 'resnet'; did you mean 'resnet18'"),
        ("cnov", "unknown encoder 'cnov'; did you mean 'conv'"),
        ("resnet18", "encoder 'resnet18' reads images, and the samples are vectors of 20; use encoder=mlp"),
    ],
)
def test_what_cannot_be_built_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        nets.create(name, (20,))


@pytest.mark.parametrize(
    ("ours", "original", "shape"),
    [(LoneBatchNorm1d, nn.BatchNorm1d, ()), (LoneBatchNorm2d, nn.BatchNorm2d, (1, 1))],
)
def test_lone_batch_norm(ours: type[nn.Module], original: type[nn.Module], shape: tuple[int, ...]) -> None:
    """BatchNorm itself for more than one value a channel; for one, the running statistics, left as they are."""

    def same(a: nn.Module, b: nn.Module) -> bool:  # but for the counter of batches, which is left out on purpose
        names = ("weight", "bias", "running_mean", "running_var")
        return all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)

    torch.manual_seed(0)
    norm, reference = ours(4), original(4)
    for count in (2, 9):
        x = 3 + 2 * torch.randn(count, 4, *shape)
        assert torch.equal(norm(x), reference(x))
    assert same(norm, reference)
    if shape:
        image = torch.randn(1, 4, 2, 3)
        assert torch.equal(norm(image), reference(image))
    lone = torch.randn(1, 4, *shape)
    assert torch.equal(norm(lone), reference.eval()(lone))
    assert torch.equal(norm.eval()(lone), reference(lone))
    assert same(norm, reference)


@pytest.mark.parametrize("count", [1, 5])
def test_multilayer(count: int) -> None:
    net = multilayer(6, 7, 8)
    out = net(torch.randn(count, 6))
    assert out.shape == (count, 8)
    assert isinstance(net[1], LoneBatchNorm1d)
    assert net[1].num_features == 7


def test_cosine() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(4, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    expected = [[float(x @ y / (0.3 * x.norm() * y.norm())) for y in b] for x in a]
    torch.testing.assert_close(cosine(a, b, 0.3), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("length", [0.0, 1e-30, 1e-6])
def test_a_vanishing_vector_has_a_finite_direction_and_gradient(length: float) -> None:
    x = torch.full((1, 3), length, requires_grad=True)
    unit(x).sum().backward()
    assert unit(x).norm() <= 1
    assert x.grad is not None
    assert x.grad.abs().max() <= 1e6 + 1


def test_cosine_head() -> None:
    """A score a class, its vectors of length one at the start, blind to the length of features."""
    torch.manual_seed(0)
    head, features = CosineHead(6, num_classes=4, temperature=0.5), torch.randn(3, 6)
    torch.testing.assert_close(head.weight.norm(dim=1), torch.ones(4))
    torch.testing.assert_close(head(features), cosine(features, head.weight, 0.5))
    torch.testing.assert_close(head(features), head(7 * features))


@pytest.mark.parametrize("sizes", [[30], [1] * 30, [1, 9, 20]], ids=str)
def test_standardize_knows_mean_and_spread_of_all_it_was_shown(sizes: list[int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(30, 4) * torch.tensor([1e-6, 1.0, 1e4, 0.0]) + torch.tensor([1.0, -2.0, 3e6, 0.1])
    x[:, 0] -= 1
    scale = Standardize((4,))
    for part in x.split(sizes):
        answer = scale(part)
        assert answer.isfinite().all()
    torch.testing.assert_close(scale.mean, x.mean(0), rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(scale.variance[:3], x.var(0, correction=0)[:3], rtol=1e-3, atol=0.0)
    seen = {name: tensor.clone() for name, tensor in scale.state_dict().items()}
    answer = scale.eval()(x)
    torch.testing.assert_close(answer[:, :3].std(0, correction=0), torch.ones(3), rtol=1e-3, atol=0.0)
    assert answer[:, 3].abs().max() < 1e-6  # a constant is centred, and its rounding is not blown up
    assert all(torch.equal(tensor, seen[name]) for name, tensor in scale.state_dict().items())


def test_a_module_as_an_encoder() -> None:
    module = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Dropout())
    encoder = Adapted(module, (3, 8, 8))
    assert encoder.width == 5 * 6 * 6
    assert encoder(torch.rand(4, 3, 8, 8)).shape == (4, encoder.width)
    assert encoder.training
    assert encoder.module[1].num_batches_tracked == 1  # asking for the width left no trace
    copy, x = nets.create(encoder, (3, 8, 8)), torch.rand(2, 3, 8, 8)
    assert copy is not encoder
    assert torch.equal(copy.eval()(x), encoder.eval()(x))


def test_a_frozen_module_does_not_change() -> None:
    encoder = Adapted(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout()), (3,), frozen=True)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    x = torch.rand(7, 3)
    assert torch.equal(encoder.train()(x), encoder(x))
    assert not any(weight.requires_grad for weight in encoder.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())


@pytest.mark.parametrize("rescale", [True, False])
def test_a_frozen_module_may_learn_the_scale_of_samples(rescale: bool) -> None:
    encoder = Adapted(nn.Sequential(Standardize((3,)), nn.BatchNorm1d(3)), (3,), frozen=True, rescale=rescale)
    encoder(torch.rand(7, 3) + 5)
    encoder.eval()(torch.rand(7, 3))
    encoder.train()(torch.rand(4, 3) + 5)
    scale, norm = encoder.module
    assert int(scale.count) == (11 if rescale else 0)
    assert (scale.mean > 1).all() == rescale
    assert not norm.running_mean.any()


def test_a_frozen_module_reads_a_large_batch_in_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only if samples do not depend on each other: not if the module still learns a scale."""
    sizes: list[int] = []
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4))
    module.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    monkeypatch.setattr("onebyone.nets.adapted.SMALL", 3 * 12)
    x = torch.rand(8, 3, 2, 2)
    for frozen, expected in [(True, [3, 3, 2]), (False, [8])]:
        encoder = Adapted(module, (3, 2, 2), frozen=frozen)
        sizes.clear()
        torch.testing.assert_close(encoder(x), deepcopy(module).train(not frozen)(x))
        assert sizes[: len(expected)] == expected
    rescaled = Adapted(nn.Sequential(Standardize((3, 2, 2)), nn.Flatten()), (3, 2, 2), frozen=True, rescale=True)
    torch.testing.assert_close(rescaled(x).std(0, correction=0), torch.ones(12))
    assert Adapted(module, (3, 2, 2), frozen=True)(x[:0]).shape == (0, 4)


def test_timm_is_named_by_its_prefix_only(timm: list[tuple[Any, ...]]) -> None:
    assert isinstance(nets.create("conv", (1, 8, 8)), SmallConv)
    assert timm == []
    network = nets.create("timm:conv", (1, 8, 8))
    assert isinstance(network, Adapted)
    assert network.width == 5
    assert timm == [("conv", True, 0)]
    with pytest.raises(UsageError, match=r"unknown encoder 'tiny'; .* write 'timm:tiny'"):
        nets.create("tiny", (1, 8, 8))
    with pytest.raises(UsageError, match="timm has no model 'tinny'"):
        nets.create("timm:tinny", (1, 8, 8))


@pytest.mark.parametrize("missing", ["timm", "torchvision"])
def test_a_package_that_timm_needs_is_named(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """timm imports torchvision: without it the import of timm itself fails."""
    (tmp_path / "timm.py").write_text("import torchvision")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError, match=f"needs the package {missing}, .*pip install {missing}"):
        nets.create("timm:resnet18", (3, 32, 32))
    with pytest.raises(UsageError, match="unknown encoder 'resnet50'; did you mean 'resnet18'"):
        nets.create("resnet50", (3, 32, 32))
