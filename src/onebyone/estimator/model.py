"""The model of a classifier: classes, learner and layout. It begins, learns and grows, completely or not at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import count
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from onebyone import nets
from onebyone.data import CropFlip, Spec
from onebyone.engine import choose_device, reproducible
from onebyone.errors import UsageError, unknown, warn
from onebyone.estimator.evidence import ENOUGH, SIZE, Evidence, EvidenceSource, HeldBack, Record, most_held_back
from onebyone.estimator.inputs import Layout, Samples, read_pairs
from onebyone.estimator.known_files import KnownFiles
from onebyone.estimator.labels import Label, as_array, as_labels, in_order
from onebyone.memory import Memory
from onebyone.methods import AUTO, LeftOut, auto_budget, choose, create, grown, method
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Adapted, Encoder
from onebyone.options import number_of_bytes
from onebyone.seeding import seeded
from onebyone.statistics import hybrid, lda  # noqa: F401  # not first in a thread

# Capacity for classes at first. From 16 on, doubling it does not change a bit of any score. Products of smaller
# matrices are summed in another order.
INITIAL_CAPACITY = 16
LEAST_VECTOR = 250  # bytes that a sample counts, so that short vectors have room for projections
EXPECTED_CLASSES = 64  # "auto" chooses statistics only if those of this many classes fit into the memory
LARGE_IMAGE = (3, 224, 224)  # a shape that every encoder of images reads
MAX_PATCH_IMAGE = 64  # pixels of the shorter side from which a warning recommends an encoder
MAX_REPLAY_SIZE = 2**20  # samples per step
# Parameters that may change between calls.
CHANGEABLE = ("batch_size", "epochs", "validation_fraction", "prior", "unknown_rate", "autosave", "every")
PARAMETER_OF_OPTION = {  # options of methods that are set by a parameter of the classifier
    "memory_samples": "memory",
    "memory_per_class": "memory",
    "budget": "memory",
    "encoder": "encoder",
    "augment": "augment",
}
USUAL_STATE = (nn.Module._save_to_state_dict, nn.Module.get_extra_state)
MAX_WEIGHT = 1e6  # of a sample; the weights of many such samples are still a number of samples that a file may hold


@dataclass(frozen=True)
class State:
    """The state of a fitted classifier. Only a call that succeeds replaces it."""

    parameters: Mapping[str, Any]  # of the constructor, at the first call
    layout: Layout
    slots: Mapping[Label, int]  # the learner's class of each label, in order of arrival
    learner: AnyLearner
    method: str  # of the learner; the chosen one if the parameter is "auto"
    feature_names: tuple[str, ...] | None = None
    record: Record = field(default_factory=Record)
    files: KnownFiles = field(default_factory=KnownFiles)  # learnt by learn_files
    held_back: HeldBack = field(default_factory=HeldBack)  # given, but not learnt

    @property
    def device(self) -> torch.device:
        return self.learner.counts.device

    @property
    def on_gpu(self) -> bool:
        return self.learner.counts.is_cuda

    @property
    def counts(self) -> Tensor:
        """[C] how many samples of each slot's class were given, on the CPU."""
        counts = self.learner.counts.cpu()
        return counts + torch.bincount(self.held_back.y, minlength=len(counts))

    @property
    def uses_predictions(self) -> bool:
        """Whether predictions of samples that were not learnt, or not yet, decide how confident the classifier is."""
        return not self.learner.leaves_out and max(len(self.held_back.y), len(self.record.y)) >= ENOUGH

    @property
    def evidence(self) -> Evidence:
        """Predictions that the learner makes without the sample, or made before it learnt the sample.

        The second kind serves while few samples are held back. ``hybrid`` has those of its statistics without the
        sample until it has predicted enough samples itself.
        """
        learner = self.learner
        source: EvidenceSource = "left out"
        if len(self.held_back.y) >= ENOUGH:
            return Evidence(self._held_back_predictions, "held back")
        if learner.leaving_out is not learner and not self.uses_predictions:
            learner, source = learner.leaving_out, "left out by the statistics"
        if learner.leaves_out:
            found = learner.left_out()
            if found is not None:
                return Evidence(LeftOut(*(values.cpu() for values in found)), source)
        return Evidence(self.record.left_out, "predicted before learnt")

    @cached_property
    def _held_back_predictions(self) -> LeftOut:
        """Predictions of the samples that are held back, by the learner as it is now."""
        return self.held_back.predictions(self.learner)

    @cached_property
    def labels(self) -> list[Label]:
        """The labels in the order of ``classes_``."""
        arrived = list(self.slots)
        return [arrived[position] for position in in_order(arrived)] if arrived else []

    @cached_property
    def columns(self) -> list[int]:
        """The slot of each entry of ``classes``."""
        return [self.slots[label] for label in self.labels]

    @cached_property
    def classes(self) -> npt.NDArray[Any]:
        """The labels in the order of ``classes_``, as an array."""
        return as_array(self.labels)

    def with_labels(self, new: Iterable[Label]) -> State:
        """A state that knows these labels too, in free slots, with a learner that has capacity for them."""
        unknown = [label for label in dict.fromkeys(new) if label not in self.slots]
        if not unknown:
            return self
        used = set(self.slots.values())
        free = (slot for slot in count() if slot not in used)
        slots = {**self.slots, **dict(zip(unknown, free, strict=False))}
        return replace(self, slots=slots, learner=with_capacity(self, max(slots.values()) + 1))

    def slot_of(self, label: Label) -> int:
        if label not in self.slots:
            raise UsageError(f"{label!r} is not a known class; known are {known_labels(self)}")
        return self.slots[label]

    def copied(self) -> State:
        """A state whose learner can be changed. A frozen encoder, which never changes, is not copied."""
        frozen = [part for part in self.learner.modules() if isinstance(part, Adapted) and part.frozen]
        shared: dict[int, Any] = {id(tensor): tensor for part in frozen for tensor in part.parameters()}
        shared |= {id(part): part for part in frozen if part.fixed}
        return replace(self, learner=deepcopy(self.learner, shared))

    def united(self, label: Label, into: Label) -> State:
        """A state in which two classes are one. The learner is changed; the label is removed."""
        slot, target, counts = self.slots[label], self.slots[into], self.learner.counts
        slots = {each: own for each, own in self.slots.items() if each != label}
        if not counts[slot]:  # known, but never learnt
            record = self.record.without(slot)
        elif not counts[target]:
            return replace(self, slots=slots | {into: slot}, held_back=self.held_back.united(target, slot))
        else:
            self.learner.unite(slot, target)
            record = self.record.united(slot, target)
        return replace(self, slots=slots, record=record, held_back=self.held_back.united(slot, target))

    def in_slots_of(self, mine: State) -> State:
        """This state with the classes, the capacity and the device of ``mine``, which knows all of its labels."""
        capacity = mine.learner.spec.num_classes
        learner = self.learner if self.learner.spec.num_classes == capacity else grown(self.learner, capacity)
        if learner.device != mine.learner.device:
            learner = deepcopy(learner).to(mine.learner.device)  # the encoder may be shared with the other classifier
        sources = {mine.slots[label]: slot for label, slot in self.slots.items()}
        unused = iter(sorted(set(range(capacity)) - set(sources.values())))
        order = [sources[slot] if slot in sources else next(unused) for slot in range(capacity)]
        if order != list(range(capacity)):
            learner.reorder(torch.tensor(order, device=learner.device))
        return replace(self, learner=learner, slots=mine.slots)

    def attributes(self) -> dict[str, Any]:
        """The attributes of a fitted classifier; none before the first class."""
        if not self.slots:
            return {}
        found: dict[str, Any] = {
            "classes_": self.classes,
            "n_features_in_": math.prod(self.layout.shape),
            "method_": self.method,
        }
        if self.feature_names is not None:
            found["feature_names_in_"] = np.array(self.feature_names, dtype=object)
        return found


def known_labels(state: State) -> str:
    """The labels for a message."""
    return ", ".join(repr(each) for each in state.labels[:10]) + ", ..." * (len(state.labels) > 10)


def with_capacity(state: State, classes: int) -> AnyLearner:
    """The learner, enlarged if it cannot hold this number of classes.

    Raises
    ------
    UsageError
        If the memory is too small for the statistics of this number of classes.
    """
    capacity = state.learner.spec.num_classes
    while capacity < classes:
        capacity *= 2
    if capacity == state.learner.spec.num_classes:
        return state.learner
    for size in (capacity, classes):  # if twice the capacity does not fit, the capacity that is needed may
        try:
            learner = grown(state.learner, size)
            break
        except UsageError as error:
            reason = error
    else:
        memory = state.parameters["memory"]
        raise UsageError(
            f"memory is {memory!r}, too little for {classes} classes ({reason}); start again with a larger memory"
        )
    _warn_of_lost_filters(state, learner)
    _warn_of_more_bytes(state, learner)
    return learner


def _warn_of_lost_filters(state: State, learner: AnyLearner) -> None:
    """Warn once, when there are less than half as many filters as with the initial capacity for classes."""
    before, after = state.learner.filters, learner.filters
    if after == before:
        return
    with torch.device("meta"):  # shapes only
        spec = replace(learner.spec, num_classes=INITIAL_CAPACITY)
        initial = type(learner)(learner.options, spec, learner.seed, "meta").filters
    if 2 * after < initial <= 2 * before:
        warn(
            f"memory is {state.parameters['memory']!r}, and capacity for {learner.spec.num_classes} classes leaves "
            f"{after} of {initial} filters, which lowers the accuracy; start again with a larger memory"
        )


def _warn_of_more_bytes(state: State, learner: AnyLearner) -> None:
    """Warn if the memory exceeds its size, because one number per class is stored with each sample."""
    memory = state.parameters["memory"]
    if isinstance(memory, str) and learner.memory_bytes > 1.1 * number_of_bytes(memory, "memory"):
        warn(
            f"memory is {memory!r}, and capacity for {learner.spec.num_classes} classes makes it "
            f"{learner.memory_bytes:,} bytes; if that is too much, start again with a smaller memory"
        )


# Learning


class Lesson(NamedTuple):
    """Samples to learn."""

    x: Samples  # [n]
    slots: Tensor  # [n] the slot of each sample's class
    rows: Tensor | None  # [m] the samples with a weight above 0; None: all
    weight: Tensor | None  # [n] in float64; None if all are 1
    size: int  # m
    parameters: Mapping[str, Any]  # of the classifier


def prepare(
    estimator: BaseEstimator,
    parameters: Mapping[str, Any],
    state: State | None,
    X: Any,
    y: Any,
    classes: Iterable[Label] | None = None,
    sample_weight: Any = None,
) -> tuple[State, Lesson]:
    """Check everything that can be checked before learning.

    Parameters
    ----------
    estimator
        The classifier.
    parameters
        Its parameters, which were checked.
    state
        Its current state, or None to start from scratch.
    X, y, classes, sample_weight
        As ``partial_fit`` takes them.

    Returns
    -------
    The state to train, with capacity for the new classes, and the samples to learn.

    Raises
    ------
    UsageError
        If ``X``, ``y``, ``classes`` or ``sample_weight`` is invalid.
    """
    layout = None if state is None else state.layout
    size = partial(encoder_size, parameters["encoder"])
    x, labels = read_pairs(X, y, layout, parameters["channels"], estimator, state.labels if state else (), size)
    announced = as_labels(list(classes), labels, "classes") if classes is not None else []
    if state is None:
        state = begin(parameters, x.layout, X)
    if sample_weight is None:
        weight, rows, used = None, None, labels
    else:
        weight = read_weights(sample_weight, len(labels), state.learner)
        rows = weight.nonzero().flatten()
        used = [labels[row] for row in rows.tolist()]
        if not used and not state.slots:
            raise UsageError("sample_weight is zero for all samples, so nothing can be learnt; give a larger weight")
        if bool((weight[rows] == 1).all()):
            weight = None  # samples of weight 0 are left out, and without weights the steps are the usual ones
    state = state.with_labels([*announced, *used])
    slots = torch.tensor([state.slots.get(label, 0) for label in labels])  # 0: of weight 0, and not used
    return state, Lesson(x, slots.to(state.device), rows, weight, len(used), parameters)


def read_weights(given: Any, count: int, learner: AnyLearner) -> Tensor:
    """[n] the parameter ``sample_weight`` in float64."""
    try:
        weight = np.array(given.cpu() if isinstance(given, Tensor) else given, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsageError("sample_weight must be numbers, one per sample") from None
    weight = np.full(count, weight) if weight.ndim == 0 else weight
    if weight.shape != (count,):
        raise UsageError(f"sample_weight has shape {weight.shape}; give one number per sample, [{count}]")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise UsageError("sample_weight has numbers below 0, or not finite; give numbers from 0 on")
    if weight.size and float(weight.max()) > MAX_WEIGHT:
        raise UsageError(
            f"sample_weight has {weight.max():g}, and the largest allowed is {MAX_WEIGHT:g}, because a weight counts "
            "as a number of samples; divide the weights, so that their mean is about 1"
        )
    if not learner.takes_weights:
        raise UsageError("this method takes no sample_weight; omit it, or choose another method")
    return torch.from_numpy(weight)


def begin(parameters: Mapping[str, Any], layout: Layout, X: Any) -> State:
    """The initial state of a classifier, for samples like ``X``."""
    random, seed = check_random_state(parameters["random_state"]), parameters["random_state"]
    seed = int(seed) if isinstance(seed, Integral) else int(random.randint(2**31))
    fixed = learner_parameters(parameters)
    method = method_in_use(fixed, layout)
    warn_of_large_images(method, fixed, layout)
    learner = build_learner(method, fixed, layout, seed, choose_device(parameters["device"]))
    names = None
    if layout.axes == "vector":
        table = BaseEstimator()
        validate_data(table, X, reset=True, skip_check_array=True)  # stores the column names
        names = getattr(table, "feature_names_in_", None)
    return State(fixed, layout, {}, learner, method, None if names is None else tuple(map(str, names)))


def check_unchanged(state: State, parameters: Mapping[str, Any]) -> None:
    """Raise an error if a parameter that defines the learner has changed."""
    now = learner_parameters(parameters)
    changed = [name for name, value in state.parameters.items() if value != now[name]]
    if changed:
        raise UsageError(
            f"{', '.join(changed)} changed since the first call; restore the value, or call fit to start again"
        )


def train(
    state: State, lesson: Lesson, order: Tensor | None = None, *, again: bool = False, in_sequence: bool = False
) -> State:
    """One pass over the samples. The learner of the state is changed.

    Parameters
    ----------
    state
        The state to continue.
    lesson
        The samples.
    order
        [m] indices of the samples, in the order of the steps. None: as they were given.
    again
        Whether these samples were learnt before. Then nothing is stored, counted or recorded.
    in_sequence
        Whether the samples are in stream order, so that a new class starts a new task. Shuffled samples have no tasks.

    Returns
    -------
    The state with the samples that are held back, and with more predictions of samples before they were learnt.

    Raises
    ------
    UsageError
        If training diverged.
    """
    learner, device, record, held = state.learner, state.device, state.record, state.held_back
    order = lesson.rows if order is None else order
    if not again:
        learner.settle(lesson.size)
    share = holding_share(learner, lesson)
    boundaries = in_sequence and learner.needs_boundaries
    # Learners to which the number of samples in a step does not matter take larger steps, which are faster.
    size = int(lesson.parameters["batch_size"]) if learner.steps_matter else learner.chunk
    with reproducible() if state.on_gpu else nullcontext():
        for start in range(0, lesson.size, size):
            rows = slice(start, start + size) if order is None else order[start : start + size]
            batch, classes = lesson.x[rows].to(device), lesson.slots[rows]
            weight = None if lesson.weight is None else lesson.weight[rows].to(device)
            if again and len(held.y):
                learnt = ~held.contains(batch).to(batch.device)
                batch, classes = batch[learnt], classes[learnt]
                weight = None if weight is None else weight[learnt]
            elif share and not again:
                held, batch, classes = held.divide(batch, classes, learner, share)
            if not len(classes):
                continue
            if not again and not learner.leaves_out and len(held.y) < ENOUGH:
                record = predicted(learner, batch, classes, record, lesson.size - start)
            if boundaries and learner.observed.any() and not learner.observed[classes].all():
                learner.end_task()
            step = learner.repeat if again else learner.observe
            if weight is None:
                step(batch, classes)
            else:
                step(batch, classes, weight)
    check_finite(learner)
    if learner.leaves_out and held is state.held_back and not len(held.y):
        return state  # nothing was computed from what the learner was before
    return replace(state, record=record, held_back=held)


def holding_share(learner: AnyLearner, lesson: Lesson) -> float:
    """The share of samples to hold back.

    It is 0 for learners that keep statistics, so that merging and forgetting stay exact, for samples with weights,
    which would have to be kept too, and for a memory so small that too few samples would be held back to be of use.
    """
    is_network = not learner.mergeable and not learner.leaves_out
    useful = is_network and lesson.weight is None and most_held_back(learner) >= ENOUGH
    return float(lesson.parameters["validation_fraction"]) if useful else 0.0


def predicted(learner: AnyLearner, x: Tensor, slots: Tensor, record: Record, left: int) -> Record:
    """The record with predictions of a batch that is not learnt yet; ``left`` samples are left in this call.

    Early batches of a long call would be dropped from the record, so they are not predicted. If the learner has to
    compute class means before an answer, it predicts only as often as takes about half the time of its steps.
    """
    interval = learner.answer_interval(len(slots))
    if left > SIZE * interval or int(learner.steps) % interval or not learner.observed[slots].any():
        return record
    with torch.no_grad():
        scores = learner.scores(x)
        # Without a second forward pass if typicality is the largest score.
        typicality = learner.typicality(x) if learner.own_typicality else scores.amax(1)
    return record.added(scores, slots, typicality)


# Taking back what failed


def changeable(learner: AnyLearner) -> dict[str, Tensor]:
    """The tensors of a state that a step may change, except the rows of memories, which have a journal."""
    found: dict[str, Tensor] = {}
    _collect(learner, "", found, [])
    return found


def _collect(module: nn.Module, prefix: str, found: dict[str, Tensor], memories: list[Memory]) -> None:
    if isinstance(module, Adapted) and module.fixed:
        return  # without visiting its layers, which takes longer than learning a sample
    if (type(module)._save_to_state_dict, type(module).get_extra_state) != USUAL_STATE:
        module._save_to_state_dict(found, prefix, keep_vars=False)
    elif module._parameters or module._buffers:  # the same in a tenth of the time
        found |= {prefix + name: each.detach() for name, each in module._parameters.items() if each is not None}
        hidden = module._non_persistent_buffers_set
        found |= {
            prefix + name: each for name, each in module._buffers.items() if each is not None and name not in hidden
        }
    for name, part in module._modules.items():
        if part is not None:
            _collect(part, f"{prefix}{name}.", found, memories)
    unchanged: Iterable[str] = ()
    if isinstance(module, Memory):
        unchanged = module.fields
        memories.append(module)
    elif isinstance(module, Adapted) and module.frozen:
        unchanged = dict(module.named_parameters())
    for name in unchanged:
        found.pop(prefix + name, None)


def check_finite(learner: AnyLearner) -> None:
    """Raise an error if training diverged."""
    for name, tensor in changeable(learner).items():
        # The sum takes less time. It may overflow, where all numbers are finite.
        if tensor.is_floating_point() and not math.isfinite(tensor.sum()) and not bool(tensor.isfinite().all()):
            raise UsageError(
                f"{name} is not finite because training diverged; use a smaller learning_rate in options, "
                "and weights of about 1 in sample_weight if it is given"
            )


@contextmanager
def restored_on_error(learner: AnyLearner) -> Iterator[None]:
    """If the block raises an error, make the state of the learner bit for bit what it was before.

    Weights and statistics are copied, which costs no more than a step that reads and writes all of them. A memory may
    be much larger, so it copies only the rows that are overwritten.
    """
    found, memories = dict[str, Tensor](), list[Memory]()
    _collect(learner, "", found, memories)
    before = {name: tensor.clone() for name, tensor in found.items()}
    try:
        for memory in memories:
            memory.journal = []
        yield
    except BaseException:
        for memory in memories:
            memory.undo()
        begun = changeable(learner).keys() - before.keys()  # state of an optimizer that had taken no step
        state = learner.state_dict() | before
        learner.load_state_dict({name: tensor for name, tensor in state.items() if name not in begun})
        raise
    finally:
        for memory in memories:
            memory.journal = None


# Building a learner from the parameters of a classifier


def learner_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that define the learner. They must not change between calls of ``partial_fit``.

    Statistics freeze an encoder in any case, so classifiers with and without ``freeze_encoder`` are the same.
    """
    own = {name: value for name, value in parameters.items() if name not in CHANGEABLE}
    if own["method"] in (AUTO, "lda") and nets.is_pretrained(own["encoder"]):
        own["freeze_encoder"] = True
    return own | {"options": dict(own["options"] or {})}


def method_in_use(parameters: Mapping[str, Any], layout: Layout) -> str:
    """The method to use with these parameters, for samples of this layout."""
    if parameters["method"] != AUTO:
        return str(parameters["method"])
    given, frozen = parameters["encoder"], parameters["freeze_encoder"]
    if nets.is_pretrained(given) or (isinstance(given, nn.Module) and frozen):
        return "lda"
    spec = Spec(layout.sample_shape, EXPECTED_CLASSES, layout.dtype)
    return choose(spec, budget(parameters["memory"], layout), network=frozen or given != AUTO)


def encoder_size(kind: Any) -> tuple[int, int] | None:
    """Height and width that an encoder resizes images to; None without an encoder, or if it reads any size."""
    if nets.is_pretrained(kind):
        with torch.device("meta"):  # no weights
            kind = nets.pretrained(kind, LARGE_IMAGE, weights=False)
    return nets.image_size(kind) if isinstance(kind, nn.Module) else None


def warn_of_large_images(name: str, parameters: Mapping[str, Any], layout: Layout) -> None:
    """Warn if statistics without an encoder are to learn images that they reduce by more than half."""
    side, size = min(layout.sample_shape[1:], default=0), parameters["options"].get("size", nets.LARGEST)
    if side > max(MAX_PATCH_IMAGE, size) and name in ("patch-lda", "lda") and parameters["encoder"] == AUTO:
        warn(
            f"images of {side} pixels are reduced to {size} pixels, so fine detail is lost; for photographs "
            'give encoder="lite0" (pip install \'onebyone[photos]\'), or give method="lda" a larger size in options'
        )


def build_learner(
    name: str, parameters: Mapping[str, Any], layout: Layout, seed: int, device: torch.device
) -> AnyLearner:
    """A learner of the method ``name``, with the initial capacity for classes."""
    options = dict(parameters["options"])
    known = known_options(name)
    for option, parameter in PARAMETER_OF_OPTION.items():
        if option in options:
            raise UsageError(f"{option} is given as an option; use the parameter {parameter} instead")
    spec = Spec(layout.sample_shape, INITIAL_CAPACITY, layout.dtype, augmentation(parameters["augment"], layout))
    options |= encoder_option(name, parameters, layout, seed)
    if "encoder" not in options:
        for parameter, default in (("encoder", AUTO), ("freeze_encoder", False)):
            if parameters[parameter] != default:
                raise UsageError(
                    f"{parameter} is given, but {name} has no network; omit it, or use another method, such as lda"
                )

    def build(**size: int) -> AnyLearner:
        learner = create(name, spec, seed=seed, device=device, **options, **size)
        check_replay_size(learner)
        return learner

    if "budget" in known:
        given = options.get("encoder")
        encoded = given if method(name).learner.mergeable and isinstance(given, Adapted) else None
        size = budget(parameters["memory"], layout, encoded)
        is_chosen = parameters["method"] == AUTO
        return build(budget=auto_budget(spec, size, encoded=encoded is not None) if is_chosen else size)
    if "memory_samples" in known:
        return build(memory_samples=memory_samples(parameters["memory"], build))
    return build()


def check_replay_size(learner: AnyLearner) -> None:
    """Raise an error if a step would allocate too much. The value may come from a file that is not trusted."""
    size = getattr(learner.options, "replay_size", 0)
    if size > MAX_REPLAY_SIZE:
        raise UsageError(f"replay_size is {size}; it must be at most {MAX_REPLAY_SIZE}")


def memory_samples(amount: Any, build: Callable[..., AnyLearner]) -> int:
    """The parameter ``memory`` as a number of samples, for the learner that ``build`` returns."""
    if isinstance(amount, str):
        smallest, larger = (build(memory_samples=count).memory_bytes for count in (1, 2))
        size = number_of_bytes(amount, "memory")
        if size < smallest:
            raise UsageError(
                f"memory is {amount!r}, but a memory for one sample takes {smallest} bytes; give a larger one"
            )
        if larger <= smallest:  # a learner that does not say how many bytes its memory has
            raise UsageError(
                f"memory is {amount!r}, but this method does not tell the bytes of a sample; give a number of samples"
            )
        return 1 + (size - smallest) // (larger - smallest)
    return number_of_samples(amount)


def budget(amount: Any, layout: Layout, encoder: Adapted | None = None) -> int:
    """The parameter ``memory`` in bytes. A number of samples is converted to the bytes of the samples alone.

    A vector counts as 250 bytes at least: short ones need projections most. With an encoder these are the bytes of the
    images that it reads, or of its features if that is more. So a small image, which it enlarges, counts as much as a
    large one.
    """
    if isinstance(amount, str):
        return number_of_bytes(amount, "memory")
    sample = math.prod(layout.shape) * layout.dtype.itemsize
    if layout.axes == "vector":
        sample = max(sample, LEAST_VECTOR)
    if encoder is not None:
        sample = max(sample, 4 * encoder.width, 3 * math.prod(nets.image_size(encoder) or (0,)))
    return number_of_samples(amount) * sample


def number_of_samples(amount: Any) -> int:
    if not isinstance(amount, Integral) or isinstance(amount, bool) or int(amount) < 1:
        raise UsageError(
            f"memory is {amount!r}; give the number of samples to keep, at least 1, or a size such as '3MB'"
        )
    return int(amount)


def augmentation(kind: Any, layout: Layout) -> CropFlip:
    """The augmentation for the parameter ``augment``. A crop shifts an image by up to an eighth of its shorter side.

    ``auto`` crops images of at least 24 pixels, because crops of small images cost accuracy: on the 8x8 digits, one
    class at a time, a shift of one pixel cost CCP 25 points. It never flips, because whether a mirrored image belongs
    to the same class depends on the data.

    >>> augmentation("auto", Layout.of(torch.zeros(1, 32, 40, 3)))
    CropFlip(padding=4, flip=False)
    """
    if kind not in ("auto", "none", "crop", "crop+flip"):
        raise unknown("augment", str(kind), ["auto", "none", "crop", "crop+flip"])
    side = min(layout.sample_shape[1:], default=0)
    crop = side >= 24 if kind == "auto" else kind != "none"
    return CropFlip(side // 8 if crop else 0, flip=kind == "crop+flip")


def known_options(name: str) -> set[str]:
    """The names of the options of a method."""
    return {item.name for item in fields(method(name).options)}


def encoder_option(
    name: str, parameters: Mapping[str, Any], layout: Layout, seed: int, *, pretrained: bool = True
) -> dict[str, Any]:
    """The option ``encoder`` of a method, or nothing if it has none. Statistics never change an encoder."""
    given, frozen = parameters["encoder"], parameters["freeze_encoder"]
    if "encoder" not in known_options(name):
        return {}
    if method(name).learner.mergeable:
        if isinstance(given, str) and not nets.is_pretrained(given):
            return {"encoder": given}  # none, or one that the learner refuses
        frozen = True
    with seeded(seed, "weights"):
        return {"encoder": encoder(given, layout, frozen=frozen, pretrained=pretrained)}


def encoder(kind: Any, layout: Layout, *, frozen: bool, pretrained: bool = True) -> str | Encoder:
    """The option ``encoder`` of the learner: the name of an encoder of this library, or an :class:`Encoder`."""
    shape = layout.sample_shape
    if kind == "auto" and layout.axes == "vector" and layout.dtype != torch.uint8:
        kind = "scaled-mlp"  # numbers may have any unit, but bytes all have the same scale
    module: nn.Module
    if nets.is_pretrained(kind):
        limits = (-1.0, 1.0) if layout.dtype == torch.uint8 else (0.0, 1.0)  # bytes are scaled by the learner
        module = nets.pretrained(kind, shape, weights=pretrained, limits=limits)
    elif isinstance(kind, nn.Module) and not isinstance(kind, Encoder):
        module = kind
    elif not frozen:
        return kind  # type: ignore[no-any-return]  # the options refuse anything that is not an encoder
    else:
        module = nets.create(kind, shape)
    own = isinstance(kind, str) and not nets.is_pretrained(kind)  # other encoders are not rescaled
    return Adapted(module, shape, frozen=frozen, rescale=own)
