"""Features of CIFAR-10 and CIFAR-100 by a frozen encoder, as NumPy files for experiments.

    python benchmarks/features.py DATA --into features [--datasets cifar10 cifar100] [--encoder lite0]

DATA holds the official binary files. Writes NAME-train-0.npy, NAME-train-1.npy, ... [6250, 1280] float16 each (16 MB),
the same for test, and NAME-labels.npz. Prints images per second and, as a check of the features, the test accuracy of
linear discriminant analysis on them (`lite0`, all images: 89.9 % and 68.5 %). `read` reads the files back.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onebyone import nets
from onebyone.data import Dataset, load

ROWS = 6250  # per file


@torch.inference_mode()
def features(encoder: torch.nn.Module, x: Tensor, batch: int) -> Tensor:
    """[n, 3, h, w] bytes on any device -> [n, d] float32 on the CPU."""
    device = next(encoder.parameters()).device
    found = []
    for part in x.split(batch):
        part = part.to(device).contiguous(memory_format=torch.channels_last) * (2 / 255) - 1  # as learners scale bytes
        found.append(encoder(part))
    return torch.cat(found).float().cpu()


def discriminant_accuracy(x: Tensor, y: Tensor, test_x: Tensor, test_y: Tensor, shrinkage: float = 1e-3) -> float:
    """Percentage of test samples that linear discriminant analysis with a uniform prior classifies correctly."""
    classes = torch.nn.functional.one_hot(y).double()
    means = classes.T @ x.double() / classes.sum(0).clamp(min=1)[:, None]
    within = x.double() - means[y]
    covariance = within.T @ within / len(x)
    covariance += shrinkage * covariance.trace() / len(covariance) * torch.eye(len(covariance), device=x.device)
    weights = torch.linalg.solve(covariance, means.T)
    scores = test_x.double() @ weights - (means.T * weights).sum(0) / 2
    return float((scores.argmax(1) == test_y).double().mean()) * 100


def write(folder: Path, name: str, found: Tensor, dtype: str) -> None:
    for number, part in enumerate(found.split(ROWS)):
        np.save(folder / f"{name}-{number}.npy", part.numpy().astype(dtype))


def read(folder: str | Path, dataset: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training features [n, d] float32, training labels [n], test features and test labels."""
    labels = np.load(Path(folder) / f"{dataset}-labels.npz")
    tensors = []
    for part in ("train", "test"):
        files = sorted(Path(folder).glob(f"{dataset}-{part}-*.npy"))
        tensors += [
            torch.from_numpy(np.concatenate([np.load(file) for file in files])).float(),
            torch.from_numpy(labels[part]),
        ]
        assert len(tensors[-1]) == len(tensors[-2]), f"{len(tensors[-2])} rows of {len(tensors[-1])}: files are missing"
    return tensors[0], tensors[1], tensors[2], tensors[3]


def subset(data: Dataset, count: int | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if count is None:
        return data.train_x, data.train_y, data.test_x, data.test_y
    generator = torch.Generator().manual_seed(0)  # CIFAR-100 may be sorted by class
    train, test = (torch.randperm(len(y), generator=generator)[:count] for y in (data.train_y, data.test_y))
    return data.train_x[train], data.train_y[train], data.test_x[test], data.test_y[test]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--datasets", nargs="+", default=["cifar10", "cifar100"])
    parser.add_argument("--encoder", default="lite0")
    parser.add_argument("--dtype", default="float16", choices=["float16", "float32"])
    parser.add_argument("--count", type=int, help="only this many images of each part, drawn at random")
    parser.add_argument("--batch", type=int, default=500)
    words = parser.parse_args()
    words.into.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for name in words.datasets:
        x, y, test_x, test_y = subset(load(name, words.data), words.count)
        encoder = nets.create(words.encoder, tuple(x.shape[1:])).eval().requires_grad_(False)
        encoder = encoder.to(device).to(memory_format=torch.channels_last)
        features(encoder, x[: words.batch], words.batch)  # the first batch chooses algorithms
        start = time.perf_counter()
        found = features(encoder, x, words.batch)
        rate = len(x) / (time.perf_counter() - start)
        test = features(encoder, test_x, words.batch)
        write(words.into, f"{name}-train", found, words.dtype)
        write(words.into, f"{name}-test", test, words.dtype)
        np.savez(words.into / f"{name}-labels.npz", train=y.cpu().numpy(), test=test_y.cpu().numpy())
        found, y, test, test_y = (tensor.to(device) for tensor in read(words.into, name))
        accuracy = discriminant_accuracy(found, y, test, test_y)
        print(f"{name}: {rate:,.0f} images per second on {device}; LDA {accuracy:.2f} %", flush=True)


if __name__ == "__main__":
    main()
