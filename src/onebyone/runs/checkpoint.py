"""Checkpoints: a learner's complete state and the run's progress in one file, without pickle."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from onebyone.errors import UsageError
from onebyone.methods.registry import AnyLearner
from onebyone.tensors import read_tensors, write_tensors


@dataclass
class Position:
    """How far a run is: all of it that is not in the learner."""

    steps: int = 0
    right: list[list[int]] = field(default_factory=list)  # after each task: right answers by class
    predicted: int = 0  # right answers before learning
    training_seconds: float = 0.0
    evaluation_seconds: float = 0.0


def save(path: Path, learner: AnyLearner, position: Position) -> None:
    """Write the learner's state and the position of the run to one file: the two can never disagree."""
    write_tensors(path, learner.state_dict(), {"progress": json.dumps(asdict(position))})


def load(path: Path, learner: AnyLearner) -> Position:
    """Put the learner into the state that was saved; returns the position of the run."""
    try:
        tensors, metadata = read_tensors(path)
        position = Position(**json.loads(metadata["progress"]))
        learner.load_state_dict(tensors)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"checkpoint {path} is damaged ({reason}); delete it to begin this run again") from None
    return position
