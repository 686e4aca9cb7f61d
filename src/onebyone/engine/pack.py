"""Many runs at once: each a generator that does a step a turn, so that their work overlaps on one device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import TypeVar

import torch

T = TypeVar("T")
Steps = Generator[None, None, T]


def pack(
    runs: Mapping[str, Callable[[], Steps[T]]],
    width: int,
    done: Callable[[str, T], None],
    failed: Callable[[str, Exception], None],
    say: Callable[[str], None] = print,
) -> None:
    """Advance up to ``width`` runs in turn; as one ends the next begins. They end and fail independently.

    A run is a function that begins it and gives a generator, which yields after every step and returns its result. On
    a GPU a step only queues work on a stream of its own, so that the streams of all runs fill the device together. A
    run that finds no memory waits until another has ended.

    >>> def count(steps):
    ...     for _ in range(steps):
    ...         yield
    ...     return steps
    >>> runs = {"long": lambda: count(5), "short": lambda: count(1), "late": lambda: count(1)}
    >>> pack(runs, 2, done=lambda name, result: print(name, result), failed=lambda name, error: None)
    short 1
    late 1
    long 5
    """
    waiting, live = deque(runs), dict[str, Steps[T]]()
    while waiting or live:
        while waiting and len(live) < width:
            live[waiting[0]] = runs[waiting[0]]()
            waiting.popleft()
        for name, steps in list(live.items()):
            try:
                next(steps)
            except StopIteration as end:
                del live[name]
                done(name, end.value)
            except torch.cuda.OutOfMemoryError as error:
                del live[name], steps
                torch.cuda.empty_cache()
                if live:
                    width = len(live)
                    say(f"{width} runs fill the memory of the GPU; the others wait for one of them to end")
                    waiting.appendleft(name)
                else:
                    failed(name, error)
            except Exception as error:  # one run's failure is not the others'
                del live[name]
                failed(name, error)
