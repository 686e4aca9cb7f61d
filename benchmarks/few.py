"""How good and how sure `OnlineClassifier` is: few images per class, a rare class, the middle of a stream.

    python benchmarks/few.py few rare turn unknown kept --data-dir DIR [--dataset cifar10] [--sizes N ...] [--draws 5]

few      accuracy, mean confidence and calibration error (ECE, 15 bins) for some images per class, beside the nearest
         class mean and 1-NN on the same features and draws, and the accuracy that ``report()`` states
rare     one class with few images after the others with 1,000 each: its recall, and the accuracy of all
turn     learning one image and asking for another in turn: rounds per second, the share of answers that are those of a
         complete solution, and the accuracy of both on 5,000 other images
unknown  half of the classes known: AUROC of typicality, of the Mahalanobis distance from the nearest class and of the
         largest probability, and the share of known images turned away
kept     cost of the kept samples, from which calibration, report and doubt follow: share of the bytes, and of the time
         of a step of ten images, and of a step as ``OnlineClassifier`` takes it

Test images are a random part of the test set. Prints tables and, with --out, writes their rows as CSV.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from contextlib import nullcontext
from copy import deepcopy
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any
from unittest import mock

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from onebyone import Dataset, OnlineClassifier, UsageError, load
from onebyone.statistics.discriminant import added
from onebyone.tensors import nbytes

Row = dict[str, Any]


def classifier(method: str = "auto") -> OnlineClassifier:
    return OnlineClassifier(method, channels="first", augment="crop+flip", device="cpu")


def draw(y: Tensor, counts: list[int], seed: int) -> Tensor:
    """Indices of this many random samples of each class, one class after the other."""
    generator = torch.Generator().manual_seed(seed)
    chosen = []
    for label, count in enumerate(counts):
        index = (y == label).nonzero()[:, 0]
        chosen.append(index[torch.randperm(len(index), generator=generator)[:count]])
    return torch.cat(chosen)


def calibration_error(probabilities: np.ndarray[Any, Any], y: np.ndarray[Any, Any], bins: int = 15) -> float:
    confidence, correct = probabilities.max(1), probabilities.argmax(1) == y
    group = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs(confidence[group == g].mean() - correct[group == g].mean()) * (group == g).mean() for g in set(group)]
    return float(sum(gaps))


def learnt(data: Dataset, index: Tensor, method: str = "auto") -> OnlineClassifier:
    clf = classifier(method)
    for part in index.split(2000):
        clf.partial_fit(data.train_x[part].numpy(), data.train_y[part].numpy())
    return clf


def assessed(clf: OnlineClassifier, x: Tensor, y: Tensor) -> Row:
    probabilities = clf.predict_proba(x.numpy())
    truth = y.numpy()
    try:
        report = clf.report()
        reported, (low, high) = report.accuracy, report.interval
    except UsageError:  # one image per class: none can be left out
        reported, low, high = float("nan"), 0.0, 1.0
    accuracy = float((clf.classes_[probabilities.argmax(1)] == truth).mean())
    column = np.searchsorted(clf.classes_, truth)
    return {
        "accuracy": accuracy,
        "confidence": float(probabilities.max(1).mean()),
        "ece": calibration_error(probabilities, column),
        "reported": reported,
        "low": low,
        "high": high,
        "within": float(low <= accuracy <= high),
    }


def neighbours(clf: OnlineClassifier, data: Dataset, index: Tensor, x: Tensor, y: Tensor) -> Row:
    """Nearest class mean and 1-NN on the features of the classifier."""
    assert clf._state is not None
    learner = clf._state.learner
    with torch.no_grad():
        known, asked = (torch.cat([learner.features(p) for p in v.split(500)]) for v in (data.train_x[index], x))
    labels = data.train_y[index]
    means = torch.stack([known[labels == label].mean(0) for label in labels.unique()])
    found = {"ncm": float((torch.cdist(asked, means).argmin(1) == y).float().mean())}
    if len(index) <= 5000:
        found["1nn"] = float((labels[torch.cdist(asked, known).argmin(1)] == y).float().mean())
    return found


def few(data: Dataset, test: tuple[Tensor, Tensor], draws: int, sizes: list[int], method: str) -> Iterator[Row]:
    classes = data.spec.num_classes
    for size in sizes:
        for seed in range(draws if size < 2000 else 1):
            index = draw(data.train_y, [size] * classes, seed)
            clf = learnt(data, index, method)
            extra = neighbours(clf, data, index, *test) if method == "auto" and size <= 500 else {}
            yield {"part": "few", "case": str(size), "seed": seed} | assessed(clf, *test) | extra
    if method == "auto" and 500 in sizes:  # in the middle of the stream: half of the classes
        for seed in range(draws):
            index = draw(data.train_y, [500] * (classes // 2), seed)
            half = test[1] < classes // 2
            clf = learnt(data, index)
            yield {"part": "few", "case": "500, half of the classes", "seed": seed} | assessed(
                clf, test[0][half], test[1][half]
            )


def rare(data: Dataset, test: tuple[Tensor, Tensor], draws: int, sizes: list[int]) -> Iterator[Row]:
    """The class that is rare is another one in each draw."""
    classes, most = data.spec.num_classes, min(1000, int(torch.bincount(data.train_y).min()))
    for size in sizes:
        for seed in range(2 * draws):
            counts, label = [most] * classes, seed * classes // (2 * draws)
            counts[label] = size
            order = [c for c in range(classes) if c != label]
            index = draw(data.train_y, counts, seed)
            clf = learnt(data, index)
            row = {"part": "rare", "case": str(size), "seed": seed} | assessed(clf, *test)
            own = test[1] == label
            yield row | {"recall": float((clf.predict(test[0][own].numpy()) == label).mean()), "others": len(order)}


def turn(data: Dataset, rounds: int = 300) -> Iterator[Row]:
    torch.set_num_threads(1)
    order = torch.randperm(len(data.train_x), generator=torch.Generator().manual_seed(0))
    x, y = data.train_x[order].numpy(), data.train_y[order].numpy()
    for ask in ("predict", "predict_proba"):
        clf = classifier().partial_fit(x[:300], y[:300])
        getattr(clf, ask)(x[:1])
        start = time.perf_counter()
        for step in range(300, 300 + rounds):
            clf.partial_fit(x[step : step + 1], y[step : step + 1])
            getattr(clf, ask)(x[step + 1 : step + 2])
        seconds = time.perf_counter() - start
        found = clf.decision_function(x[-5000:])
        complete = deepcopy(clf).decision_function(x[-5000:])  # a copy solves again, and so will the original
        answers, complete_answers = (clf.classes_[scores.argmax(1)] for scores in (found, complete))
        yield {
            "part": "turn",
            "case": ask,
            "seed": 0,
            "per_second": rounds / seconds,
            "same": float((answers == complete_answers).mean()),
            "gap": float(np.abs(found - complete).max() / complete.std()),
            "accuracy": float((answers == y[-5000:]).mean()),
            "complete": float((complete_answers == y[-5000:]).mean()),
        }


def unknown(data: Dataset, test: tuple[Tensor, Tensor], draws: int) -> Iterator[Row]:
    classes = data.spec.num_classes
    for seed in range(draws):
        known = torch.randperm(classes, generator=torch.Generator().manual_seed(seed))[: classes // 2]
        counts = [500 if label in known else 0 for label in range(classes)]
        index = draw(data.train_y, counts, seed)
        clf = learnt(data, index)
        old = torch.isin(test[1], known).numpy()
        x = test[0].numpy()
        turned_away = clf.predict(x[old], unknown=-1) == -1
        assert clf._state is not None
        learner = clf._state.learner
        with torch.no_grad():
            features = torch.cat([learner.features(part) for part in test[0].split(500)])
            solution = learner.solution()
            measured = added([(each.setting.share, each.measured(features)) for each in solution.members])
            distances = measured.distances(solution.usual)
        yield {
            "part": "unknown",
            "case": data.name,
            "seed": seed,
            "typicality": roc_auc_score(old, clf.typicality(x)),
            "distance": roc_auc_score(old, -distances.nearest.numpy()),
            "largest probability": roc_auc_score(old, clf.predict_proba(x).max(1)),
            "known turned away": float(turned_away.mean()),
        }


def kept(data: Dataset, rounds: int = 100) -> Iterator[Row]:
    """Steps with and without keeping samples, in turn; the median of the ratios."""
    for samples in (10, data.spec.chunk):
        clf = learnt(data, draw(data.train_y, [50] * data.spec.num_classes, 0))
        assert clf._state is not None
        learner = clf._state.learner
        shares = []
        for step in range(rounds):
            first = step * samples % (len(data.train_y) - samples)
            x, y = data.train_x[first : first + samples], data.train_y[first : first + samples]
            seconds = []
            for keeping in (True, False):
                with nullcontext() if keeping else mock.patch.object(learner.kept, "add"):
                    start = time.perf_counter()
                    learner.observe(x, y)
                    seconds.append(time.perf_counter() - start)
            shares.append(1 - seconds[1] / seconds[0])
        share = nbytes(learner.kept) / learner.memory_bytes
        yield {"part": "kept", "case": f"{samples} images", "seed": 0, "of bytes": share, "of time": median(shares)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", default=["few", "rare", "turn", "unknown", "kept"])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    data = load(settings.dataset, settings.data_dir)
    chosen = torch.randperm(len(data.test_y), generator=torch.Generator().manual_seed(0))[: settings.test]
    test = data.test_x[chosen], data.test_y[chosen]
    parts = {
        "few": lambda: few(data, test, settings.draws, settings.sizes or [1, 5, 10, 50, 500, 5000], settings.method),
        "rare": lambda: rare(data, test, settings.draws, settings.sizes or [5, 20, 100]),
        "turn": lambda: turn(data),
        "unknown": lambda: unknown(data, test, settings.draws),
        "kept": lambda: kept(data),
    }
    rows = []
    for part in settings.parts:
        case = ""
        group: list[Row] = []
        for row in chain(parts[part](), [{"case": None}]):
            if row["case"] != case and group:
                names = [name for name in group[0] if name not in ("part", "case", "seed")]
                means = "  ".join(f"{name} {fmean(each[name] for each in group):.3f}" for name in names)
                print(f"{settings.dataset} {part} {case}: {means}  ({len(group)} draws)", flush=True)
                group = []
            case = row["case"]
            group.append(row)
            rows.append(row | {"dataset": settings.dataset, "method": settings.method})
        rows.pop()
    if settings.out:
        columns = list(dict.fromkeys(name for row in rows for name in row))
        with settings.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
