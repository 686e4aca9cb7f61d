"""One seed a run, one generator a purpose: streams, first weights and learners never share a random source."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def derive(seed: int, purpose: str) -> int:
    """A seed of its own for each purpose, so that two of them with one run seed draw unrelated numbers.

    >>> derive(0, "stream") == derive(0, "stream"), derive(0, "stream") == derive(0, "learner")
    (True, False)
    """
    return zlib.crc32(f"{seed}/{purpose}".encode())


def generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator on ``device`` for one purpose of the run with this seed.

    The device ``meta``, on which tensors have shapes but no values, has none: there a CPU's stands in.
    """
    place = "cpu" if torch.device(device).type == "meta" else device
    return torch.Generator(place).manual_seed(derive(seed, purpose))


@contextmanager
def seeded(seed: int, purpose: str) -> Iterator[None]:
    """Inside, torch's global CPU generator is seeded (layers draw their first weights from it); after, it is as before.

    >>> before = torch.get_rng_state()
    >>> with seeded(0, "weights"):
    ...     _ = torch.nn.Linear(2, 2)
    >>> torch.equal(before, torch.get_rng_state())
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, purpose))
        yield
