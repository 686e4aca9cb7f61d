"""Which device a run uses, and how it is set up."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from onebyone import __version__
from onebyone.errors import UsageError

KINDS = ("cpu", "cuda", "mps")
SMALL_STEP = 1e9  # floating-point operations; a step of the small network on digits has 1e8, of the ResNet 7e9


def choose_device(name: str = "auto") -> torch.device:
    """A device by name; ``auto`` is the GPU where there is one.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    # A GPU takes work from as many queues at once. With the usual 8, the runs of a pack share them: on an H200 a step
    # in a pack of 16 took 0.75 ms, and 0.68 with 32. Read when the driver starts, so said before the first use.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        if str(name).partition(":")[0] not in KINDS:  # a name that was read from a file may be anything
            raise RuntimeError("there is none that can learn")
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"device {name!r} cannot be used ({reason}); use cpu, cuda, cuda:N or auto") from None
    if device.type == "cuda":
        # Same seed, same bits: without this, cuDNN picks algorithms that add in an order of their own.
        torch.backends.cudnn.deterministic = True
    return device


def environment(device: torch.device) -> dict[str, str]:
    """What a result was made with: the machine and the versions, as far as they can change its numbers.

    >>> list(environment(torch.device("cpu")))
    ['device', 'onebyone', 'torch', 'python']
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} ({platform.machine()})"
    versions = {"onebyone": __version__, "torch": str(torch.__version__), "python": platform.python_version()}
    return {"device": name, **versions}


def milestone(device: torch.device) -> Callable[[], bool]:
    """Notes all that the device has been told to do so far; gives a function that says whether it has done it.

    >>> milestone(torch.device("cpu"))()  # which does what it is told at once
    True
    """
    if device.type != "cuda":
        return lambda: True
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event.query


@contextmanager
def suited_cpu(flops: float) -> Iterator[None]:
    """Inside, the CPU is set up for steps of so many operations; after, it is as before.

    Small steps get a single thread. A second one gains nothing on them, and loses a great deal where the machine is
    busy: the threads wait for each other at every layer (measured on 2 busy cores: 62 s for a run on digits, and 0.7 s
    with one thread). Numbers too small to matter count as zero: they are the slowest to compute with.

    >>> with suited_cpu(flops=1e6):
    ...     torch.get_num_threads()
    1
    """
    threads, flushing = torch.get_num_threads(), float(torch.full((), 1e-310, dtype=torch.float64).mul(1)) == 0
    torch.set_num_threads(1 if flops < SMALL_STEP else threads)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushing)
