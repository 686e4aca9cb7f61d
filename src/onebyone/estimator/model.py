"""The model of a classifier: classes, learner and layout. It begins, learns and grows, completely or not at all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
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

from onebyone.engine import choose_device, reproducible
from onebyone.errors import UsageError, warn
from onebyone.estimator.building import (
    INITIAL_CAPACITY,
    build_learner,
    check_settings,
    encoder_size,
    learner_parameters,
    method_in_use,
    warn_of_large_images,
)
from onebyone.estimator.held_back import HeldBack, room
from onebyone.estimator.inputs import Samples, as_samples, images_in, is_image
from onebyone.estimator.known_files import KnownFiles
from onebyone.estimator.labels import Label, as_array, as_labels, in_order
from onebyone.estimator.record import ENOUGH, SIZE, Record, fitted_temperature
from onebyone.estimator.samples import Layout
from onebyone.memory import Memory
from onebyone.methods import LeftOut, grown
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Adapted
from onebyone.options import number_of_bytes

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
    def counts(self) -> Tensor:
        """[C] how many samples of each slot's class were given, on the CPU."""
        counts = self.learner.counts.cpu()
        return counts + torch.bincount(self.held_back.y, minlength=len(counts))

    @cached_property
    def held_back_predictions(self) -> LeftOut:
        """Predictions of the samples that are held back, by the learner as it is now."""
        return self.held_back.predictions(self.learner)

    @cached_property
    def held_back_temperature(self) -> float:
        """The temperature of these predictions."""
        usable = self.held_back_predictions.scores.gather(1, self.held_back_predictions.y[:, None])[:, 0].isfinite()
        return fitted_temperature(self.held_back_predictions.scores[usable], self.held_back_predictions.y[usable])

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
        slots = dict(self.slots)
        used = set(slots.values())
        free = (slot for slot in count() if slot not in used)
        for label in new:
            if label not in slots:
                slots[label] = next(free)
        if len(slots) == len(self.slots):
            return self
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
        if not counts[slot]:
            record, held = self.record.without(slot), self.held_back.united(slot, target)
            return replace(self, slots=slots, record=record, held_back=held)
        if not counts[target]:  # known, but never learnt
            return replace(self, slots=slots | {into: slot}, held_back=self.held_back.united(target, slot))
        self.learner.unite(slot, target)
        record, held = self.record.united(slot, target), self.held_back.united(slot, target)
        return replace(self, slots=slots, record=record, held_back=held)

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
    try:
        learner = _grown(state, capacity)
    except UsageError:  # if twice the capacity does not fit, the capacity that is needed may
        learner = _grown(state, classes)
    _warn_of_lost_filters(state, learner)
    _warn_of_more_bytes(state, learner)
    return learner


def _grown(state: State, classes: int) -> AnyLearner:
    try:
        return grown(state.learner, classes)
    except UsageError as error:
        memory = state.parameters["memory"]
        raise UsageError(
            f"memory is {memory!r}, too little for {classes} classes ({error}); start again with a larger memory"
        ) from None


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
            f"{after} of {initial} filters, which lowers the accuracy; start again with a larger memory",
        )


def _warn_of_more_bytes(state: State, learner: AnyLearner) -> None:
    """Warn if the memory exceeds its size, because one number per class is stored with each sample."""
    memory = state.parameters["memory"]
    if isinstance(memory, str) and learner.memory_bytes > 1.1 * number_of_bytes(memory, "memory"):
        warn(
            f"memory is {memory!r}, and capacity for {learner.spec.num_classes} classes makes it "
            f"{learner.memory_bytes:,} bytes; if that is too much, start again with a smaller memory",
        )


# Learning


@contextmanager
def learning() -> Iterator[None]:
    """Enable gradients, even inside ``torch.no_grad`` or ``torch.inference_mode``, and reproducible steps on a GPU.

    A learner that is built in inference mode cannot be trained later.
    """
    with torch.inference_mode(False), torch.enable_grad(), reproducible():
        yield


class Lesson(NamedTuple):
    """Samples to learn."""

    x: Samples  # [n]
    slots: Tensor  # [n] the slot of each sample's class
    order: Tensor  # [m] indices of the samples to learn: those with a weight above 0
    weight: Tensor | None  # [n] in float64; None if all are 1
    parameters: Mapping[str, Any]  # of the classifier


def prepare(
    estimator: BaseEstimator,
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
        The classifier, for its parameters.
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
        If a parameter, ``X``, ``y``, ``classes`` or ``sample_weight`` is invalid.
    """
    parameters = estimator.get_params(deep=False)
    check_settings(parameters)
    images = images_in(X)
    one = is_image(X) and np.ndim(y) == 0 and y is not None  # a single image may have a single label
    labels = as_labels([y] if one else y, state.labels if state else ())
    announced = as_labels(list(classes), labels, "classes") if classes is not None else []
    size = encoder_size(parameters["encoder"]) if state is None and images is not None else None
    x = as_samples(X, images, state.layout if state else None, estimator.channels, estimator, size)
    if len(x) != len(labels):
        raise UsageError(f"X has {len(x)} samples and y has {len(labels)} labels; give one label per sample")
    if state is None:
        state = begin(parameters, x.layout, X)
    else:
        check_unchanged(state, parameters)
    weight = None if sample_weight is None else read_weights(sample_weight, len(labels), state.learner)
    order = torch.arange(len(labels)) if weight is None else weight.nonzero().flatten()
    if not len(order) and not state.slots:
        raise UsageError("sample_weight is zero for all samples, so nothing can be learnt; give a larger weight")
    state = state.with_labels([*announced, *(labels[index] for index in order.tolist())])
    slots = torch.tensor([state.slots.get(label, 0) for label in labels])  # 0: of weight 0, and not used
    if weight is not None and bool((weight[order] == 1).all()):
        weight = None  # zeros are not in the order, and without weights the steps are the usual ones
    return state, Lesson(x, slots.to(state.learner.device), order, weight, parameters)


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
    state: State,
    lesson: Lesson,
    order: Tensor,
    *,
    again: bool = False,
    in_sequence: bool = False,
) -> State:
    """One pass over the samples. The learner of the state is changed.

    Parameters
    ----------
    state
        The state to continue.
    lesson
        The samples.
    order
        [m] indices of the samples, in the order of the steps.
    again
        Whether these samples were learnt before. Then nothing is stored, counted or recorded.
    in_sequence
        Whether the samples are in stream order, so that a new class starts a new task. Shuffled samples have no tasks.

    Returns
    -------
    The state with the samples that are held back, and with more predictions of samples before they were learnt.
    """
    learner, record, held = state.learner, state.record, state.held_back
    if not again:
        learner.settle(len(order))
    share = holding_share(learner, lesson)
    boundaries = in_sequence and learner.needs_boundaries
    # Learners to which the number of samples in a step does not matter take larger steps, which are faster.
    size = int(lesson.parameters["batch_size"]) if learner.steps_matter else learner.chunk
    for start in range(0, len(order), size):
        index = order[start : start + size]
        batch, classes = lesson.x[index].to(learner.device), lesson.slots[index.to(lesson.slots.device)]
        weight = None if lesson.weight is None else lesson.weight[index].to(learner.device)
        if again and len(held):
            learnt = ~held.contains(batch).to(batch.device)
            batch, classes = batch[learnt], classes[learnt]
            weight = None if weight is None else weight[learnt]
        elif share and not again:
            held, batch, classes = held.divide(batch, classes, learner, share)
        if not len(classes):
            continue
        if not again and not learner.leaves_out and len(held) < ENOUGH:
            record = predicted(learner, batch, classes, record, len(order) - start)
        if boundaries and learner.observed.any() and not learner.observed[classes].all():
            learner.end_task()
        step = learner.repeat if again else learner.observe
        if weight is None:
            step(batch, classes)
        else:
            step(batch, classes, weight)
    return replace(state, record=record, held_back=held)


def holding_share(learner: AnyLearner, lesson: Lesson) -> float:
    """The share of samples to hold back.

    It is 0 for learners that keep statistics, so that merging and forgetting stay exact, for samples with weights,
    which would have to be kept too, and for a memory so small that too few samples would be held back to be of use.
    """
    is_network = not learner.mergeable and not learner.leaves_out
    useful = is_network and lesson.weight is None and room(learner) >= ENOUGH
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
    _collect(learner, "", found)
    return found


def _collect(module: nn.Module, prefix: str, found: dict[str, Tensor]) -> None:
    if isinstance(module, Adapted) and module.fixed:
        return  # without visiting its layers, which takes longer than learning a sample
    module._save_to_state_dict(found, prefix, keep_vars=False)
    for name, part in module.named_children():
        _collect(part, f"{prefix}{name}.", found)
    unchanged: Iterable[str] = ()
    if isinstance(module, Memory):
        unchanged = module.fields
    elif isinstance(module, Adapted) and module.frozen:
        unchanged = dict(module.named_parameters())
    for name in unchanged:
        found.pop(prefix + name, None)


@contextmanager
def restored_on_error(learner: AnyLearner) -> Iterator[None]:
    """If the block raises anything, restore the current state of the learner bit for bit.

    Weights and statistics are copied, which costs no more than a step that reads and writes all of them. A memory may
    be much larger, so only the rows that are overwritten are copied.
    """
    before = {name: tensor.clone() for name, tensor in changeable(learner).items()}
    memories = [part for part in learner.modules() if isinstance(part, Memory)]
    for memory in memories:
        memory.journal = []
    try:
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
