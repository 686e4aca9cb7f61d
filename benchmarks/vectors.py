"""The default `OnlineClassifier()` on vectors, compared with classifiers of scikit-learn.

Trained in a single pass over one class at a time: the default, and stochastic gradient descent (logistic regression,
ten samples per step; its features are standardised by the whole training set). Trained on all samples at once: linear
discriminant analysis, Gaussian naive Bayes and the nearest neighbour. The seed defines the split of the data, the order
of the classes, and the classifier. Sets with fewer than 200 test samples are split more often: there, one sample is
half a point or more.

    python benchmarks/vectors.py [--seeds 3] [--small-seeds 40] [--first-seed 0] [--only NAME ...] [--features FOLDER]

Data: the vectors of benchmarks/auto.py (a third is the test set), normally distributed clusters of 32 to 2,048
dimensions, and, with a folder that benchmarks/features.py has written, embeddings of CIFAR-10 (5, 50 and 500 per class,
3,000 test images). Prints a table and writes it to results/vectors.csv. Takes about ten minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from auto import inputs
from features import read
from onebyone import OnlineClassifier
from onebyone.runs.results import summarize

RESULTS = Path(__file__).parent.parent / "results" / "vectors.csv"
DIMENSIONS = (32, 256, 768, 2048)
CLASSES = 10
TEST_SAMPLES = 3000
SMALL = 200  # test samples
Array = npt.NDArray[Any]
Split = tuple[Array, Array, Array, Array]  # training samples and labels, test samples and labels


def held_out_third(x: Array, y: Array, seed: int) -> Split:
    x, test_x, y, test_y = train_test_split(x, y, test_size=1 / 3, random_state=seed, stratify=y)
    return x, y, test_x, test_y


def gaussian(dimensions: int, correlated: bool, seed: int) -> Split:
    """Ten classes with equal covariance: the identity, or variances that fall as 1 / k along random axes.

    There are at least twice as many training samples as dimensions. The expected distance between two class means is
    four standard deviations, whatever the covariance.
    """
    rng = np.random.default_rng([seed, dimensions])
    count = max(2000, 2 * dimensions)
    means = rng.normal(size=(CLASSES, dimensions)) * np.sqrt(8 / dimensions)
    y = rng.permutation(np.arange(count + TEST_SAMPLES) % CLASSES)
    x = means[y] + rng.normal(size=(len(y), dimensions))
    if correlated:
        axes = np.linalg.qr(rng.normal(size=(dimensions, dimensions)))[0]
        x = x / np.sqrt(np.arange(1, dimensions + 1)) @ axes
    return x[:count], y[:count], x[count:], y[count:]


def embeddings(folder: Path, per_class: int, seed: int) -> Split:
    x, y, test_x, test_y = cifar10(folder)
    rng = np.random.default_rng([seed, per_class])
    train = np.concatenate([rng.choice(np.flatnonzero(y == label), per_class, False) for label in range(CLASSES)])
    test = rng.choice(len(test_y), TEST_SAMPLES, False)
    return x[train], y[train], test_x[test], test_y[test]


@cache
def cifar10(folder: Path) -> Split:
    x, y, test_x, test_y = (tensor.numpy() for tensor in read(folder, "cifar10"))
    return x, y, test_x, test_y


def sets(folder: Path | None) -> dict[str, Callable[[int], Split]]:
    """By name: a function of the seed that returns the data."""
    found: dict[str, Callable[[int], Split]] = {
        name: partial(held_out_third, *data) for name, (data, _) in inputs().items() if data[0].ndim == 2
    }
    for dimensions in DIMENSIONS:
        found[f"gaussian {dimensions}, isotropic"] = partial(gaussian, dimensions, False)
        found[f"gaussian {dimensions}, correlated"] = partial(gaussian, dimensions, True)
    for per_class in (5, 50, 500) if folder else ():
        found[f"embeddings, {per_class} per class"] = partial(embeddings, folder, per_class)
    return found


def one_class_at_a_time(x: Array, y: Array, seed: int) -> tuple[Array, Array]:
    """Classes in random order; samples of a class in random order."""
    rng = np.random.default_rng(seed)
    rank, mixed = rng.permutation(y.max() + 1), rng.permutation(len(y))
    order = mixed[np.argsort(rank[y[mixed]], kind="stable")]
    return x[order], y[order]


def default(x: Array, y: Array, test_x: Array, test_y: Array, seed: int) -> float:
    clf = OnlineClassifier(random_state=seed, device="cpu")
    return clf.partial_fit(*one_class_at_a_time(x, y, seed)).score(test_x, test_y)


def gradient_descent(x: Array, y: Array, test_x: Array, test_y: Array, seed: int) -> float:
    scaler, clf = StandardScaler().fit(x), SGDClassifier(loss="log_loss", random_state=seed)
    samples, labels = one_class_at_a_time(scaler.transform(x), y, seed)
    for start in range(0, len(labels), 10):
        clf.partial_fit(samples[start : start + 10], labels[start : start + 10], classes=np.unique(y))
    return float(clf.score(scaler.transform(test_x), test_y))


def offline(kind: Callable[[], Any], x: Array, y: Array, test_x: Array, test_y: Array, seed: int) -> float:
    return float(kind().fit(x, y).score(test_x, test_y))


METHODS: dict[str, Callable[..., float]] = {
    "default": default,
    "LDA": partial(offline, LinearDiscriminantAnalysis),
    "GaussianNB": partial(offline, GaussianNB),
    "1-NN": partial(offline, partial(KNeighborsClassifier, 1)),
    "SGD": gradient_descent,
}


def measure(
    data: dict[str, Callable[[int], Split]], first: int, seeds: int, small_seeds: int
) -> Iterator[dict[str, Any]]:
    print(f"{'':<28}" + "".join(f"{method:>12}" for method in METHODS) + f"{'LDA - default':>16}{'seconds':>9}")
    for name, split in data.items():
        start = time.perf_counter()
        found: dict[str, list[float]] = {method: [] for method in METHODS}
        count = small_seeds if len(split(first)[-1]) < SMALL else seeds
        for seed in range(first, first + count):
            parts = split(seed)
            for method, accuracy in METHODS.items():
                found[method].append(accuracy(*parts, seed))
        values = {method: value for method in METHODS if (value := summarize(found[method]))}
        difference = 100 * (values["LDA"].mean - values["default"].mean)
        row = "".join(f"{100 * value.mean:>12.1f}" for value in values.values())
        print(f"{name:<28}{row}{difference:>16.1f}{time.perf_counter() - start:>9.0f}", flush=True)
        for method, value in values.items():
            numbers = {"accuracy": round(value.mean, 4), "std": round(value.std, 4)}
            yield {"data": name, "method": method, "seeds": value.runs, **numbers}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--small-seeds", type=int, default=40)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="names of data sets, or how they begin")
    parser.add_argument("--features", type=Path, help="folder that benchmarks/features.py has written")
    parser.add_argument("--out", type=Path, default=RESULTS)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    data = sets(settings.features)
    if settings.only:
        data = {name: split for name, split in data.items() if name.startswith(tuple(settings.only))}
    rows = list(measure(data, settings.first_seed, settings.seeds, settings.small_seeds))
    with settings.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["data", "method", "seeds", "accuracy", "std"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
