"""The steps of ``fit`` and ``partial_fit``: check the input, prepare the state, train."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any

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
    State,
    build_learner,
    check_settings,
    learner_parameters,
    method_in_use,
    with_capacity,
)
from onebyone.estimator.inputs import Samples, check_batch, is_image, read_samples
from onebyone.estimator.labels import Label, as_labels
from onebyone.estimator.samples import Layout
from onebyone.methods.registry import AnyLearner


@contextmanager
def learning() -> Iterator[None]:
    """Enable gradients, even inside ``torch.no_grad`` or ``torch.inference_mode``, and reproducible steps on a GPU.

    A learner that is built in inference mode cannot be trained later.
    """
    with torch.inference_mode(False), torch.enable_grad(), reproducible():
        yield


def prepare(
    estimator: BaseEstimator, state: State | None, X: Any, y: Any, classes: Iterable[Label] | None = None
) -> tuple[State, Samples, Tensor]:
    """Check everything that can be checked before learning.

    Parameters
    ----------
    estimator
        The classifier, for its parameters.
    state
        Its current state, or None to start from scratch.
    X, y, classes
        As ``partial_fit`` takes them.

    Returns
    -------
    The state to train, with capacity for the new classes; the samples; and the slot of each sample's class [n].

    Raises
    ------
    UsageError
        If a parameter, ``X``, ``y`` or ``classes`` is invalid.
    """
    parameters = estimator.get_params(deep=False)
    check_settings(parameters)
    check_batch(X)
    one = is_image(X) and np.ndim(y) == 0 and y is not None  # a single image may have a single label
    labels = as_labels([y] if one else y, state.labels if state else ())
    announced = as_labels(list(classes), labels) if classes is not None else []
    x = read_samples(X, state.layout if state else None, estimator.channels, estimator)
    if len(x) != len(labels):
        raise UsageError(f"X has {len(x)} samples and y has {len(labels)} labels; give one label per sample")
    if state is None:
        state = begin(parameters, x.layout, X)
    else:
        check_unchanged(state, parameters)
    known = list(dict.fromkeys([*state.labels, *announced, *labels]))
    if len(known) > len(state.labels):
        state = replace(state, labels=known, learner=with_capacity(state, len(known)))
    slot_of = {label: slot for slot, label in enumerate(known)}
    slots = torch.tensor([slot_of[label] for label in labels])
    if parameters["autosave"] is not None:  # raises before training if the state cannot be saved
        persistence.describe(state, parameters)
    return state, x, slots.to(state.learner.device)


def begin(parameters: Mapping[str, Any], layout: Layout, X: Any) -> State:
    """The initial state of a classifier, for samples like ``X``."""
    random, seed = check_random_state(parameters["random_state"]), parameters["random_state"]
    seed = int(seed) if isinstance(seed, Integral) else int(random.randint(2**31))
    fixed = learner_parameters(parameters)
    method = method_in_use(fixed, layout)
    learner = build_learner(method, fixed, layout, seed, choose_device(parameters["device"]))
    names = None
    if layout.axes == "vector":
        table = BaseEstimator()
        validate_data(table, X, reset=True, skip_check_array=True)  # stores the column names
        names = getattr(table, "feature_names_in_", None)
    return State(fixed, layout, [], learner, method, None if names is None else tuple(map(str, names)))


def check_unchanged(state: State, parameters: Mapping[str, Any]) -> None:
    """Raise an error if a parameter that defines the learner has changed."""
    now = learner_parameters(parameters)
    changed = [name for name, value in state.parameters.items() if value != now[name]]
    if changed:
        raise UsageError(
            f"{', '.join(changed)} changed since the first call; restore the value, or call fit to start again"
        )


def train(
    learner: AnyLearner,
    x: Samples,
    slots: Tensor,
    order: Tensor,
    batch_size: int,
    *,
    again: bool = False,
    in_sequence: bool = False,
) -> None:
    """One pass over the samples.

    Parameters
    ----------
    learner
        The learner to train.
    x, slots
        Samples [n] and the slots of their classes [n].
    order
        [n] indices of the samples, in the order of the steps.
    batch_size
        Samples per step.
    again
        Whether these samples were learnt before. Then nothing is stored or counted.
    in_sequence
        Whether the samples are in stream order, so that a new class starts a new task. Shuffled samples have no tasks.
    """
    boundaries = in_sequence and learner.needs_boundaries
    for index in order.split(batch_size):
        batch, classes = x[index].to(learner.device), slots[index.to(slots.device)]
        if boundaries and learner.observed.any() and not learner.observed[classes].all():
            learner.end_task()
        (learner.repeat if again else learner.observe)(batch, classes)
