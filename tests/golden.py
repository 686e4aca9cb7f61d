"""Golden results: the final accuracy of every method on one short run, so that no change alters one unnoticed.

A test fails if one changes by more than two points. If that is intended, `python tests/golden.py` writes the new ones
and prints the line that CHANGELOG.md must then contain; without it another test fails.

The runs of networks are in double precision. In single precision, the order of additions on a CPU can change a
method by five points in 140 steps; in double precision, a learning rate larger by 1e-14 changes none.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from onebyone import create, load, methods, streams
from onebyone.methods import Options, method

SAME = {"lda": "patch-lda"}  # without an encoder, one is the other

FILE = Path(__file__).with_name("golden.json")


def accuracy(name: str) -> float:
    """In percent, after 75 steps on digits that come two classes at a time (or shuffled, if that is its stream)."""
    precision = torch.float64 if issubclass(method(name).options, Options) else torch.float32
    before = torch.get_default_dtype()
    torch.set_default_dtype(precision)
    try:
        digits = load("digits")
        train_x, test_x = (x.to(precision) * (2 / 255) - 1 for x in (digits.train_x, digits.test_x))  # as bytes are
        make = streams.iid if method(name).learner.stream == "iid" else streams.class_incremental
        learner = create(name, replace(digits.spec, dtype=precision))
        for task in make(digits.train_y, digits.num_classes, classes_per_task=2, batch_size=20).tasks:
            for index in task.batches(20):
                learner.observe(train_x[index], digits.train_y[index])
            if learner.needs_boundaries:
                learner.end_task()
        return 100 * float((learner.predict(test_x) == digits.test_y).double().mean())
    finally:
        torch.set_default_dtype(before)


def line(golden: Mapping[str, float]) -> str:
    """What CHANGELOG.md has to say: another line for other results."""
    return f"golden results {zlib.crc32(json.dumps(golden, sort_keys=True).encode()):08x}"


if __name__ == "__main__":
    golden = {name: round(accuracy(name), 2) for name in methods() if name not in SAME}
    FILE.write_text(json.dumps(golden, indent=2) + "\n")
    print(f'written. Say in CHANGELOG.md why they changed, with the words "{line(golden)}"')
