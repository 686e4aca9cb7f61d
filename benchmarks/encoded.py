"""`lda` on the features of a frozen encoder, which were computed before: accuracy, few and rare samples.

    python benchmarks/encoded.py orders memory few rare --features DIR [--datasets cifar10 cifar100] [--out FILE]

DIR holds the files of `benchmarks/features.py`, by default those of `lite0` at 224 pixels. The learner is the one that
`OnlineClassifier(encoder="lite0")` builds: its encoder passes vectors on, and they are features of `lite0` already.

orders   all training images, one class at a time, in three orders of the classes, with the 32 MB of the default
memory   the same with the bytes of M = 5, 20, 50 and 100 images of 32 x 32 pixels per class
few      1, 5, 10 and 50 images per class, five draws, beside the nearest class mean
rare     one class with 5 images after all images of the nine others: its recall, and what that costs the others

All numbers are of the test set. With --out, rows are written to CSV files.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from features import read
from onebyone import Spec
from onebyone.methods.choice import MAX_ENCODED_BYTES
from onebyone.methods.temperature import probabilities
from onebyone.nets import Adapted
from onebyone.statistics.lda import LDA, LDAOptions

IMAGE = 3 * 32 * 32  # bytes
Data = tuple[Tensor, Tensor, Tensor, Tensor]
Row = dict[str, Any]


def learner(data: Data, budget: int, seed: int = 0) -> LDA:
    width, classes = data[0].shape[1], int(data[1].max()) + 1
    encoder = Adapted(nn.Identity(), (width,), frozen=True)
    spec = Spec((width,), classes, torch.float32)
    return LDA(LDAOptions(budget=budget, encoder=encoder), spec, seed)


def taught(found: LDA, x: Tensor, y: Tensor, order: list[int]) -> LDA:
    """Learn one class at a time."""
    for label in order:
        index = (y == label).nonzero()[:, 0]
        for part in index.split(1000):
            found.observe(x[part], y[part])
    return found


def accuracy(predicted: Tensor, y: Tensor) -> float:
    return round(100 * float((predicted == y).double().mean()), 2)


def orders(data: Data) -> Iterator[Row]:
    x, y, test_x, test_y = data
    for number in range(3):
        order = torch.randperm(int(y.max()) + 1, generator=torch.Generator().manual_seed(number)).tolist()
        start = time.perf_counter()
        found = taught(learner(data, MAX_ENCODED_BYTES), x, y, order)
        yield row(found, number, accuracy(found.predict(test_x), test_y), start)


def memory(data: Data) -> Iterator[Row]:
    x, y, test_x, test_y = data
    classes = int(y.max()) + 1
    for images in (5, 20, 50, 100):
        start = time.perf_counter()
        found = taught(learner(data, images * classes * IMAGE), x, y, list(range(classes)))
        yield row(found, images, accuracy(found.predict(test_x), test_y), start)


def row(found: LDA, case: int, percent: float, start: float) -> Row:
    used = max(answer.count for answer in found.solution().members)
    return {
        "case": case,
        "accuracy": percent,
        "bytes": found.memory_bytes,
        "features": found.extractor.width,
        "used": used,
        "seconds": round(time.perf_counter() - start, 1),
    }


def draw(y: Tensor, counts: list[int], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    members = [(y == label).nonzero()[:, 0] for label in range(len(counts))]
    drawn = [
        index[torch.randperm(len(index), generator=generator)[:count]]
        for index, count in zip(members, counts, strict=True)
    ]
    return torch.cat(drawn)


def few(data: Data) -> Iterator[Row]:
    x, y, test_x, test_y = data
    classes = int(y.max()) + 1
    for count in (1, 5, 10, 50):
        for seed in range(5):
            index = draw(y, [count] * classes, seed)
            found = learner(data, MAX_ENCODED_BYTES)
            for part in index.split(1000):
                found.observe(x[part], y[part])
            means = found.moments.means()[:, : x.shape[1]]
            nearest = torch.cdist(test_x.double(), means).argmin(1)
            likely = probabilities(found.scores(test_x) / found.temperature())
            yield {
                "case": count,
                "seed": seed,
                "accuracy": accuracy(likely.argmax(1), test_y),
                "ncm": accuracy(nearest, test_y),
                "confidence": round(100 * float(likely.amax(1).mean()), 2),
            }


def rare(data: Data) -> Iterator[Row]:
    x, y, test_x, test_y = data
    classes = int(y.max()) + 1
    every = taught(learner(data, MAX_ENCODED_BYTES), x, y, list(range(classes)))
    state = {name: tensor.clone() for name, tensor in every.state_dict().items()}
    for label in range(classes):
        # As if the class had never been learnt: its samples are removed from the sums, exactly.
        every.load_state_dict(state)
        own = (y == label).nonzero()[:, 0]
        kept = draw(y, [5 if each == label else 0 for each in range(classes)], seed=label)
        for part in own.split(1000):
            every.moments.add(every.features(x[part]), y[part], -torch.ones(len(part), dtype=torch.float64))
        every.moments.weights[label] = 0
        every.moments.sums[label] = 0
        every.kept.forget_class(label)
        every.counts[label] = 0
        known = test_y != label
        before = accuracy(every.predict(test_x[known]), test_y[known])
        every.observe(x[kept], y[kept])
        predicted = every.predict(test_x)
        yield {
            "case": label,
            "recall": accuracy(predicted[~known], test_y[~known]),
            "before": before,
            "after": accuracy(predicted[known], test_y[known]),
            "accuracy": accuracy(predicted, test_y),
        }


PARTS = {"orders": orders, "memory": memory, "few": few, "rare": rare}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=["cifar10", "cifar100"])
    parser.add_argument("--out", type=Path, help="folder of CSV files, one per part and data set")
    given = parser.parse_args()
    for dataset in given.datasets:
        data = read(given.features, dataset)
        for part in given.parts:
            rows = []
            for found in PARTS[part](data):
                rows.append(found)
                print(dataset, part, found, flush=True)
            if given.out is not None:
                given.out.mkdir(parents=True, exist_ok=True)
                with (given.out / f"{dataset}-{part}.csv").open("w", newline="") as file:
                    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                    writer.writeheader()
                    writer.writerows(rows)


if __name__ == "__main__":
    main()
