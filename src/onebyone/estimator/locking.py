"""Threads that share a classifier run one call at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def lock_of(shared: Any) -> threading.RLock:
    """The lock of an object that threads share. All threads get the same lock.

    It is created on first use, because the constructor of a scikit-learn estimator sets nothing but its parameters.
    ``dict.setdefault`` is atomic, so two threads cannot create two locks.
    """
    lock: threading.RLock = vars(shared).setdefault("_lock", threading.RLock())
    return lock


def synchronized(call: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorate a method so that no two synchronized methods of an object run at the same time in different threads.

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
