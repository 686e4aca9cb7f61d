"""The runs of the paper's tables and figures: one CSV file per part, to which runs are added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from onebyone.errors import UsageError
from onebyone.evaluation import Result
from onebyone.paper.printed import TITLES, Part, rank
from onebyone.runs import record_files
from onebyone.runs.claim import sole_use
from onebyone.runs.config import RunConfig, bare_name, short_hash
from onebyone.runs.formats import configuration, own_stream
from onebyone.runs.record_files import as_recorded, environment, settings
from onebyone.runs.results import Record, Results, Value, summarize


class CellKey(NamedTuple):
    """What all seeds of a cell have in common."""

    protocol: str
    dataset: str
    method: str
    classes_per_task: int
    memory_per_class: int | None  # None for a method without a memory

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> CellKey:
        """The cell of a run, by its configuration."""
        return cls(*(config[name] for name in cls._fields))

    def __str__(self) -> str:
        memory = "" if self.memory_per_class is None else f", M = {self.memory_per_class}"
        return f"{self.method} on {self.dataset} (S = {self.classes_per_task}{memory})"


def settings_hash(record: Record) -> str:
    """The name of a run's settings in settings.json."""
    return short_hash(settings(record.config))


def number(record: Record, metric: str) -> float | None:
    """A number of a run: ``accuracy``, ``forgetting`` and ``growth`` in per cent, ``flops`` and ``memory_bytes``.

    Growth is the anytime accuracy over the last quarter of the tasks minus that over the first quarter.
    """
    if metric == "growth":
        curve = [100 * point for point in record.anytime]
        quarter = max(1, len(curve) // 4)
        return fmean(curve[-quarter:]) - fmean(curve[:quarter])
    if metric in ("flops", "memory_bytes"):
        return record.metrics[f"cost.{metric}"]
    value = record.metrics[metric]
    return None if value is None else 100 * value


@dataclass(frozen=True, repr=False)
class Records(Results):
    """Runs of the paper, in the order of its tables. All runs of a cell have the same settings."""

    @cached_property
    def cells(self) -> dict[CellKey, list[Record]]:
        """The runs of every cell, by seed."""
        found: dict[CellKey, list[Record]] = {}
        for row in self.rows:
            found.setdefault(CellKey.of(row.config), []).append(row)
        return found

    @cached_property
    def set_to(self) -> dict[CellKey, str]:
        """The hash of the settings of every cell."""
        return {cell: settings_hash(rows[0]) for cell, rows in self.cells.items()}

    @property
    def environments(self) -> dict[str, tuple[dict[str, str], int]]:
        """The machines and versions by their hashes, each with its number of runs."""
        found: dict[str, tuple[dict[str, str], int]] = {}
        for row in self.rows:
            made = environment(row)
            name = short_hash(made)
            found[name] = made, found[name][1] + 1 if name in found else 1
        return dict(sorted(found.items()))

    def runs(self, cell: CellKey) -> list[Record]:
        """The runs of a cell.

        A run without replay counts in the protocols ``separate`` and ``joint``, one without a memory for every M.
        """
        protocols = [cell.protocol] if cell.protocol == "printed" else [cell.protocol, "both"]
        memories = cell.memory_per_class, None
        keys = [cell._replace(protocol=p, memory_per_class=m) for p, m in product(protocols, memories)]
        return next((self.cells[key] for key in keys if key in self.cells), [])

    def value(self, cell: CellKey, metric: str) -> Value | None:
        """Mean and standard deviation of a cell over its seeds; None where there is no run, or no such number."""
        return summarize(number(run, metric) for run in self.runs(cell))

    def merged(self, newer: Records) -> Records:
        """The runs of both. A cell whose settings changed keeps only the newer runs.

        >>> Records().merged(Records()) == Records()
        True
        """
        changed = {cell for cell, name in newer.set_to.items() if self.set_to.get(cell, name) != name}
        kept = [row for row in self.rows if CellKey.of(row.config) not in changed]
        return _in_order({(CellKey.of(row.config), row.config["seed"]): row for row in (*kept, *newer.rows)}.values())

    def of(self, parts: Iterable[Part]) -> Records:
        """Only the runs that belong to these parts."""
        parts = tuple(parts)
        return Records(tuple(row for row in self.rows if any(_belongs(row, part) for part in parts)))

    def with_own(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        """The same parts, with a further row for every method of the user that has a run of the part."""
        found = {p: {row.config["method"] for row in self.rows if _belongs(row, p)} - set(TITLES) for p in parts}
        return tuple(replace(part, own=tuple(sorted(own))) for part, own in found.items())

    def holds(self, config: RunConfig) -> bool:
        """Whether this run is there, whatever machine made it."""
        wanted = config.resolved("", "")
        wanted["method"] = bare_name(wanted["method"])
        cell = CellKey.of(wanted)
        if self.set_to.get(cell) != short_hash(settings(wanted)):
            return False
        return any(row.config["seed"] == config.seed for row in self.cells[cell])


def from_results(results: Iterable[Result], parts: Iterable[Part], known: Records | None = None) -> Records:
    """The runs that belong to these parts; others are left out.

    Runs of a cell that is ``known`` with other settings are left out, too: they were made before it was tuned again.
    """
    parts = tuple(parts)
    rows: dict[tuple[CellKey, int], Record] = {}
    known_as = known.set_to if known else {}
    set_to: dict[CellKey, str] = {}
    compared = {*TITLES, *(bare_name(method) for part in parts for method in part.own)}
    for result in results:
        config = {**configuration(result.config), "method": bare_name(result.config["method"])}
        if config["method"] not in compared or not _as_in_the_paper(config):
            continue
        row = as_recorded(replace(Record.from_result(result), config=config))
        cell, name = CellKey.of(row.config), settings_hash(row)
        if known_as.get(cell, name) != name or not any(_belongs(row, part) for part in parts):
            continue
        if set_to.setdefault(cell, name) != name:
            raise UsageError(f"there are runs of {cell} with different settings; give only the folders of one of them")
        rows[cell, row.config["seed"]] = row
    return _in_order(rows.values())


def read(folder: Path, parts: Iterable[Part]) -> Records:
    """The records of these parts in a folder; none where there is none."""
    paths = [path for part in parts if (path := folder / f"{part.name}.csv").exists()]
    return _in_order(record_files.read(paths))


def keep(newer: Records, folder: Path, parts: Sequence[Part], lose: bool = True) -> tuple[Records, list[Record]]:
    """Add records to those of a folder, one process at a time. Returns all that are there now, and those replaced.

    Unless ``lose`` is true, records that would leave a cell with fewer runs than it has are refused.
    """
    with sole_use(folder, wait=True):
        known = read(folder, parts)
        found = known.merged(newer)
        for cell, rows in known.cells.items():
            if not lose and len(found.cells[cell]) < len(rows):
                raise UsageError(
                    f"{cell} has {len(rows)} runs on record, and {len(found.cells[cell])} with other "
                    "settings would replace them; leave the folder of those out, or delete the rows of the record first"
                )
        write(found, folder, parts)
    left = {_identity(row) for row in found.rows}
    return found, [row for row in known.rows if _identity(row) not in left]


def _identity(record: Record) -> tuple[Any, ...]:
    return CellKey.of(record.config), record.config["seed"], settings_hash(record), record.metrics["accuracy"]


def write(records: Records, folder: Path, parts: Sequence[Part]) -> None:
    """Write one CSV file per part that has runs. Equal records give equal bytes."""
    files: dict[str, list[Record]] = {}
    for row in records.rows:
        part = next((part for part in parts if _belongs(row, part)), None)
        if part:  # a run that two figures share is written once
            files.setdefault(f"{part.name}.csv", []).append(row)
    record_files.write(folder, files)


def _as_in_the_paper(config: Mapping[str, Any]) -> bool:
    """Whether a run of a protocol is on the test set, in the paper's stream, with ``memory_per_class`` samples."""
    return (
        config["protocol"] != "none"
        and not config["held_out"]
        and config["class_order"] == "label"
        and config["batch_size"] == 10
        and config["stream"] == own_stream(config["method"])
        and not any(config["options"].get(name) for name in ("budget", "memory_samples"))
    )


def _belongs(record: Record, part: Part) -> bool:
    cell = CellKey.of(record.config)
    return (
        cell.dataset == part.dataset
        and part.compares_in(cell.protocol)
        and (cell.method in part.methods(cell.classes_per_task) or cell.method not in TITLES)
        and cell.classes_per_task in part.classes_per_task
        and cell.memory_per_class in (None, *part.memories)
    )


def _in_order(rows: Iterable[Record]) -> Records:
    """Sorted by data set, classes per task, method (as in the paper's tables), protocol, memory and seed."""

    def position(row: Record) -> tuple[Any, ...]:
        cell = CellKey.of(row.config)
        where = cell.dataset, cell.classes_per_task, rank(cell.method), cell.protocol, cell.memory_per_class or 0
        return *where, row.config["seed"]

    return Records(tuple(sorted(rows, key=position)))
