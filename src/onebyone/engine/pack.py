"""Many runs at once: each is a generator that does a few steps per turn, so that their work overlaps on one device."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import TypeVar

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
    more: Callable[[int], Mapping[str, Callable[[], Steps[T]]] | None] | None = None,
) -> None:
    """Advance up to ``width`` runs in turn; when one ends, the next starts. They end and fail independently.

    Each value of ``runs`` starts a run: it returns a generator that yields after every step, and whenever it would only
    wait, and that returns the result. On a GPU a step only queues work on a stream of its own, so the streams of all
    runs fill the device together. Constructing a run takes a while, so the others first queue more steps than usual:
    the device does these meanwhile. A run that finds no memory, or raises ``NotNow``, waits until another has ended.
    Results are passed to ``done``, exceptions to ``failed``, and messages for the user to ``say``. ``more`` is asked
    for further runs while there is room, with the number that fits; it returns None once there are no more to come.

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
    known, waiting, live = dict(runs), deque(runs), dict[str, Steps[T]]()

    def turn(name: str, steps: int = STEPS) -> None:
        nonlocal width
        try:
            if name not in live:
                live[name] = known[name]()
            for _ in range(steps):
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

    while waiting or live or more:
        if more is not None and (room := width - len(waiting) - len(live)) > 0:
            if (added := more(room)) is None:
                more = None
            else:
                known.update(added)
                waiting.extend(added)
        for name in list(live):
            turn(name)
        if waiting and len(live) < width:
            if torch.cuda.is_initialized():  # a CPU queues nothing: it would only do these steps first
                for name in list(live):
                    turn(name, AHEAD)
            turn(waiting.popleft())
