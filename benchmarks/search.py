"""The search of a protocol: settings of every method on the held-out tenth of a training set (paper/protocols.yaml).

Every training is read out in each way that its method offers. A row of the record is one training with one read-out.
Rows are written as trainings end, and the same command does what is missing.

    python benchmarks/search.py printed --data-dir DIR --out results/search
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from threading import Event
from typing import Any

import torch

from onebyone import Dataset, UsageError, load
from onebyone.engine import choose_device, more_queues, pack, torch_settings
from onebyone.evaluation import right_answers
from onebyone.evaluation.metrics import accuracy_matrix, metrics
from onebyone.paper.protocols import fixed, protocols, readouts, settings
from onebyone.runs import Listener, RunConfig
from onebyone.runs.run import Run

CELL = ("method", "classes_per_task", "memory_per_class", "seed")
COLUMNS = ("stage", *CELL, "options", "readout", "accuracy", "forgetting", "seconds")  # of a share of its pack
Row = dict[str, Any]


class EveryReadout(Run):
    """A run that is evaluated with every read-out of its method."""

    def evaluate(self) -> Iterator[None]:
        yield from super().evaluate()
        learner = self.learner
        asked = self.test_order[: self.arrived[len(self.progress.right) - 1]]
        configured = learner.options
        for readout in readouts(self.config["method"]):
            learner.options = replace(configured, readout=readout)
            learner.drop_solution()  # class means of another space
            found = right_answers(learner, self.data.test_x[asked], self.data.test_y[asked])
            self.right[readout].append(found.tolist())
        learner.options = configured

    def rows(self, options: Mapping[str, Any]) -> Iterator[Row]:
        """Learn the stream. Yields after each step, and returns a row for each read-out."""
        self.right: dict[str, list[list[int]]] = defaultdict(list)
        yield from self.steps(None, Listener(), Event())
        tasks = [task.classes for task in self.stream.tasks]
        rows = []
        for readout, right in self.right.items():
            found = metrics(accuracy_matrix(right, self.test_counts, tasks, None), self.stream.disjoint)
            row = {name: self.config[name] for name in CELL} | {"options": json.dumps(options), "readout": readout}
            rows.append(row | {"accuracy": round(found.accuracy, 5), "forgetting": round(found.forgetting or 0.0, 5)})
        return rows


def trainings(protocol: str, method: str, stage: int, known: Sequence[Row]) -> list[tuple[RunConfig, dict[str, Any]]]:
    """The trainings of a stage that are not on record, with the settings of their open options."""
    search = protocols()[protocol]["search"]
    plan = search["stages"][stage]
    tried = settings(protocol, method, search["stages"][0]["settings"])
    if stage:
        tried = [json.loads(options) for options in best(known, method, stage - 1)[: plan["settings"]]]
    per_task = search["classes_per_task"]
    done = {tuple(str(row[name]) for name in COLUMNS[:6]) for row in known}
    found = []
    for seed in plan["seeds"]:
        for options in tried:
            for memory in plan["memory_per_class"]:
                for classes in per_task.get(method, per_task["others"]):
                    key = stage, method, classes, memory, seed, json.dumps(options)
                    config = RunConfig(
                        method=method,
                        dataset=search["dataset"],
                        classes_per_task=classes,
                        memory_per_class=memory,
                        seed=seed,
                        held_out=True,
                        options=fixed(protocol, method) | options,
                    )
                    if tuple(map(str, key)) not in done:
                        found.append((config, options))
    return found


def best(rows: Sequence[Row], method: str, stage: int) -> list[str]:
    """The settings of a stage, best first: by the accuracy of their best read-out."""
    return list(dict.fromkeys(options for options, _ in ranked(rows, method, stage)))


def ranked(rows: Sequence[Row], method: str, stage: int) -> list[tuple[str, str]]:
    """Settings with read-outs, best first: by the mean over S and M of the mean over the seeds."""
    cells: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["method"] == method and int(row["stage"]) == stage:
            cell = str(row["classes_per_task"]), str(row["memory_per_class"])
            cells[row["options"], row["readout"]][cell].append(float(row["accuracy"]))
    means = {key: fmean(map(fmean, found.values())) for key, found in cells.items()}
    return sorted(means, key=lambda key: -means[key])


def read(path: Path) -> list[Row]:
    return list(csv.DictReader(path.open())) if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("protocol")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/search"))
    parser.add_argument("--method", action="append", help="only this; repeatable")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no training is started")
    parser.add_argument("--width", type=int, default=32, help="trainings at the same time")
    parser.add_argument("--dataset", help="another data set, to try the program")
    arguments = parser.parse_args()
    protocol, begin = arguments.protocol, time.perf_counter()
    if arguments.dataset:
        protocols()[protocol]["search"]["dataset"] = arguments.dataset
    with more_queues():
        device = choose_device("auto")
    data = load(protocols()[protocol]["search"]["dataset"], arguments.data_dir).held_out().to(device)
    path = arguments.out / f"{protocol}.csv"
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
                top = ranked(read(path), method, stage)[0]
                trained = f"{len(rows) // len(readouts(method))} of {len(chosen)} trainings"
                print(f"[{time.perf_counter() - begin:4.0f} s] stage {stage} {method}: {trained}, ", end="")
                print(f"{rows[0]['seconds']} s each; best {top}", flush=True)


def train(
    chosen: Sequence[tuple[RunConfig, dict[str, Any]]], data: Dataset, device: torch.device, width: int, until: float
) -> list[Row]:
    """Do these trainings in a pack. One whose weights become infinite has the accuracy of no answer.

    After ``until``, by the clock of :func:`time.perf_counter`, no training is started; those that run are finished.
    """
    started, rows, readings = time.perf_counter(), list[Row](), len(readouts(chosen[0][0].method))

    def start(config: RunConfig, options: Mapping[str, Any]) -> Iterator[None]:
        if time.perf_counter() > until:
            raise TimeoutError
        return EveryReadout(replace(config, device=str(device)), data).rows(options)

    def failed(name: str, error: Exception) -> None:
        config, options = chosen[int(name)]
        if isinstance(error, TimeoutError):
            return
        if not isinstance(error, UsageError):
            raise error
        print(f"{config.method} {options}: {error}", flush=True)
        row = {name: getattr(config, name) for name in CELL} | {"options": json.dumps(options)}
        rows.extend(
            row | {"readout": readout, "accuracy": 0.0, "forgetting": 1.0} for readout in readouts(config.method)
        )

    with torch_settings(flops=0):
        runs = {str(number): partial(start, *one) for number, one in enumerate(chosen)}
        pack(runs, width, done=lambda _, found: rows.extend(found), failed=failed)
    seconds = round((time.perf_counter() - started) * readings / max(len(rows), 1), 3)
    return [row | {"seconds": seconds} for row in rows]


if __name__ == "__main__":
    main()
