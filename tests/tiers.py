"""Which values of a parameter the fast tests try; the slow tier tries all."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mostly_slow(values: Iterable[Any], *, fast: Collection[Any]) -> list[Any]:
    """The values as parameters of a test, those that are not ``fast`` marked as slow."""

    def parameter(value: Any) -> Any:
        several = value if isinstance(value, tuple) else (value,)
        return value if value in fast else pytest.param(*several, marks=pytest.mark.slow)

    return [parameter(value) for value in values]
