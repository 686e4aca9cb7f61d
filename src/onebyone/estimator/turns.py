"""Threads that share a classifier take turns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from onebyone.estimator.making import State


class Turn:
    """A lock that goes with what was learnt; a copy, or what is loaded from a pickle, has one of its own.

    >>> from copy import deepcopy
    >>> turn = Turn()
    >>> with turn:
    ...     deepcopy(turn) is turn
    False
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()


class Shared(Protocol):
    """What threads may share: it has no state, and so no turn, before learning begins."""

    _state: State | None


S = TypeVar("S", bound=Shared)
P = ParamSpec("P")
T = TypeVar("T")


def in_turn(call: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method during which no other one of the same object goes on in another thread."""

    @wraps(call)
    def wait(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._state.turn if self._state is not None else nullcontext():
            return call(self, *args, **kwargs)

    return wait
