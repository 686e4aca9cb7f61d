"""The default classifier on many sets of vectors, beside four simple rules, with few and with many samples per class.

    python benchmarks/sets.py FOLDER [--draws 3] [--counts 2 3 5 10 50] [--out results/sets.csv]

FOLDER has a file for each set, NAME.npz with arrays x and y; names of made-up sets begin with ``made``. The rules get
standardised columns. The best of them in a cell (a set, and a number of samples per class) is chosen on the draws other
than the one that is compared. The sets of `scikit-learn` are always among them.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.covariance import oas
from sklearn.linear_model import LogisticRegressionCV
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.preprocessing import StandardScaler

from onebyone import OnlineClassifier

TEST = 600  # samples at most
BUNDLED = {"digits": datasets.load_digits, "wine": datasets.load_wine, "iris": datasets.load_iris}
RULES = ("nearest mean", "LDA with OAS", "5-NN", "logistic regression")
FIELDS = ("set", "width", "classes", "per_class", "draw", "onebyone", "confidence", "bytes", "seconds", *RULES)


def sets(folder: Path) -> dict[str, tuple[Any, Any]]:
    found = {name: load(return_X_y=True) for name, load in BUNDLED.items()}
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as arrays:
            found[file.stem] = arrays["x"].astype(float), np.unique(arrays["y"], return_inverse=True)[1]
    return found


def drawn(y: Any, count: int, seed: int) -> tuple[Any, Any]:
    """Indices of ``count`` samples of each class, at most half of them, and of others to test."""
    rng = np.random.default_rng((seed, count))
    train, test = [], []
    for label in np.unique(y):
        index = rng.permutation(np.flatnonzero(y == label))
        most = min(count, max(len(index) // 2, min(5, len(index) - 5)))
        train.append(index[:most])
        test.append(index[most:])
    return rng.permutation(np.concatenate(train)), rng.permutation(np.concatenate(test))[:TEST]


def lda(x: Any, y: Any, new: Any) -> Any:
    means = np.stack([x[y == label].mean(0) for label in range(y.max() + 1)])
    solved = np.linalg.solve(oas(x - means[y], assume_centered=True)[0], means.T)
    return (new @ solved - (means * solved.T).sum(1) / 2).argmax(1)


def rules(x: Any, y: Any, new: Any, truth: Any) -> dict[str, float]:
    scaler = StandardScaler().fit(x)
    x, new = scaler.transform(x), scaler.transform(new)
    least = int(np.bincount(y).min())
    found = {
        RULES[0]: NearestCentroid().fit(x, y).predict(new),
        RULES[1]: lda(x, y, new),
        RULES[2]: KNeighborsClassifier(min(5, len(x))).fit(x, y).predict(new),
    }
    if least >= 3:
        regression = LogisticRegressionCV(Cs=np.logspace(-3, 2, 6), cv=min(5, least), max_iter=200)
        found[RULES[3]] = regression.fit(x, y).predict(new)
    return {name: float((answers == truth).mean()) for name, answers in found.items()}


def measured(x: Any, y: Any, new: Any, truth: Any) -> dict[str, float]:
    start = time.perf_counter()
    clf = OnlineClassifier().partial_fit(x, y)
    chances = clf.predict_proba(new)
    seconds = time.perf_counter() - start
    accuracy = float((clf.classes_[chances.argmax(1)] == truth).mean())
    size = clf.state.learner.memory_bytes  # type: ignore[union-attr]
    return {"onebyone": accuracy, "confidence": float(chances.max(1).mean()), "bytes": size, "seconds": seconds}


def summarise(rows: list[dict[str, Any]]) -> None:
    cells: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        cells.setdefault((row["set"], row["per_class"]), []).append(row)
    found = {}
    for cell, draws in cells.items():
        if len(draws) < 2:
            continue
        differences = []
        for row in draws:
            others = [other for other in draws if other is not row]
            rival = max((name for name in RULES if name in row), key=lambda name: sum(o[name] for o in others))
            differences.append(row["onebyone"] - row[rival])
        found[cell] = float(np.mean(differences)), float(np.std(differences, ddof=1) / len(differences) ** 0.5)
    for title, chosen in (
        ("real sets", [cell for cell in found if not cell[0].startswith("made")]),
        ("made-up sets", [cell for cell in found if cell[0].startswith("made")]),
        ("up to 5 per class", [cell for cell in found if cell[1] <= 5]),
        ("from 10 per class on", [cell for cell in found if cell[1] >= 10]),
    ):
        if chosen:
            behind = [cell for cell in chosen if found[cell][0] < min(-0.01, -2 * found[cell][1])]
            mean, worst = np.mean([found[cell][0] for cell in chosen]), min(found[cell][0] for cell in chosen)
            print(f"{title}: {mean:+.4f} to the best rule, worst {worst:+.3f}, {len(behind)} of {len(chosen)} behind")
    for (name, count), (mean, error) in sorted(found.items(), key=lambda item: item[1][0]):
        if mean < min(-0.01, -2 * error):
            print(f"  behind: {name}, {count} per class, {mean:+.3f} (standard error {error:.3f})")
    gap = np.mean([abs(row["confidence"] - row["onebyone"]) for row in rows])
    print(
        f"mean difference of confidence and accuracy {gap:.3f}; "
        f"median seconds {np.median([row['seconds'] for row in rows]):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--counts", type=int, nargs="+", default=[2, 3, 5, 10, 50])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name, (x, y) in sets(given.folder).items():
        for count in given.counts:
            for draw in range(given.draws):
                train, test = drawn(y, count, draw)
                data = x[train], y[train], x[test], y[test]
                about = {"set": name, "width": x.shape[1], "classes": y.max() + 1, "per_class": count, "draw": draw}
                rows.append(about | measured(*data) | rules(*data))
        print(name, *(f"{row['onebyone']:.3f}" for row in rows if row["set"] == name and row["draw"] == 0), flush=True)
        if given.out:
            with given.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                writer.writeheader()
                writer.writerows(
                    {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}
                    for row in rows
                )
    summarise(rows)


if __name__ == "__main__":
    main()
