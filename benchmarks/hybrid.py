"""How `hybrid` should divide its bytes and weight its network, on held-out data.

    python benchmarks/hybrid.py --data-dir DIR [--dataset cifar100] [--classes-per-task 1] [--device cuda]
        [--memory 5 20 50 100] [--share 0.3 0.6 0.9] [--seed 0 1] [--set replay_size=28] [--out FILE]

Its two parts learn independently, so a network and statistics are trained and evaluated once per share of the bytes.
All weights and readouts of the network are then tried on their scores. Networks are packed on a GPU, statistics use
large batches. M stands for the bytes of M samples per class. Evaluation is always on the held-out tenth of the training
set. Every accuracy is a row of a file, and existing rows are not computed again. The best settings are printed.
`--samples` learns from fewer samples, to explore.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from onebyone import Dataset, class_incremental, engine, load
from onebyone.engine.pack import Steps, pack
from onebyone.options import parse
from onebyone.runs.results import summarize
from onebyone.statistics.hybrid import Hybrid, HybridOptions

RESULTS = Path(__file__).parent.parent / "results" / "hybrid" / "held-out.csv"
READOUTS = "ncm", "head", "adjusted"
WEIGHTS = 0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 1e6  # the last is the network alone
BATCH = 500  # of the statistics, which do not depend on it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--classes-per-task", type=int, default=1, metavar="S")
    parser.add_argument("--memory", type=int, nargs="+", default=[5, 20, 50, 100], metavar="M")
    parser.add_argument("--share", type=float, nargs="+", default=[0.3, 0.6, 0.9], help="of the statistics")
    parser.add_argument("--seed", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="options of hybrid")
    parser.add_argument("--samples", type=int, help="learn from about this many samples only")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FILE")
    arguments = parser.parse_args()
    data = load(arguments.dataset, arguments.data_dir).held_out()
    if arguments.samples:
        every = len(data.train_y) // arguments.samples
        data = replace(data, train_x=data.train_x[::every], train_y=data.train_y[::every])
    data = data.to(arguments.device)
    options = " ".join(arguments.set)
    rows = [
        row
        for row in read(arguments.out)
        if (row["dataset"], row["classes_per_task"]) == (data.name, arguments.classes_per_task)
        and (row["samples"], row["options"]) == (len(data.train_y), options)
    ]
    known = {(row["M"], row["share"], row["seed"]) for row in rows}

    def done(name: str, found: list[dict[str, Any]]) -> None:
        rows.extend(found)
        write(found, arguments.out)
        best = max(found, key=lambda row: row["accuracy"])
        print(f"{name}: at best {best['accuracy']} ({best['readout']}, weight {best['weight']})", flush=True)

    def failed(name: str, error: Exception) -> None:
        raise RuntimeError(name) from error

    runs = {
        f"M = {memory}, share {share}, seed {seed}": partial(learn, data, arguments, memory, share, seed)
        for memory, share, seed in product(arguments.memory, arguments.share, arguments.seed)
        if (memory, share, seed) not in known
    }
    pack(runs, 1 if data.train_x.device.type == "cpu" else 16, done, failed)
    for memory in (*arguments.memory, None):
        print("all M" if memory is None else f"M = {memory}", *best([r for r in rows if memory in (None, r["M"])]))


def learn(
    data: Dataset, arguments: argparse.Namespace, memory: int, share: float, seed: int
) -> Steps[list[dict[str, Any]]]:
    """A row for every weight and readout."""
    texts = dict(text.split("=") for text in arguments.set)
    options = parse(HybridOptions, {**texts, "memory_per_class": str(memory), "statistics_share": str(share)})
    learner = Hybrid(options, data.spec, seed, arguments.device)
    stream = class_incremental(data.train_y, data.num_classes, arguments.classes_per_task, seed=seed)
    for index in torch.cat([task.indices for task in stream.tasks]).split(BATCH):
        learner.statistics.observe(data.train_x[index], data.train_y[index])
    steps = engine.engine_for(learner.network, data.train_x, data.train_y, stream.batch_size)
    for index in stream:
        steps.step(index)
        yield
    steps.synchronize()
    named = {"dataset": data.name, "classes_per_task": arguments.classes_per_task, "M": memory, "seed": seed}
    named |= {"samples": len(data.train_y), "options": " ".join(arguments.set)}
    named |= {"bytes": learner.memory_bytes, "kept": learner.network.memory.capacity, "share": share}
    return [named | answer for answer in answers(learner, data)]


def answers(learner: Hybrid, data: Dataset) -> Iterator[dict[str, Any]]:
    statistics = learner.statistics.scores(data.test_x)
    for readout in READOUTS:
        learner.network.options = replace(learner.options, readout=readout)
        network = learner.network.scores(data.test_x)
        for weight in WEIGHTS:
            learner.options = replace(learner.options, readout=readout, network_weight=weight)
            right = learner.together(statistics, network).argmax(1) == data.test_y
            yield {"readout": readout, "weight": weight, "accuracy": round(100 * right.double().mean().item(), 2)}


def best(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """The five settings with the best mean accuracy."""
    cells: dict[tuple[float, str, float], list[float]] = {}
    for row in rows:
        cells.setdefault((row["share"], row["readout"], row["weight"]), []).append(row["accuracy"])
    means = {cell: value.mean for cell, numbers in cells.items() if (value := summarize(numbers))}
    order = sorted(means, key=lambda cell: -means[cell])[:5]
    return tuple(f"{means[cell]:.2f} share {cell[0]} {cell[1]} weight {cell[2]};" for cell in order)


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    texts, integers = ("dataset", "options", "readout"), ("classes_per_task", "M", "seed", "samples", "bytes", "kept")
    kinds = dict.fromkeys(texts, str) | dict.fromkeys(integers, int)
    with path.open(newline="") as file:
        return [{name: kinds.get(name, float)(text) for name, text in row.items()} for row in csv.DictReader(file)]


def write(rows: list[dict[str, Any]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
