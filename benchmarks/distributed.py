"""`onebyone.distributed.fit` on CIFAR-10 with 1, 2 and 7 workers: the same classifier, and the gain of 2 over 1.

    python benchmarks/distributed.py --data-dir DIR [--samples N] [--times N] [--shards N] [--encoder NAME] [--random]

Compares the scores of every fit with those of one pass in this process. One worker of the fit with 7 is killed. Then
times fits with 1 and 2 workers in turn and prints the medians; every worker has one thread. The workers' start (imports
of about three seconds) is part of the time. With an encoder, samples are images a second through that encoder. With
``--random``, images are random bytes of 32 x 32 pixels, or of 224 x 224 with an encoder: for machines without the data.
Statistics of an encoder take 32 MB per shard, which is merged, so give few shards for few images.
Needs a machine with at least two cores that have nothing else to do.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, here and in the workers

import numpy as np
import torch

from onebyone import Dataset, OnlineClassifier, from_arrays, load
from onebyone.distributed import fit
from onebyone.executors import LocalExecutor, Status
from onebyone.executors.executor import Function


class Killer(LocalExecutor):
    """Kills one worker process once all of them learn."""

    killed = 0

    def map(self, function: Function, items: Mapping[str, Any], **given: Any) -> Generator[tuple[str, Any]]:
        told = given.pop("progressed")

        def progressed(name: str, status: Status) -> None:
            if not self.killed and status.done:
                self.killed = multiprocessing.active_children()[0].pid or 0
                multiprocessing.active_children()[0].kill()
            told(name, status)

        return super().map(function, items, progressed=progressed, **given)


def random_images(count: int, side: int) -> Dataset:
    random = torch.Generator().manual_seed(0)
    images = torch.randint(256, (count + 200, 3, side, side), generator=random, dtype=torch.uint8)
    labels = torch.arange(count + 200) % 10
    return from_arrays(images[:count], labels[:count], images[count:], labels[count:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--encoder")
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--shards", type=int, default=100)
    given = parser.parse_args()
    data = (
        random_images(given.samples, 224 if given.encoder else 32) if given.random else load("cifar10", given.data_dir)
    )
    x, y = data.train_x[: given.samples], data.train_y[: given.samples]
    shards = [(x[part :: given.shards], y[part :: given.shards].tolist()) for part in range(given.shards)]
    test_x, test_y = data.test_x[:2000], data.test_y[:2000]

    def new() -> OnlineClassifier:
        return OnlineClassifier(encoder=given.encoder or "auto", memory="32MB" if given.encoder else 2000, device="cpu")

    start = time.perf_counter()
    single = new().partial_fit(x, y)
    print(f"one pass in this process: {time.perf_counter() - start:.1f} s, accuracy {single.score(test_x, test_y):.4f}")
    wanted = single.decision_function(test_x)
    for workers, executor in ((1, LocalExecutor()), (2, LocalExecutor()), (7, Killer())):
        start = time.perf_counter()
        clf = fit(new(), shards, workers=workers, executor=executor)
        taken = time.perf_counter() - start
        difference = np.abs(clf.decision_function(test_x) - wanted).max() / np.abs(wanted).max()
        died = ", one of them killed" if isinstance(executor, Killer) and executor.killed else ""
        accuracy = clf.score(test_x, test_y)
        print(f"{workers} workers{died}: {taken:.1f} s, accuracy {accuracy:.4f}, scores differ by {difference:.1e}")
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(given.times):
        for workers, times in seconds.items():
            start = time.perf_counter()
            fit(new(), shards, workers=workers)
            times.append(time.perf_counter() - start)
    one, two = (statistics.median(times) for times in seconds.values())
    print(f"1 worker {one:.1f} s ({len(y) / one:.1f} samples/s), 2 workers {two:.1f} s ({len(y) / two:.1f} samples/s)")
    print(f"2 workers are {one / two:.2f} times as fast as 1 (medians of {given.times})")


if __name__ == "__main__":
    main()
