"""The page of a method is written by hand, except for what the code and ``results/`` say, which is inserted here.

``<!-- summary -->``, ``<!-- options -->``, ``<!-- numbers -->`` and ``<!-- code -->`` are replaced in
``docs/methods/NAME.md``, so that no page can show an option or a number that is out of date.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from onebyone.data import Spec
from onebyone.engine import measure_cost
from onebyone.methods import create, methods
from onebyone.methods.registry import RegisteredMethod
from onebyone.options import describe
from onebyone.paper.printed import DATASETS, printed
from onebyone.paper.protocols import NAMES
from onebyone.paper.records import Records, number, read
from onebyone.paper.reproduce import EVERYTHING
from onebyone.runs.results import summarize
from onebyone.runs.table import Table, render
from onebyone.runs.tune import read_record

ROOT = Path(__file__).parents[2]
MEMORIES = (5, 20, 50, 100)
HOLE = "not measured yet"


@dataclass(frozen=True)
class Setting:
    """A table of a page: its data set and classes per task, and the table of the paper it belongs to, if any."""

    dataset: str
    classes_per_task: int
    title: str
    in_print: str = ""


SETTINGS = (
    Setting("cifar10", 1, "One class per task (S = 1)", "table1"),
    Setting("cifar10", 2, "Two classes per task (S = 2)", "table2"),
    Setting("cifar100", 1, "One class per task (S = 1)"),
    Setting("cifar100", 5, "Five classes per task (S = 5)"),
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return complete(markdown, page.file.src_uri)


def complete(markdown: str, page: str, results: Path = ROOT / "results") -> str:
    """The text of a page, with the comments replaced by what is known of its method, or of all methods."""
    known = methods()
    if page == "methods/index.md":
        return markdown.replace("<!-- methods -->", overview(known))
    name = page.removeprefix("methods/").removesuffix(".md")
    if name not in known:
        return markdown
    records = read(results, EVERYTHING)
    numbers = [measured(name, setting, records) for setting in SETTINGS]
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


def overview(known: Mapping[str, RegisteredMethod]) -> str:
    rows = [[f"[`{name}`]({name}.md)", entry.summary, entry.section] for name, entry in known.items()]
    return table(["method", "in one sentence", "in the paper"], rows)


def summary(name: str, entry: RegisteredMethod) -> str:
    where = "Not in the paper" if entry.section == "not in the paper" else f"In the paper: {entry.section}"
    return f'!!! abstract "`{name}`"\n    {entry.summary}\n\n    {where}. To run it: `onebyone run --method {name}`'


def options(entry: RegisteredMethod) -> str:
    """A list, which can be read on a phone."""
    return "\n".join(
        f"- `{name}` ({kind}; default `{default}`) – {text}." for name, kind, default, text in describe(entry.options)
    )


def code(entry: RegisteredMethod) -> str:
    """The whole class, by mkdocstrings: a method is a page of equations in the code too."""
    settings = "{heading_level: 3, show_source: true, members: false, show_root_full_path: false}"
    return f"::: {entry.learner.__module__}.{entry.learner.__qualname__}\n    options: {settings}"


def measured(name: str, setting: Setting, records: Records) -> str:
    """A table of what was measured, which may have gaps, and of what the paper prints."""
    runs: dict[str, dict[int, list[float | None]]] = defaultdict(lambda: defaultdict(list))
    wanted = {"method": name, "dataset": setting.dataset, "classes_per_task": setting.classes_per_task}
    for record in records:
        if wanted.items() <= record.config.items():
            memory = record.config["memory_per_class"]
            for size in MEMORIES if memory is None else [memory]:
                runs[record.config["protocol"]][size].append(number(record, "accuracy"))
    in_print = [printed(setting.in_print, name, memory, "accuracy") for memory in MEMORIES]
    heading = f"**{setting.title}**, {DATASETS[setting.dataset]}, accuracy on the test set in per cent"
    if not runs and not any(in_print):
        return f"{heading}: {HOLE}."
    rows = [
        [f"here, protocol `{protocol}`", *(over_runs(runs[protocol].get(memory, [])) for memory in MEMORIES)]
        for protocol in (*NAMES, "both")
        if protocol in runs
    ]
    if any(in_print):
        rows.append(["printed in the paper", *(str(value or "") for value in in_print)])
    return f"{heading}{'' if runs else f', here {HOLE}'}:\n\n" + table([""], rows, map(column, MEMORIES))


def tuning(name: str, dataset: str, folder: Path) -> str:
    """What won on the held-out tenth of the training set, for each S."""
    found: dict[int, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))  # by S, setting and M
    path = folder / f"{dataset}.csv"
    for row in read_record(path) if path.exists() else []:
        if row["method"] == name:
            percent = None if row["accuracy"] is None else 100 * row["accuracy"]  # None: the run failed
            words = ", ".join(f"`{option}={value}`" for option, value in row["options"].items())
            found[row["classes_per_task"]][words][row["memory_per_class"] or 0].append(percent)
    heading = f"**Tuning**, {DATASETS[dataset]}, accuracy on a tenth of the training set, held out from learning"
    if not found:
        return f"{heading}: {HOLE}."
    memories = sorted({memory for settings in found.values() for runs in settings.values() for memory in runs})
    rows = []
    for per_task, settings in sorted(found.items()):
        means = {words: summarize(chain(*runs.values())) for words, runs in settings.items()}
        best = max(means, key=lambda words: value.mean if (value := means[words]) else 0.0)
        rows.append([str(per_task), best, *(over_runs(settings[best][memory]) for memory in memories)])
    tried = max(map(len, found.values()))
    return f"{heading}; the best of {tried} settings:\n\n" + table(["S", "setting"], rows, map(column, memories))


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


def over_runs(numbers: Sequence[float | None]) -> str:
    """Mean and standard deviation, and the number of runs."""
    value = summarize(numbers)
    return f"{value} ({'one run' if value.runs == 1 else f'{value.runs} runs'})" if value else HOLE


def table(names: Sequence[str], rows: Sequence[Sequence[str]], columns: Iterable[str] = ()) -> str:
    heading = {"": list(columns)}
    return render(Table("", names, heading, rows), "markdown")
