"""What is compared: the paper's tables and figures, every number it prints, and further methods at equal bytes."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from onebyone.runs.config import bare_name
from onebyone.runs.results import Value

# Typed from the paper's source, which has no numbers for the curves of its figures.
FILE = Path(__file__).with_name("paper.csv")

# The names of the methods, in the order of the second table.
MORE_CLASSES = {
    "iid": "iid online",
    "finetune": "fine-tuning",
    "icarl": "iCaRL",
    "er": "ER",
    "mir": "MIR",
    "der++": "DER++",
    "er-aml": "ER-AML",
    "er-ace": "ER-ACE",
    "supbyol": "SupBYOL",
    "ccp": "CCP",
}
ONE_CLASS = {name: title for name, title in MORE_CLASSES.items() if name not in ("er-aml", "er-ace")}
BEYOND = {"replay": "replay", "hybrid": "hybrid", "patch-lda": "patch-lda"}  # not in the paper: this library's own


class Titles(dict[str, str]):
    """Titles of methods by name; a user's own method has its name as the title."""

    def __missing__(self, name: str) -> str:
        return name


TITLES = Titles(MORE_CLASSES | BEYOND)
BYTES = {"cifar10": 10 * 3072, "cifar100": 100 * 3072}  # of one image of every class
DATASETS = {"cifar10": "Split CIFAR-10", "cifar100": "Split CIFAR-100"}
NOT_INCREMENTAL = "iid"  # all classes at once: an upper bound
NO_MEMORY = (NOT_INCREMENTAL, "finetune")  # their numbers are the same for every M
OURS = ("supbyol", "ccp")  # the methods the paper proposes


@dataclass(frozen=True)
class Part:
    """A table of the paper, or a figure: every method at some classes per task (S) and memories (M).

    Beyond the paper there are more methods, which may use the bytes of M samples per class as they like.
    """

    name: str
    title: str
    dataset: str
    classes_per_task: tuple[int, ...]
    memories: tuple[int, ...]
    beyond: bool = False
    own: tuple[str, ...] = ()  # methods of the user, as NAME or FILE.py:NAME; the last rows

    def methods(self, classes_per_task: int) -> dict[str, str]:
        """Names and titles of the methods compared."""
        # Beyond the paper all that runs: with one class per task, ER-AML and ER-ACE learn from their memory.
        known = MORE_CLASSES | BEYOND if self.beyond else methods_of(classes_per_task)
        return known | {bare_name(method): bare_name(method) for method in self.own}

    def compares_in(self, protocol: str) -> bool:
        """Whether its tables have numbers in a protocol: those beyond the paper have joint passes only."""
        return not self.beyond or protocol in ("joint", "both")

    def column(self, memory_per_class: int) -> str:
        """The heading of the column of a memory size.

        >>> PARTS[0].column(5), FURTHER[0].column(5)
        ('M = 5', 'M = 5, 154 KB')
        """
        size = memory_per_class * BYTES.get(self.dataset, 0) / 1000
        in_bytes = f", {size:.0f} KB" if size < 1000 else f", {size / 1000:.2f} MB"
        return f"M = {memory_per_class}{in_bytes if self.beyond and size else ''}"

    @property
    def columns(self) -> list[str]:
        return [self.column(memory) for memory in self.memories]

    @property
    def is_table(self) -> bool:
        return self.name.startswith("table")

    @property
    def is_quick(self) -> bool:
        return self.name.endswith("-quick")

    @property
    def in_print(self) -> str:
        """The name of the table or figure that this one is to be compared with."""
        return self.name.removesuffix("-quick")


def rank(method: str) -> tuple[int, str]:
    """Sorts methods as in the paper's tables, then those beyond it, then a user's own by name."""
    order = list(TITLES)
    return (order.index(method) if method in TITLES else len(order)), method


PARTS = (
    Part("table1", "Table 1: Split CIFAR-10, one class per task", "cifar10", (1,), (5, 20, 50, 100)),
    Part("table2", "Table 2: Split CIFAR-10, two classes per task", "cifar10", (2,), (5, 20, 50, 100)),
    Part("figure1", "Figure 1: Split CIFAR-100, M = 100", "cifar100", (1, 5), (100,)),
    Part("appendix", "Appendix: Split CIFAR-100, M = 20 and 50", "cifar100", (1, 5), (20, 50)),
)
FURTHER = (
    Part("beyond", "Equal bytes: Split CIFAR-10", "cifar10", (1, 2), (5, 20, 50, 100), beyond=True),
    Part("beyond100", "Equal bytes: Split CIFAR-100", "cifar100", (1, 5), (5, 20, 50, 100), beyond=True),
)


def quick(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The same parts on few images, to try everything out; their numbers mean nothing.

    >>> [(part.name, part.dataset) for part in quick(PARTS[:1])]
    [('table1-quick', 'cifar10-quick')]
    """
    return tuple(
        replace(
            part, name=f"{part.name}-quick", title=f"QUICK, few images: {part.title}", dataset=f"{part.dataset}-quick"
        )
        for part in parts
    )


def methods_of(classes_per_task: int) -> dict[str, str]:
    """Names and titles of the methods compared: ER-AML and ER-ACE need more than one class in the incoming batch.

    >>> "er-aml" in methods_of(1), "er-aml" in methods_of(2)
    (False, True)
    """
    return ONE_CLASS if classes_per_task == 1 else MORE_CLASSES


def printed(part: str, method: str, memory_per_class: int, metric: str) -> Value | None:
    """The paper's number, if it prints one: ``accuracy`` or ``forgetting`` of a table. It averages five runs.

    >>> print(printed("table1", "ccp", 100, "accuracy"))
    39.1 ± 1.1
    """
    return _numbers().get((part, method, memory_per_class, metric))


@cache
def _numbers() -> dict[tuple[str, str, int, str], Value]:
    with FILE.open(newline="") as file:
        return {
            (row["table"], row["method"], int(row["memory_per_class"]), row["metric"]): Value(
                float(row["mean"]), float(row["std"]), runs=5
            )
            for row in csv.DictReader(file)
        }
