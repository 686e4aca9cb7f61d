"""A classifier as one safetensors file: tensors, a description as JSON in the header, and a checksum of both."""

from __future__ import annotations

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
    augmentation,
    check_replay_size,
    check_settings,
    encoder_option,
    learner_parameters,
)
from onebyone.estimator.held_back import HeldBack
from onebyone.estimator.known_files import KnownFiles
from onebyone.estimator.labels import Label
from onebyone.estimator.model import State
from onebyone.estimator.record import Record
from onebyone.estimator.samples import Layout
from onebyone.formats import CLASSIFIER, newer
from onebyone.memory import Moments
from onebyone.methods import AUTO, Learner, method
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Adapted
from onebyone.seeding import generator
from onebyone.tensors import digest, read_tensors, write_tensors

MAX_COUNT = 2**48  # samples per class
GENERATOR = "_extra_state"  # name of the state of a random generator, whose format depends on the type of device


def write(path: Path, state: State, parameters: Mapping[str, Any]) -> None:
    """Write the file atomically."""
    tensors = contents(state)
    check_finite(tensors)
    text = describe(state, parameters, encoder_hash(state.learner))
    metadata = {"onebyone": text, "sha256": digest(tensors, text)}
    write_tensors(path, tensors, metadata)


def size(state: State, parameters: Mapping[str, Any]) -> int:
    """Bytes of the file that ``write`` would write, except for a few digits of the offsets in its header."""
    tensors = contents(state)
    text = describe(state, parameters, "0" * 64 if fixed_encoders(state.learner) else None)
    empty = {name: torch.empty(0, dtype=tensor.dtype) for name, tensor in tensors.items()}
    header = safetensors.save(empty, {"onebyone": text, "sha256": "0" * 64})
    return len(header) + sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def read(
    path: Path, defaults: Mapping[str, Any], module: nn.Module | None, device: str | None
) -> tuple[State, dict[str, Any]]:
    """The state and the parameters in a file. ``defaults`` are the parameters of a new classifier."""
    try:
        return parse(*open_file(path), defaults, module, device)
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
    """The tensors for a file."""
    left_out = encoder_tensors(state.learner) | unused_generators(state.learner)
    tensors = state.learner.state_dict() | state.record.tensors() | state.held_back.tensors()
    tensors |= state.files.tensors(state.slots)
    return {name: tensor.contiguous() for name, tensor in tensors.items() if name not in left_out}


def encoder_tensors(learner: AnyLearner) -> set[str]:
    """The names of the tensors that a file does not hold: those of a frozen encoder, of which it holds a hash."""
    fixed = [(prefix, part) for prefix, part in learner.named_modules() if isinstance(part, Adapted) and part.fixed]
    return {f"{prefix}.{name}" for prefix, part in fixed for name in part.state_dict()}


def unused_generators(learner: AnyLearner) -> set[str]:
    """The names of the states of random generators that are those of a new learner: 5 KB each, and most statistics."""
    parts = [(prefix, part) for prefix, part in learner.named_modules() if isinstance(part, Learner)]
    return {
        f"{prefix}.{GENERATOR}" if prefix else GENERATOR
        for prefix, part in parts
        if torch.equal(part.get_extra_state(), generator(part.seed, "learner", part.device).get_state())
    }


def encoder_hash(learner: AnyLearner) -> str | None:
    """The hash of the weights of a frozen encoder; None if the learner has no such encoder."""
    fixed = fixed_encoders(learner)
    return nets.weights_hash(fixed[0].module) if fixed else None


def fixed_encoders(learner: AnyLearner) -> list[Adapted]:
    """The frozen encoders of a learner, all with the same weights."""
    return [part for part in learner.modules() if isinstance(part, Adapted) and part.fixed]


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise UsageError(
                f"{name} is not finite because training diverged; use a smaller learning_rate in options, "
                "and weights of about 1 in sample_weight if it is given"
            )


def describe(state: State, parameters: Mapping[str, Any], encoder_hash: str | None = None) -> str:
    """Everything but the tensors, as JSON. All options are written, so that new defaults do not change old files."""
    learner = state.learner
    kept = {**parameters, **state.parameters, "options": state.parameters["options"] or None}
    del kept["autosave"]  # a file does not set the folder to write to
    if isinstance(kept["encoder"], nn.Module):
        kept["encoder"] = None
    if not isinstance(kept["random_state"], Integral):
        kept["random_state"] = None
    if isinstance(kept["prior"], Mapping):  # pairs, because the keys of a JSON object are strings
        kept["prior"] = [[label_codes.to_json(label), float(p)] for label, p in kept["prior"].items()]
    # The encoder is built from the parameters.
    named = [item.name for item in fields(learner.options) if item.name != "encoder"]
    description = {
        **CLASSIFIER.stamp,
        "method": state.method,
        "parameters": kept,
        "options": {name: getattr(learner.options, name) for name in named},
        "layout": state.layout.to_json(),
        "labels": [label_codes.to_json(label) for label in state.slots],
        "slots": list(state.slots.values()),
        "former_names": [label_codes.to_json(name) for name in state.files.former_names],
        "room": learner.spec.num_classes,
        "seed": learner.seed,
        "device": learner.device.type,
        "encoder_hash": encoder_hash,
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


def open_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description and the tensors of a file, after its checksum was verified."""
    tensors, metadata = read_tensors(path)
    text = metadata["onebyone"]
    if digest(tensors, text) != metadata["sha256"]:
        raise UsageError("its checksum does not match, so it was damaged or changed; use another copy")
    description = json.loads(text)
    if not isinstance(description, dict):
        raise UsageError("its description is not a JSON object")
    CLASSIFIER.update(description, tensors)
    return description, tensors


def parse(
    found: dict[str, Any],
    tensors: dict[str, Tensor],
    defaults: Mapping[str, Any],
    module: nn.Module | None,
    device: str | None,
) -> tuple[State, dict[str, Any]]:
    """Check the description, build the learner (first without allocating memory), and load the tensors."""
    parameters = check_parameters(found, defaults)
    layout, room, seed = Layout.from_json(found["layout"]), found["room"], found["seed"]
    if not all(type(number) is int and 0 <= number < 2**63 for number in (room, seed)):
        raise UsageError(f"room {room!r} or seed {seed!r} is not a whole number")
    slots = parse_slots(found, room)
    record = Record.from_tensors(tensors, set(slots.values()), room)
    held_back = HeldBack.from_tensors(tensors, set(slots.values()), layout)
    former = [label_codes.from_json(name) for name in found["former_names"]]
    files = KnownFiles.from_tensors(tensors, slots, former)
    names = parse_names(found["features"], layout)
    if parameters["encoder"] is None:
        if module is None:
            raise UsageError("its encoder was given as a module; give the same module as load(..., encoder=module)")
        parameters["encoder"] = module
    if device is not None:
        parameters["device"] = device
    target = choose_device(parameters["device"])

    # The method that "auto" chose when the file was written, even if it would choose another one now.
    chosen = found["method"] if parameters["method"] == AUTO else parameters["method"]
    if unknown := set(found["options"]) - {item.name for item in fields(method(chosen).options)}:
        raise newer(found, f"the option {min(unknown)!r} of {chosen}")

    def build(device: torch.device, pretrained: bool = False) -> AnyLearner:
        entry, options = method(chosen), dict(found["options"])
        options |= encoder_option(chosen, parameters, layout, seed, pretrained=pretrained)
        spec = Spec(layout.sample_shape, room, layout.dtype, augmentation(parameters["augment"], layout))
        return entry.learner(entry.options(**options), spec, seed, device)

    with torch.device("meta") as shapes_only:  # so that a file with 10^12 classes allocates nothing
        blueprint = build(shapes_only)
    expected = found["encoder_hash"]
    left_out = encoder_tensors(blueprint) if expected is not None else set()
    left_out |= {name for name in blueprint.state_dict() if name.endswith(GENERATOR) and name not in tensors}
    check_shapes(blueprint, tensors, left_out)
    with nets.unfitted():
        learner = build(target, pretrained=expected is not None)
    check_replay_size(learner)
    if expected is not None:
        check_encoder(learner, expected)
    tensors |= {name: tensor for name, tensor in learner.state_dict().items() if name in left_out}
    if found["device"] != target.type:
        # The state of a generator cannot be moved to another type of device, so a new generator is used.
        tensors |= {name: tensor for name, tensor in learner.state_dict().items() if name.endswith(GENERATOR)}
    learner.load_state_dict(tensors)
    check_values(learner, set(slots.values()))
    fixed = learner_parameters(parameters)
    return State(fixed, layout, slots, learner, chosen, names, record, files, held_back), parameters


def parse_slots(found: Mapping[str, Any], room: int) -> dict[Label, int]:
    """The slot of each label in a description."""
    labels, slots = [label_codes.from_json(label) for label in found["labels"]], found["slots"]
    if label_codes.as_labels(labels) != list(dict.fromkeys(labels)) or not 0 < len(labels) <= room:
        raise UsageError(f"its labels must be 1 to {room} different values")
    if len(set(slots)) != len(labels) or not all(type(slot) is int and 0 <= slot < room for slot in slots):
        raise UsageError(f"its {len(labels)} labels must have as many different slots, from 0 to {room - 1}")
    return dict(zip(labels, slots, strict=True))


def parse_names(found: Any, layout: Layout) -> tuple[str, ...] | None:
    """The names of features in a description."""
    if found is None:
        return None
    if layout.axes != "vector" or len(found) != layout.shape[0] or not all(isinstance(name, str) for name in found):
        raise UsageError("its names of features do not match its samples")
    return tuple(found)


def check_parameters(description: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters in a description. Those that a file of an earlier version does not have get their defaults."""
    found = description["parameters"]
    if not isinstance(found, dict) or "autosave" in found:
        raise UsageError("its parameters are not those of a classifier")
    if unknown := found.keys() - defaults.keys():
        raise newer(description, f"the parameter {min(unknown)!r}")
    found = {name: value for name, value in defaults.items() if name != "autosave"} | found
    if not isinstance(found["freeze_encoder"], bool) or not isinstance(found["options"], dict | None):
        raise UsageError("its parameters have invalid values")
    if isinstance(found["prior"], list):
        found["prior"] = {label_codes.from_json(label): p for label, p in found["prior"]}
    check_settings(found)
    return found


def check_encoder(learner: AnyLearner, expected: str) -> None:
    """Raise an error if the weights of the frozen encoder are not those with the hash ``expected``."""
    if (actual := encoder_hash(learner)) != expected:
        raise UsageError(
            f"its encoder has weights with the SHA-256 {expected}, and the encoder given now has {actual}; give or "
            "install the one that it was saved with"
        )


def check_shapes(expected: AnyLearner, tensors: Mapping[str, Tensor], left_out: Collection[str]) -> None:
    """Raise an error if names, types or shapes of the tensors are not those of the learner, except ``left_out``."""
    found = {name: tensor for name, tensor in expected.state_dict().items() if name not in left_out}
    shapes = {name: (tensor.dtype, tensor.shape) for name, tensor in found.items()}
    later = expected.optimizer_prefixes  # of a learner that has learnt, so they are not in the expected state
    tensors = {name: tensor for name, tensor in tensors.items() if name in shapes or not name.startswith(later)}
    if shapes.keys() != tensors.keys():
        raise UsageError(f"{', '.join(sorted(shapes.keys() ^ tensors.keys())[:3])}: missing or unexpected tensors")
    for name, tensor in tensors.items():
        if not name.endswith(GENERATOR) and (tensor.dtype, tensor.shape) != shapes[name]:
            raise UsageError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}; expected {shapes[name]}")


def check_values(learner: AnyLearner, slots: set[int]) -> None:
    """Raise an error for values that would fail later, such as classes without a label, negative counts or NaN."""
    if not all(set(labels.unique().tolist()) <= slots for labels in learner.kept_labels()):
        raise UsageError("its memory holds samples of a class without a label")
    if any(bool((count < 0).any() or (count > MAX_COUNT).any()) for count in learner.sample_counts()):
        raise UsageError("its counts of samples are not plausible")
    observed = set(learner.observed.nonzero().flatten().tolist())
    if not observed or not observed <= slots:
        raise UsageError("the classes it has seen do not match its labels")
    if not all(bool(tensor.isfinite().all()) for tensor in learner.state_dict().values()):
        raise UsageError("its weights are not finite")
    if not all(part.is_covariance() for part in learner.modules() if isinstance(part, Moments)):
        raise UsageError("its statistics cannot be those of any samples")
