"""Peak memory of learning and predicting large images: python benchmarks/memory.py [--frames 150]

Each case runs in its own process, because peak memory (ru_maxrss) never decreases. "beyond the input" is the peak minus
the input and minus the peak of a process that predicts one frame.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

import numpy as np

import onebyone

CASES = {"uint8": np.uint8, "float32": np.float32, "float64": np.float64}


def measure(dtype: str, frames: int, height: int, width: int, task: str) -> None:
    """Print the peak memory of this process in bytes."""
    random = np.random.default_rng(0)
    shape = (height, width, 3)
    clf = onebyone.OnlineClassifier()
    clf.partial_fit(random.integers(0, 256, (4, *shape), np.uint8).astype(CASES[dtype]), [0, 0, 1, 1])
    x = np.zeros((frames, *shape), CASES[dtype])
    x[:] = random.integers(0, 256, shape, np.uint8)
    if task == "predict":
        clf.predict(x)
    else:
        clf.partial_fit(x, [0] * frames)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def peak(*words: object) -> int:
    done = subprocess.run([sys.executable, __file__, "--measure", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return int(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=150)
    parser.add_argument("--size", type=int, nargs=2, default=(1080, 1920), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--dtypes", nargs="+", default=["uint8"], choices=CASES)
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.measure:
        dtype, frames, height, width, task = words.measure
        measure(dtype, int(frames), int(height), int(width), task)
        return
    height, width = words.size
    print(f"{words.frames} frames of {height}x{width}, in MB")
    print(f"{'task':<8} {'type':<8} {'input':>8} {'peak':>8} {'beyond the input':>17}")
    for dtype in words.dtypes:
        size = words.frames * height * width * 3 * np.dtype(CASES[dtype]).itemsize
        for task in ("predict", "learn"):
            found = peak(dtype, words.frames, height, width, task)
            alone = peak(dtype, 1, height, width, task)
            print(f"{task:<8} {dtype:<8} {size / 1e6:8.0f} {found / 1e6:8.0f} {(found - size - alone) / 1e6:17.0f}")


if __name__ == "__main__":
    main()
