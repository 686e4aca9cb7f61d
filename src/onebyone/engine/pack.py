"""Many runs at once: each is a generator that does a few steps per turn, so that their work overlaps on one device."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Generic, TypeVar

import torch

T = TypeVar("T")
Steps = Generator[None, None, T]

WAIT_SECONDS = 0.5  # before a run that could not start is tried again, if no other run is active
AHEAD = 64  # steps that a GPU is given of each active run before another run is constructed, which takes as long
STEPS = 4  # per turn; runs start one turn after another, so that they are not all evaluated at the same time


class NotNow(Exception):
    """Raised by a run that cannot start yet because another process has it. It is tried again after those that wait."""


def pack(
    runs: Mapping[str, Callable[[], Steps[T]]],
    width: int,
    done: Callable[[str, T], None],
    failed: Callable[[str, Exception], None],
    say: Callable[[str], None] = print,
) -> None:
    """Advance up to ``width`` runs in turn; when one ends, the next starts. They end and fail independently.

    Each value of ``runs`` starts a run: it returns a generator that yields after every step, and whenever it would only
    wait, and that returns the result. On a GPU a step only queues work on a stream of its own, so the streams of all
    runs fill the device together. Constructing a run takes a while, so the others first queue more steps than usual:
    the device does these meanwhile. A run that finds no memory, or raises ``NotNow``, waits until another has ended.
    Results are passed to ``done``, exceptions to ``failed``, and messages for the user to ``say``.

    >>> def count(steps):
    ...     for _ in range(steps):
    ...         yield
    ...     return steps
    >>> runs = {"long": lambda: count(50), "short": lambda: count(1), "late": lambda: count(1)}
    >>> pack(runs, 2, done=lambda name, result: print(name, result), failed=lambda name, error: None)
    short 1
    late 1
    long 50
    """
    packed = Pack(width, done, failed, say)
    packed.add(runs)
    while packed.waiting or packed.live:
        packed.turn()


class Pack(Generic[T]):
    """The runs of a pack that wait, and those that are active."""

    def __init__(
        self,
        width: int,
        done: Callable[[str, T], None],
        failed: Callable[[str, Exception], None],
        say: Callable[[str], None],
    ) -> None:
        self.width, self.done, self.failed, self.say = width, done, failed, say
        self.known: dict[str, Callable[[], Steps[T]]] = {}
        self.waiting: deque[str] = deque()
        self.live: dict[str, Steps[T]] = {}

    def add(self, runs: Mapping[str, Callable[[], Steps[T]]]) -> None:
        self.known.update(runs)
        self.waiting.extend(runs)

    def turn(self) -> None:
        """Advance every active run, and start another one if there is room."""
        for name in list(self.live):
            self.advance(name, STEPS)
        if self.waiting and len(self.live) < self.width:
            if torch.cuda.is_initialized():  # a CPU queues nothing: it would only do these steps first
                for name in list(self.live):
                    self.advance(name, AHEAD)
            self.advance(self.waiting.popleft(), STEPS)

    def advance(self, name: str, steps: int) -> None:
        """Do some steps of a run, which is started if it is not active. It may end."""
        try:
            if name not in self.live:
                self.live[name] = self.known[name]()
            for _ in range(steps):
                next(self.live[name])
        except StopIteration as end:
            del self.live[name]
            self.done(name, end.value)
        except NotNow:
            self.live.pop(name, None)
            self.waiting.append(name)
            if not self.live:
                time.sleep(WAIT_SECONDS)
        except torch.cuda.OutOfMemoryError as error:
            self.live.pop(name, None)
            traceback.clear_frames(error.__traceback__)  # which still hold what the run had allocated
            torch.cuda.empty_cache()
            if not self.live:
                self.failed(name, error)
                return
            self.width = len(self.live)
            self.waiting.appendleft(name)
            self.say(f"{self.width} runs fill the memory of the GPU; the others wait for one of them to end")
        except Exception as error:  # one run's failure is not the others'
            self.live.pop(name, None)
            self.failed(name, error)
