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
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from threading import Event
from typing import Any

import torch
import yaml

from onebyone import Dataset, UsageError, load
from onebyone.engine import choose_device, more_queues, pack, torch_settings
from onebyone.evaluation import right_answers
from onebyone.evaluation.metrics import accuracy_matrix, metrics
from onebyone.paper.comparison import markdown
from onebyone.paper.printed import TITLES
from onebyone.paper.protocols import choices, protocols
from onebyone.paper.search import (
    COLUMNS,
    Row,
    cells,
    choose,
    groups,
    missing,
    named,
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
        asked = self.test_order[: self.arrived[len(self.position.right) - 1]]
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


def as_yaml(chosen: Mapping[str, Any]) -> str:
    """The choices of all protocols as the text of ``chosen.yaml``."""
    head = "# Made from results/search by the rule of protocols.yaml: python benchmarks/search.py PROTOCOL --choose\n"
    return head + yaml.safe_dump(dict(chosen), sort_keys=False, default_flow_style=None, width=116)


def page(protocol: str, rows: Sequence[Row]) -> str:
    """The record in short, as Markdown: what was done and what is missing, and what each read-out makes of a choice."""
    done, first, second = choose(protocol, rows), [], []
    for method in protocols()[protocol]["open"]:
        for stage in range(len(protocols()[protocol]["search"]["stages"])):
            some = [row for row in rows if row["method"] == method and int(row["stage"]) == stage]
            per_training = len(readouts_of(method))
            trainings = len(some) // per_training
            seconds = sum(float(row["seconds"]) for row in some) / per_training
            lacks = [missing(protocol, method, group, rows) for group in groups(protocol, method)]
            open_ = [str(one.get(stage, 0)) if min(one, default=stage) >= stage else "?" for one in lacks]
            first.append(
                [
                    TITLES[method],
                    str(stage),
                    str(len({row["options"] for row in some})),
                    str(trainings),
                    f"{seconds / trainings:.1f}" if trainings else "",
                    f"{seconds:.0f}",
                    str(sum(map(int, open_))) if "?" not in open_ else "as stage 0 says",
                ]
            )
        for entry in done.get(method, []):
            means = cells(rows, method, entry["classes_per_task"], entry["stage"])
            bare = {name: value for name, value in entry["options"].items() if name != "readout"}
            for readout in readouts_of(method):
                of_cell = means[json.dumps(bare), readout]
                taken = entry["options"].get("readout", "") == readout
                second.append(
                    [
                        TITLES[method] + ("" if entry["complete"] else " (provisional)"),
                        readout + (" (chosen)" if taken else ""),
                        *(
                            f"{100 * fmean(of_cell[cell]):.1f}" if cell in of_cell else ""
                            for cell in product((1, 2), (20, 100))
                        ),
                        ", ".join(f"{name}={value}" for name, value in bare.items()) if taken else "",
                    ]
                )
    heading = ["method", "stage", "settings", "trainings", "seconds each", "seconds", "missing"]
    columns = ["method", "read-out", "S = 1, M = 20", "S = 1, M = 100", "S = 2, M = 20", "S = 2, M = 100", "setting"]
    return f"""# The search of `{protocol}`

This page is made from `{protocol}.csv` by `python benchmarks/search.py {protocol} --choose`.

## What was done

A training learns Split CIFAR-10 once. Its seconds are a share of the pack in which it ran.

{markdown(heading, first)}

## What was chosen, in every read-out

Accuracy on the held-out tenth in per cent. The rows of a method are the same trainings with the chosen setting. A
choice is provisional while trainings are missing.

{markdown(columns, second)}
"""


if __name__ == "__main__":
    main()
