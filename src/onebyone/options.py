"""Options as frozen dataclasses: each field has a type, a default, a description, and bounds that are checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from onebyone.errors import UsageError, unknown

T = TypeVar("T")
TRUE, FALSE = ("true", "yes", "1", "on"), ("false", "no", "0", "off")
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
HINTS: dict[type[Any], dict[str, Any]] = {}


def option(
    default: T, help: str, *, low: float | None = None, above: float | None = None, high: float | None = None
) -> T:
    """A field of a dataclass of options.

    Parameters
    ----------
    default
        Its value if none is given.
    help
        What it means, as the command line and the documentation show it.
    low, above, high
        Bounds that are checked: at least ``low``, more than ``above``, at most ``high``.

    Returns
    -------
    Field
        For the class body: ``rate: float = option(0.1, "step size", above=0)``.
    """
    metadata = {"help": help, "low": low, "above": above, "high": high}
    return field(default=default, metadata=metadata)  # type: ignore[no-any-return, call-overload, unused-ignore]


def hints_of(kind: type[Any]) -> dict[str, Any]:
    """The types of the fields. They are read once, because reading them takes a millisecond."""
    if kind not in HINTS:
        HINTS[kind] = get_type_hints(kind)
    return HINTS[kind]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A base for options: a wrong value raises a ``UsageError`` when the object is created.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Sizes(Checked):
    ...     width: int = option(3, "how wide", low=1)
    >>> Sizes(width=0)
    Traceback (most recent call last):
        ...
    onebyone.errors.UsageError: width is 0; it must be at least 1
    """

    def __post_init__(self) -> None:
        hints = hints_of(type(self))
        for item in fields(self):
            _check(item, getattr(self, item.name), hints[item.name])


def parse(kind: type[T], texts: Mapping[str, str], what: str = "option") -> T:
    """Options of type ``kind`` from strings, as the command line gets them; wrong ones raise a ``UsageError``.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Sizes(Checked):
    ...     width: int = option(3, "how wide")
    ...     deep: bool = option(False, "how deep")
    >>> parse(Sizes, {"width": "5", "deep": "yes"})
    Sizes(width=5, deep=True)
    >>> parse(Sizes, {"widht": "5"})
    Traceback (most recent call last):
        ...
    onebyone.errors.UsageError: unknown option 'widht'; did you mean 'width'? Known: deep, width
    """
    hints = hints_of(kind)
    known = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    for name in texts:
        if name not in known:
            raise unknown(what, name, known)
    return kind(**{name: _convert(name, text, hints[name]) for name, text in texts.items()})


def describe(kind: type[Any]) -> list[tuple[str, str, str, str]]:
    """Name, type, default and description of every field, to be printed."""
    hints = hints_of(kind)
    return [
        (item.name, _type_name(hints[item.name]), _show(item.default), item.metadata.get("help", ""))
        for item in fields(kind)
    ]


def _convert(name: str, text: str, hint: Any) -> Any:
    if hint is bool:
        if text.lower() in (*TRUE, *FALSE):
            return text.lower() in TRUE
    elif hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            pass
    else:
        return text
    raise UsageError(f"{name} is {text!r}; it must be {_type_name(hint)}")


def _check(item: Field[Any], value: Any, hint: Any) -> None:
    name = item.name
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise unknown(name, str(value), get_args(hint))
        return
    if isinstance(hint, UnionType) and not isinstance(value, hint):
        raise UsageError(f"{name} is {value!r}; it must be {_type_name(hint)}")
    if hint in (bool, int, float, str):
        allowed = (int, float) if hint is float else hint
        if not isinstance(value, allowed) or (isinstance(value, bool) and hint is not bool):  # True is an int
            raise UsageError(f"{name} is {value!r}; it must be {_type_name(hint)}")
        low, above, high = (item.metadata.get(bound) for bound in ("low", "above", "high"))
        if low is not None and not value >= low:  # so that NaN is refused too
            raise UsageError(f"{name} is {value}; it must be at least {low}")
        if above is not None and not value > above:
            raise UsageError(f"{name} is {value}; it must be above {above}")
        if high is not None and not value <= high:
            raise UsageError(f"{name} is {value}; it must be at most {high}")


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " | ".join(get_args(hint))
    if isinstance(hint, UnionType):
        return " or ".join(map(_type_name, get_args(hint)))
    names = {bool: "yes or no", int: "a whole number", float: "a number", str: "a name"}
    return names.get(hint, f"an {hint.__name__}" if isinstance(hint, type) else str(hint))


def _show(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def at_least_one(**numbers: int | None) -> None:
    """Refuse numbers below 1; None is for the default."""
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}; it must be at least 1")


def number_of_bytes(size: str, name: str) -> int:
    """The number of bytes that a size such as ``3MB`` stands for; ``name`` is used in error messages.

    >>> number_of_bytes("1.5 MB", "memory")
    1500000
    """
    found = re.fullmatch(r"(\d+\.?\d*) *([KMG]?B)", size.upper())
    if found is None:
        raise UsageError(f"{name} is {size!r}; give a size as '3MB' or '500KB'")
    count = int(float(found[1]) * UNITS[found[2]])
    if count == 0:
        raise UsageError(f"{name} is {size!r}, which is less than a byte; give a size as '3MB' or '500KB'")
    return count
