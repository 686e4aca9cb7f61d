"""The claims of the paper about its results, each as comparisons that can be checked (``claims.yaml``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from typing import Any

import yaml

from onebyone.paper.printed import NOT_INCREMENTAL, TITLES, Part, methods_of, printed
from onebyone.paper.records import CellKey, Records
from onebyone.runs.results import Value

BETTER = {"accuracy": 1, "growth": 1, "forgetting": -1, "flops": 1}


@dataclass(frozen=True)
class Comparison:
    """``left`` leads ``right`` by more than a margin.

    The margin is ``points``, plus ``deviations`` times the larger standard deviation. A negative margin is how far
    ``left`` may be behind.
    """

    part: str
    classes_per_task: int
    memory_per_class: int
    metric: str
    left: str
    right: str
    points: float = 0.0
    deviations: float = 0.0

    def verdict(self, left: Value, right: Value) -> str:
        """``holds`` or ``fails`` if the difference is beyond the margin by two standard errors, else ``undecided``.

        >>> ahead = Comparison("table1", 1, 20, "accuracy", "ccp", "er")
        >>> [ahead.verdict(Value(mean, 1.0, 5), Value(30.0, 1.0, 5)) for mean in (31.3, 31.2, 28.7)]
        ['holds', 'undecided', 'fails']
        """
        lead = BETTER[self.metric] * (left.mean - right.mean) - self.points
        lead -= self.deviations * max(left.std, right.std)
        error = math.hypot(left.standard_error, right.standard_error)
        if abs(lead) <= 2 * error:
            return "undecided"
        return "holds" if lead > 0 else "fails"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper in our words, how we read it, and the comparisons that must all hold."""

    text: str
    where: str
    reading: str
    comparisons: tuple[Comparison, ...]
    central: bool = False  # whether it is one of those for which the paper proposes its two methods


Numbers = Callable[[Comparison, str], Value | None]  # the number of a method that a comparison needs


@dataclass(frozen=True)
class Finding:
    """Whether a claim holds for some numbers."""

    total: int
    failed: tuple[Comparison, ...]
    undecided: int
    missing: int  # comparisons whose numbers are not measured yet

    @property
    def verdict(self) -> str:
        """A claim fails if one of its comparisons fails, holds if all hold, and else is undecided."""
        if self.failed:
            return "fails"
        if self.missing == self.total:
            return "not measured"
        return "undecided" if self.undecided or self.missing else "holds"

    @property
    def why(self) -> str:
        """How many comparisons have which verdict, and those that fail. Those of the same two methods are together.

        >>> Finding(total=12, failed=(), undecided=3, missing=4).why
        '5 of 12 comparisons hold, 3 undecided, 4 not measured'
        """
        hold = self.total - len(self.failed) - self.undecided - self.missing
        numbers = {"fail": len(self.failed), "undecided": self.undecided, "not measured": self.missing}
        counts = "".join(f", {number} {name}" for name, number in numbers.items() if number)
        pairs: dict[str, list[str]] = {}
        for c in self.failed:
            pairs.setdefault(f"{TITLES[c.left]} and {TITLES[c.right]}", []).append(str(c.memory_per_class))
        where = "; ".join(f"{pair} at M = {', '.join(memories)}" for pair, memories in pairs.items())
        return f"{hold} of {self.total} comparison{'s' * (self.total > 1)} hold{counts}{f' ({where})' * bool(where)}"


def check(claim: Claim, numbers: Numbers) -> Finding:
    """Check every comparison of a claim. One that fails decides, even if others cannot be made yet."""
    pairs = [(c, numbers(c, c.left), numbers(c, c.right)) for c in claim.comparisons]
    found = [(c, c.verdict(left, right)) for c, left, right in pairs if left is not None and right is not None]
    failed = tuple(c for c, verdict in found if verdict == "fails")
    undecided = sum(verdict == "undecided" for _, verdict in found)
    return Finding(len(pairs), failed, undecided, len(pairs) - len(found))


def from_paper(comparison: Comparison, method: str) -> Value | None:
    """The numbers the paper prints."""
    return printed(comparison.part, method, comparison.memory_per_class, comparison.metric)


def from_records(records: Records, parts: Sequence[Part], protocol: str) -> Numbers:
    """The numbers we measured."""
    datasets = {part.in_print: part.dataset for part in parts}

    def look(c: Comparison, method: str) -> Value | None:
        if c.part not in datasets:
            return None
        cell = CellKey(protocol, datasets[c.part], method, c.classes_per_task, c.memory_per_class)
        return records.value(cell, c.metric)

    return look


def _comparisons(entry: Mapping[str, Any]) -> Iterator[Comparison]:
    """Each method on the left with each on the right at every M. ``others`` are all but i.i.d. and the left ones."""
    entry = dict(entry)
    memories, left, right = entry.pop("memories"), entry.pop("left"), entry.pop("right")
    if right == "others":
        right = [name for name in methods_of(entry["classes_per_task"]) if name not in (NOT_INCREMENTAL, *left)]
    for memory, one, other in product(memories, left, right):
        yield Comparison(memory_per_class=memory, left=one, right=other, **entry)


def _claim(entry: dict[str, Any]) -> Claim:
    comparisons = tuple(one for some in entry.pop("comparisons") for one in _comparisons(some))
    return Claim(entry.pop("claim"), comparisons=comparisons, **entry)


CLAIMS = tuple(map(_claim, yaml.safe_load((files("onebyone.paper") / "claims.yaml").read_text())))
