"""A classifier as one file: its tensors as safetensors, all else as JSON in the header, a checksum over both."""

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
from onebyone.estimator.building import State, augmentation, check_settings, check_step, encoder, learner_parameters
from onebyone.estimator.samples import Layout
from onebyone.methods import AUTO, Options, method
from onebyone.methods.registry import AnyLearner
from onebyone.seeding import seeded
from onebyone.tensors import read_tensors, write_tensors

VERSION = 1
MOST = 2**48  # samples of a class
GENERATOR = "_extra_state"  # of the random generator, which is another kind of thing on each kind of device


def write(path: Path, state: State, parameters: Mapping[str, Any]) -> None:
    """Write the file, whole or not at all."""
    tensors = contents(state)
    check_finite(tensors)
    text = describe(state, parameters)
    metadata = {"onebyone": text, "sha256": checksum(text, tensors)}
    write_tensors(path, tensors, metadata)


def size(state: State, parameters: Mapping[str, Any]) -> int:
    """Bytes of the file that ``write`` would write, but for the digits of the offsets in it."""
    tensors: dict[str, Tensor] = state.learner.state_dict()
    text = describe(state, parameters)
    empty = {name: torch.empty(0, dtype=tensor.dtype) for name, tensor in tensors.items()}
    header = safetensors.save(empty, {"onebyone": text, "sha256": "0" * 64})
    return len(header) + sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def read(
    path: Path, known: Collection[str], module: nn.Module | None, device: str | None
) -> tuple[State, dict[str, Any]]:
    """The state that was written and the parameters, whose names are ``known``."""
    try:
        return parse(*open_file(path), known, module, device)
    except FileNotFoundError:
        raise UsageError(f"{path} is not there; nothing was saved under this name") from None
    except UsageError as error:
        raise UsageError(f"{path} cannot be loaded: {error}") from None
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, OverflowError) as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"{path} cannot be loaded: it is damaged, or no saved classifier ({reason})") from None


def contents(state: State) -> dict[str, Tensor]:
    return {name: tensor.contiguous() for name, tensor in state.learner.state_dict().items()}


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise UsageError(f"{name} is not finite, learning has diverged; lower the option learning_rate")


def describe(state: State, parameters: Mapping[str, Any]) -> str:
    """All that is not in a tensor. The options are those in use, so that a new version's defaults change nothing."""
    learner = state.learner
    kept = {**parameters, **state.parameters, "options": state.parameters["options"] or None}
    del kept["autosave"]  # a file does not say where to write
    if isinstance(kept["encoder"], nn.Module):
        kept["encoder"] = None
    if not isinstance(kept["random_state"], Integral):
        kept["random_state"] = None
    # An encoder is made of the parameters.
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
    """For JSON, which knows no integers of numpy's."""
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
    """The description and the tensors of a file that is what it was when it was written."""
    tensors, metadata = read_tensors(path)
    text = metadata["onebyone"]
    if checksum(text, tensors) != metadata["sha256"]:
        raise UsageError("its checksum is wrong, it was damaged or changed")
    description = json.loads(text)
    if not isinstance(description, dict):
        raise UsageError("its description is no JSON object")
    if description["version"] != VERSION:
        raise UsageError(f"it has version {description['version']!r}, and this onebyone reads {VERSION}; update it")
    return description, tensors


def parse(
    found: dict[str, Any],
    tensors: dict[str, Tensor],
    known: Collection[str],
    module: nn.Module | None,
    device: str | None,
) -> tuple[State, dict[str, Any]]:
    """Check all that is said, build what it says, first without its memory, and put the tensors there."""
    parameters, names = check_parameters(found["parameters"], known), found["features"]
    layout, room, seed = Layout.from_json(found["layout"]), found["room"], found["seed"]
    labels = [label_codes.from_json(label) for label in found["labels"]]
    if not all(type(number) is int and 0 <= number < 2**63 for number in (room, seed)):
        raise UsageError(f"room {room!r} or seed {seed!r} is no whole number")
    if label_codes.as_labels(labels) != list(dict.fromkeys(labels)) or not 0 < len(labels) <= room:
        raise UsageError(f"its labels are not different from each other, or not 1 to {room}")
    if names is not None and not (
        layout.axes == "vector" and len(names) == layout.shape[0] and all(isinstance(name, str) for name in names)
    ):
        raise UsageError("its names of features are not those of its samples")
    if parameters["encoder"] is None:
        if module is None:
            raise UsageError("its encoder is a module of yours; give it as load(..., encoder=module)")
        parameters["encoder"] = module
    elif parameters["encoder"] not in (AUTO, *nets.encoders()) and nets.timm_has(str(parameters["encoder"])):
        parameters["encoder"] = f"{nets.TIMM}{parameters['encoder']}"  # a file from before the prefix
    if device is not None:
        parameters["device"] = device
    place = choose_device(parameters["device"])

    # What auto chose then, whatever it would choose now.
    chosen = found["method"] if parameters["method"] == AUTO else parameters["method"]

    def build(place: torch.device) -> AnyLearner:
        entry, frozen = method(chosen), parameters["freeze_encoder"]
        options = dict(found["options"])
        del options["encoder"]
        if issubclass(entry.options, Options):
            with seeded(seed, "weights"):
                options["encoder"] = encoder(parameters["encoder"], layout, frozen=frozen, pretrained=False)
        spec = Spec(layout.sample_shape, room, layout.dtype, augmentation(parameters["augment"], layout))
        return entry.learner(entry.options(**options), spec, seed, place)

    with torch.device("meta") as shapes_only:  # where a file that claims a million million classes costs nothing
        check_shapes(build(shapes_only), tensors)
    learner = build(place)
    check_step(learner)
    if found["device"] != place.type:
        # A generator cannot move; it begins anew.
        tensors |= {name: tensor for name, tensor in learner.state_dict().items() if name.endswith(GENERATOR)}
    learner.load_state_dict(tensors)
    check_values(learner, len(labels))
    named = None if names is None else tuple(names)
    return State(learner_parameters(parameters), layout, labels, learner, chosen, named), parameters


def check_parameters(found: Any, known: Collection[str]) -> dict[str, Any]:
    if not isinstance(found, dict) or found.keys() != set(known) - {"autosave"}:
        raise UsageError("its parameters are not those of a classifier")
    if not isinstance(found["freeze_encoder"], bool) or not isinstance(found["options"], dict | None):
        raise UsageError("its parameters have strange values")
    check_settings(found)
    return found


def check_shapes(expected: AnyLearner, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not those of the learner described."""
    shapes = {name: (tensor.dtype, tensor.shape) for name, tensor in expected.state_dict().items()}
    if shapes.keys() != tensors.keys():
        raise UsageError(
            f"{', '.join(sorted(shapes.keys() ^ tensors.keys())[:3])}: missing, or nothing it has a use for"
        )
    for name, tensor in tensors.items():
        if not name.endswith(GENERATOR) and (tensor.dtype, tensor.shape) != shapes[name]:
            raise UsageError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {shapes[name]}")


def check_values(learner: AnyLearner, known: int) -> None:
    """Refuse what would break only later: a class without a label, a negative count, a weight that is no number."""
    if any(((labels < 0) | (labels >= known)).any() for labels in learner.kept_labels()):
        raise UsageError("its memory holds samples of a class without a label")
    if any(bool((count < 0).any() or (count > MOST).any()) for count in learner.sample_counts()):
        raise UsageError("its counts of samples are not plausible")
    if not learner.observed[:known].any() or learner.observed[known:].any():
        raise UsageError("the classes it has seen are not those it has labels for")
    if not all(bool(tensor.isfinite().all()) for tensor in learner.state_dict().values()):
        raise UsageError("its weights are not finite")
    blank = torch.zeros(1, *learner.spec.shape, dtype=learner.spec.dtype, device=learner.device)
    # What is no covariance cannot be solved, which is better found out now.
    if learner.filters and learner.scores(blank).isnan().any():
        raise UsageError("its statistics are not those of any samples")
