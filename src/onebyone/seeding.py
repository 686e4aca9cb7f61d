"""One seed per run, one generator per purpose: streams, initial weights and learners never share a random source."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive(seed: int, purpose: str) -> int:
    """A seed for one purpose, so that two purposes of the same run draw unrelated numbers.

    >>> derive(0, "stream") == derive(0, "stream"), derive(0, "stream") == derive(0, "learner")
    (True, False)
    """
    return zlib.crc32(f"{seed}/{purpose}".encode())


def generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator on ``device`` for one purpose of the run with this seed.

    The device ``meta``, on which tensors have shapes but no values, has no generators; it gets one of the CPU.
    """
    source = "cpu" if torch.device(device).type == "meta" else device
    return torch.Generator(source).manual_seed(derive(seed, purpose))


@contextmanager
def seeded(seed: int, purpose: str) -> Iterator[None]:
    """Inside, torch's global CPU generator is seeded, for initial weights of layers; after, its state is as before.

    >>> before = torch.get_rng_state()
    >>> with seeded(0, "weights"):
    ...     _ = torch.nn.Linear(2, 2)
    >>> torch.equal(before, torch.get_rng_state())
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, purpose))
        yield
