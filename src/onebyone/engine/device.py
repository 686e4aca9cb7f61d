"""Which device a run uses, and torch's settings while it runs."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

from onebyone import __version__
from onebyone.errors import UsageError

T = TypeVar("T")
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
KINDS = ("cpu", "cuda", "mps")
SMALL_STEP = 1e9  # floating-point operations; a step of the small network on digits has 1e8, of the ResNet 7e9


def choose_device(name: str = "auto") -> torch.device:
    """A device by name; ``auto`` is the GPU where there is one. One that cannot be used raises a ``UsageError``.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        if str(name).partition(":")[0] not in KINDS:  # a name that was read from a file may be anything
            raise RuntimeError("no such kind of device")
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"device {name!r} cannot be used ({reason}); use cpu, cuda, cuda:N or auto") from None
    return device


@contextmanager
def more_queues() -> Iterator[None]:
    """Inside, CUDA starts with 32 hardware queues instead of 8; after, the environment is as before.

    The runs of a pack share the queues: on an H200 a step in a pack of 16 took 0.75 ms with 8 of them, and 0.68 with
    32. The driver reads the variable when it starts, so this does nothing once CUDA is in use.
    """
    if QUEUES in os.environ or torch.cuda.is_initialized():
        yield
        return
    os.environ[QUEUES] = "32"
    try:
        yield
    finally:
        os.environ.pop(QUEUES, None)


def environment(device: torch.device) -> dict[str, str]:
    """The machine and the versions that a result was computed with, as far as they can change its numbers.

    >>> list(environment(torch.device("cpu")))
    ['device', 'onebyone', 'torch', 'python']
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} ({platform.machine()})"
    versions = {"onebyone": __version__, "torch": str(torch.__version__), "python": platform.python_version()}
    return {"device": name, **versions}


def completion(device: torch.device) -> Callable[[], bool]:
    """A function that says whether the device has finished all work queued so far.

    >>> completion(torch.device("cpu"))()  # which queues nothing
    True
    """
    if device.type != "cuda":
        return lambda: True
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event.query


class _Setting(Generic[T]):
    """A setting that blocks share which may overlap: the first one saves it, the last one to end puts it back."""

    def __init__(self, read: Callable[[], T], write: Callable[[T], object]) -> None:
        self.read, self.write = read, write
        self.lock, self.users = threading.Lock(), 0

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Inside, the setting may be changed."""
        with self.lock:
            if self.users == 0:
                self.before = self.read()
            self.users += 1
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                if self.users == 0:
                    self.write(self.before)


class _ThreadSettings(threading.local):
    """Those that each thread has its own of."""

    def __init__(self) -> None:
        self.threads = _Setting(torch.get_num_threads, torch.set_num_threads)
        self.flushing = _Setting(_flushes_denormals, torch.set_flush_denormal)


def _flushes_denormals() -> bool:
    return float(torch.full((), 1e-310, dtype=torch.float64).mul(1)) == 0


def _set_deterministic(value: bool) -> None:
    torch.backends.cudnn.deterministic = value


_deterministic = _Setting(lambda: bool(torch.backends.cudnn.deterministic), _set_deterministic)
_of_thread = _ThreadSettings()


@contextmanager
def reproducible() -> Iterator[None]:
    """Inside, cuDNN uses deterministic algorithms: same seed, same bits. After, its flag is as before."""
    with _deterministic.kept():
        _set_deterministic(True)
        yield


@contextmanager
def torch_settings(flops: float) -> Iterator[None]:
    """Inside, torch is set up for reproducible steps of ``flops`` operations; after, all settings are as before.

    Small steps get a single thread. A second one gains nothing on them, and loses a great deal where the machine is
    busy: the threads wait for each other at every layer (measured on 2 busy cores: 62 s for a run on digits, and 0.7 s
    with one thread). Denormal numbers count as zero: they are the slowest to compute with.

    >>> with torch_settings(flops=1e6):
    ...     torch.get_num_threads()
    1
    """
    with _of_thread.threads.kept(), _of_thread.flushing.kept(), reproducible():
        if flops < SMALL_STEP:
            torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        yield
