"""The search of a protocol: which trainings it needs, and what its record chooses by the rule in ``protocols.yaml``.

``benchmarks/search.py`` does the trainings. A row of the record is one training with one read-out.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from onebyone.errors import UsageError
from onebyone.methods import BudgetOptions, ReplayOptions, find
from onebyone.paper.protocols import fixed, fixed_of_run, protocols, readouts, settings
from onebyone.runs.config import RunConfig

CELL = ("method", "classes_per_task", "memory_per_class", "seed")
COLUMNS = ("stage", *CELL, "options", "readout", "accuracy", "forgetting", "seconds")  # of a share of its pack
Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    """The rows of a record, each once. Raises ``UsageError`` if a line is not complete, as after a crash."""
    found: dict[tuple[str, ...], Row] = {}
    text = path.read_text() if path.exists() else ""
    for line, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        if None in row.values() or row.keys() != set(COLUMNS) or line > text.count("\n"):
            raise UsageError(f"{path} is damaged in line {line}; delete this line, and the training is done again")
        found[tuple(row[name] for name in (*COLUMNS[:6], "readout"))] = row
    return list(found.values())


def groups(protocol: str, method: str) -> list[list[int]]:
    """The classes per task that get one setting together, as far as the method is searched with them.

    >>> groups("printed", "er"), groups("printed", "er-ace"), groups("separate", "er")
    ([[1, 2]], [[2]], [[1], [2]])
    """
    search = protocols()[protocol]["search"]
    searched = search["classes_per_task"].get(method, search["classes_per_task"]["others"])
    found = ([classes for classes in group if classes in searched] for group in search["groups"])
    return [group for group in found if group]


def readouts_of(method: str) -> tuple[str, ...]:
    """The read-outs of a method. One that has no such option has one without a name.

    >>> readouts_of("er"), readouts_of("finetune")
    (('head', 'ncm'), ('',))
    """
    return readouts(method) or ("",)


def allowed(protocol: str, method: str) -> tuple[str, ...]:
    """The read-outs among which a method may choose.

    >>> allowed("printed", "er"), allowed("printed", "ccp")
    (('head',), ('prototypes', 'projector', 'encoder'))
    """
    return tuple(protocols()[protocol].get("readouts", {}).get(method, readouts_of(method)))


def planned(
    protocol: str, method: str, stage: int, known: Sequence[Row]
) -> list[tuple[RunConfig, dict[str, Any], list[int]]]:
    """All trainings of a stage, each with the settings of its open options and the group that it is for."""
    search = protocols()[protocol]["search"]
    plan = search["stages"][stage]
    has_memory = issubclass(find(method).options, ReplayOptions | BudgetOptions)
    memories = plan["memory_per_class"] if has_memory else plan["memory_per_class"][:1]
    tried = {
        tuple(group): best(known, protocol, method, group, stage - 1)[: plan["settings"]]
        if stage
        else settings(protocol, method, plan["settings"])
        for group in groups(protocol, method)
    }
    positions = range(max(map(len, tried.values())))
    return [
        (
            RunConfig(
                method=method,
                dataset=search["dataset"],
                classes_per_task=classes,
                memory_per_class=memory,
                seed=seed,
                held_out=True,
                protocol=protocol,  # type: ignore[arg-type]
                options=fixed(protocol, method) | some[position],
                **fixed_of_run(protocol),
            ),
            some[position],
            list(group),
        )
        for seed in plan["seeds"]
        for position in positions
        for memory in memories
        for group, some in tried.items()
        if position < len(some)
        for classes in group
    ]


def trainings(protocol: str, method: str, stage: int, known: Sequence[Row]) -> list[tuple[RunConfig, dict[str, Any]]]:
    """The trainings of a stage that are not on record, with the settings of their open options."""
    done = _done(known)
    return [
        (config, options)
        for config, options, _ in planned(protocol, method, stage, known)
        if _key(stage, config, options) not in done
    ]


def _done(known: Sequence[Row]) -> set[tuple[str, ...]]:
    return {tuple(str(row[name]) for name in COLUMNS[:6]) for row in known}


def _key(stage: int, config: RunConfig, options: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(value) for value in (stage, *named(config, options).values()))


def named(config: RunConfig, options: Mapping[str, Any]) -> Row:
    """The columns that name a training."""
    return {name: getattr(config, name) for name in CELL} | {"options": json.dumps(options)}


def best(rows: Sequence[Row], protocol: str, method: str, group: Sequence[int], stage: int) -> list[dict[str, Any]]:
    """The settings of a stage, best first: by the accuracy of the best read-out that the method may choose."""
    order = ranked(rows, protocol, method, group, stage)
    return [json.loads(options) for options in dict.fromkeys(options for options, _ in order)]


def ranked(
    rows: Sequence[Row], protocol: str, method: str, group: Sequence[int], stage: int
) -> dict[tuple[str, str], float]:
    """Accuracies of settings with read-outs, best first: the mean over S and M of the mean over the seeds."""
    found = cells(rows, method, group, stage)
    means = {
        key: fmean(map(fmean, some.values())) for key, some in found.items() if key[1] in allowed(protocol, method)
    }
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def cells(
    rows: Sequence[Row], method: str, group: Sequence[int], stage: int
) -> dict[tuple[str, str], dict[tuple[int, int], list[float]]]:
    """Accuracies of each setting with each read-out, by S and M."""
    found: dict[tuple[str, str], dict[tuple[int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        classes = int(row["classes_per_task"])
        if row["method"] == method and int(row["stage"]) == stage and classes in group:
            cell = classes, int(row["memory_per_class"])
            found[row["options"], row["readout"]][cell].append(float(row["accuracy"]))
    return found


def missing(protocol: str, method: str, group: Sequence[int], rows: Sequence[Row]) -> dict[int, int]:
    """How many trainings are missing, by stage. Stages after the first that is not complete are not known yet."""
    done = _done(rows)
    for stage in range(len(protocols()[protocol]["search"]["stages"])):
        trainings = [one for one in planned(protocol, method, stage, rows) if one[2] == group]
        if count := sum(_key(stage, config, options) not in done for config, options, _ in trainings):
            return {stage: count}
    return {}


def choose(protocol: str, rows: Sequence[Row]) -> dict[str, list[dict[str, Any]]]:
    """What the record chooses for each method and group, by the last stage that it has.

    ``accuracy`` is in per cent, of every read-out after the same trainings. Where trainings are missing, the choice is
    the best so far, and not ``complete``.
    """
    chosen: dict[str, list[dict[str, Any]]] = {}
    stages = protocols()[protocol]["search"]["stages"]
    for method in protocols()[protocol]["open"]:
        for group in groups(protocol, method):
            seen = [stage for stage in range(len(stages)) if cells(rows, method, group, stage)]
            if not seen:
                continue
            stage = seen[-1]
            order = ranked(rows, protocol, method, group, stage)
            if stage:  # settings that went on for a read-out that the method may not choose do not count
                ahead = best(rows, protocol, method, group, stage - 1)[: stages[stage]["settings"]]
                order = {key: mean for key, mean in order.items() if json.loads(key[0]) in ahead}
            options, readout = next(iter(order))
            found = cells(rows, method, group, stage)
            entry = {
                "classes_per_task": group,
                "complete": not missing(protocol, method, group, rows),
                "stage": stage,
                "options": json.loads(options) | ({"readout": readout} if readout else {}),
                "accuracy": {
                    name: round(100 * fmean(map(fmean, found[options, name].values())), 1)
                    for name in readouts_of(method)
                },
            }
            chosen.setdefault(method, []).append(entry)
    return chosen
