"""Overhead of OnlineClassifier, and its behaviour on long streams; all on the CPU.

overhead   a partial_fit of 10 images (32x32, reduced ResNet-18) against the learner's own step. Both alternate, so that
           a busy machine slows them equally; the ratio is the median over the rounds.
classes    1,000 classes arriving one by one: time of a step at the end against that at the start. A second classifier
           with only 10 classes takes a step before each, to separate growth from a busy machine.
stream     60,000 gray images of 28x28 with strings as labels, one class at a time, in chunks of 1 to 300: memory of the
           process, and size of the saved file against nbytes.

    python benchmarks/estimator.py [overhead classes stream] [--threads 2] [--samples 60000]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

from onebyone import OnlineClassifier, create
from onebyone.data import CropFlip, Spec

PAGE = resource.getpagesize()


def overhead(rounds: int = 40, steps: int = 3) -> None:
    x = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
    labels = [f"class {n}" for n in range(10)]
    clf = OnlineClassifier("ccp", memory=2000)
    spec = Spec((3, 32, 32), 16, augmentation=CropFlip(4, flip=False))
    learner = create("ccp", spec, memory_samples=2000)
    ready_x, ready_y = torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.arange(10)
    times: dict[str, list[float]] = {"observe": [], "partial_fit": []}
    for round_ in range(-3, rounds):
        for name, taken in times.items():
            started = time.perf_counter()
            for _ in range(steps):
                if name == "observe":
                    learner.observe(ready_x, ready_y)
                else:
                    clf.partial_fit(x, labels)
            if round_ >= 0:
                taken.append((time.perf_counter() - started) / steps)
    ratio = median(own / bare for own, bare in zip(times["partial_fit"], times["observe"], strict=True))
    print(
        f"overhead: observe {1000 * median(times['observe']):.1f} ms, partial_fit "
        f"{1000 * median(times['partial_fit']):.1f} ms, ratio {ratio:.2f} (at most 1.15)"
    )


def classes(number: int = 1000, around: int = 50) -> None:
    rng = np.random.default_rng(0)
    clf, still = OnlineClassifier("ccp", memory=2000), OnlineClassifier("ccp", memory=2000)
    ratios, growing = [], 0.0
    for label in range(number):
        x = rng.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
        started = time.perf_counter()
        still.partial_fit(x, [label % 10] * 10)
        before = time.perf_counter()
        clf.partial_fit(x, [label] * 10)
        own = time.perf_counter() - before
        if label in (2**power for power in range(4, 20)):
            growing += own  # this call also increased the capacity of the learner
        else:
            ratios.append(own / (before - started))
    first, last = median(ratios[2:around]), median(ratios[-around:])
    print(
        f"{number} classes one by one: a step at the end takes {last / first:.2f} of one at the start (at most 1.30); "
        f"all calls that grew {growing:.1f} s together"
    )


def stream(samples: int) -> None:
    rng = np.random.default_rng(0)
    names = ["shirt", "trouser", "pullover", "dress", "coat", "sandal", "top", "sneaker", "bag", "boot"]
    templates = rng.integers(0, 256, (len(names), 28, 28))
    per_class = samples // len(names)
    clf, started, reported = OnlineClassifier("ccp", memory=2000), time.perf_counter(), 0.0
    resident: list[tuple[float, int]] = []
    for template, name in zip(templates, names, strict=True):
        left = per_class
        while left:
            size = min(int(rng.integers(1, 301)), left)
            x = (template + rng.normal(0, 60, (size, 28, 28))).clip(0, 255).astype(np.uint8)
            clf.partial_fit(x, [name] * size)
            left -= size
            seconds = time.perf_counter() - started
            resident.append((seconds, int(Path("/proc/self/statm").read_text().split()[1]) * PAGE))
            if seconds - reported > 60:
                reported = seconds
                print(
                    f"  {clf.n_samples_seen_:6} samples, {seconds:5.0f} s, {resident[-1][1] / 1e6:.1f} MB", flush=True
                )
    test = np.concatenate([(t + rng.normal(0, 60, (20, 28, 28))).clip(0, 255).astype(np.uint8) for t in templates])
    accuracy = clf.score(test, [name for name in names for _ in range(20)])
    with tempfile.TemporaryDirectory() as folder:
        clf.save(Path(folder) / "file")
        size = (Path(folder) / "file").stat().st_size
    later = [used for seconds, used in resident if seconds > 60] or [
        used for _, used in resident[len(resident) // 10 :]
    ]
    low, high = min(later), max(later)
    print(f"stream: {clf.n_samples_seen_} samples in {resident[-1][0]:.0f} s, accuracy {accuracy:.2f}")
    print(f"  process memory after a minute {low / 1e6:.1f} to {high / 1e6:.1f} MB: {high / low - 1:.1%} (at most 5 %)")
    print(f"  file {size} bytes, nbytes {clf.nbytes}: {size / clf.nbytes - 1:+.2%} (at most 2 %)")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", default=["overhead", "classes", "stream"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--samples", type=int, default=60_000)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    print(f"OnlineClassifier, CCP, CPU, threads: {torch.get_num_threads()}", flush=True)
    for part in settings.parts:
        if part == "stream":
            stream(settings.samples)
        else:
            {"overhead": overhead, "classes": classes}[part]()


if __name__ == "__main__":
    main()
