"""Tables and figures of the paper on a machine that is lent for minutes: does missing runs until a limit.

As `onebyone reproduce`, but after the limit no run is started, those that run are finished, and all that is finished is
added to the records. It needs neither the command line nor the page, which the lent machine may lack the packages for.
The folder of runs is not needed afterwards: copy CSV and JSON files back, and do

    python benchmarks/tables.py table1 table2 --protocol printed --data-dir DIR --out OUT --limit 500
    onebyone report OUT --records results && onebyone report results --markdown docs/reproduction
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onebyone.errors import Interrupted
from onebyone.executors import LocalExecutor, Worker
from onebyone.executors.executor import Function
from onebyone.paper import records
from onebyone.paper.reproduce import EVERYTHING, configs, parts_of, protocols_of, reproduce
from onebyone.runs.grid import plan
from onebyone.runs.results import finished_runs


@dataclass(frozen=True)
class Limited:
    """A function that does not begin with an item after a time."""

    function: Function
    until: float  # by the clock of :func:`time.time`, which processes share

    def __call__(self, name: str, item: Any, worker: Worker) -> Any:
        if time.time() > self.until:
            raise Interrupted("no run is started after the limit")
        return self.function(name, item, worker)


class LimitedExecutor(LocalExecutor):
    def __init__(self, until: float) -> None:
        self.until = until

    def map(self, function: Function, items: Mapping[str, Any], **given: Any) -> Generator[tuple[str, Any]]:
        return super().map(Limited(function, self.until), items, **given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="+", help="table1, table2, figure1, figures or beyond")
    parser.add_argument("--protocol", default="printed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--method", action="append", help="only this; repeatable")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="a copy of the records; runs go below it")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no run is started")
    parser.add_argument("--jobs", type=int, help="runs at the same time")
    parser.add_argument("--quick", action="store_true", help="few images, to try the program")
    given = parser.parse_args()
    begin = time.time()
    parts = tuple(part for target in given.target for part in parts_of(target, given.quick))
    protocols, only = protocols_of(given.protocol, parts), given.method or ()
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        reproduce(
            parts,
            given.out,
            protocols=protocols,
            seeds=given.seeds,
            only=only,
            data_dir=given.data_dir,
            jobs=given.jobs,
            executor=LimitedExecutor(begin + given.limit),
        )
    except Interrupted:  # what is finished is in its folder
        records.keep(records.from_results(finished_runs(given.out / "runs"), parts), given.out, EVERYTHING)
    known = records.read(given.out, EVERYTHING)
    wanted = configs(parts, protocols, given.seeds, only)
    missing = Counter(config.method for config in plan(wanted, "").values() if not known.holds(config))
    print(f"[{time.time() - begin:4.0f} s] missing: {dict(missing) or 'nothing'}")


if __name__ == "__main__":
    main()
