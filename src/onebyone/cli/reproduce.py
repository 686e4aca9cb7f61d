"""The commands that run the paper again and report on it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onebyone.cli.options import Address, DataDir, Device, Executor, Jobs, Methods, names
from onebyone.cli.output import Output
from onebyone.cli.progress import SweepBars
from onebyone.errors import UsageError
from onebyone.executors import executor_named
from onebyone.paper import records
from onebyone.paper.comparison import table
from onebyone.paper.printed import BEYOND, TITLES, Part, rank
from onebyone.paper.records import CellKey, Records
from onebyone.paper.report import Study, check_folder, check_page, publish, publish_markdown, read_tried
from onebyone.paper.reproduce import EVERYTHING, TARGETS, collect, parts_of, protocols_of, reproduce
from onebyone.runs.results import Record
from onebyone.runs.winners import winners_in

if TYPE_CHECKING:
    from pandas import DataFrame

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="table1, table2, figure1, figures, all or beyond.", autocompletion=names(lambda: TARGETS)
    ),
]


def reproduce_command(
    target: Target,
    protocol: Annotated[str, typer.Option(metavar="NAME", help="printed, separate, joint, both or all.")] = "both",
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Runs of each cell.", show_default="5, quick: 1")
    ] = None,
    methods: Methods = None,
    winners: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What `tune` found.", show_default="the package's")
    ] = None,
    device: Device = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Few images: to try it out.")] = False,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Run nothing; show the records there.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Of runs, records and page.")] = Path("reproduction"),
    data_dir: DataDir = None,
    jobs: Jobs = None,
    executor: Executor = "local",
    address: Address = None,
) -> Output:
    """Repeat the paper: do the missing runs of a table or figure.

    Writes records (CSV), a page, figures and tables. After Ctrl-C or a crash,
    the same command resumes.
    """
    own = tuple(name for name in methods or () if ":" in name)
    parts = tuple(replace(part, own=own) for part in parts_of(target, quick))
    protocols = protocols_of(protocol, parts)
    page = out / "report.html"
    check_page(page)
    if from_ is not None:
        options = {"seeds": seeds, "method": methods or None, "winners": winners, "data-dir": data_dir, "jobs": jobs}
        changed = {
            "device": None if device == "auto" else device,
            "executor": None if executor == "local" else executor,
        }
        _runs_nothing(options | changed | {"address": address})
        found = collect([from_])
        if not found.of(parts).rows:
            raise UsageError(f"there is no run of {target} in {from_}; make some: onebyone reproduce {target}")
        command = _again(found, parts, target, protocol)
        return _show(found, command, parts, protocols, page, from_ / "tried.yaml")
    count = seeds if seeds is not None else 1 if quick else 5
    with SweepBars() as bars:
        found, replaced, failed = reproduce(
            parts,
            out,
            protocols=protocols,
            seeds=count,
            only=methods or (),
            winners=winners_in(winners) if winners is not None else (),
            data_dir=data_dir,
            device=device,
            jobs=jobs,
            executor=executor_named(executor, address),
            listener=bars,
        )
    _report_replaced(replaced)
    command = _command(target, protocol, count, quick, methods or ()) + (f" --winners {winners}" if winners else "")
    return _show(found, command, parts, protocols, page, out / "tried.yaml", list(failed))


def _show(
    found: Records,
    command: str,
    parts: Sequence[Part],
    protocols: Sequence[str],
    page: Path,
    tried: Path,
    failed: Sequence[str] = (),
) -> Output:
    """Write the page of some records, which ``command`` makes again, and answer with their tables."""
    parts = found.with_own(parts)
    study = Study(found.of(parts), parts, protocols, command=command, tried=read_tried(tried))
    publish(study, page)
    shown = dict(study.tables())
    return Output(
        {"tables": [_table_data(rows) for rows in shown.values()], "page": page, "failed": sorted(failed)},
        "\n".join(f"{name}, in per cent\n{table(rows).to_string(index=False)}\n" for name, rows in shown.items()),
        f"The page: {page}" + (" (QUICK: its numbers mean nothing)" if study.is_quick else ""),
        f"{len(failed)} runs failed, see error.txt in {', '.join(failed)}" if failed else "",
    )


def _table_data(rows: DataFrame) -> dict[str, Any]:
    """A table for JSON: every number, the paper's and ours, and the verdict."""
    cells = [
        {name: getattr(row.cell, name) for name in ("protocol", "method", "memory_per_class")}
        | {"paper": row.paper, "ours": row.ours, "verdict": row.verdict}
        for row in rows.itertuples()
    ]
    part, first = rows["part"].iloc[0], rows["cell"].iloc[0]
    about = {"part": part.name, "dataset": part.dataset, "classes_per_task": first.classes_per_task}
    return about | {"metric": rows["metric"].iloc[0], "cells": cells}


def report_command(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="With records, or runs anywhere below.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page; figures go beside it.")] = Path("report.html"),
    text: Annotated[
        Path | None, typer.Option("--markdown", metavar="FOLDER", help="Write Markdown pages there instead.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option("--records", metavar="FOLDER", help="Also keep all records there.")
    ] = None,
) -> Output:
    """Report on runs of the paper: a page, figures and tables.

    Where folders disagree on a cell, the last one counts.
    """
    if text is None:
        check_page(out)
    else:
        check_folder(text)
    found = collect(folders)
    if keep is not None:
        added_to = keep.resolve() in [folder.resolve() for folder in folders]  # then nothing should get lost there
        found, replaced = records.keep(found, keep, EVERYTHING, lose=not added_to)
        _report_replaced(replaced)
    parts = found.with_own(_shown(found))
    rows = found.of(parts).rows
    protocol = "all" if any(row.config["protocol"] == "printed" for row in rows) else "both"
    study = Study(
        found.of(parts),
        parts,
        protocols_of(protocol, parts),
        command=_again(found, parts, "all", protocol),
        tried=[entry for folder in folders for entry in read_tried(folder / "tried.yaml")],
    )
    if text is None:
        publish(study, out)
    else:
        publish_markdown(study, text)
    return Output({"runs": len(rows), "file": text or out}, f"{len(rows)} runs; see: {text or out}")


def _runs_nothing(options: Mapping[str, object]) -> None:
    """Refuse options for runs beside --from, which would ignore them."""
    if given := [f"--{name}" for name, value in options.items() if value is not None]:
        raise UsageError(f"--from shows what is on record and runs nothing; leave {', '.join(given)} out")


def _report_replaced(replaced: Sequence[Record]) -> None:
    """Report the runs on record that newer ones replace, as a cell has one setting and a seed one run."""
    if replaced:
        cells = "; ".join(dict.fromkeys(str(CellKey.of(record.config)) for record in replaced))
        print(f"onebyone: replaced {len(replaced)} of the runs on record: {cells}", file=sys.stderr)


def _shown(found: Records) -> tuple[Part, ...]:
    """The parts that have runs: of the paper, and beyond it; quick ones only if there are no others."""
    small = not found.of((*parts_of("all"), *parts_of("beyond"))).rows
    paper = parts_of("all", small) if found.of(parts_of("all", small)).rows else ()
    further = [
        part
        for part in parts_of("beyond", small)
        if any(not paper or r.config["method"] in BEYOND for r in found.of([part]))
    ]
    return (*paper, *further)


def _again(found: Records, parts: Sequence[Part], target: str, protocol: str) -> str:
    """The commands that make these parts again; beyond the paper, with the methods that have runs."""
    paper = [part for part in parts if not part.beyond]
    shown = found.of(parts)
    further = {cell.method for cell in shown.cells.keys() - found.of(paper).cells.keys()} & set(TITLES)
    own = {row.config["method"] for row in shown} - set(TITLES)
    seeds, quick = max(row.config["seed"] for row in shown) + 1, parts[0].is_quick
    lines = [_command(target, protocol, seeds, quick)] if paper else []
    if further:
        lines.append(_command("beyond", protocol, seeds, quick, sorted(further, key=rank)))
    if own:
        lines.append(_command(target, protocol, seeds, quick, [f"FILE.py:{name}" for name in sorted(own)]))
    return "\n".join(lines)


def _command(target: str, protocol: str, seeds: int, quick: bool, methods: Sequence[str] = ()) -> str:
    only = "".join(f" --method {name}" for name in methods)
    return f"onebyone reproduce {target} --protocol {protocol} --seeds {seeds}{only}{' --quick' * quick}"
