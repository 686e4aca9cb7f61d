"""Size of the library, and how far a call travels in it: code lines, files passed, and times beside scikit-learn.

Code lines are without blank lines, comments and docstrings. A call passes the files of the library whose functions run
during it. Each call of a function in another of these files is one change, and so is its return. Both are medians over
the second half of the calls, with one image of digits per call. Times are medians, with one vector of 64 numbers per
call and one thread; the same calls of GaussianNB are made in between. A run is traced after one that imports all that
it needs.

    python benchmarks/house.py [--calls 200]
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tempfile
import time
import tokenize
from collections import Counter
from collections.abc import Callable
from contextlib import chdir, redirect_stdout
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import numpy as np
import torch
from sklearn.naive_bayes import GaussianNB

import onebyone
from onebyone import OnlineClassifier
from onebyone.cli.app import app

PACKAGE = Path(onebyone.__file__).parent
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def code_lines(text: str) -> int:
    """The lines of a program that are not blank, a comment or part of a docstring.

    >>> code_lines('"What it does."\\n\\nx = 1  # why\\n')
    1
    """
    found = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                found.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(found)


def rooms() -> dict[str, tuple[int, int]]:
    """Files and code lines of each room: a folder of the library, or a file beside the folders."""
    files, lines = Counter[str](), Counter[str]()
    for file in sorted(PACKAGE.rglob("*.py")):
        room = file.relative_to(PACKAGE).parts[0]
        files[room] += 1
        lines[room] += code_lines(file.read_text())
    return {room: (files[room], lines[room]) for room in sorted(files)}


def travelled(call: Callable[..., object], *given: Any) -> tuple[Counter[str], int]:
    """The functions that a call calls, by file of the library, and the changes from one of the files to another."""
    inside, passed, changes = str(PACKAGE), Counter[str](), 0

    def listen(frame: FrameType, event: str, _: Any) -> None:
        nonlocal changes
        file = frame.f_code.co_filename
        if event not in ("call", "return") or not file.startswith(inside):
            return
        passed[file] += event == "call"
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(inside):
            caller = caller.f_back
        changes += caller is not None and caller.f_code.co_filename != file

    sys.setprofile(listen)
    try:
        call(*given)
    finally:
        sys.setprofile(None)
    return passed, changes


def travelled_run() -> tuple[Counter[str], int]:
    """The files and changes of ``onebyone run``, with the default method on digits."""

    def run(seed: int) -> None:
        app(["run", "--seed", str(seed), "--quiet"], prog_name="onebyone", standalone_mode=False)

    with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(io.StringIO()):
        run(0)
        return travelled(run, 1)


def print_paths(calls: int) -> None:
    digits = onebyone.load("digits")
    x, y = digits.train_x.squeeze(1).numpy(), digits.train_y.numpy()
    order = np.random.default_rng(0).permutation(len(x))[:calls]
    with tempfile.TemporaryDirectory() as folder:
        clf = OnlineClassifier(autosave=folder, every=1)
        steps = [
            (
                travelled(clf.partial_fit, x[row : row + 1], y[row : row + 1]),
                travelled(clf.predict_proba, x[row : row + 1]),
            )
            for row in order
        ][calls // 2 :]
        clf.close()
    print(f"\n{'one digit per call':32}  files  changes")
    names = ("partial_fit (autosave, every=1)", "predict_proba after it")
    for name, found in zip(names, zip(*steps, strict=True), strict=True):
        files, changes = (median(each) for each in ([len(files) for files, _ in found], [each for _, each in found]))
        print(f"{name:32}  {files:5.0f}  {changes:7.0f}")
    run = travelled_run()
    print(f"{'onebyone run':32}  {len(run[0]):5}  {run[1]:7}")
    for name, (passed, _) in zip((*names, "run"), (*steps[-1], run), strict=True):
        print(f"\nfunctions that the last {name.split(' ')[0]} called, by file")
        for file, count in sorted(passed.items()):
            print(f"  {Path(file).relative_to(PACKAGE)!s:30}  {count:5}")


def print_times(calls: int) -> None:
    digits = onebyone.load("digits")
    x, y = digits.train_x.flatten(1).double().numpy(), digits.train_y.numpy()
    order = np.random.default_rng(0).permutation(len(x))[:calls]
    own, bayes, classes = OnlineClassifier(), GaussianNB(), np.unique(y)
    seconds: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[..., object], *given: Any) -> None:
        start = time.perf_counter()
        call(*given)
        seconds.setdefault(name, []).append(time.perf_counter() - start)

    first = [int(row) for label in classes for row in (y == label).nonzero()[0][:10]]  # so that it has variances
    own.partial_fit(x[first], y[first])
    bayes.partial_fit(x[first], y[first], classes)
    for row in order:
        sample, label = x[row : row + 1], y[row : row + 1]
        timed("own partial_fit", own.partial_fit, sample, label)
        timed("own predict", own.predict, sample)
        timed("their partial_fit", bayes.partial_fit, sample, label)
        timed("their predict", bayes.predict, sample)
    middle = {name: 1000 * median(found[calls // 2 :]) for name, found in seconds.items()}
    print(f"\n{'one vector of 64 per call, ms':32}  OnlineClassifier  GaussianNB  ratio")
    for name in ("partial_fit", "predict"):
        mine, theirs = middle[f"own {name}"], middle[f"their {name}"]
        print(f"{name:32}  {mine:16.2f}  {theirs:10.2f}  {mine / theirs:5.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--calls", type=int, default=200)
    calls = parser.parse_args().calls
    torch.set_num_threads(1)
    found = rooms()
    print(f"{'room':32}  files  code lines")
    for room, (files, lines) in sorted(found.items(), key=lambda item: -item[1][1]):
        print(f"{room:32}  {files:5}  {lines:10,}")
    print(f"{'all':32}  {sum(each for each, _ in found.values()):5}  {sum(each for _, each in found.values()):10,}")
    print_paths(calls)
    print_times(calls)


if __name__ == "__main__":
    main()
