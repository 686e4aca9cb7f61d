"""Helpers of the tests of OnlineClassifier."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors import safe_open
from safetensors import torch as safetensors

from onebyone import OnlineClassifier, methods
from onebyone.methods import AUTO, Options, ReplayOptions, method
from onebyone.methods.prototypes import PrototypeOptions
from onebyone.methods.registry import AnyLearner
from onebyone.statistics import patch_lda
from onebyone.statistics.features import Directions
from onebyone.tensors import digest

NAMES = list(methods())
REPLAY = [name for name in NAMES if issubclass(method(name).options, ReplayOptions)]
NETWORKS = [name for name in NAMES if issubclass(method(name).options, Options)]
DEFAULT_AND_CCP = [AUTO, "ccp"]  # statistics without a network, and a network with a memory


def class_means(name: str) -> str:
    """The value of the option ``readout`` of a replay method for answers by class means of the memory."""
    return "encoder" if issubclass(method(name).options, PrototypeOptions) else "ncm"


def vectors(count: int, seed: int = 0) -> tuple[Any, list[str]]:
    """Samples [count, 4] around three class means, and their labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count)
    return (rng.normal(size=(count, 4)) + 3 * y[:, None]), [f"class {label}" for label in y]


@contextmanager
def units_of(x: Any) -> Iterator[None]:
    """Values are projected in the units of these samples, from the first sample on."""
    found = Directions.set_units
    rows = torch.from_numpy(x.astype("float32"))

    def set_units(self: Directions, own: torch.Tensor, copies: torch.Tensor, settled: bool = True) -> None:
        given = (rows, torch.ones(len(rows))) if self.size == rows.shape[1] else (own, copies)
        found(self, *given, settled)

    with (
        mock.patch.object(Directions, "set_units", set_units),
        mock.patch.object(patch_lda, "FIRST", 1),
    ):
        yield


def learner_of(clf: OnlineClassifier) -> AnyLearner:
    assert clf._state is not None
    return clf._state.learner


def with_kept_of(clf: OnlineClassifier, other: OnlineClassifier) -> None:
    """Choose settings by the kept samples of another one, which may be fewer: dropped ones do not come back."""
    one, two = learner_of(clf), learner_of(other)
    if not hasattr(one, "kept"):
        return
    assert len(two.kept) <= len(one.kept)
    slots = {other._state.slots[label]: clf._state.slots[label] for label in clf.classes_}
    one.kept.load_state_dict(two.kept.state_dict())
    one.kept.labels.copy_(torch.tensor([slots.get(slot, 0) for slot in two.kept.labels.tolist()]))
    one.refresh()


def bits(clf: OnlineClassifier) -> dict[str, Any]:
    """The learner's complete state, as types, shapes and bytes."""
    state = learner_of(clf).state_dict()
    return {name: (str(tensor.dtype), tuple(tensor.shape), tensor.numpy().tobytes()) for name, tensor in state.items()}


def state_of(clf: OnlineClassifier) -> dict[str, Any]:
    """All that a call could change, as values."""
    found: dict[str, Any] = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in vars(clf).items()
        if name not in ("_state", "_workings", "encoder")
    }
    if clf._state is not None:
        found["slots"] = dict(clf._state.slots)
        evidence = clf._state.record.tensors() | clf._state.held_back.tensors()
        found["evidence"] = {name: tensor.tolist() for name, tensor in evidence.items()}
        found["tensors"] = bits(clf)
    return deepcopy(found)


def learn(clf: OnlineClassifier, start: int = 0, stop: int = 900) -> OnlineClassifier:
    """Learn a part of the stream ``X``, ``Y``."""
    return clf.partial_fit(X[start:stop], Y[start:stop])


def saved(folder: Path) -> int:
    """How many samples a process that starts now would find in an autosave folder."""
    return OnlineClassifier.load(folder).n_samples_seen_


def forged(content: bytes, path: Path, change: Any) -> None:
    """Write a file with a changed description or changed tensors and a correct checksum."""
    path.write_bytes(content)
    with safe_open(path, framework="pt") as file:
        description = json.loads(file.metadata()["onebyone"])
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    change(description, tensors)
    text = json.dumps(description)
    path.write_bytes(safetensors.save(tensors, {"onebyone": text, "sha256": digest(tensors, text)}))


X, Y = vectors(900)


def decisions(clf: OnlineClassifier, x: Any) -> Any:
    """[n, classes] scores with the prior, also if there are two classes."""
    predictor, samples = clf._question(x)
    return predictor.decisions(samples).numpy()
