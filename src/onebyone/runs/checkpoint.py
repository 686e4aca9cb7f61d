"""Checkpoints: a learner's whole state and the run's progress in one file, without pickle."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from onebyone.errors import UsageError
from onebyone.files import whole
from onebyone.methods.registry import AnyLearner


@dataclass
class Progress:
    """How far a run is: all of it that is not in the learner."""

    steps: int = 0
    right: list[list[int]] = field(default_factory=list)  # after each task: right answers by class
    predicted: int = 0  # right answers before learning
    training_seconds: float = 0.0
    evaluation_seconds: float = 0.0


def save(path: Path, learner: AnyLearner, progress: Progress) -> None:
    """Tensors as safetensors, progress as JSON in the header of the same file: the two can never disagree."""
    from safetensors import torch as safetensors

    state = {name: tensor.contiguous() for name, tensor in learner.state_dict().items()}
    with whole(path) as place:
        # Its own save_file has a temporary file of its own, and does not say of a full disk that it is one.
        place.write_bytes(safetensors.save(state, metadata={"progress": json.dumps(asdict(progress))}))


def load(path: Path, learner: AnyLearner) -> Progress:
    """Put the learner into the state that was saved; returns the progress."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            progress = Progress(**json.loads(file.metadata()["progress"]))
            learner.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"checkpoint {path} is damaged ({reason}); delete it to begin this run again") from None
    return progress
