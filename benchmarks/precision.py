"""Accuracy in float32 and in bf16 on CIFAR-10 with a joint pass, five seeds each. Needs a GPU.

Reads the binary files of CIFAR-10 that are in a folder; these may be a part of the data set.

    python benchmarks/precision.py FOLDER --out results/benchmarks/precision.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch
from torch import Tensor

from gpu import device, whole_runs
from onebyone import Dataset
from onebyone.data import CropFlip
from onebyone.runs import RunConfig
from onebyone.runs.winners import winner

CELLS, SEEDS, MEMORY = [(method, precision) for method in ("ccp", "er") for precision in ("float32", "bf16")], 5, 100


def read(paths: Iterable[Path]) -> tuple[Tensor, Tensor]:
    """Images [n, 3, 32, 32] and labels [n] of binary files: a byte of label before each image."""
    rows = torch.from_numpy(np.concatenate([np.fromfile(path, np.uint8).reshape(-1, 3073) for path in sorted(paths)]))
    return rows[:, 1:].reshape(-1, 3, 32, 32).contiguous(), rows[:, 0].long()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    train, test = (read(settings.folder.glob(pattern)) for pattern in ("data_batch_*.bin", "test_batch.bin"))
    names = tuple(str(label) for label in range(10))
    data = Dataset("cifar10", *train, *test, names, CropFlip(4, True)).to(device)
    cells = CELLS * SEEDS
    configs = [
        RunConfig(
            method=method,
            dataset="cifar10",
            memory_per_class=MEMORY,
            seed=number // len(CELLS),
            device="cuda",
            options=winner(method, "cifar10", 1) | {"passes": "joint", "precision": precision},
        )
        for number, (method, precision) in enumerate(cells)
    ]
    seconds, results = whole_runs(configs, data, len(configs))
    found = {
        " ".join(cell): [100 * results[str(n)].accuracy for n, other in enumerate(cells) if other == cell]
        for cell in CELLS
    }
    print(f"{len(train[1])} training and {len(test[1])} test images, {len(configs)} runs, {seconds:.1f} s")
    for name, values in found.items():
        each = ", ".join(f"{value:.1f}" for value in values)
        print(f"{name}: {fmean(values):.2f}, standard deviation {stdev(values):.2f} ({each})")
    if settings.out:
        numbers = {"training images": len(train[1]), "test images": len(test[1]), "accuracy": found}
        settings.out.write_text(json.dumps(numbers, indent=2) + "\n")


if __name__ == "__main__":
    main()
