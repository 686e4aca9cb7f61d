"""The state of a fitted classifier, which grows with the number of its classes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onebyone.errors import UsageError, warn
from onebyone.estimator.building import INITIAL_CAPACITY
from onebyone.estimator.held_back import HeldBack
from onebyone.estimator.known_files import KnownFiles
from onebyone.estimator.labels import Label, as_array, in_order
from onebyone.estimator.record import Record, fitted_temperature
from onebyone.estimator.samples import Layout
from onebyone.methods import LeftOut, grown
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Adapted
from onebyone.options import number_of_bytes


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
