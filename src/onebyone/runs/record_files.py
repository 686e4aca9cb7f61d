"""Records of runs as CSV files: one row per run, beside two JSON files that hold what its hashes stand for.

``settings.json`` maps a hash to the settings of a run: its configuration, except for what the row says itself.
``environments.json`` maps a hash to the device, the versions and the checksum of the data.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from onebyone.errors import UsageError
from onebyone.files import atomic_write
from onebyone.runs.config import bare_name, short_hash
from onebyone.runs.formats import configuration
from onebyone.runs.results import Record

SETTINGS, ENVIRONMENTS = "settings.json", "environments.json"
DIGITS = 5  # of an accuracy: more than any test set can resolve
COLUMNS = (
    "protocol",
    "dataset",
    "method",
    "classes_per_task",
    "memory_per_class",  # "-" for a method without a memory
    "seed",
    "accuracy",
    "forgetting",
    "anytime",  # numbers with spaces between them
    "class_accuracy",
    "memory_bytes",
    "flops",  # per sample
    "settings",
    "environment",
)
Entries = Mapping[str, Mapping[str, Any]]


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run, except for what its row and its environment say.

    ``prequential`` is left out as well: it does not change what is learned.
    """
    left_out = ("protocol", "seed", "memory_per_class", "device", "data", "prequential")
    return {name: value for name, value in configuration(config).items() if name not in left_out}


def identity(config: Mapping[str, Any]) -> str:
    """A hash of what a run learns: equal for a run folder and for the row of a CSV file that holds the same run."""
    if "code" in config:  # which tells methods of one name apart, and a CSV file does not have the path
        config = {**config, "method": bare_name(config["method"])}
    found = {name: config.get(name) for name in ("seed", "memory_per_class", "device", "data")}
    return short_hash(settings(config) | found)


def environment(record: Record) -> dict[str, str]:
    """The machine and the data of a run, as they are written."""
    return {**record.environment, "type": record.config["device"], "data": record.config["data"]}


def line(record: Record) -> dict[str, str]:
    """The row of a run."""
    config, metrics = record.config, record.metrics
    return {
        **{name: _text(config[name]) for name in COLUMNS[:6]},
        **{name: _text(metrics[name], DIGITS) for name in ("accuracy", "forgetting")},
        "anytime": " ".join(_text(point, DIGITS) for point in record.anytime),
        "class_accuracy": " ".join(_text(point, DIGITS) for point in record.class_accuracy),
        "memory_bytes": _text(metrics["cost.memory_bytes"]),
        "flops": _text(metrics["cost.flops"]),
        "settings": short_hash(settings(config)),
        "environment": short_hash(environment(record)),
    }


def as_recorded(record: Record) -> Record:
    """A run as it would be read from a CSV file."""
    row = line(record)
    return _record(row, {row["settings"]: settings(record.config)}, {row["environment"]: environment(record)})


def is_record(path: Path) -> bool:
    """Whether a path is such a CSV file; there may be those of other programs beside them."""
    if not path.is_file():
        return False
    with path.open(newline="", errors="replace") as file:
        header = next(csv.reader(file), [])
    return {"method", "seed", "accuracy", "settings", "environment"} <= set(header)


def read(paths: Iterable[Path]) -> list[Record]:
    """The records in some CSV files, each with the JSON files in its folder."""
    found = []
    for path in paths:
        known, environments = (_read_json(path.parent / name) for name in (SETTINGS, ENVIRONMENTS))
        try:
            known = {name: settings(entry) for name, entry in known.items()}
            with path.open(newline="", encoding="utf-8") as file:
                rows = csv.DictReader(file)
                if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
                    raise ValueError(f"it has no column {missing[0]}")
                found += [_record(row, known, environments) for row in rows]
        except _Unknown as error:
            raise UsageError(
                f"{SETTINGS} or {ENVIRONMENTS} beside {path} does not say what {error} is; restore both, or write the "
                "records again from the run folders: onebyone report RUNS --records FOLDER"
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"{path} is damaged ({error}); restore it or delete it") from None
    return found


def write(folder: Path, files: Mapping[str, Sequence[Record]]) -> None:
    """Write CSV files into a folder, and what their hashes stand for. Equal records give equal bytes."""
    records = [record for some in files.values() for record in some]
    used: dict[Path, Entries] = {
        folder / SETTINGS: {short_hash(entry): entry for entry in (settings(r.config) for r in records)},
        folder / ENVIRONMENTS: {short_hash(entry): entry for entry in map(environment, records)},
    }
    for path, entries in used.items():  # of old rows and new ones: wherever this is stopped, all rows can be read
        _write_json(path, _read_json(path) | dict(entries))
    for name, some in files.items():
        with atomic_write(folder / name) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(map(line, some))
    for path, entries in used.items():
        _write_json(path, entries)


class _Unknown(Exception):
    """A hash that the JSON files do not have."""


def _record(row: Mapping[str, str], known: Entries, environments: Entries) -> Record:
    if None in row.values():
        raise ValueError("a row is too short")
    for name, entries in ((row["settings"], known), (row["environment"], environments)):
        if name not in entries:
            raise _Unknown(repr(name))
    if known[row["settings"]]["method"] != row["method"]:
        raise ValueError(f"a row names {row['method']}, and its settings another method")
    made = dict(environments[row["environment"]])
    config = {
        **known[row["settings"]],
        **{name: row[name] for name in ("protocol", "dataset", "method")},
        **{name: _whole_number(row[name]) for name in ("classes_per_task", "memory_per_class", "seed")},
        "device": made.pop("type"),
        "data": made.pop("data"),
        "prequential": False,
    }
    curve = tuple(float(point) for point in row["anytime"].split())
    metrics = {
        "accuracy": float(row["accuracy"]),
        "forgetting": _number(row["forgetting"]),
        "average_anytime": fmean(curve),
        "cost.memory_bytes": int(row["memory_bytes"]),
        "cost.flops": float(row["flops"]),
    }
    return Record(
        config=config,
        metrics=metrics,
        anytime=curve,
        class_accuracy=tuple(map(_number, row["class_accuracy"].split())),
        environment=made,
    )


def _number(text: str) -> float | None:
    return None if text == "-" else float(text)


def _whole_number(text: str) -> int | None:
    return None if text == "-" else int(text)


def _text(value: Any, digits: int | None = None) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return format(value if digits is None else round(value, digits), ".10g")
    return str(value)


def _read_json(path: Path) -> dict[str, dict[str, Any]]:
    try:
        found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
        if not isinstance(found, dict):
            raise ValueError("it is no object")
        return found
    except ValueError as error:
        raise UsageError(f"{path} is damaged ({error}); restore it") from None


def _write_json(path: Path, entries: Entries) -> None:
    lines = [f"{json.dumps(key)}: {json.dumps(entries[key], sort_keys=True)}" for key in sorted(entries)]
    with atomic_write(path) as temporary:
        temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n")
