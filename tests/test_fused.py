"""Convolution, BatchNorm, shortcut and ReLU as one function. Its kernels need a GPU, or Triton's interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from onebyone.nets import create, fused, kernels
from onebyone.nets.normalization import LoneBatchNorm2d, current_parts, separate_batches


def layers(inputs: int = 3, outputs: int = 4, stride: int = 1) -> tuple[nn.Conv2d, LoneBatchNorm2d]:
    torch.manual_seed(0)
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), LoneBatchNorm2d(outputs)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_it_is_its_parts_one_after_another(residual: bool, relu: bool) -> None:
    (conv, norm), x = layers(), torch.randn(6, 3, 5, 5)
    shortcut = torch.randn(6, 4, 5, 5) if residual else None
    with separate_batches([3, 3]):
        expected = norm(conv(x))
        found = fused.conv_norm(conv, norm, x, shortcut, relu)
    expected = expected if shortcut is None else expected + shortcut
    assert torch.equal(found, F.relu(expected) if relu else expected)


def test_its_gradients() -> None:
    conv, norm = (layer.double() for layer in layers(2, 3, stride=2))
    x = torch.randn(4, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    shortcut = torch.randn(4, 3, 2, 2, dtype=torch.float64, requires_grad=True)

    def function(x: torch.Tensor, shortcut: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        with separate_batches([2, 2]):
            return fused.conv_norm(conv, norm, x, shortcut)

    assert torch.autograd.gradcheck(function, (x, shortcut, conv.weight, norm.weight, norm.bias))


def test_parts_of_equal_size_are_counted() -> None:
    assert current_parts(7) == 1
    for sizes, parts in [([5, 5], 2), ([2, 2, 2], 3), ([5, 6], 0)]:
        with separate_batches(sizes):
            assert current_parts(sum(sizes)) == parts


def test_kernels_are_for_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "AVAILABLE", True)
    conv, norm = layers()
    assert fused.kernel_parts(conv, norm, torch.randn(2, 3, 4, 4)) == 0


def test_kernels_that_cannot_be_compiled_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no compiler\nat all")

    monkeypatch.setattr(fused, "by_kernels", fail)
    fused.kernels_work.cache_clear()
    before = torch.get_rng_state()
    with pytest.warns(UserWarning, match=r"cannot be used \(no compiler\); steps on cpu") as told:
        found = [fused.kernels_work(torch.device("cpu")) for _ in range(2)]
    assert found == [False, False]
    assert len(told) == 1
    assert torch.equal(torch.get_rng_state(), before)  # no global random number was drawn
    fused.kernels_work.cache_clear()


def test_the_stem_and_all_blocks_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    original = fused.conv_norm
    monkeypatch.setattr("onebyone.nets.resnet.conv_norm", lambda *a, **k: (calls.append(a), original(*a, **k))[1])
    network = create("resnet18", (3, 32, 32))
    network(torch.randn(2, 3, 32, 32))
    convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    assert {id(call[0]) for call in calls} == {id(module) for module in convolutions}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton, which only PyTorch for CUDA brings along")
def test_the_kernels_in_tritons_interpreter() -> None:
    script = Path(__file__).parent / "interpreted_kernels.py"
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-5
