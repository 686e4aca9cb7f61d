"""Which device a run uses, and how it is set up."""

from __future__ import annotations

import os

import torch

from onebyone.errors import UsageError

KINDS = ("cpu", "cuda", "mps")


def choose_device(name: str = "auto") -> torch.device:
    """A device by name; ``auto`` is the GPU where there is one.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    # A GPU takes work from as many queues at once; with the usual 8, a pack of 16 runs is no faster than one of 8.
    # Read when the driver starts, so it has to be said before the first use of the GPU.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type not in KINDS:
            raise RuntimeError("not a device that can learn")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"device {name!r} cannot be used ({reason}); use cpu, cuda, cuda:N or auto") from None
    if device.type == "cuda":
        # Same seed, same bits: without this, cuDNN picks algorithms that add in an order of their own.
        torch.backends.cudnn.deterministic = True
    if device.type == "cpu":
        torch.set_flush_denormal(True)  # numbers too small to matter are the slowest to compute with
    return device
