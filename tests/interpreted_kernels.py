"""The Triton kernels against PyTorch in float64, on a CPU. Run with TRITON_INTERPRET=1; prints the largest error.

A script of its own, because Triton reads the variable when it is imported.
"""

import itertools
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onebyone.nets import fused
from onebyone.nets.normalization import LoneBatchNorm2d, separate_batches

# inputs, outputs, side of the kernel, stride, side of the images, images, parts
LAYERS = [(3, 20, 3, 1, 8, 4, 1), (20, 20, 3, 1, 8, 10, 2), (20, 40, 3, 2, 8, 4, 2), (20, 40, 1, 2, 8, 4, 2),
          (40, 40, 3, 1, 6, 6, 3), (80, 160, 3, 2, 4, 4, 2)]  # fmt: skip


def layer_errors(
    inputs: int, outputs: int, side: int, stride: int, large: int, images: int, parts: int, residual: bool, relu: bool
) -> list[float]:
    torch.manual_seed(0)
    conv = nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False).to(memory_format=torch.channels_last)
    norm = LoneBatchNorm2d(outputs)
    nn.init.uniform_(norm.weight, 0.5, 2)
    nn.init.normal_(norm.bias)
    x, shape = torch.randn(images, inputs, large, large), (images, outputs, large // stride, large // stride)
    shortcut, gradient = torch.randn(shape) if residual else None, torch.randn(shape)
    found: list[list[Tensor]] = []
    for exact in (True, False):
        own_conv, own_norm = deepcopy(conv), deepcopy(norm)
        own_x, own_shortcut = (
            x.clone().requires_grad_(),
            None if shortcut is None else shortcut.clone().requires_grad_(),
        )
        if exact:
            with separate_batches([images // parts] * parts):
                out = own_norm.double()(own_conv.double()(own_x.double()))
            out = out if own_shortcut is None else out + own_shortcut
            out = F.relu(out) if relu else out
        else:
            out = fused.by_kernels(own_conv, own_norm, own_x, own_shortcut, relu, parts)
        out.backward(gradient.to(out))
        tensors = [out, own_x.grad, own_conv.weight.grad, own_norm.weight.grad, own_norm.bias.grad]
        tensors += [own_norm.running_mean, own_norm.running_var, None if own_shortcut is None else own_shortcut.grad]
        found.append([tensor.detach().double() for tensor in tensors if tensor is not None])
    return [float((a - b).norm() / a.norm()) for a, b in zip(*found, strict=True)]


def main() -> None:
    torch.backends.cudnn.allow_tf32 = False
    errors = [
        error
        for layer, residual in itertools.product(LAYERS, (True, False))
        for error in layer_errors(*layer, residual=residual, relu=layer[2] == 3)
    ]
    print(max(errors))


if __name__ == "__main__":
    main()
