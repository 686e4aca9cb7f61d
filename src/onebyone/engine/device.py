"""Which device a run uses."""

from __future__ import annotations

import torch

from onebyone.errors import UsageError


def choose_device(name: str = "auto") -> torch.device:
    """A device by name; ``auto`` is the GPU where there is one.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"device {name!r} cannot be used ({reason}); use cpu, cuda, cuda:N or auto") from None
    return device
