"""How the time of a step of ER grows with the memory, the number of classes and the batch.

Memories are full before anything is measured. Blocks of steps of all sizes alternate, so that a busy machine slows all
of them equally. A ratio is to the first size, the median over the rounds. The number of replayed samples grows with
the batch, and times are per incoming sample.

One thread by default: with more, a core that another program uses delays every parallel region, and steps
can take ten times as long. The fraction of the requested CPU time that was available is printed; if it is far below
100 %, the machine was busy and the times are not reliable.

    python benchmarks/growth.py [--networks conv resnet18] [--rounds 7] [--threads 1]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from onebyone import Spec, create
from onebyone.memory import Memory

SHAPES = {"conv": (1, 8, 8), "resnet18": (3, 32, 32)}
SECONDS = 0.25  # of a block, approximately


@dataclass(frozen=True)
class Size:
    per_class: int = 20
    classes: int = 10
    batch: int = 10


PER_SAMPLE = "batch, time per sample"
AXES = {
    "memory per class, 10 classes": {str(m): Size(per_class=m) for m in (5, 20, 100, 1000)},
    "classes, 5 samples each": {str(c): Size(per_class=5, classes=c) for c in (10, 100, 1000)},
    PER_SAMPLE: {str(b): Size(batch=b) for b in (1, 10, 100)},
}


def fill(memory: Memory, classes: int) -> None:
    """A full memory, without the steps it takes to fill one."""
    memory.x.random_(0, 256)
    memory.y.copy_(torch.arange(len(memory.y)) % classes)
    memory.x[-1], memory.y[-1] = 0, 0  # the blank row
    memory.seen.fill_(memory.capacity)


def steps(network: str, size: Size) -> Callable[[int], float]:
    """A function that takes a number of steps with a learner of this size, and returns the seconds."""
    spec = Spec(shape=SHAPES[network], num_classes=size.classes)
    learner = create("er", spec, encoder=network, memory_per_class=size.per_class, replay_size=size.batch)
    fill(learner.memory, size.classes)
    x = torch.randint(0, 256, (size.batch, *spec.shape), dtype=torch.uint8)
    y = torch.randint(size.classes, (size.batch,))

    def block(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            learner.observe(x, y)
        return time.perf_counter() - started

    return block


def measure(network: str, axis: str, rounds: int) -> None:
    sides = {name: steps(network, size) for name, size in AXES[axis].items()}
    counts = {}
    for name, block in sides.items():
        block(3)
        counts[name] = max(1, round(SECONDS / (block(3) / 3)))
    times: dict[str, list[float]] = {name: [] for name in sides}
    started, busy = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        for name, block in sides.items():
            samples = AXES[axis][name].batch if axis == PER_SAMPLE else 1
            times[name].append(block(counts[name]) / counts[name] / samples)
    share_got = (time.process_time() - busy) / (time.perf_counter() - started) / torch.get_num_threads()
    print(f"  {axis} ({share_got:.0%} of the CPU)")
    for name, taken in times.items():
        ratio = median(own / first for own, first in zip(taken, next(iter(times.values())), strict=True))
        print(f"  {name:>6}{1000 * median(taken):10.2f} ms{ratio:8.2f} of the first")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--networks", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    print(f"ER, time of a step, CPU, {torch.get_num_threads()} threads")
    for network in settings.networks:
        print(f"{network}, {'x'.join(map(str, SHAPES[network]))}")
        for axis in AXES:
            measure(network, axis, settings.rounds)


if __name__ == "__main__":
    main()
