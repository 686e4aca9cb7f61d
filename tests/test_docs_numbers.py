"""Every accuracy in the README and on the site comes from a file in ``results/`` that its page names here.

A page has few sources, each grouped to few means, so that a wrong digit is found: it is not among them.
"""

import csv
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from onebyone.paper import printed
from onebyone.paper.records import read
from onebyone.paper.reproduce import EVERYTHING

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
SPREAD = re.compile(r"\d+\.\d ± \d+\.\d")  # test_docs.py compares these with the records
DECIMAL = re.compile(r"(?<![\d.,])\d+\.\d(?![\d]|\.\d)")
PERCENT = re.compile(r"(?<![\d.,])\d+(?= %)")
SMALLEST = 5.0  # smaller decimals are options, ratios and differences


@dataclass(frozen=True)
class Column:
    """Means of a column of a CSV file, over the rows that have the same values in the columns ``by``."""

    file: str
    value: str = "accuracy"
    by: tuple[str, ...] = ()
    where: str = ""  # only rows with these values: "name=value name=value"
    scale: float = 1.0
    best: bool = False  # the largest value of each group instead

    def means(self) -> set[str]:
        groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
        wanted = [word.split("=", 1) for word in self.where.split()]
        with (ROOT / "results" / self.file).open(newline="") as file:
            for row in csv.DictReader(file):
                if row[self.value] not in ("", "-") and all(row[name] == value for name, value in wanted):
                    groups[tuple(row[name] for name in self.by)].append(self.scale * float(row[self.value]))
        assert groups, f"{self.file} has no {self.value}"
        return rounded(max(values) if self.best else fmean(values) for values in groups.values())


@dataclass(frozen=True)
class Cells:
    """Means of the runs of the paper's tables and figures, and of those beyond."""

    dataset: str
    classes_per_task: int
    memory_per_class: int | None = None  # None: all sizes

    def means(self) -> set[str]:
        return rounded(
            value
            for (dataset, per_task, memory), value in cells()
            if (dataset, per_task) == (self.dataset, self.classes_per_task)
            and (self.memory_per_class is None or memory in (None, self.memory_per_class))
        )


@dataclass(frozen=True)
class Printed:
    """The numbers of the paper."""

    def means(self) -> set[str]:
        return rounded(value.mean for value in printed._numbers().values())


@dataclass(frozen=True)
class Stated:
    """Numbers that no file in ``results/`` has, and why the page has them."""

    numbers: str
    why: str

    def means(self) -> set[str]:
        return set(self.numbers.split())


Source = Column | Cells | Printed | Stated


def rounded(values: Iterable[float]) -> set[str]:
    """Each value with one decimal and as an integer. A half may be rounded to either side."""
    found = set()
    for value in values:
        for moved in (value - 1e-9, value + 1e-9):
            found |= {f"{moved:.1f}", f"{moved:.0f}"}
    return found


@cache
def cells() -> list[tuple[tuple[str, int, int | None], float]]:
    """Data set, classes per task, size of the memory and mean accuracy of every cell."""
    records = read(ROOT / "results", EVERYTHING)
    found = [(cell, records.value(cell, "accuracy")) for cell in records.cells]
    return [((c.dataset, c.classes_per_task, c.memory_per_class), value.mean) for c, value in found if value]


CIFAR = ("cifar10", "cifar100")
ONE10 = Cells("cifar10", 1)
ONE100, FIVE100 = Cells("cifar100", 1, 100), Cells("cifar100", 5, 100)
ENCODED = tuple(Column(f"encoded/{data}-orders.csv") for data in CIFAR)
FEW = tuple(Column(f"encoded/{data}-few.csv", by=("case",)) for data in CIFAR)
RARE = tuple(Column("encoded/cifar10-rare.csv", value) for value in ("recall", "before", "after"))
MANY = Column("few/many.csv", by=("dataset", "memory_per_class"), scale=100)
HYBRID = ("dataset", "classes_per_task", "M", "share")
TUNED = ("classes_per_task", "memory_per_class", "options")
SEARCHED = ("classes_per_task", "memory_per_class", "seed", "options")
# A page that is not here has no accuracy, or has them from elsewhere: reproduction/ is what a command writes.
SOURCES: dict[str, tuple[Source, ...]] = {
    "README.md": ENCODED,
    "docs/results.md": (ONE10, Cells("cifar10", 2, 100), ONE100, FIVE100, Printed(), MANY, *ENCODED),
    "docs/methods/ccp.md": (
        Column("held-out-search.csv", by=SEARCHED, where="method=ccp memory_per_class=100", scale=100),
        Column("held-out-search.csv", "forgetting", SEARCHED, "method=ccp memory_per_class=100", scale=100),
        Column("tuning/cifar10.csv", by=TUNED, where="method=ccp memory_per_class=100", scale=100),
    ),
    "docs/methods/er-ace.md": (Cells("cifar10", 1, 100), ONE100),
    "docs/methods/er-aml.md": (Cells("cifar10", 1, 100), ONE100),
    "docs/methods/finetune.md": (ONE10,),
    "docs/methods/hybrid.md": (
        Column("hybrid/held-out.csv", by=HYBRID, best=True),
        Column("hybrid/held-out.csv", by=HYBRID, where="weight=0.0"),
        Column("hybrid/held-out.csv", by=HYBRID, where="readout=ncm weight=1000000.0"),
        Column("statistics/held-out.csv", by=("dataset", "M", "seed", "options")),
        Cells("cifar100", 1),
    ),
    "docs/methods/lda.md": (
        *ENCODED,
        *FEW,
        *(Column(f"encoded/{data}-memory.csv", by=("case",)) for data in CIFAR),
        *(Column(f"encoded/{data}-few.csv", "ncm", by=("case",)) for data in CIFAR),
        *RARE,
        Column("encoded/cifar10-rare.csv", "recall", by=("case",)),
        MANY,
        Stated("2", "a threshold in the code"),
    ),
    "docs/methods/patch-lda.md": (
        Column("statistics/held-out.csv", by=("dataset", "M", "seed", "options")),
        Column("statistics/ablation.csv", by=("removed",)),
        Column("few/unknown.csv", "known turned away", by=("case",), scale=100),
        Stated("7.7 11.5 3", "operations, and the share of the kept samples, which the code decides"),
        Stated("8.9 12.9", "milliseconds of an update that is not there"),
        Stated("64.6 68.3 69.9 71.1", "tried once on a GPU, as the page says"),
        Stated("6.9 7.8 34.9", "differences of two means of the ablation"),
        Stated("72.3 70.3 70.6 71.0 67.7", "single runs of what did not help, not on record, as the page says"),
    ),
    "docs/methods/replay.md": (
        *(Column(f"tuning/{data}.csv", by=TUNED, where="method=replay", scale=100) for data in CIFAR),
        Stated("41.7 39.3", "single runs, not on record, as the page says"),
    ),
    "docs/tutorials/live.md": (Stated("80", "what a probability of 0.8 means"),),
    "docs/tutorials/own_encoder.md": (
        *ENCODED,
        *FEW,
        Stated("83 88 93", "ratios of CPU time in results/benchmarks/photos.txt"),
    ),
    "docs/tutorials/own_images.md": (*ENCODED, *FEW),
    "docs/tutorials/stream.md": (Stated("100 80", "the output below, which a test compares"),),
}
GENERATED = ("docs/benchmarks", "docs/reproduction")  # by programs, from results/
PAGES = ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]


def text_of(page: str) -> str:
    """What a reader takes for prose and tables: no code, no mean with its standard deviation."""
    text = (ROOT / page).read_text()
    for pattern in (FENCE, CODE, SPREAD):
        text = pattern.sub("", text)
    return text


def untraced(text: str, sources: tuple[Source, ...]) -> list[str]:
    """The numbers of a text that none of its sources has."""
    known: set[str] = set().union(*(source.means() for source in sources))
    numbers = [number for number in DECIMAL.findall(text) if float(number) >= SMALLEST]
    return [number for number in (*numbers, *PERCENT.findall(text)) if number not in known]


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith(GENERATED)])
def test_accuracies_on_a_page_come_from_its_sources(page: str) -> None:
    found = untraced(text_of(page), SOURCES.get(page, ()))
    assert not found, f"{page} has numbers that are not in its files of results; name those in SOURCES above"


def test_every_source_belongs_to_a_page() -> None:
    assert SOURCES.keys() <= set(PAGES)


@pytest.mark.parametrize("page", SOURCES)
def test_sources_of_a_page_are_few_enough_to_find_wrong_digits(page: str) -> None:
    """Each number of the page is moved by 0.1 and by 1.0; most of the results must be found to be wrong."""
    text, wrong = text_of(page), []
    for number in {number for number in DECIMAL.findall(text) if float(number) >= SMALLEST}:
        wrong += [f"{float(number) + change:.1f}" for change in (-1, -0.1, 0.1, 1)]
    found = untraced(" ; ".join(wrong), SOURCES[page])
    assert len(found) >= 0.5 * len(wrong), f"{len(found)} of {len(wrong)} wrong numbers are found"


def test_a_wrong_digit_in_the_readme_is_found() -> None:
    text = text_of("README.md")
    assert "90.3 %" in text
    assert untraced(text.replace("90.3 %", "91.3 %").replace("69.7 %", "69.8 %"), SOURCES["README.md"]) == [
        "91.3",
        "69.8",
    ]


@pytest.mark.slow
def test_the_page_of_benchmarks_is_what_the_program_writes(tmp_path: Path) -> None:
    for folder in ("benchmarks", "results/benchmarks"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "docs").mkdir()
    subprocess.run([sys.executable, tmp_path / "benchmarks" / "report.py"], check=True, capture_output=True)
    advice = "write it again: python benchmarks/report.py"
    assert (tmp_path / "docs" / "benchmarks.md").read_text() == (ROOT / "docs" / "benchmarks.md").read_text(), advice
