"""What the paper says of its results in words, each claim as comparisons that can be checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from onebyone.paper.printed import NOT_INCREMENTAL, OURS, TITLES, Part, methods_of, printed
from onebyone.paper.records import CellKey, Records
from onebyone.runs.results import Value

ALL = (5, 20, 50, 100)
CLOSE = 2.0  # points behind: "matches", "close to" and "competitive"
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
        >>> [ahead.verdict(Value(mean, 1.0, 5), Value(30.0, 1.0, 5)) for mean in (31.5, 31.4, 28.5)]
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
        """A claim fails if one of its comparisons fails, and holds if all hold."""
        if self.failed:
            return "fails"
        if self.missing:
            return "not measured" if self.missing == self.total else "partly measured"
        return "undecided" if self.undecided else "holds"

    @property
    def counts(self) -> str:
        """How many comparisons have which verdict.

        >>> Finding(total=12, failed=(), undecided=3, missing=4).counts
        '12 comparisons: 5 hold, 3 undecided, 4 not measured'
        """
        hold = self.total - len(self.failed) - self.undecided - self.missing
        numbers = {"hold": hold, "fail": len(self.failed), "undecided": self.undecided, "not measured": self.missing}
        found = ", ".join(f"{number} {name}" for name, number in numbers.items() if number)
        return f"{self.total} comparison{'s' * (self.total > 1)}: {found}"

    @property
    def where(self) -> list[str]:
        """The comparisons that fail. Those of the same two methods are together."""
        pairs: dict[str, list[str]] = {}
        for c in self.failed:
            pairs.setdefault(f"{TITLES[c.left]} and {TITLES[c.right]}", []).append(str(c.memory_per_class))
        return [f"{pair} at M = {', '.join(memories)}" for pair, memories in pairs.items()]


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


def _others(classes_per_task: int, without: Iterable[str]) -> list[str]:
    """The methods of a table, without i.i.d. training and without those named."""
    return [name for name in methods_of(classes_per_task) if name not in (NOT_INCREMENTAL, *without)]


def _table(
    part: str,
    classes_per_task: int,
    left: Iterable[str],
    right: Iterable[str],
    metric: str,
    memories: Iterable[int] = ALL,
    **margin: float,
) -> tuple[Comparison, ...]:
    """Each of ``left`` with each of ``right`` at every M."""
    return tuple(
        Comparison(part, classes_per_task, memory, metric, one, other, **margin)
        for memory, one, other in product(memories, left, right)
    )


_table1 = partial(_table, "table1", 1)
_table2 = partial(_table, "table2", 2)
_one_by_one = partial(_table, "figure1", 1, memories=(100,))
_five_each = partial(_table, "figure1", 5, memories=(100,))
_printed_forgetting = (20, 50, 100)
_CLEAR = "ahead by more than twice the larger standard deviation"

CLAIMS = (
    Claim(
        "With one class per task, SupBYOL and CCP are more accurate than all other methods by a considerable margin.",
        "caption of table 1, and section 3",
        f"{_CLEAR} of the two, at every M",
        _table1(OURS, _others(1, OURS), "accuracy", deviations=2),
        central=True,
    ),
    Claim(
        "With one class per task, SupBYOL and CCP forget less than all other methods by a considerable margin.",
        "caption of table 1, and section 3",
        f"{_CLEAR} of the two, at every M with a printed number",
        _table1(OURS, _others(1, OURS), "forgetting", _printed_forgetting, deviations=2),
        central=True,
    ),
    Claim(
        "With one class per task, CCP is the most accurate method at every memory size.",
        "section 3: top performance in all categories",
        "highest mean at every M",
        _table1(["ccp"], _others(1, ["ccp"]), "accuracy"),
    ),
    Claim(
        "With one class per task, CCP forgets least at every memory size.",
        "section 3: top performance in all categories",
        "lowest mean at every M with a printed number",
        _table1(["ccp"], _others(1, ["ccp"]), "forgetting", _printed_forgetting),
    ),
    Claim(
        "With two classes per task, SupBYOL performs poorly.",
        "section 3, Split CIFAR-10",
        "less accurate than plain ER at every M",
        _table2(["er"], ["supbyol"], "accuracy"),
    ),
    Claim(
        "With two classes per task, CCP greatly improves upon SupBYOL.",
        "section 3, Split CIFAR-10",
        f"{_CLEAR}, at every M",
        _table2(["ccp"], ["supbyol"], "accuracy", deviations=2),
    ),
    Claim(
        "With two classes per task, CCP is close to ER-AML and ER-ACE in accuracy.",
        "section 3, and caption of table 2",
        f"at most {CLOSE:g} points behind either at every M",
        _table2(["ccp"], ["er-aml", "er-ace"], "accuracy", points=-CLOSE),
    ),
    Claim(
        "With two classes per task, CCP is close to ER-AML and ER-ACE in forgetting.",
        "section 3, and caption of table 2",
        f"at most {CLOSE:g} points more than either at every M with a printed number",
        _table2(["ccp"], ["er-aml", "er-ace"], "forgetting", _printed_forgetting, points=-CLOSE),
    ),
    Claim(
        "With two classes per task, ER-AML is the most accurate incremental method at every memory size.",
        "table 2, bold numbers",
        "highest mean at every M",
        _table2(["er-aml"], _others(2, ["er-aml"]), "accuracy"),
    ),
    Claim(
        "With two classes per task, ER-ACE forgets least at M = 20 and 50, and CCP at M = 100.",
        "table 2, bold numbers",
        "lowest mean at each of these M",
        _table2(["er-ace"], _others(2, ["er-ace"]), "forgetting", (20, 50))
        + _table2(["ccp"], _others(2, ["ccp"]), "forgetting", (100,)),
    ),
    Claim(
        "On CIFAR-100 one class at a time, SupBYOL and CCP greatly outperform the existing methods.",
        "caption of figure 1",
        f"{_CLEAR}, at the end of the stream",
        _one_by_one(OURS, _others(1, OURS), "accuracy", deviations=2),
        central=True,
    ),
    Claim(
        "On CIFAR-100 one class at a time, their margins grow with the number of classes.",
        "section 3, Split CIFAR-100",
        "the lead in anytime accuracy is larger over the last quarter of the tasks than over the first",
        _one_by_one(OURS, _others(1, OURS), "growth"),
    ),
    Claim(
        "On CIFAR-100 with five classes per task, SupBYOL does not perform well.",
        "section 3, Split CIFAR-100 (the caption of figure 1 calls it competitive)",
        "less accurate at the end than CCP, ER-AML and ER-ACE",
        _five_each(["ccp", "er-aml", "er-ace"], ["supbyol"], "accuracy"),
    ),
    Claim(
        "On CIFAR-100 with five classes per task, CCP matches ER-AML.",
        "section 3, Split CIFAR-100",
        f"at the end at most {CLOSE:g} points behind",
        _five_each(["ccp"], ["er-aml"], "accuracy", points=-CLOSE),
    ),
    Claim(
        "On CIFAR-100 with five classes per task, CCP is close to ER-ACE.",
        "section 3, Split CIFAR-100",
        f"at the end at most {CLOSE:g} points behind",
        _five_each(["ccp"], ["er-ace"], "accuracy", points=-CLOSE),
    ),
    Claim(
        "On CIFAR-100 with five classes per task, ER-ACE nearly matches the i.i.d. run.",
        "section 3, Split CIFAR-100",
        f"at the end at most {CLOSE:g} points behind",
        _five_each(["er-ace"], ["iid"], "accuracy", points=-CLOSE),
    ),
    Claim(
        "SupBYOL needs more computation than ER-AML.",
        "section 2.2",
        "more floating-point operations for each sample, counted in a step of table 2",
        _table2(["supbyol"], ["er-aml"], "flops"),
    ),
)
