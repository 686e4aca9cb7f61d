"""Checkpoints: a learner's whole state and the run's progress in one file, without pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onebyone.errors import UsageError
from onebyone.experiments.files import whole
from onebyone.methods.registry import AnyLearner


def save(path: Path, learner: AnyLearner, progress: dict[str, Any]) -> None:
    """Tensors as safetensors, progress as JSON in the header of the same file: the two can never disagree."""
    from safetensors.torch import save_file

    state = {name: tensor.contiguous() for name, tensor in learner.state_dict().items()}
    with whole(path) as place:
        save_file(state, place, metadata={"progress": json.dumps(progress)})


def load(path: Path, learner: AnyLearner) -> dict[str, Any]:
    """Put the learner into the state that was saved; returns the progress."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            progress: dict[str, Any] = json.loads(file.metadata()["progress"])
            learner.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (SafetensorError, RuntimeError, KeyError, TypeError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"checkpoint {path} is damaged ({reason}); delete it to begin this run again") from None
    return progress
