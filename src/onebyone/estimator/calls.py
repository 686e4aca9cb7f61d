"""The steps of ``fit`` and ``partial_fit``: check the input, prepare the state, train."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor

from onebyone.engine import choose_device, reproducible
from onebyone.errors import UsageError
from onebyone.estimator import persistence
from onebyone.estimator.building import (
    build_learner,
    check_settings,
    encoder_size,
    learner_parameters,
    method_in_use,
    warn_of_large_images,
)
from onebyone.estimator.held_back import room
from onebyone.estimator.inputs import Samples, as_samples, images_in, is_image
from onebyone.estimator.labels import Label, as_labels
from onebyone.estimator.record import ENOUGH, SIZE, Record
from onebyone.estimator.samples import Layout
from onebyone.estimator.state import State
from onebyone.methods.registry import AnyLearner

MAX_WEIGHT = 1e6  # of a sample; the weights of many such samples are still a number of samples that a file may hold


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
    known, state = state, state.with_labels([*announced, *(labels[index] for index in order.tolist())])
    slots = torch.tensor([state.slots.get(label, 0) for label in labels])  # 0: of weight 0, and not used
    # An error about labels that cannot be saved comes before training. Later ones are found when it is saved.
    if parameters["autosave"] is not None and state is not known:
        persistence.describe(state, parameters)
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
