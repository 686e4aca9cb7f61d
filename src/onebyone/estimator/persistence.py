"""A classifier as one safetensors file: tensors, a description as JSON in the header, and a checksum of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from safetensors import torch as safetensors
from torch import Tensor, nn

from onebyone import nets
from onebyone.data import Spec
from onebyone.engine import choose_device
from onebyone.errors import UsageError
from onebyone.estimator import labels as label_codes
from onebyone.estimator.building import (
    State,
    augmentation,
    check_replay_size,
    check_settings,
    encoder,
    learner_parameters,
)
from onebyone.estimator.samples import Layout
from onebyone.methods import AUTO, Options, method
from onebyone.methods.registry import AnyLearner
from onebyone.seeding import seeded
from onebyone.tensors import read_tensors, write_tensors

VERSION = 1
MAX_COUNT = 2**48  # samples per class
GENERATOR = "_extra_state"  # name of the state of a random generator, whose format depends on the type of device


def write(path: Path, state: State, parameters: Mapping[str, Any]) -> None:
    """Write the file atomically."""
    tensors = contents(state)
    check_finite(tensors)
    text = describe(state, parameters)
    metadata = {"onebyone": text, "sha256": checksum(text, tensors)}
    write_tensors(path, tensors, metadata)


def size(state: State, parameters: Mapping[str, Any]) -> int:
    """Bytes of the file that ``write`` would write, except for a few digits of the offsets in its header."""
    tensors: dict[str, Tensor] = state.learner.state_dict()
    text = describe(state, parameters)
    empty = {name: torch.empty(0, dtype=tensor.dtype) for name, tensor in tensors.items()}
    header = safetensors.save(empty, {"onebyone": text, "sha256": "0" * 64})
    return len(header) + sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def read(
    path: Path, known: Collection[str], module: nn.Module | None, device: str | None
) -> tuple[State, dict[str, Any]]:
    """The state and the parameters in a file. ``known`` are the names of the parameters of a classifier."""
    try:
        return parse(*open_file(path), known, module, device)
    except FileNotFoundError:
        raise UsageError(
            f"{path} does not exist; give the path of a saved classifier or of an autosave folder"
        ) from None
    except UsageError as error:
        raise UsageError(f"{path} cannot be loaded: {error}") from None
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, OverflowError) as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"{path} cannot be loaded: it is damaged, or not a saved classifier ({reason})") from None


def contents(state: State) -> dict[str, Tensor]:
    return {name: tensor.contiguous() for name, tensor in state.learner.state_dict().items()}


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise UsageError(f"{name} is not finite because training diverged; use a smaller learning_rate in options")


def describe(state: State, parameters: Mapping[str, Any]) -> str:
    """Everything but the tensors, as JSON. All options are written, so that new defaults do not change old files."""
    learner = state.learner
    kept = {**parameters, **state.parameters, "options": state.parameters["options"] or None}
    del kept["autosave"]  # a file does not set the folder to write to
    if isinstance(kept["encoder"], nn.Module):
        kept["encoder"] = None
    if not isinstance(kept["random_state"], Integral):
        kept["random_state"] = None
    # The encoder is built from the parameters.
    options = {item.name: getattr(learner.options, item.name) for item in fields(learner.options)} | {"encoder": None}
    description = {
        "version": VERSION,
        "method": state.method,
        "parameters": kept,
        "options": options,
        "layout": state.layout.to_json(),
        "labels": [label_codes.to_json(label) for label in state.labels],
        "room": learner.spec.num_classes,
        "seed": learner.seed,
        "device": learner.device.type,
        "features": state.feature_names,
    }
    try:
        return json.dumps(description, allow_nan=False, default=whole_number)
    except (TypeError, ValueError) as error:
        raise UsageError(f"this classifier cannot be saved: {error}") from None


def whole_number(value: Any) -> int:
    """Converts NumPy integers for JSON."""
    if isinstance(value, Integral):
        return int(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    total = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def open_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and the tensors of a file, after its checksum was verified."""
    tensors, metadata = read_tensors(path)
    text = metadata["onebyone"]
    if checksum(text, tensors) != metadata["sha256"]:
        raise UsageError("its checksum does not match, so it was damaged or changed; use another copy")
    description = json.loads(text)
    if not isinstance(description, dict):
        raise UsageError("its description is not a JSON object")
    if description["version"] != VERSION:
        raise UsageError(
            f"it has version {description['version']!r}, but this onebyone reads {VERSION}; update onebyone"
        )
    return description, tensors


def parse(
    found: dict[str, Any],
    tensors: dict[str, Tensor],
    known: Collection[str],
    module: nn.Module | None,
    device: str | None,
) -> tuple[State, dict[str, Any]]:
    """Check the description, build the learner (first without allocating memory), and load the tensors."""
    parameters, names = check_parameters(found["parameters"], known), found["features"]
    layout, room, seed = Layout.from_json(found["layout"]), found["room"], found["seed"]
    labels = [label_codes.from_json(label) for label in found["labels"]]
    if not all(type(number) is int and 0 <= number < 2**63 for number in (room, seed)):
        raise UsageError(f"room {room!r} or seed {seed!r} is not a whole number")
    if label_codes.as_labels(labels) != list(dict.fromkeys(labels)) or not 0 < len(labels) <= room:
        raise UsageError(f"its labels must be 1 to {room} different values")
    if names is not None and not (
        layout.axes == "vector" and len(names) == layout.shape[0] and all(isinstance(name, str) for name in names)
    ):
        raise UsageError("its names of features do not match its samples")
    if parameters["encoder"] is None:
        if module is None:
            raise UsageError("its encoder was given as a module; give the same module as load(..., encoder=module)")
        parameters["encoder"] = module
    elif parameters["encoder"] not in (AUTO, *nets.encoders()) and nets.timm_has(str(parameters["encoder"])):
        parameters["encoder"] = f"{nets.TIMM}{parameters['encoder']}"  # a file written before the prefix existed
    if device is not None:
        parameters["device"] = device
    target = choose_device(parameters["device"])

    # The method that "auto" chose when the file was written, even if it would choose another one now.
    chosen = found["method"] if parameters["method"] == AUTO else parameters["method"]

    def build(device: torch.device) -> AnyLearner:
        entry, frozen = method(chosen), parameters["freeze_encoder"]
        options = dict(found["options"])
        del options["encoder"]
        if issubclass(entry.options, Options):
            with seeded(seed, "weights"):
                options["encoder"] = encoder(parameters["encoder"], layout, frozen=frozen, pretrained=False)
        spec = Spec(layout.sample_shape, room, layout.dtype, augmentation(parameters["augment"], layout))
        return entry.learner(entry.options(**options), spec, seed, device)

    with torch.device("meta") as shapes_only:  # so that a file with 10^12 classes allocates nothing
        check_shapes(build(shapes_only), tensors)
    learner = build(target)
    check_replay_size(learner)
    if found["device"] != target.type:
        # The state of a generator cannot be moved to another type of device, so a new generator is used.
        tensors |= {name: tensor for name, tensor in learner.state_dict().items() if name.endswith(GENERATOR)}
    learner.load_state_dict(tensors)
    check_values(learner, len(labels))
    named = None if names is None else tuple(names)
    return State(learner_parameters(parameters), layout, labels, learner, chosen, named), parameters


def check_parameters(found: Any, known: Collection[str]) -> dict[str, Any]:
    if not isinstance(found, dict) or found.keys() != set(known) - {"autosave"}:
        raise UsageError("its parameters are not those of a classifier")
    if not isinstance(found["freeze_encoder"], bool) or not isinstance(found["options"], dict | None):
        raise UsageError("its parameters have invalid values")
    check_settings(found)
    return found


def check_shapes(expected: AnyLearner, tensors: Mapping[str, Tensor]) -> None:
    """Raise an error if names, types or shapes of the tensors are not those of the learner."""
    shapes = {name: (tensor.dtype, tensor.shape) for name, tensor in expected.state_dict().items()}
    if shapes.keys() != tensors.keys():
        raise UsageError(f"{', '.join(sorted(shapes.keys() ^ tensors.keys())[:3])}: missing or unexpected tensors")
    for name, tensor in tensors.items():
        if not name.endswith(GENERATOR) and (tensor.dtype, tensor.shape) != shapes[name]:
            raise UsageError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}; expected {shapes[name]}")


def check_values(learner: AnyLearner, known: int) -> None:
    """Raise an error for values that would fail later, such as classes without a label, negative counts or NaN."""
    if any(((labels < 0) | (labels >= known)).any() for labels in learner.kept_labels()):
        raise UsageError("its memory holds samples of a class without a label")
    if any(bool((count < 0).any() or (count > MAX_COUNT).any()) for count in learner.sample_counts()):
        raise UsageError("its counts of samples are not plausible")
    if not learner.observed[:known].any() or learner.observed[known:].any():
        raise UsageError("the classes it has seen do not match its labels")
    if not all(bool(tensor.isfinite().all()) for tensor in learner.state_dict().values()):
        raise UsageError("its weights are not finite")
    blank = torch.zeros(1, *learner.spec.shape, dtype=learner.spec.dtype, device=learner.device)
    # Statistics that are not a covariance cannot be inverted.
    if learner.filters and learner.scores(blank).isnan().any():
        raise UsageError("its statistics cannot be those of any samples")
