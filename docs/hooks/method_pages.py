"""The page of a method is written by hand, but for what the code and ``results/`` say: that is filled in here.

``<!-- summary -->``, ``<!-- options -->``, ``<!-- numbers -->`` and ``<!-- code -->`` mark the places in
``docs/methods/NAME.md``, so that no page can tell of an option or a number that is not so.
"""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from onebyone.data import Spec
from onebyone.evaluation import measure_cost
from onebyone.methods import create, methods
from onebyone.methods.registry import Entry
from onebyone.options import describe

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "src" / "onebyone" / "paper" / "paper.csv"
DATASETS = {"cifar10": "Split CIFAR-10", "cifar100": "Split CIFAR-100"}
MEMORIES = (5, 20, 50, 100)
HOLE = "not measured yet"


@dataclass(frozen=True)
class Table:
    """A table of a page: whose runs are in it, and which of the paper's it is, if any."""

    dataset: str
    classes_per_task: str  # as records say it
    title: str
    files: tuple[str, ...]
    in_print: str = ""


TABLES = (
    Table("cifar10", "1", "One class a task (S = 1)", ("table1.csv", "beyond.csv"), "table1"),
    Table("cifar10", "2", "Two classes a task (S = 2)", ("table2.csv", "beyond.csv"), "table2"),
    Table("cifar100", "1", "One class a task (S = 1)", ("figure1.csv", "appendix.csv", "beyond100.csv")),
    Table("cifar100", "5", "Five classes a task (S = 5)", ("figure1.csv", "appendix.csv", "beyond100.csv")),
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return complete(markdown, page.file.src_uri)


def complete(markdown: str, page: str, results: Path = ROOT / "results", paper: Path = PAPER) -> str:
    """The text of a page with what is known of its method, or of all methods, in the place of the comments."""
    known = methods()
    if page == "methods/index.md":
        return markdown.replace("<!-- methods -->", overview(known))
    name = page.removeprefix("methods/").removesuffix(".md")
    if name not in known:
        return markdown
    numbers = [measured(name, place, results, paper) for place in TABLES]
    tuned = [tuning(name, dataset, results / "tuning") for dataset in DATASETS]
    parts = {
        "summary": summary(name, known[name]),
        "options": options(known[name]),
        "numbers": "\n\n".join([*numbers, *tuned, cost(name)]),
        "code": code(known[name]),
    }
    for part, text in parts.items():
        markdown = markdown.replace(f"<!-- {part} -->", text)
    return markdown


def overview(known: Mapping[str, Entry]) -> str:
    rows = [(f"[`{name}`]({name}.md)", entry.summary, entry.section) for name, entry in known.items()]
    return table(("method", "in one sentence", "in the paper"), rows)


def summary(name: str, entry: Entry) -> str:
    where = "Not in the paper" if entry.section == "not in the paper" else f"In the paper: {entry.section}"
    return f'!!! abstract "`{name}`"\n    {entry.summary}\n\n    {where}. To run it: `onebyone run --method {name}`'


def options(entry: Entry) -> str:
    rows = [(f"`{name}`", f"`{default}`", text, kind) for name, kind, default, text in describe(entry.options)]
    return table(("option", "default", "what it is", "type"), rows)


def code(entry: Entry) -> str:
    """The whole class, by mkdocstrings: a method is a page of equations in the code too."""
    settings = "{heading_level: 3, show_source: true, members: false, show_root_full_path: false}"
    return f"::: {entry.learner.__module__}.{entry.learner.__qualname__}\n    options: {settings}"


def measured(name: str, place: Table, results: Path, paper: Path) -> str:
    """A table from the record of runs, which may have holes; and what the paper prints."""
    runs: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in chain(*(read(results / file, name) for file in place.files)):
        if row["classes_per_task"] == place.classes_per_task:
            memories = MEMORIES if row["memory_per_class"] == "-" else [int(row["memory_per_class"])]
            for memory in memories:
                runs[row["protocol"]][memory].append(100 * float(row["accuracy"]))
    printed = {
        int(row["memory_per_class"]): f"{row['mean']} ± {row['std']}"
        for row in read(paper, name)
        if (row["table"], row["metric"]) == (place.in_print, "accuracy")
    }
    heading = f"**{place.title}**, {DATASETS[place.dataset]}, accuracy on the test set in per cent"
    if not runs and not printed:
        return f"{heading}: {HOLE}."
    rows = [
        (f"here, protocol `{protocol}`", *(mean_and_spread(of.get(memory, [])) for memory in MEMORIES))
        for protocol, of in sorted(runs.items(), reverse=True)
    ]
    if printed:
        rows.append(("printed in the paper", *(printed.get(memory, "") for memory in MEMORIES)))
    return f"{heading}{'' if runs else f', here {HOLE}'}:\n\n" + table(("", *map(column, MEMORIES)), rows)


def tuning(name: str, dataset: str, folder: Path) -> str:
    """What won on the held-out tenth of the training set, for each S."""
    found: dict[str, dict[str, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in read(folder / f"{dataset}.csv", name):
        memory = json.loads(row["memory_per_class"]) or 0
        found[row["classes_per_task"]][row["options"]][memory].append(100 * float(row["accuracy"]))
    heading = f"**Tuning**, {DATASETS[dataset]}, accuracy on a tenth of the training set, held out from learning"
    if not found:
        return f"{heading}: {HOLE}."
    memories = sorted({memory for settings in found.values() for runs in settings.values() for memory in runs})
    rows = []
    for per_task, settings in sorted(found.items()):
        best, runs = max(settings.items(), key=lambda item: fmean(chain(*item[1].values())))
        words = ", ".join(f"`{option}={value}`" for option, value in json.loads(best).items())
        rows.append((per_task, words, *(mean_and_spread(runs[memory]) for memory in memories)))
    tried = max(map(len, found.values()))
    return f"{heading}; the best of {tried} settings:\n\n" + table(("S", "setting", *map(column, memories)), rows)


def cost(name: str) -> str:
    """Counted on the learner itself, as it is by default."""
    found = measure_cost(create(name, Spec(shape=(3, 32, 32), num_classes=10)))
    passes = f"{found.forward_passes:g} forward and {found.backward_passes:g} backward"
    size = f"{found.network_bytes / 1e6:.1f} MB of network and {found.memory_bytes / 1e6:.1f} MB of memory (M = 20)"
    work = f"{found.flops / 1e9:.2f} GFLOP"
    where = "on images of CIFAR-10, with the defaults, for each incoming one"
    return f"**Cost** {where}: passes {passes}, {work}; in all {size}."


def column(memory: int) -> str:
    return f"M = {memory}" if memory else "without a memory"


def mean_and_spread(values: Sequence[float]) -> str:
    match len(values):
        case 0:
            return HOLE
        case 1:
            return f"{values[0]:.1f} (one run)"
        case count:
            return f"{fmean(values):.1f} ± {pstdev(values):.1f} ({count} runs)"


def read(path: Path, method: str) -> list[dict[str, str]]:
    """The rows of a method in a CSV file; none where there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [row for row in csv.DictReader(lines) if row["method"] == method]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
