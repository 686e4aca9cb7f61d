"""Many runs at once: each a generator that does a few steps a turn, so that their work overlaps on one device."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import TypeVar

import torch

T = TypeVar("T")
Steps = Generator[None, None, T]

WAIT_SECONDS = 0.5  # before a run that could not begin is tried again, where there is nothing else to do
STEPS = 4  # in a turn; runs that begin a turn apart then end their tasks apart, and are not examined all at once


class NotNow(Exception):
    """Raised by a run that cannot begin yet: another process is at it. It is tried again after those that wait."""


def pack(
    runs: Mapping[str, Callable[[], Steps[T]]],
    width: int,
    done: Callable[[str, T], None],
    failed: Callable[[str, Exception], None],
    say: Callable[[str], None] = print,
) -> None:
    """Advance up to ``width`` runs in turn; as one ends the next begins. They end and fail independently.

    A run is a function that begins it and gives a generator, which yields after every step, and while it would only
    wait, and returns its result. On a GPU a step only queues work on a stream of its own, so that the streams of all
    runs fill the device together. A run that finds no memory waits until another has ended, and so does one that raises
    ``NotNow``.

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
    waiting, live = deque(runs), dict[str, Steps[T]]()

    def turn(name: str) -> None:
        nonlocal width
        try:
            if name not in live:
                live[name] = runs[name]()
            for _ in range(STEPS):
                next(live[name])
        except StopIteration as end:
            del live[name]
            done(name, end.value)
        except NotNow:
            live.pop(name, None)
            waiting.append(name)
            if not live:
                time.sleep(WAIT_SECONDS)
        except torch.cuda.OutOfMemoryError as error:
            live.pop(name, None)
            traceback.clear_frames(error.__traceback__)  # which still hold what the run had allocated
            torch.cuda.empty_cache()
            if not live:
                failed(name, error)
                return
            width = len(live)
            waiting.appendleft(name)
            say(f"{width} runs fill the memory of the GPU; the others wait for one of them to end")
        except Exception as error:  # one run's failure is not the others'
            live.pop(name, None)
            failed(name, error)

    while waiting or live:
        for name in list(live):
            turn(name)
        if waiting and len(live) < width:
            turn(waiting.popleft())
