"""The search of a protocol: settings of every method on the held-out tenth of a training set (paper/protocols.yaml).

Every training is read out in each way that its method offers. A row of the record is one training with one read-out.
Rows are written after each stage of a method, and the same command does what is missing. Then choose from the record,
which writes paper/chosen.yaml and a page beside the record.

    python benchmarks/search.py printed --data-dir DIR --out results/search
    python benchmarks/search.py printed --choose
"""

from __future__ import annotations

import argparse
import csv
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import torch

from onebyone import Dataset, UsageError, load
from onebyone.engine import choose_device, more_queues, pack, torch_settings
from onebyone.evaluation import right_answers
from onebyone.evaluation.metrics import accuracy_matrix, metrics
from onebyone.paper.protocols import choices, protocols
from onebyone.paper.search import (
    COLUMNS,
    Row,
    as_yaml,
    choose,
    groups,
    named,
    page,
    ranked,
    read,
    readouts_of,
    trainings,
)
from onebyone.runs import Listener, RunConfig
from onebyone.runs.run import Run

CHOSEN = Path(__file__).parents[1] / "src" / "onebyone" / "paper" / "chosen.yaml"


class EveryReadout(Run):
    """A run that is evaluated with every read-out of its method."""

    def evaluate(self) -> Iterator[None]:
        yield from super().evaluate()
        learner = self.learner
        asked = self.test_order[: self.arrived[len(self.progress.right) - 1]]
        configured = learner.options
        for readout in self.readouts:
            if readout:
                learner.options = replace(configured, readout=readout)
            learner.drop_solution()  # class means of another space
            found = right_answers(learner, self.data.test_x[asked], self.data.test_y[asked])
            self.right[readout].append(found.tolist())
        learner.options = configured

    def rows(self, training: Row) -> Iterator[Row]:
        """Learn the stream. Yields after each step, and returns a row for each read-out."""
        self.right: dict[str, list[list[int]]] = defaultdict(list)
        self.readouts = readouts_of(training["method"])
        yield from self.steps(None, Listener(), Event())
        tasks = [task.classes for task in self.stream.tasks]
        rows = []
        for readout, right in self.right.items():
            found = metrics(accuracy_matrix(right, self.test_counts, tasks, None), self.stream.disjoint)
            row = training | {"readout": readout, "accuracy": round(found.accuracy, 5)}
            rows.append(row | {"forgetting": round(found.forgetting or 0.0, 5)})
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("protocol", choices=[name for name, rules in protocols().items() if "search" in rules])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/search"))
    parser.add_argument("--method", action="append", help="only this; repeatable")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no training is started")
    parser.add_argument("--width", type=int, default=32, help="trainings at the same time")
    parser.add_argument("--dataset", help="another data set, to try the program")
    parser.add_argument("--choose", action="store_true", help="train nothing; write what the record chooses")
    arguments = parser.parse_args()
    protocol, begin, path = arguments.protocol, time.perf_counter(), arguments.out / f"{arguments.protocol}.csv"
    if arguments.choose:
        CHOSEN.write_text(as_yaml(choices() | {protocol: choose(protocol, read(path))}))
        path.with_suffix(".md").write_text(page(protocol, read(path)))
        return
    if arguments.dataset:
        protocols()[protocol]["search"]["dataset"] = arguments.dataset
    with more_queues():
        device = choose_device("auto")
    data = load(protocols()[protocol]["search"]["dataset"], arguments.data_dir).held_out().to(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    for stage in range(arguments.stages):
        for method in arguments.method or protocols()[protocol]["open"]:
            chosen = trainings(protocol, method, stage, read(path))
            if chosen and time.perf_counter() - begin < arguments.limit:
                rows = train(chosen, data, device, arguments.width, begin + arguments.limit)
                if not rows:
                    continue
                with path.open("a", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    if file.tell() == 0:
                        writer.writeheader()
                    writer.writerows({"stage": stage} | row for row in rows)
                known = read(path)
                top = [next(iter(ranked(known, protocol, method, group, stage))) for group in groups(protocol, method)]
                trained = f"{len(rows) // len(readouts_of(method))} of {len(chosen)} trainings"
                print(f"[{time.perf_counter() - begin:4.0f} s] stage {stage} {method}: {trained}, ", end="")
                print(f"{rows[0]['seconds']} s each; best {top}", flush=True)


def train(
    chosen: Sequence[tuple[RunConfig, dict[str, Any]]], data: Dataset, device: torch.device, width: int, until: float
) -> list[Row]:
    """Do these trainings in a pack. One whose weights become infinite has the accuracy of no answer.

    After ``until``, by the clock of :func:`time.perf_counter`, no training is started; those that run are finished.
    """
    started, rows, readings = time.perf_counter(), list[Row](), len(readouts_of(chosen[0][0].method))

    def start(config: RunConfig, options: Mapping[str, Any]) -> Iterator[None]:
        if time.perf_counter() > until:
            raise TimeoutError
        return EveryReadout(replace(config, device=str(device)), data).rows(named(config, options))

    def failed(name: str, error: Exception) -> None:
        config, options = chosen[int(name)]
        if isinstance(error, TimeoutError):
            return
        if not isinstance(error, UsageError):
            raise error
        print(f"{config.method} {options}: {error}", flush=True)
        no_answer = named(config, options) | {"accuracy": 0.0, "forgetting": 1.0}
        rows.extend(no_answer | {"readout": readout} for readout in readouts_of(config.method))

    with torch_settings(flops=0):
        runs = {str(number): partial(start, *one) for number, one in enumerate(chosen)}
        pack(runs, width, done=lambda _, found: rows.extend(found), failed=failed)
    seconds = round((time.perf_counter() - started) * readings / max(len(rows), 1), 3)
    return [row | {"seconds": seconds} for row in rows]


if __name__ == "__main__":
    main()
