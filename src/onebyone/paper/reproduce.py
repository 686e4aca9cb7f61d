"""Reproduce the paper: do the runs that its tables and figures still need, and keep them as records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from onebyone.errors import UsageError, unknown
from onebyone.evaluation import Result
from onebyone.executors import Executor, Failed
from onebyone.methods import Options, find
from onebyone.paper import records
from onebyone.paper.printed import FURTHER, PARTS, TITLES, Part, quick
from onebyone.paper.protocols import NAMES, choice, fixed, fixed_of_run
from onebyone.paper.protocols import protocols as rules
from onebyone.paper.records import Records
from onebyone.runs.config import RunConfig, bare_name
from onebyone.runs.listener import Listener
from onebyone.runs.results import Record, finished_runs
from onebyone.runs.sweep import sweep
from onebyone.runs.winners import Winner, winner

EVERYTHING = (*PARTS, *FURTHER, *quick((*PARTS, *FURTHER)))  # every part that has records
TARGETS = {
    "table1": ("table1",),
    "table2": ("table2",),
    "figure1": ("figure1",),
    "figures": tuple(part.name for part in PARTS),  # the curves of CIFAR-10 are those of the tables' runs
    "all": tuple(part.name for part in PARTS),
    "beyond": tuple(part.name for part in FURTHER),
}


def parts_of(target: str, small: bool = False) -> tuple[Part, ...]:
    """The tables and figures of a target, or their small versions for a quick try.

    >>> [part.name for part in parts_of("figure1")]
    ['figure1']
    """
    if target not in TARGETS:
        raise unknown("target", target, TARGETS)
    return tuple(part for part in EVERYTHING if part.in_print in TARGETS[target] and part.is_quick == small)


def protocols_of(name: str, parts: Sequence[Part] = PARTS) -> tuple[str, ...]:
    """A protocol, ``both`` of ``separate`` and ``joint``, or ``all``, as far as these parts have numbers in them.

    >>> protocols_of("both"), protocols_of("all", parts_of("beyond"))
    (('separate', 'joint'), ('joint',))
    """
    several = {"both": ("separate", "joint"), "all": NAMES}
    if name not in (*NAMES, *several):
        raise unknown("protocol", name, (*NAMES, *several))
    asked = several.get(name, (name,))
    if not (found := tuple(one for one in asked if any(part.compares_in(one) for part in parts))):
        raise UsageError("what goes beyond the paper is compared with joint passes only; use protocol joint")
    return found


def configs(
    parts: Sequence[Part],
    protocols: Sequence[str],
    seeds: int,
    only: Collection[str] = (),
    winners: Sequence[Winner] = (),
) -> list[RunConfig]:
    """Every run of some parts with its tuned options, seed by seed, so that a stopped reproduction has complete seeds.

    ``only`` restricts the methods, if it is not empty. ``printed`` has the options that it fixes, and those chosen by
    its search. The others have those of ``winners``, or else those chosen by the search of ``separate``, or else those
    of the package's tuning.
    """
    if seeds < 1:
        raise UsageError(f"seeds is {seeds}; it must be at least 1")
    sources = {bare_name(method): method for part in parts for method in part.own}
    cells = [
        (protocol, part.dataset, name, classes, memory, seed)
        for seed in range(seeds)
        for part in parts
        for protocol in protocols
        if part.compares_in(protocol)
        for classes in part.classes_per_task
        for memory in part.memories
        for name in part.methods(classes)
    ]
    known = {name for _, _, name, *_ in cells}
    only = [bare_name(name) for name in only]
    for name in only:
        if name not in known:  # nothing would be run, and the tables would be empty
            tables = ", ".join(part.name for part in parts)
            raise unknown(f"method of {tables} ({' and '.join(protocols)})", name, known)
    return [
        RunConfig(
            method=sources.get(name, name),
            dataset=dataset,
            classes_per_task=classes,
            memory_per_class=memory,
            seed=seed,
            **fixed_of_run(protocol),
            **_settings(sources.get(name, name), dataset.removesuffix("-quick"), classes, protocol, winners),
        )
        for protocol, dataset, name, classes, memory, seed in cells
        if not only or name in only
    ]


def _settings(
    name: str, dataset: str, classes_per_task: int, protocol: str, winners: Sequence[Winner]
) -> dict[str, Any]:
    """The protocol that is recorded, and the options of the method in it."""
    known = {item.name for item in fields(find(name).options)}  # first: this imports the file of a user's method
    bare = bare_name(name)
    found = choice(protocol, bare, classes_per_task)
    chosen = found["options"] if found and found["complete"] else None
    if protocol == "printed":
        if chosen is None and bare in rules()[protocol]["open"]:
            raise UsageError(
                f"the search for the open options of {name} in the protocol printed is not complete; complete it as "
                "results/search/README.md of the repository says, or name other methods with --method"
            )
        own = {} if bare in TITLES else winner(bare, dataset, classes_per_task, winners)
        return {"protocol": protocol, "options": own | fixed(protocol, name) | (chosen or {})}
    tuned = winner(bare, dataset, classes_per_task, winners)
    if chosen is not None and not any(one.method == bare for one in winners):
        tuned = fixed(protocol, name) | chosen
    if (precision := tuned.get("precision", Options.precision)) != Options.precision:
        raise UsageError(f"the winner of {name} has precision {precision}; the paper's tables need {Options.precision}")
    if "passes" in known:
        return {"protocol": protocol, "options": tuned | {"passes": protocol}}
    return {"protocol": "both", "options": tuned}  # the same run in separate and joint


def reproduce(
    parts: Sequence[Part],
    out: Path,
    *,
    protocols: Sequence[str] = ("separate", "joint"),
    seeds: int = 5,
    only: Collection[str] = (),
    winners: Sequence[Winner] = (),
    data_dir: Path | None = None,
    device: str = "auto",
    jobs: int | None = None,
    executor: str | Executor = "local",
    listener: Listener | None = None,
    everything: Sequence[Part] = EVERYTHING,
) -> tuple[Records, list[Record], dict[str, Failed]]:
    """Do the runs of these parts that are not on record in ``out``, and add them to the record.

    Returns all records, those that were replaced, and what failed. Run folders are in ``out/runs``. A run on record
    needs no folder, so the work can be divided among machines, and among processes that share ``out``.
    """
    known = records.read(out, everything)
    missing = [config for config in configs(parts, protocols, seeds, only, winners) if not known.holds(config)]
    outcomes: dict[str, Result | Failed] = {}
    if missing:
        outcomes = sweep(
            missing,
            out / "runs",
            data_dir=data_dir,
            device=device,
            jobs=jobs,
            executor=executor,
            listener=listener,
        )
    results = [outcome for outcome in outcomes.values() if isinstance(outcome, Result)]
    found, replaced = records.keep(records.from_results(results, parts), out, everything)
    return found, replaced, {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Failed)}


def collect(folders: Iterable[Path], everything: Sequence[Part] = EVERYTHING) -> Records:
    """All records and all finished runs below these folders, a later folder over an earlier one.

    If a folder has both, its records determine the settings of a cell.
    """
    found = Records()
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder; give one with records or with runs")
        known = records.read(folder, everything)
        found = found.merged(known).merged(records.from_results(finished_runs(folder), everything, known))
    if not found.rows:
        raise UsageError("there is no run of the paper's tables and figures there; make some: onebyone reproduce")
    return found
