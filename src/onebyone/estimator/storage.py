"""A classifier as bytes, in a file, and in a folder that is written while it learns."""

from __future__ import annotations

import io
import json
import os
import pickle
import threading
import time
import warnings
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from numbers import Integral
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import torch
from filelock import BaseFileLock
from safetensors import torch as safetensors
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from onebyone import files, nets
from onebyone.data import Spec
from onebyone.engine import choose_device
from onebyone.errors import UsageError
from onebyone.estimator import labels as label_codes
from onebyone.estimator.evidence import HeldBack, Record
from onebyone.estimator.inputs import Layout, check_settings
from onebyone.estimator.known_files import KnownFiles
from onebyone.estimator.labels import Label
from onebyone.estimator.model import State, augmentation, check_replay_size, encoder_option, learner_parameters
from onebyone.formats import CLASSIFIER, newer
from onebyone.methods import AUTO, method
from onebyone.methods.learner import GENERATOR
from onebyone.methods.registry import AnyLearner
from onebyone.statistics.sums import Moments
from onebyone.tensors import digest, read_tensors, write_tensors

# A file: tensors, a description as JSON in the header, and a checksum of both


MAX_COUNT = 2**48  # samples per class
FILE = "classifier.safetensors"  # in the folder
SECONDS = 5.0  # longest time between the return of a call and its save

Version = tuple[int, int, int]  # of a file; changes with every write

_all: weakref.WeakSet[Autosave] = weakref.WeakSet()


def write(path: Path, state: State, description: str) -> None:
    """Write the file atomically. The description is what ``describe`` returns."""
    write_tensors(path, contents(state), {"onebyone": description}, signed="onebyone")


def size(state: State, parameters: Mapping[str, Any]) -> int:
    """Bytes of the file that ``write`` would write, except for a few digits of the offsets in its header."""
    tensors = contents(state)
    empty = {name: torch.empty(0, dtype=tensor.dtype) for name, tensor in tensors.items()}
    text = describe(state, parameters, "0" * 64 if state.learner.fixed_encoders else None)
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
    left_out = encoder_tensors(state.learner) | state.learner.unused_generators()
    tensors = state.learner.state_dict() | state.record.tensors() | state.held_back.tensors()
    if state.files.entries:
        tensors |= state.files.tensors(state.slots)
    return {name: tensor.contiguous() for name, tensor in tensors.items() if name not in left_out}


def encoder_tensors(learner: AnyLearner) -> set[str]:
    """The names of the tensors that a file does not hold: those of a frozen encoder, of which it holds a hash."""
    return {f"{prefix}.{name}" for prefix, part in learner.fixed_encoders.items() for name in part.state_dict()}


def encoder_hash(learner: AnyLearner) -> str | None:
    """The hash of the weights of a frozen encoder; None if the learner has no such encoder."""
    fixed = list(learner.fixed_encoders.values())  # all with the same weights
    return nets.weights_hash(fixed[0].module) if fixed else None


def describe(state: State, parameters: Mapping[str, Any], weights: str | None) -> str:
    """Everything but the tensors, as JSON. All options are written, so that new defaults do not change old files.

    ``weights`` is what :func:`encoder_hash` returns, which takes a while for a large encoder.
    """
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
        "former_names": [label_codes.to_json(label) for label in state.files.former_names],
        "room": learner.spec.num_classes,
        "seed": learner.seed,
        "device": learner.counts.device.type,
        "encoder_hash": weights,
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
    known = KnownFiles.from_tensors(tensors, slots, former)
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
    return State(fixed, layout, slots, learner, chosen, names, record, known, held_back), parameters


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


# A folder that is written while a classifier learns


def version_of(file: Path) -> Version | None:
    """The version of the file, or None if it does not exist."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class Autosave:
    """Saves the state of ``owner`` to ``folder``: by number of samples, by time, and on close, collection and exit.

    The folder is locked from the first call that learns until ``close``. The owner is referenced weakly.

    Parameters
    ----------
    owner
        The classifier.
    lock
        Its lock, which is held while saving.
    folder
        The folder to save to. A relative path is resolved once, here.
    version
        The version of the file that the owner was loaded from, or None.
    """

    def __init__(
        self, owner: object, lock: threading.RLock, folder: str | Path, version: Version | None = None
    ) -> None:
        if folder == "":
            raise UsageError("autosave is an empty text; give a folder, '.' for the current one, or None")
        self.given = str(folder)
        self.folder = Path(folder).resolve()
        self.file = self.folder / FILE
        self._version = version  # of the file that this object wrote, or that its owner was loaded from
        self._folder_lock: BaseFileLock | None = None
        self._writing = False  # whether the call has begun to write
        self._learnt: tuple[State, Mapping[str, Any]] | None = None  # the state after the last call that returned
        self._described: tuple[Mapping[Label, int], Mapping[str, Any], str] | None = None  # the last description
        self._unsaved = 0  # number of its samples that are not in the file
        self._unsaved_since = 0.0
        self._timer: threading.Timer | None = None
        self._owner = weakref.ref(owner)
        self._lock = lock
        self._finalizer = weakref.finalize(owner, self._finalize)  # also runs at exit
        _all.add(self)

    def is_for(self, folder: str | Path | None) -> bool:
        """Whether ``folder`` is this folder, even if the working directory has changed."""
        return folder is not None and (str(folder) == self.given or Path(folder).resolve() == self.folder)

    @contextmanager
    def transaction(self, state: State, parameters: Mapping[str, Any]) -> Iterator[None]:
        """Lock the folder for a call, if it is not locked yet. If the block raises an error, restore file and lock.

        Labels and parameters of the call that cannot be saved raise an error before the block.
        """
        self._describe(state, parameters)
        before, was_locked = (self._learnt, self._unsaved, self._version), self._folder_lock is not None
        self._writing = False
        try:
            if not was_locked:
                self._take_folder()
            yield
        except BaseException:
            self._learnt, self._unsaved, self._version = before
            if self._writing:
                self._restore_file()
            if not was_locked:
                self._release_folder()
            raise

    def _describe(self, state: State, parameters: Mapping[str, Any]) -> str:
        """The description of the state for a file, the last one if labels and parameters are the same objects."""
        before = self._described
        if before is None or before[0] is not state.slots or before[1] is not parameters or state.files.entries:
            text = describe(state, parameters, encoder_hash(state.learner))
            self._described = before = state.slots, parameters, text
        return before[2]

    def accept(self, state: State, parameters: Mapping[str, Any], samples: int, every: int) -> None:
        """Accept the state after a call. Save it if there are ``every`` unsaved samples, or if a save is due by time.

        Raises
        ------
        UsageError
            If it could not be saved. Then it is not accepted.
        """
        unsaved, now = self._unsaved + samples, time.monotonic()
        late = bool(self._unsaved) and now - self._unsaved_since >= SECONDS
        if self._learnt is None or unsaved >= every or late or not self._start_timer():
            self._write(state, parameters)
            unsaved = 0
        elif not self._unsaved:
            self._unsaved_since = now
        self._learnt, self._unsaved = (state, parameters), unsaved

    def close(self) -> None:
        """Save what is unsaved and release the folder. The next call that learns locks it again."""
        with self._lock:
            self._save()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._release_folder()
            self._learnt = None

    def detach(self) -> None:
        """Close for the last time, because the owner now has another folder."""
        self.close()
        self._finalizer.detach()

    def _take_folder(self) -> None:
        self._check_version()
        self._folder_lock = files.lock(self.folder)
        if self._folder_lock is None:
            raise UsageError(
                f"another classifier, in this or another process, saves to {self.folder}, and a folder has one "
                "writer; close that one first, or choose another folder for autosave"
            )
        self._check_version()  # another process may have written it before this one had the lock
        for temporary in self.folder.glob(f".{FILE}.*"):  # left by a process that was killed
            temporary.unlink(missing_ok=True)

    def _check_version(self) -> None:
        found = version_of(self.file)
        if found is None or found == self._version:
            return
        if self._version is None:
            raise UsageError(
                f"{self.folder} holds the state of another classifier; continue it with OnlineClassifier.load, or "
                "choose another folder for autosave"
            )
        raise UsageError(
            f"another classifier has saved to {self.folder} since this one was loaded or closed; load the folder "
            "again, or choose another one for autosave"
        )

    def _release_folder(self) -> None:
        if self._folder_lock is not None:
            self._folder_lock.release()
            self._folder_lock = None

    def _write(self, state: State, parameters: Mapping[str, Any]) -> None:
        self._check_version()  # another process may have deleted the folder and written to it
        self._writing = True
        write(self.file, state, self._describe(state, parameters))
        self._version = version_of(self.file)

    def _save(self) -> None:
        if self._unsaved and self._learnt is not None:
            self._write(*self._learnt)
            self._unsaved = 0

    def _restore_file(self) -> None:
        """Undo a write, in case it had replaced the file already."""
        found = version_of(self.file)
        if found in (None, self._version):
            return
        self._version = found
        with suppress(UsageError, OSError):
            if self._learnt is None:
                self.file.unlink()
            else:
                self._unsaved = max(1, self._unsaved)  # so that a later save writes it if this one fails
                self._save()

    def _start_timer(self) -> bool:
        """Save later, in a thread. Returns False if no thread can be started, as at the exit of the interpreter."""
        if self._timer is None:
            self._timer = threading.Timer(SECONDS, self._save_in_background)
            self._timer.daemon = True
            try:
                self._timer.start()
            except RuntimeError:
                self._timer = None
                return False
        return True

    def _save_in_background(self) -> None:
        owner = self._owner()  # a strong reference, so that the owner is not collected during the save
        if owner is None:
            return
        with self._lock:
            self._timer = None
            try:
                self._save()
            except UsageError as error:
                warnings.warn(f"autosave failed and will be tried again: {error}", stacklevel=2)
                self._start_timer()

    def _finalize(self) -> None:
        with _disable_current_modes():  # garbage may be collected while PyTorch computes with tensors without values
            try:
                self.close()
            except UsageError as error:
                text = f"the last {self._unsaved} samples were not saved to {self.folder}: {error}"
                warnings.warn(text, stacklevel=2)
                self._release_folder()

    def _abandon(self) -> None:
        """Called in a forked process. The folder, its lock and the timer belong to the parent.

        A thread of the parent may hold the thread lock, so the owner gets a new one.
        """
        self._version = self._folder_lock = self._learnt = self._timer = None
        self._unsaved = 0
        self._lock = threading.RLock()
        owner = self._owner()
        if owner is not None:
            vars(owner)["_workings"].lock = self._lock


def _abandon_all() -> None:
    for autosave in list(_all):
        autosave._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


# Pickles


class Packed(NamedTuple):
    """An object as bytes, and the classes and functions that it needs.

    PyTorch makes ``multiprocessing`` send tensors as open files instead of values. With spawn and forkserver, those of
    a tensor that was made for the pickle are closed before the new process gets them. Bytes are sent as they are.

    Classes and functions are kept beside the bytes, for the pickler that sends these. That of joblib and of notebooks
    (cloudpickle) can send those that are defined in ``__main__``; a pickle within the pickle could not.
    """

    content: bytes
    code: list[Any]


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.code: dict[Any, int] = {}

    def persistent_id(self, item: Any) -> int | None:
        return self.code.setdefault(item, len(self.code)) if isinstance(item, (type, FunctionType)) else None


class _Unpacker(pickle.Unpickler):
    def __init__(self, packed: Packed) -> None:
        super().__init__(io.BytesIO(packed.content))
        self.code = packed.code

    def persistent_load(self, number: Any) -> Any:
        return self.code[number]


def pack(item: Any) -> Packed:
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(item)
    return Packed(file.getvalue(), list(packer.code))


def unpack(packed: Packed) -> Any:
    return _Unpacker(packed).load()
