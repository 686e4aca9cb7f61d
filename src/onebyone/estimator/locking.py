"""One call at a time: threads that share a classifier wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def lock_of(shared: Any) -> threading.RLock:
    """The lock of an object that threads share; all of them get the same one, also if none has called it before.

    It is made when it is first asked for, because the constructor of a scikit-learn estimator sets nothing but its
    parameters. ``dict.setdefault`` is atomic, so the first of several threads decides.
    """
    lock: threading.RLock = vars(shared).setdefault("_lock", threading.RLock())
    return lock


def synchronized(call: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method during which no other synchronized method of the same object runs in another thread.

    >>> class Counter:
    ...     count = 0
    ...     @synchronized
    ...     def add(self) -> None:
    ...         self.count += 1
    >>> counter = Counter()
    >>> counter.add()
    >>> counter.count
    1
    """

    @wraps(call)
    def locked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with lock_of(self):
            return call(self, *args, **kwargs)

    return locked
