"""`patch-lda` after all images of CIFAR-10 and CIFAR-100: accuracy, calibration, and its own estimate of the accuracy.

    python benchmarks/many.py DIR --out results/few/many.csv [--device cuda] [--limit 50000]
        [--datasets cifar10 cifar100] [--memory-per-class 5 20 50 100]

The order of the stream does not matter, so images are learnt as they lie in the archive, 500 at once. Five seeds, with
the bytes of M images per class. A minute on a GPU.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from few import calibration_error
from onebyone import create, load
from onebyone.methods.temperature import probabilities


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=int, default=50_000)
    parser.add_argument("--datasets", nargs="+", default=["cifar10", "cifar100"])
    parser.add_argument("--memory-per-class", type=int, nargs="+", default=[5, 20, 50, 100])
    parser.add_argument("--out", type=Path, required=True)
    settings = parser.parse_args()
    rows = []
    for name in settings.datasets:
        data = load(name, settings.folder)
        x, y, test_x = (
            values[: settings.limit].to(settings.device) for values in (data.train_x, data.train_y, data.test_x)
        )
        for amount in settings.memory_per_class:
            for seed in range(5):
                learner = create("patch-lda", data.spec, seed=seed, device=settings.device, memory_per_class=amount)
                for part, labels in zip(x.split(500), y.split(500), strict=True):
                    learner.observe(part, labels)
                likely = probabilities(learner.scores(test_x) / learner.temperature()).cpu().numpy()
                truth, left_out = data.test_y[: settings.limit].numpy(), learner.left_out()
                assert left_out is not None
                row = {
                    "dataset": name,
                    "memory_per_class": amount,
                    "seed": seed,
                    "bytes": learner.memory_bytes,
                    "accuracy": round(float(np.mean(likely.argmax(1) == truth)), 4),
                    "ece": round(calibration_error(likely, truth), 4),
                    "left_out": round(float((left_out.scores.argmax(1) == left_out.y).double().mean()), 4),
                }
                print(row, flush=True)
                rows.append(row)
    with settings.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
