"""Unknown samples where classes vary very differently: images of CIFAR, enlarged digits and pieces of photographs.

    python benchmarks/features.py DATA --into FEATURES
    python benchmarks/mixed.py --features FEATURES [--out results/few/mixed.csv]

Some classes of each source are known to a classifier on features of `lite0`, and others are unknown. All images of
CIFAR are training images. For every draw, typicality is computed without scales of classes (`UNEVEN` infinite), and
with them for several values of `PRIOR` (see src/onebyone/statistics/typicality.py). Prints the mean over draws of: the
area under the ROC curve (auroc), the share of known samples that are called unknown (turned_away), the same for the
class where it is largest (worst_class), and the share of unknown samples that are found (found).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from features import features, read
from onebyone import OnlineClassifier, nets
from onebyone.nets.lite0 import SIZE, Lite0
from onebyone.statistics import typicality

Rows = npt.NDArray[np.float32]
PIECES = 300  # of each photograph
TEST = 60  # samples per class that are predicted
# Known and unknown classes of each source.
MIXTURES = {
    "cifar10": {"cifar10": (5, 5)},
    "cifar100": {"cifar100": (20, 20)},
    "digits": {"digits": (5, 5)},
    "cifar10, cifar100": {"cifar10": (3, 3), "cifar100": (5, 5)},
    "cifar10, digits": {"cifar10": (3, 3), "digits": (3, 3)},
    "cifar10, pieces": {"cifar10": (3, 3), "pieces": (2, 0)},
    "digits, pieces": {"digits": (4, 4), "pieces": (2, 0)},
    "all four": {"cifar10": (3, 3), "cifar100": (3, 3), "digits": (3, 3), "pieces": (2, 0)},
}
SETTINGS = {"without": (math.inf, 10.0)} | {f"prior {prior}": (typicality.UNEVEN, prior) for prior in (10.0, 3.0, 1.0)}


def encoded(images: Sequence[Image.Image]) -> Rows:
    """[n, 1280] features of lite0."""
    encoder = nets.Adapted(Lite0(), (3, SIZE, SIZE), frozen=True).eval()
    resized = [np.asarray(image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)) for image in images]
    return features(encoder, torch.from_numpy(np.stack(resized)).permute(0, 3, 1, 2), 100).numpy()


def by_class(x: Rows | Tensor, y: npt.NDArray[np.int64] | Tensor) -> list[Rows]:
    x, y = np.asarray(x), np.asarray(y)
    return [x[y == label] for label in np.unique(y)]


def sources(folder: Path, random: np.random.Generator) -> dict[str, list[Rows]]:
    """The features of each class of each source."""
    digits = load_digits()
    pieces = []
    for photograph in map(Image.fromarray, load_sample_images().images):
        for _ in range(PIECES):
            side = random.integers(60, 200)
            left, top = random.integers(photograph.width - side), random.integers(photograph.height - side)
            pieces.append(photograph.crop((left, top, left + side, top + side)))
    found = {name: by_class(*read(folder, name)[:2]) for name in ("cifar10", "cifar100")}
    found["digits"] = by_class(
        encoded([Image.fromarray((x * 15.9).astype(np.uint8)) for x in digits.images]), digits.target
    )
    found["pieces"] = by_class(encoded(pieces), np.repeat([0, 1], PIECES))
    return found


def drawn(
    classes: dict[str, list[Rows]], mixture: dict[str, tuple[int, int]], random: np.random.Generator
) -> tuple[list[Rows], list[Rows]]:
    """Samples of the known and of the unknown classes, in random order."""
    known, unknown = [], []
    for name, (first, second) in mixture.items():
        chosen = [
            random.permutation(classes[name][c]) for c in random.permutation(len(classes[name]))[: first + second]
        ]
        known += chosen[:first]
        unknown += chosen[first:]
    return known, unknown


def measured(clf: OnlineClassifier, known: list[Rows], unknown: Rows) -> dict[str, float]:
    samples, labels = np.concatenate(known), np.repeat(np.arange(len(known)), [len(rows) for rows in known])
    away = clf.predict(samples, unknown=-1) == -1
    values = np.concatenate([clf.typicality(samples), clf.typicality(unknown)])
    return {
        "auroc": float(roc_auc_score(np.arange(len(values)) < len(samples), values)),
        "turned_away": float(away.mean()),
        "worst_class": max(float(away[labels == label].mean()) for label in range(len(known))),
        "found": float((clf.predict(unknown, unknown=-1) == -1).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 80])
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    random = np.random.default_rng(0)
    classes = sources(words.features, random)
    rows = []
    for name, mixture in MIXTURES.items():
        for size in words.sizes:
            for draw in range(words.draws):
                known, unknown = drawn(classes, mixture, random)
                clf = OnlineClassifier(encoder=nn.Identity(), freeze_encoder=True, memory="32MB", random_state=0)
                for label, samples in enumerate(known):
                    clf.partial_fit(samples[:size], [label] * len(samples[:size]))
                held_out = [samples[size : size + TEST] for samples in known]
                for setting, (typicality.UNEVEN, typicality.PRIOR) in SETTINGS.items():
                    clf._fitted().learner.refresh()  # so that the next answer uses the setting
                    found = measured(clf, held_out, np.concatenate([samples[:TEST] for samples in unknown]))
                    rows.append({"mixture": name, "per_class": size, "draw": draw, "scales": setting, **found})
            part = pd.DataFrame(rows)
            part = part[(part.mixture == name) & (part.per_class == size)].drop(
                columns=["mixture", "per_class", "draw"]
            )
            print(f"{name}, {size} per class\n{part.groupby('scales', sort=False).mean().round(3)}\n", flush=True)
            if words.out:
                pd.DataFrame(rows).round(4).to_csv(words.out, index=False)


if __name__ == "__main__":
    main()
