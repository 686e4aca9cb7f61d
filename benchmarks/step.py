"""Overhead of the library: a step of ER on CIFAR-10 shapes against a bare PyTorch loop that does the same work.

Both sides: reduced ResNet-18, 10 incoming and 10 replayed images, crop and flip on both, a reservoir of 20 images per
class written after the step, plain SGD, the same number of threads, in one process. Blocks of steps
alternate, so that a busy machine slows all of them equally; the ratio is the median over the rounds.

    python benchmarks/step.py [--rounds 15] [--steps 8] [--threads 1 2]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onebyone import Spec, create
from onebyone.nets.resnet import ResNet18

CLASSES, CAPACITY, BATCH = 10, 200, 10


def bare_loop() -> Callable[[Tensor, Tensor], None]:
    """Experience replay as one would write it in a notebook: no classes, no options, default memory layout."""
    encoder = ResNet18((3, 32, 32))
    network = nn.Sequential(encoder, nn.Linear(encoder.width, CLASSES))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    stored_x = torch.zeros(CAPACITY, 3, 32, 32, dtype=torch.uint8)
    stored_y = torch.zeros(CAPACITY, dtype=torch.int64)
    seen = 0

    def augment(images: Tensor) -> Tensor:
        padded = F.pad(images, [4] * 4)
        views = []
        for image, row, column, mirrored in zip(
            padded,
            torch.randint(9, (len(images),)).tolist(),
            torch.randint(9, (len(images),)).tolist(),
            torch.randint(2, (len(images),)).tolist(),
            strict=True,
        ):
            view = image[:, row : row + 32, column : column + 32]
            views.append(view.flip(2) if mirrored else view)
        return torch.stack(views).float() / 127.5 - 1

    def step(x: Tensor, y: Tensor) -> None:
        nonlocal seen
        loss = F.cross_entropy(network(augment(x)), y)
        if seen:
            index = torch.randperm(min(seen, CAPACITY))[:BATCH]
            loss = loss + F.cross_entropy(network(augment(stored_x[index])), stored_y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for image, label in zip(x, y, strict=True):
            slot = seen if seen < CAPACITY else int(torch.randint(seen + 1, ()))
            if slot < CAPACITY:
                stored_x[slot], stored_y[slot] = image, label
            seen += 1

    return step


def library(channels_last: bool) -> Callable[[Tensor, Tensor], None]:
    spec = Spec(shape=(3, 32, 32), num_classes=CLASSES)
    learner = create("er", spec, memory_per_class=CAPACITY // CLASSES, channels_last=channels_last)

    def step(x: Tensor, y: Tensor) -> None:
        learner.observe(x, y)

    return step


def measure(threads: int, rounds: int, steps: int) -> None:
    torch.set_num_threads(threads)
    sides = {
        "bare loop": bare_loop(),
        "onebyone": library(channels_last=False),
        "onebyone, channels-last": library(channels_last=True),
    }
    x = torch.randint(0, 256, (BATCH, 3, 32, 32), dtype=torch.uint8)
    y = torch.randint(CLASSES, (BATCH,))
    times: dict[str, list[float]] = {name: [] for name in sides}
    for round_ in range(-3, rounds):  # some rounds to warm up and to fill the memories
        for name, step in sides.items():
            started = time.perf_counter()
            for _ in range(steps):
                step(x, y)
            if round_ >= 0:
                times[name].append((time.perf_counter() - started) / steps)
    print(f"ER, CIFAR-10 shapes, {BATCH} + {BATCH} images per step, CPU, threads: {threads}")
    for name, taken in times.items():
        ratio = median(own / bare for own, bare in zip(taken, times["bare loop"], strict=True))
        print(f"{name:<25}{1000 * median(taken):8.1f} ms per step   {ratio:5.2f} of the bare loop")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=8, help="steps in a block")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, torch.get_num_threads()}))
    settings = parser.parse_args()
    for threads in settings.threads:
        measure(threads, settings.rounds, settings.steps)


if __name__ == "__main__":
    main()
