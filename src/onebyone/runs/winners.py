"""The best settings found by tuning: ``winners.json``, written by ``onebyone tune`` and part of the package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from onebyone.errors import UsageError
from onebyone.methods import find


@dataclass(frozen=True)
class Winner:
    """The setting of a method that did best on held-out data, by the mean over its runs."""

    dataset: str
    classes_per_task: int
    method: str  # without the file that registers it
    options: Mapping[str, Any]
    accuracy: float


def winner(method: str, dataset: str, classes_per_task: int, own: Sequence[Winner] = ()) -> dict[str, Any]:
    """Tuned options of a method, chosen on held-out data; empty if the method was not tuned for this stream.

    ``own`` winners of the user take precedence over those of the package.

    >>> winner("ccp", "digits", classes_per_task=3)
    {}
    """
    same = [w for w in (*own, *_packaged()) if w.method == method and w.dataset == dataset]
    of_setting = [w for w in same if w.classes_per_task == classes_per_task]
    # A shuffled stream has no tasks: one setting serves every number of classes per task.
    best = of_setting or (same if find(method).learner.stream == "iid" else [])
    return dict(best[0].options) if best else {}


@cache
def _packaged() -> list[Winner]:
    return read_winners((files("onebyone.runs") / "winners.json").read_text())


def winners_in(path: Path) -> list[Winner]:
    """The winners in a file that ``onebyone tune`` wrote. Raises ``UsageError`` for any other file."""
    try:
        return read_winners(path.read_text())
    except (ValueError, TypeError):
        raise UsageError(f"{path} does not hold winners; give the winners.json that `onebyone tune` wrote") from None


def read_winners(text: str) -> list[Winner]:
    return [Winner(**item) for item in json.loads(text)]


def write_winners(found: Iterable[Winner]) -> str:
    """Winners as JSON, one per line.

    >>> read_winners(write_winners([Winner("digits", 1, "er", {"learning_rate": 0.1}, 0.5)]))
    [Winner(dataset='digits', classes_per_task=1, method='er', options={'learning_rate': 0.1}, accuracy=0.5)]
    """
    lines = ",\n".join(json.dumps(asdict(item)) for item in found)
    return f"[\n{lines}\n]\n"
