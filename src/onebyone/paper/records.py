"""Results in few bytes: a row for each run, in one CSV file for each table and figure, that grows run by run."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from onebyone.errors import UsageError
from onebyone.evaluation import Result
from onebyone.files import whole
from onebyone.methods import methods
from onebyone.paper.printed import TITLES, Part, Value, bare_name, rank
from onebyone.runs.config import RunConfig, short_hash
from onebyone.runs.files import sole_use

SETTINGS, ENVIRONMENTS = "settings.json", "environments.json"
DIGITS = 5  # of a fraction: more than any test set can tell apart
PROTOCOLS = {"paper": "separate", "joint": "joint"}  # and how samples pass the network in each
BOTH = "both"  # the protocol of a run that has only incoming samples to pass

Numbers = tuple[float | None, ...]
Cell = tuple[str, str, str, int, int | None]  # the protocol, and
CELL_FIELDS = ("dataset", "method", "classes_per_task", "memory_per_class")


@dataclass(frozen=True)
class Record:
    """One run. What it was set to, besides what stands here, is found under its ``settings`` hash; and under that of
    its ``environment`` what it was made with: type and name of the device, versions, and checksum of the data."""

    protocol: str
    dataset: str
    method: str
    classes_per_task: int
    memory_per_class: int | None  # None: a method without a memory
    seed: int
    accuracy: float
    forgetting: float | None
    anytime: Numbers
    class_accuracy: Numbers
    memory_bytes: int
    flops: float  # a sample
    settings: str
    environment: str

    @property
    def cell(self) -> Cell:
        """What all seeds have in common."""
        return self.protocol, self.dataset, self.method, self.classes_per_task, self.memory_per_class

    @property
    def place(self) -> str:
        """The cell in words."""
        memory = "" if self.memory_per_class is None else f", M = {self.memory_per_class}"
        return f"{self.method} on {self.dataset} (S = {self.classes_per_task}{memory})"

    def number(self, metric: str) -> float | None:
        """Accuracy, forgetting, or growth: the anytime accuracy of the last quarter of tasks minus the first; in per
        cent. Or ``flops`` and ``memory_bytes`` as they are."""
        if metric == "growth":
            curve = [100 * point for point in self.anytime if point is not None]
            quarter = max(1, len(curve) // 4)
            return fmean(curve[-quarter:]) - fmean(curve[:quarter])
        value: float | None = getattr(self, metric)
        return value if value is None or metric in ("flops", "memory_bytes") else 100 * value


@dataclass(frozen=True)
class Records:
    """Rows with the settings and environments they name."""

    rows: tuple[Record, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @cached_property
    def cells(self) -> dict[Cell, list[Record]]:
        """The rows of every cell, by seed."""
        found: dict[Cell, list[Record]] = {}
        for row in self.rows:
            found.setdefault(row.cell, []).append(row)
        return found

    def runs(self, protocol: str, dataset: str, method: str, classes_per_task: int, memory: int) -> list[Record]:
        """The runs of a cell; what replays nothing serves every protocol, and what keeps nothing every memory."""
        keys = ((protocol, memory), (BOTH, memory), (BOTH, None))
        cells = (self.cells.get((name, dataset, method, classes_per_task, size)) for name, size in keys)
        return next((found for found in cells if found), [])

    def value(
        self, protocol: str, dataset: str, method: str, classes_per_task: int, memory: int, metric: str
    ) -> Value | None:
        """Mean and standard deviation of a cell over its seeds; None where there is no run, or no such number."""
        found = [run.number(metric) for run in self.runs(protocol, dataset, method, classes_per_task, memory)]
        numbers = [number for number in found if number is not None]
        return Value(fmean(numbers), pstdev(numbers), len(numbers)) if numbers else None

    def merged(self, newer: Records) -> Records:
        """All rows of both. A cell whose settings changed keeps only the newer rows: a cell has one setting.

        >>> Records().merged(Records()) == Records()
        True
        """
        set_to = {row.cell: row.settings for row in newer.rows}
        kept = [row for row in self.rows if set_to.get(row.cell, row.settings) == row.settings]
        rows = {(row.cell, row.seed): row for row in (*kept, *newer.rows)}
        return _tidy(rows.values(), {**self.settings, **newer.settings}, {**self.environments, **newer.environments})

    def of(self, parts: Iterable[Part]) -> Records:
        """Only the rows that belong to these parts."""
        some = [row for row in self.rows if any(_belongs(row, part) for part in parts)]
        return _tidy(some, self.settings, self.environments)

    def with_own(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        """The same parts, with a further row for every method of the user that has a run of the part."""
        found = {part: {row.method for row in self.rows if _belongs(row, part)} - set(TITLES) for part in parts}
        return tuple(replace(part, own=tuple(sorted(own))) for part, own in found.items())

    def holds(self, config: RunConfig) -> bool:
        """Whether this run is there, on whatever machine it was made."""
        wanted = config.resolved("", "")
        wanted["method"] = bare_name(wanted["method"])
        cell: Any = (_protocol(wanted), *(wanted[name] for name in CELL_FIELDS))
        settings = short_hash(_settings(wanted))
        return any((row.seed, row.settings) == (config.seed, settings) for row in self.cells.get(cell, []))


def from_results(results: Iterable[Result], parts: Iterable[Part], known: Records | None = None) -> Records:
    """Records of those runs that belong to these parts; others are left out.

    So are those of a cell that is ``known`` with other settings: its winner was another one when they were made.
    """
    parts = tuple(parts)
    rows: dict[tuple[Cell, int], Record] = {}
    settings, environments = {}, {}
    on_record = {row.cell: row.settings for row in known.rows} if known else {}
    set_to: dict[Cell, str] = {}
    compared = {*TITLES, *(bare_name(method) for part in parts for method in part.own)}
    for result in results:
        config = {**result.config, "method": bare_name(result.config["method"])}
        if config["method"] not in compared or not _as_in_the_paper(config):
            continue
        environment = {**result.environment, "type": config["device"], "data": config["data"]}
        row = Record(
            protocol=_protocol(config),
            **{name: config[name] for name in CELL_FIELDS},
            seed=config["seed"],
            accuracy=round(result.accuracy, DIGITS),
            forgetting=None if result.forgetting is None else round(result.forgetting, DIGITS),
            anytime=tuple(round(point, DIGITS) for point in result.anytime),
            class_accuracy=tuple(None if a is None else round(a, DIGITS) for a in result.class_accuracy),
            memory_bytes=result.cost.memory_bytes,
            flops=result.cost.flops,
            settings=short_hash(_settings(config)),
            environment=short_hash(environment),
        )
        if not any(_belongs(row, part) for part in parts):
            continue
        if on_record.get(row.cell, row.settings) != row.settings:
            continue
        if set_to.setdefault(row.cell, row.settings) != row.settings:
            raise UsageError(
                f"there are runs of {row.place} with different settings; give only the folders of one of them"
            )
        rows[row.cell, row.seed] = row
        settings[row.settings] = _settings(config)
        environments[row.environment] = environment
    return _tidy(rows.values(), settings, environments)


def read(folder: Path, parts: Iterable[Part]) -> Records:
    """The records of these parts in a folder; none where there is none."""
    rows = []
    for path in (folder / f"{part.name}.csv" for part in parts):
        if path.exists():
            with path.open(newline="") as file:
                try:
                    lines = csv.DictReader(file)
                    rows += [_row(line) for line in lines]
                    if not lines.fieldnames:
                        raise ValueError("it is empty")
                except (ValueError, TypeError, KeyError) as error:
                    raise UsageError(f"{path} is damaged ({error}); restore it or delete it") from None
    # As they would be written now: a version with more options than that which wrote them finds the same settings.
    known = {name: _settings(entry) for name, entry in _read_json(folder / SETTINGS).items()}
    for row in rows:
        if row.settings in known and known[row.settings]["method"] != row.method:
            raise UsageError(f"a record in {folder} names {row.method}, and its settings another method; restore it")
    rows = [replace(row, settings=short_hash(known[row.settings])) if row.settings in known else row for row in rows]
    settings = {short_hash(entry): entry for entry in known.values()}
    return _tidy(rows, settings, _read_json(folder / ENVIRONMENTS))


def keep(newer: Records, folder: Path, parts: Sequence[Part], lose: bool = True) -> tuple[Records, list[Record]]:
    """Add records to those of a folder, one process at a time: all that are there now, and the rows they replaced.

    Unless it may ``lose`` any, what would leave a cell with fewer runs than it has is refused.
    """
    with sole_use(folder, wait=True):
        known = read(folder, parts)
        found = known.merged(newer)
        for cell, rows in known.cells.items():
            if not lose and len(found.cells[cell]) < len(rows):
                raise UsageError(
                    f"{rows[0].place} has {len(rows)} runs on record, and {len(found.cells[cell])} with other settings "
                    "would take their place; leave the folder of those out, or delete the rows of the record first"
                )
        write(found, folder, parts)
    left = {(row.cell, row.seed, row.settings, row.accuracy) for row in found.rows}
    return found, [row for row in known.rows if (row.cell, row.seed, row.settings, row.accuracy) not in left]


def write(records: Records, folder: Path, parts: Sequence[Part]) -> None:
    """One CSV file for each part that has rows, and what their hashes stand for. The same records, the same bytes."""
    told = {folder / SETTINGS: records.settings, folder / ENVIRONMENTS: records.environments}
    for path, entries in told.items():  # of old rows and new ones: wherever this is stopped, all rows can be read
        _write_json(path, _read_json(path) | dict(entries))
    left = list(records.rows)
    for part in parts:
        rows = [row for row in left if _belongs(row, part)]
        left = [row for row in left if not _belongs(row, part)]  # a run that two figures share is written once
        if rows:
            with whole(folder / f"{part.name}.csv") as place, place.open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(item.name for item in fields(Record))
                writer.writerows([_text(getattr(row, item.name)) for item in fields(Record)] for row in rows)
    for path, entries in told.items():
        _write_json(path, entries)


def _as_in_the_paper(config: Mapping[str, Any]) -> bool:
    """On the test set, in the paper's stream, and with the memory that ``memory_per_class`` says."""
    return (
        not config["held_out"]
        and config["class_order"] == "label"
        and config["batch_size"] == 10
        and "stream" not in config  # which names only one that is not the method's own
        and not any(config["options"].get(name) for name in ("budget", "memory_samples"))
    )


def _belongs(row: Record, part: Part) -> bool:
    return (
        row.dataset == part.dataset
        and part.compares_in(row.protocol)
        and (row.method in part.methods(row.classes_per_task) or row.method not in TITLES)
        and row.classes_per_task in part.classes_per_task
        and row.memory_per_class in (None, *part.memories)
    )


def _tidy(
    rows: Iterable[Record], settings: Mapping[str, Mapping[str, Any]], environments: Mapping[str, Mapping[str, str]]
) -> Records:
    """Sorted, methods as in the paper's tables, and without hashes that no row names."""

    def place(row: Record) -> tuple[Any, ...]:
        return row.dataset, row.classes_per_task, rank(row.method), row.protocol, row.memory_per_class or 0, row.seed

    ordered = tuple(sorted(rows, key=place))
    try:
        used = {name: settings[name] for name in sorted({row.settings for row in ordered})}
        made = {name: environments[name] for name in sorted({row.environment for row in ordered})}
    except KeyError as missing:
        raise UsageError(
            f"{SETTINGS} or {ENVIRONMENTS} does not say what {missing} is; restore both, or put the run folders on "
            "record again, in a new folder: onebyone report RUNS --records FOLDER"
        ) from None
    return Records(ordered, used, made)


def _protocol(config: Mapping[str, Any]) -> str:
    passes = config["options"].get("passes")
    return next((name for name, how in PROTOCOLS.items() if how == passes), BOTH)


def default_options(method: str) -> dict[str, Any]:
    """The defaults of a method; none of a user's own method that is on record but not registered now."""
    known = methods()
    return asdict(known[method].options()) if method in known else {}


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What was chosen, besides what a row says itself; on what machine and data is said by its environment.

    Not whether it was ``prequential``, which changes nothing that is learnt. An option that came later than the run is
    at its default, which is to do what was done before.
    """
    options = default_options(config["method"]) | config["options"]
    options.pop("memory_per_class", None)
    apart = ("seed", "memory_per_class", "device", "data", "prequential")
    chosen = {name: value for name, value in config.items() if name not in apart}
    return chosen | {"options": options}


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_text, value))
    if isinstance(value, float):
        return format(value, ".10g")
    return "-" if value is None else str(value)


def _row(line: Mapping[str, str]) -> Record:
    def number(text: str) -> float | None:
        return None if text == "-" else float(text)

    memory = line["memory_per_class"]
    return Record(
        protocol=line["protocol"],
        dataset=line["dataset"],
        method=line["method"],
        classes_per_task=int(line["classes_per_task"]),
        memory_per_class=None if memory == "-" else int(memory),
        seed=int(line["seed"]),
        accuracy=float(line["accuracy"]),
        forgetting=number(line["forgetting"]),
        anytime=tuple(map(number, line["anytime"].split())),
        class_accuracy=tuple(map(number, line["class_accuracy"].split())),
        memory_bytes=int(line["memory_bytes"]),
        flops=float(line["flops"]),
        settings=line["settings"],
        environment=line["environment"],
    )


def _read_json(path: Path) -> dict[str, dict[str, Any]]:
    try:
        found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
        if not isinstance(found, dict):
            raise ValueError("it is no object")
        return found
    except ValueError as error:
        raise UsageError(f"{path} is damaged ({error}); restore it") from None


def _write_json(path: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(entry, sort_keys=True)}" for key, entry in entries.items()]
    with whole(path) as place:
        place.write_text("{\n" + ",\n".join(lines) + "\n}\n")
