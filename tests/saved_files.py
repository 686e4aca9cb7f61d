"""Writes the files in ``tests/saved`` that every later version must open: ``python tests/saved_files.py``.

Run it for a new release, or after a change of a format that no release wrote, from a clean commit. Never change the
files of a release: ``tests/test_saved_files.py`` opens those of each.
"""

import json
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from onebyone import OnlineClassifier, __version__
from onebyone.serve.operations import Operation
from onebyone.serve.service import Service

FOLDER = Path(__file__).parent / "saved"
RELEASE = "0.3.0"  # the next one


def vectors(count: int = 60, seed: int = 0) -> tuple[Any, list[str]]:
    """Samples [count, 3] around three class means, and their labels."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 3
    return rng.normal(size=(count, 3)).round(2) + 3 * np.eye(3)[y], [("ant", "bee", "cat")[label] for label in y]


def images(count: int = 12) -> tuple[Any, tuple[str, ...]]:
    """Images [count, 8, 8] of bytes, dark and light ones, and their labels."""
    x = np.random.default_rng(0).integers(0, 60, (count, 8, 8)) + 120 * (np.arange(count) % 2)[:, None, None]
    return x.astype(np.uint8), ("dark", "light") * (count // 2)


def module() -> nn.Module:
    return nn.Linear(3, 4)


def write(folder: Path) -> dict[str, Any]:
    """Write a file of each kind. Returns what classifiers that read them know and answer."""
    x, y = vectors()
    clf = OnlineClassifier(memory="3KB", prior={"ant": 0.5}).partial_fit(x, y, classes=["dog"]).forget(x[:3], y[:3])
    clf.save(folder / "statistics")
    torch.manual_seed(0)
    network = OnlineClassifier("er", memory=9, encoder=module()).partial_fit(x, y)
    network.save(folder / "network")
    stream = OnlineClassifier(memory="3KB", autosave=folder / "autosave").partial_fit(x, y)
    stream.close()
    pictures, labels = images()
    with closing(Service(folder / "server", size=8, gray=True, memory="8KB")) as service:
        service.submit(Operation("learn", labels, pictures)).result(60)
    with closing(Service(folder / "server")) as service:  # a snapshot, and a journal with every kind of operation
        for operation in (
            Operation("learn", ("new", "dark"), pictures[:2] // 2, (None, True)),
            Operation("learn", ("light",), pictures[:1]),
            Operation("undo"),
            Operation("forget", labels[:1], pictures[:1]),
            Operation("rename", names={"light": "bright"}),
            Operation("forget-class", ("new",)),
        ):
            service.submit(operation).result(60)
        shutil.copytree(folder / "server", folder / "copy")  # closing would write a snapshot
        found = {"server": service.model.counts()}
    shutil.rmtree(folder / "server")
    (folder / "copy").rename(folder / "server")
    for lock in folder.rglob(".lock"):
        lock.unlink()
    for name, each in (("statistics", clf), ("network", network), ("autosave", stream)):
        answers = each.predict_proba(x[:9]).astype(float).round(6).tolist()
        found[name] = {"classes": each.classes_.tolist(), "samples": each.n_samples_seen_, "probabilities": answers}
    return found


if __name__ == "__main__":
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
    ).stdout
    if "dirty" in commit:
        sys.exit("commit first: the files say which commit wrote them")
    shutil.rmtree(FOLDER / RELEASE, ignore_errors=True)
    expected = write(FOLDER / RELEASE)
    about = {"commit": commit.strip(), "version": __version__, "expected": expected}
    (FOLDER / RELEASE / "about.json").write_text(json.dumps(about, indent=1) + "\n")
