"""What `OnlineClassifier(method="auto")` should choose: candidates at equal bytes, on small sets that need no network.

A single pass, ten samples per step, one class at a time in a random order, and again with mixed classes; accuracy on a
held-out third, over seeds for the split, the order and the learner. Two questions:

inputs    which method for which kind of sample and memory: sets of scikit-learn, some of them linear
encoders  which method for a given encoder: a trained one, a frozen one with random weights, and one that was trained
          on half of the digits before, frozen or trained further

    python benchmarks/auto.py [inputs encoders] [--seeds 3] [--sizes 1KB 4KB 16KB 64KB]

Prints a table and writes it to results/auto.csv, with the standard deviation over seeds. Takes about ten minutes on a
CPU.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn import datasets
from sklearn.model_selection import train_test_split
from torch import nn

from onebyone import OnlineClassifier, UsageError
from onebyone.runs.results import summarize

RESULTS = Path(__file__).parent.parent / "results" / "auto.csv"
ORDERS = ("one by one", "mixed")
Set = tuple[npt.NDArray[Any], npt.NDArray[Any]]
Cases = dict[str, tuple[Set, dict[str, Any]]]  # by name: the data, and parameters of the classifier


def images() -> Set:
    x, y = datasets.load_digits(return_X_y=True)
    return (x.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8), y


def inputs() -> Cases:
    noisy = {"n_samples": 3000, "noise": 0.2, "random_state": 0}
    quantiles = {"n_samples": 3000, "n_features": 10, "n_classes": 4, "random_state": 0}
    clusters = {"n_samples": 3000, "n_informative": 10, "n_classes": 5, "n_clusters_per_class": 3, "random_state": 0}
    sets = {
        "digits, images": images(),
        "digits, vectors": datasets.load_digits(return_X_y=True),
        "iris": datasets.load_iris(return_X_y=True),
        "wine": datasets.load_wine(return_X_y=True),
        "breast cancer": datasets.load_breast_cancer(return_X_y=True),
        "moons": datasets.make_moons(**noisy),
        "circles": datasets.make_circles(factor=0.3, **noisy),
        "quantiles": datasets.make_gaussian_quantiles(**quantiles),
        "clusters": datasets.make_classification(**clusters),
    }
    return {name: (data, {}) for name, data in sets.items()}


def encoders() -> Cases:
    digits = images()
    kinds: dict[str, dict[str, Any]] = {
        "conv": {"encoder": "conv"},
        "conv, frozen": {"encoder": "conv", "freeze_encoder": True},
        "mlp": {"encoder": "mlp"},
        "mlp, frozen": {"encoder": "mlp", "freeze_encoder": True},
        "pretrained": {"encoder": pretrained(*digits)},
        "pretrained, frozen": {"encoder": pretrained(*digits), "freeze_encoder": True},
    }
    return {name: (digits, parameters) for name, parameters in kinds.items()}


def pretrained(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> nn.Module:
    """A small network that was trained on the first five digits for many epochs, like a downloaded network."""
    torch.manual_seed(0)
    known = y < 5
    views, labels = torch.from_numpy(x[known])[:, None] * (2 / 255) - 1, torch.from_numpy(y[known])
    first, second = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 32, 3, stride=2)
    body = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten())
    network = nn.Sequential(body, nn.Linear(32 * 3 * 3, 5))
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(views), labels).backward()
        optimizer.step()
    return body


def accuracy(clf: OnlineClassifier, data: Set, order: str, seed: int) -> float:
    """After a single pass over two thirds of the data."""
    x, test_x, y, test_y = train_test_split(*data, test_size=1 / 3, random_state=seed, stratify=data[1])
    if order == "one by one":  # the split has shuffled the samples; a stable sort keeps this order within a class
        rank = np.random.default_rng(seed).permutation(y.max() + 1)
        x, y = (values[np.argsort(rank[y], kind="stable")] for values in (x, y))
    return clf.partial_fit(x, y).score(test_x, test_y)


PARTS: dict[str, tuple[Callable[[], Cases], tuple[str, ...]]] = {
    "inputs": (inputs, ("patch-lda", "replay", "ccp", "er")),
    "encoders": (encoders, ("replay", "ccp", "er", "er-ace")),
}


def measure(part: str, sizes: Iterable[str], seeds: int) -> list[dict[str, Any]]:
    cases, methods = PARTS[part]
    rows = []
    print(f"\n{part:<20}{'order':<12}{'memory':>6}" + "".join(f"{method:>11}" for method in methods))
    for name, (data, parameters) in cases().items():
        for order in ORDERS:
            for size in sizes:
                print(f"{name:<20}{order:<12}{size:>6}", end="", flush=True)
                for method in methods:
                    found = []
                    for seed in range(seeds):
                        clf = OnlineClassifier(method, memory=size, random_state=seed, device="cpu", **parameters)
                        try:
                            found.append(accuracy(clf, data, order, seed))
                        except UsageError:  # the memory is too small for this method
                            break
                    value = summarize(found)
                    print(f"{100 * value.mean:>11.1f}" if value else f"{'-':>11}", end="", flush=True)
                    row = {"part": part, "data": name, "order": order, "memory": size, "method": method}
                    numbers = {"accuracy": round(value.mean, 4), "std": round(value.std, 4)} if value else {}
                    rows.append(row | {"seeds": len(found), **numbers})
                print()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--sizes", nargs="+", default=["1KB", "4KB", "16KB", "64KB"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for part in settings.parts for row in measure(part, settings.sizes, settings.seeds)]
    with settings.out.open("w", newline="") as file:
        columns = ["part", "data", "order", "memory", "method", "seeds", "accuracy", "std"]
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
