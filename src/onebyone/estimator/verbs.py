"""Changes of a classifier other than learning: merge, forget, rename."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from onebyone.errors import UsageError
from onebyone.estimator import persistence
from onebyone.estimator.answers import AnsweringClassifier
from onebyone.estimator.building import check_settings, learner_parameters
from onebyone.estimator.calls import learning
from onebyone.estimator.inputs import check_batch, is_image, read_samples
from onebyone.estimator.known_files import Taught, sample_keys
from onebyone.estimator.labels import Label, as_labels
from onebyone.estimator.locking import lock_of, synchronized
from onebyone.estimator.priors import renamed_prior
from onebyone.estimator.state import State, known_labels
from onebyone.methods import grown
from onebyone.methods.learner import Learner
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Adapted

NOTHING_LEFT = "no other sample was learnt, so nothing would be left; create a new classifier instead"


class ChangingClassifier(AnsweringClassifier):
    """The part of :class:`OnlineClassifier` that merges, forgets and renames."""

    def merge(self, other: Self) -> Self:
        """Merge another classifier into this one, as if this one had learnt the samples of both.

        This works for methods that keep statistics, such as ``patch-lda``. The order of merges does not matter. Classes
        with the same label become one class. Both classifiers must have the same parameters, and samples of the same
        shape and type. A classifier that has learnt nothing becomes a copy of ``other``.

        Parameters
        ----------
        other
            The other classifier. It is not changed.

        Returns
        -------
        The classifier itself.

        Raises
        ------
        NotFittedError
            If ``other`` has learnt nothing.
        UsageError
            If the classifiers have different parameters or samples, or if the method cannot merge. It is a ValueError.
            Nothing is changed.
        """
        if not isinstance(other, ChangingClassifier):
            raise UsageError(f"a classifier can be merged with an OnlineClassifier, not with a {type(other).__name__}")
        with learning():
            with lock_of(other):  # released before the own lock is taken, so that two merges cannot wait for each other
                theirs = copied(other._fitted())
            with lock_of(self):
                self._replace(self._merged(theirs))
        return self

    def _merged(self, theirs: State) -> State:
        parameters = self.get_params(deep=False)
        if self._state is None:
            own = learner_parameters(parameters)
            check_same(own, theirs.parameters)
            return replace(theirs, parameters=own, files=theirs.files.copy())  # the device may be another one
        mine = copied(self._state)
        if type(mine.learner).merge is Learner.merge:
            mine.learner.merge(theirs.learner)  # raises: such learners cannot merge, whatever the parameters are
        check_mergeable(mine, theirs)
        as_labels(list(theirs.slots), mine.labels, "the result")  # raises if the types differ
        mine = mine.with_labels(theirs.slots)
        theirs = in_slots_of(mine, theirs)
        mine.learner.merge(theirs.learner)
        return replace(mine, files=mine.files.united(theirs.files))

    @synchronized
    def forget(self, X: Any, y: Any) -> Self:
        """Forget samples that were learnt.

        With methods that keep statistics, scores and predicted classes are then as if these samples had never been
        learnt. Probabilities may differ a little, because a few samples are kept for calibration, and those that are
        forgotten are not replaced. Networks remove the samples from their memory and counts, but the effect of the
        samples on the weights stays. To remove it, train a new classifier without them. The samples are assumed to have
        been learnt with weight 1. If all samples of a class are forgotten, the class stays in ``classes_`` with the
        probability 0. Use ``forget_class`` to remove it.

        Samples are not stored, so whether these were learnt cannot be checked. Some mistakes are refused: more samples
        than were learnt of a class, or sums that no samples can have. Other samples that were never learnt are
        subtracted, and samples that are given twice are subtracted twice, which damages the statistics without a
        message. Keep a record of what was forgotten, and if a call may have succeeded before, compare
        ``n_samples_seen_`` before it is repeated.

        Images that were learnt from files by ``onebyone learn`` can be learnt from these files again. They are
        recognised by their pixels, so give their paths, or the pixels as they were learnt.

        Parameters
        ----------
        X
            Samples [n, ...] that were learnt, in the form in which they were given.
        y
            Their labels [n].

        Returns
        -------
        The classifier itself.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If it is noticed that the samples cannot have been learnt, or if nothing else was learnt. It is a
            ValueError. Nothing is changed.
        """
        state = self._fitted()
        check_batch(X)
        single = is_image(X) and np.ndim(y) == 0 and y is not None
        labels = as_labels([y] if single else y, state.labels)
        x = read_samples(X, state.layout, self.channels, self)
        if len(x) != len(labels):
            raise UsageError(f"X has {len(x)} samples and y has {len(labels)} labels; give one label per sample")
        known = [slot_of(state, label) for label in labels]
        if len(labels) >= int(state.counts.sum()):
            raise UsageError(NOTHING_LEFT)
        with learning():
            state = copied(state)
            learner, slots = state.learner, torch.tensor(known, device=state.learner.device)
            start, keys, held = 0, list[int](), state.held_back
            for part in x.chunks():
                own = slots[start : start + len(part)]
                held, found = held.forget(part, own)
                learner.forget(part[~found].to(learner.device), own[~found.to(own.device)])
                start += len(part)
                keys += sample_keys(part) if state.files.entries else ()
            if not learner.counts.any():
                raise UsageError(NOTHING_LEFT)
            files = state.files.without(map(Taught, labels, keys))
            self._replace(replace(state, held_back=held, files=files))
        return self

    @synchronized
    def forget_class(self, label: Label) -> Self:
        """Remove a class from ``classes_``, the counts, the memory and all predictions.

        In statistics, the variation of its samples around their mean stays a part of the shared covariance. In
        networks, the effect of its samples on the weights of the encoder stays.

        Parameters
        ----------
        label
            One of ``classes_``, but not the only one with samples.

        Returns
        -------
        The classifier itself.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If the label is not known, or if no other class was learnt. It is a ValueError. Nothing is changed.
        """
        state = self._fitted()
        (label,) = as_labels([label], state.labels)
        slot, counts = slot_of(state, label), state.counts
        if counts[slot] == counts.sum():
            raise UsageError(f"{label!r} is the only class that was learnt; create a new classifier instead")
        with learning():
            state = copied(state)
            state.learner.forget_class(slot)
            slots = {each: own for each, own in state.slots.items() if own != slot}
            files = state.files.without_class(label)
            record, held = state.record.without(slot), state.held_back.without(slot)
            self._replace(replace(state, slots=slots, record=record, held_back=held, files=files))
        return self

    @synchronized
    def rename(self, names: Mapping[Label, Label]) -> Self:
        """Give classes new labels. If a new label is the label of another class, the two become one class.

        All labels are replaced at the same time, so ``{"a": "b", "b": "a"}`` exchanges two labels. When classes become
        one, statistics are as if all samples had been learnt with the new label. Networks relabel the samples in their
        memory and learn the rest by replay. If ``prior`` is a dictionary, its labels are renamed too.

        Parameters
        ----------
        names
            A dictionary from each label to replace to its new label. The new labels must be different from each other.

        Returns
        -------
        The classifier itself.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If a label is not known, if two labels get the same new one, or if ``names`` is no dictionary. It is a
            ValueError. Nothing is changed.
        """
        state = self._fitted()
        if not isinstance(names, Mapping):
            raise UsageError(f"names is a {type(names).__name__}; give a dictionary {{old label: new label}}")
        old = as_labels(list(names), state.labels, "names") if names else []
        new = as_labels(list(names.values()), name="names") if names else []
        for label in old:
            slot_of(state, label)
        if len(set(new)) < len(new):
            raise UsageError(f"two labels get the same new label in {dict(names)!r}; unite classes in separate calls")
        renamed = dict(zip(old, new, strict=True))
        as_labels([renamed.get(label, label) for label in state.slots], name="the result")  # raises if the types differ
        with learning():
            state = copied(state)
            for before, after in renamed.items():
                if after in state.slots and after not in renamed:
                    state = united(state, before, after)
            slots = {renamed.get(label, label): slot for label, slot in state.slots.items()}
            before, self.prior = self.prior, renamed_prior(self.prior, renamed)
            try:
                self._replace(replace(state, slots=slots, files=state.files.renamed(renamed)))
            except BaseException:
                self.prior = before
                raise
        return self

    def _replace(self, state: State) -> None:
        """Make this the state, completely or not at all. An autosave folder has it when the call returns."""
        check_settings(self.get_params(deep=False))
        with self._all_or_nothing(state):
            self._accept(state, int(self.every))


def copied(state: State) -> State:
    """A state whose learner can be changed. A frozen encoder, which never changes, is not copied."""
    frozen = [part for part in state.learner.modules() if isinstance(part, Adapted) and part.frozen]
    shared: dict[int, Any] = {id(tensor): tensor for part in frozen for tensor in part.parameters()}
    shared |= {id(part): part for part in frozen if part.fixed}
    return replace(state, learner=deepcopy(state.learner, shared))


def slot_of(state: State, label: Label) -> int:
    if label not in state.slots:
        raise UsageError(f"{label!r} is not a known class; known are {known_labels(state)}")
    return state.slots[label]


def united(state: State, label: Label, into: Label) -> State:
    """A state in which two classes are one. The learner is changed; the label is removed."""
    slot, target, counts = state.slots[label], state.slots[into], state.learner.counts
    slots = {each: own for each, own in state.slots.items() if each != label}
    if not counts[slot]:
        record, held = state.record.without(slot), state.held_back.united(slot, target)
        return replace(state, slots=slots, record=record, held_back=held)
    if not counts[target]:  # known, but never learnt
        return replace(state, slots=slots | {into: slot}, held_back=state.held_back.united(target, slot))
    state.learner.unite(slot, target)
    record, held = state.record.united(slot, target), state.held_back.united(slot, target)
    return replace(state, slots=slots, record=record, held_back=held)


def check_same(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    different = []
    for name, value in mine.items():
        if name != "device" and value != theirs[name]:
            short = not isinstance(value, nn.Module) and not isinstance(theirs[name], nn.Module)
            different.append(f"{name} ({value!r} and {theirs[name]!r})" if short else name)
    if different:
        raise UsageError(
            f"the classifiers have different values of {', '.join(different)}; only classifiers with the same "
            "parameters can be merged"
        )


def check_mergeable(mine: State, theirs: State) -> None:
    """Raise an error if the two states are not those of equal learners for the same kind of samples."""
    check_same(mine.parameters, theirs.parameters)
    if mine.feature_names != theirs.feature_names:
        raise UsageError(
            f"the classifiers have different names of features: {named(mine)} and {named(theirs)}; give both samples "
            "with the same columns, or both without names"
        )
    if mine.layout != theirs.layout:
        raise UsageError(
            f"the classifiers learn different samples: {describe(mine)} and {describe(theirs)}; only samples of one "
            "shape, type and axes can be merged"
        )
    one, two = mine.learner, theirs.learner
    if persistence.encoder_hash(one) != persistence.encoder_hash(two):
        raise UsageError("the encoders of the classifiers have different weights; give both the same encoder")
    if (mine.method, comparable(one), one.seed) != (theirs.method, comparable(two), two.seed):
        raise UsageError(
            "the classifiers chose another method, other options or another seed in their first call; give both the "
            "same method and a whole number as random_state"
        )


def comparable(learner: AnyLearner) -> dict[str, Any]:
    """The options without a frozen encoder, which is compared by its weights."""
    found = vars(learner.options)
    fixed = isinstance(encoder := found.get("encoder"), Adapted) and encoder.fixed
    return found | ({"encoder": None} if fixed else {})


def describe(state: State) -> str:
    return f"{state.layout.dtype} {state.layout.shape}".removeprefix("torch.")


def named(state: State) -> str:
    return ", ".join(state.feature_names[:10]) if state.feature_names else "none"


def in_slots_of(mine: State, theirs: State) -> State:
    """Another state with the classes, the capacity and the device of ``mine``, which knows all of its labels."""
    capacity = mine.learner.spec.num_classes
    learner = theirs.learner if theirs.learner.spec.num_classes == capacity else grown(theirs.learner, capacity)
    if learner.device != mine.learner.device:
        learner = deepcopy(learner).to(mine.learner.device)  # the encoder may be shared with the other classifier
    sources = {mine.slots[label]: slot for label, slot in theirs.slots.items()}
    unused = iter(sorted(set(range(capacity)) - set(sources.values())))
    order = [sources[slot] if slot in sources else next(unused) for slot in range(capacity)]
    if order != list(range(capacity)):
        learner.reorder(torch.tensor(order, device=learner.device))
    return replace(theirs, learner=learner, slots=mine.slots)
