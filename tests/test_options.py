"""Options: from texts, checked, described."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from onebyone.errors import UsageError
from onebyone.methods import methods
from onebyone.options import Checked, describe, option, parse


@dataclass(frozen=True, kw_only=True)
class Example(Checked):
    count: int = option(3, "a count", low=1, high=9)
    rate: float = option(0.5, "a rate", above=0, high=1)
    share: float = option(0.0, "a share", low=0)
    part: float = option(0.0, "a part", high=1)
    free: float = option(0.0, "any number")
    deep: bool = option(False, "a choice of two")
    name: str = option("auto", "a name")
    mode: Literal["fast", "slow"] = option("fast", "a choice of some")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "5", 5),
        ("rate", "0.25", 0.25),
        ("rate", "1e-3", 0.001),
        ("rate", "1", 1.0),
        ("free", "-inf", float("-inf")),
        *[("deep", text, True) for text in ("true", "Yes", "1", "ON")],
        *[("deep", text, False) for text in ("False", "no", "0", "off")],
        ("name", "anything", "anything"),
        ("mode", "slow", "slow"),
    ],
)
def test_parse(name: str, text: str, value: Any) -> None:
    parsed = getattr(parse(Example, {name: text}), name)
    assert parsed == value
    assert type(parsed) is type(value)
    assert parse(Example, {name: text}) == Example(**{name: value})


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"count": "five"}, "count is 'five'; it must be a whole number"),
        ({"count": "5.0"}, "count is '5.0'; it must be a whole number"),
        ({"rate": "much"}, "rate is 'much'; it must be a number"),
        ({"deep": "maybe"}, "deep is 'maybe'; it must be yes or no"),
        ({"mode": "fats"}, "unknown mode 'fats'; did you mean 'fast'? Known: fast, slow"),
        ({"count": "0"}, "count is 0; it must be at least 1"),
        ({"rate": "nan"}, "rate is nan; it must be above 0"),
        ({"coutn": "5"}, "unknown knob 'coutn'; did you mean 'count'? Known: count, deep, "),
        ({"zzzz": "5"}, "unknown knob 'zzzz'; Known: count, deep, "),
    ],
)
def test_texts_that_are_refused(texts: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(Example, texts, "knob")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "count is 0; it must be at least 1"),
        ({"count": 10}, "count is 10; it must be at most 9"),
        ({"rate": 0.0}, "rate is 0.0; it must be above 0"),
        ({"rate": 1.5}, "rate is 1.5; it must be at most 1"),
        ({"rate": float("nan")}, "rate is nan; it must be above 0"),
        ({"share": float("nan")}, "share is nan; it must be at least 0"),
        ({"part": float("nan")}, "part is nan; it must be at most 1"),
        ({"count": 5.0}, "count is 5.0; it must be a whole number"),
        ({"count": True}, "count is True; it must be a whole number"),
        ({"count": "5"}, "count is '5'; it must be a whole number"),
        ({"rate": True}, "rate is True; it must be a number"),
        ({"rate": None}, "rate is None; it must be a number"),
        ({"deep": "no"}, "deep is 'no'; it must be yes or no"),
        ({"deep": 1}, "deep is 1; it must be yes or no"),
        ({"name": 3}, "name is 3; it must be a name"),
        ({"mode": "other"}, "unknown mode 'other'; Known: fast, slow"),
    ],
)
def test_values_that_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Example(**values)
    assert str(caught.value) == message


@pytest.mark.parametrize("values", [{"count": 1}, {"count": 9}, {"rate": 1}, {"rate": 1e-9}, {"free": -1e9}])
def test_values_at_the_bounds(values: dict[str, Any]) -> None:
    assert vars(Example(**values)) == vars(Example()) | values


def test_describe() -> None:
    assert describe(Example) == [
        ("count", "a whole number", "3", "a count"),
        ("rate", "a number", "0.5", "a rate"),
        ("share", "a number", "0.0", "a share"),
        ("part", "a number", "0.0", "a part"),
        ("free", "a number", "0.0", "any number"),
        ("deep", "yes or no", "no", "a choice of two"),
        ("name", "a name", "auto", "a name"),
        ("mode", "fast | slow", "fast", "a choice of some"),
    ]


@pytest.mark.parametrize("name", methods())
def test_options_are_documented_with_their_defaults(name: str) -> None:
    kind = methods()[name].options
    described = describe(kind)
    assert all(sentence for *_, sentence in described)
    assert parse(kind, {option: default for option, _, default, _ in described}) == kind()
