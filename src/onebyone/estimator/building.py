"""From the classifier's parameters to a learner."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from onebyone import nets
from onebyone.data import CropFlip, Spec
from onebyone.errors import UsageError, unknown
from onebyone.estimator.labels import Label, as_array, in_order
from onebyone.estimator.samples import Layout
from onebyone.methods import (
    AUTO,
    ENOUGH,
    BudgetOptions,
    Options,
    ReplayLearner,
    ReplayOptions,
    choose,
    create,
    grown,
    method,
)
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Adapted, Encoder
from onebyone.options import number_of_bytes
from onebyone.seeding import seeded

# Classes there is room for at first. From 16 on, doubling keeps the bits of all scores: below, products of matrices
# that small are added up in another order.
ROOM = 16
GROWTH = 64  # classes that must find room in the memory, or statistics are not chosen: nobody knows how many come
MOST_REPLAYED = 2**20  # samples a step
LATER = ("batch_size", "epochs", "autosave", "every")  # parameters that may change while learning goes on
OWN = {
    "memory_samples": "memory",
    "memory_per_class": "memory",
    "budget": "memory",
    "encoder": "encoder",
    "augment": "augment",
}


@dataclass(frozen=True)
class State:
    """What a classifier has learnt. It is exchanged as a whole, so a refused call leaves it as it was."""

    parameters: Mapping[str, Any]  # of the constructor, as they were when learning began
    layout: Layout
    labels: list[Label]  # of the learner's classes 0, 1, 2, ...
    learner: AnyLearner
    method: str  # of the learner; what was chosen, where the parameter says auto
    feature_names: tuple[str, ...] | None = None

    @cached_property
    def columns(self) -> list[int]:
        """The learner's class of each entry of ``classes``."""
        return in_order(self.labels)

    @cached_property
    def classes(self) -> npt.NDArray[Any]:
        """The labels in the order of ``classes_``."""
        return as_array([self.labels[slot] for slot in self.columns])

    def attributes(self) -> dict[str, Any]:
        """The attributes of a fitted classifier."""
        found = {"classes_": self.classes, "n_features_in_": math.prod(self.layout.shape), "method_": self.method}
        if self.feature_names is not None:
            found["feature_names_in_"] = np.array(self.feature_names, dtype=object)
        return found


def learner_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Those parameters that say what learner it is, and so must not change before ``fit`` begins again."""
    own = {name: value for name, value in parameters.items() if name not in LATER}
    return own | {"options": dict(own["options"] or {})}


def check_settings(parameters: Mapping[str, Any]) -> None:
    for name in ("batch_size", "epochs", "every"):
        value = parameters[name]
        if not isinstance(value, Integral) or isinstance(value, bool) or not 1 <= int(value) < 2**31:
            raise UsageError(f"{name} is {value!r}; it must be a whole number, at least 1")
    if not isinstance(parameters["options"], Mapping | None):
        raise UsageError(f"options is {parameters['options']!r}; give a dictionary, as {{'learning_rate': 0.01}}")


def method_in_use(parameters: Mapping[str, Any], layout: Layout) -> str:
    """The method that these parameters stand for, with samples of this layout."""
    if parameters["method"] != AUTO:
        return str(parameters["method"])
    # Whoever says what the encoder is, or that it stays as it is, wants one.
    wanted = parameters["freeze_encoder"] or parameters["encoder"] != AUTO
    spec = Spec(layout.sample_shape, GROWTH, layout.dtype)
    return choose(spec, budget(parameters["memory"], layout), network=wanted)


def build_learner(
    name: str, parameters: Mapping[str, Any], layout: Layout, seed: int, device: torch.device
) -> AnyLearner:
    """A learner of this method as these parameters of the classifier say, with room for the first classes."""
    options = dict(parameters["options"])
    kind = method(name).options
    for option, parameter in OWN.items():
        if option in options:
            raise UsageError(f"{option} is given as an option; use the parameter {parameter} instead")
    spec = Spec(layout.sample_shape, ROOM, layout.dtype, augmentation(parameters["augment"], layout))
    if issubclass(kind, Options):
        with seeded(seed, "weights"):
            options["encoder"] = encoder(parameters["encoder"], layout, frozen=parameters["freeze_encoder"])
    else:
        for parameter, usual in (("encoder", AUTO), ("freeze_encoder", False)):
            if parameters[parameter] != usual:
                raise UsageError(f"{parameter} is given, and {name} has no network; leave it out or use another method")

    def make(**more: int) -> AnyLearner:
        learner = create(name, spec, seed=seed, device=device, **options, **more)
        check_step(learner)
        return learner

    if issubclass(kind, BudgetOptions):
        size = budget(parameters["memory"], layout)
        return make(budget=min(size, ENOUGH) if parameters["method"] == AUTO else size)
    if issubclass(kind, ReplayOptions):
        return make(memory_samples=memory_samples(parameters["memory"], make))
    return make()


def check_step(learner: AnyLearner) -> None:
    """Refuse what a step would allocate for no use; of a file, it is what a stranger says."""
    if isinstance(learner.options, ReplayOptions) and learner.options.replay_size > MOST_REPLAYED:
        raise UsageError(f"replay_size is {learner.options.replay_size}; it must be at most {MOST_REPLAYED}")


def with_room(state: State, classes: int) -> AnyLearner:
    """The learner, grown if it has no room for so many classes. One that keeps statistics of each may be too small."""
    room = state.learner.spec.num_classes
    while room < classes:
        room *= 2
    if room == state.learner.spec.num_classes:
        return state.learner
    try:
        learner = _grown(state, room)
    except UsageError:  # where twice the room does not fit, what is needed may
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
            f"memory is {memory!r}, too little for {classes} classes ({error}); begin anew with more"
        ) from None


def _warn_of_lost_filters(state: State, learner: AnyLearner) -> None:
    """Say so, once, when classes have taken more than half of the filters that there would be with few of them."""
    had, has = state.learner.filters, learner.filters
    if has == had:
        return
    with torch.device("meta"):  # shapes only
        spec = replace(learner.spec, num_classes=ROOM)
        with_few = type(learner)(learner.options, spec, learner.seed, "meta").filters
    if 2 * has < with_few <= 2 * had:
        warnings.warn(
            f"memory is {state.parameters['memory']!r}, and room for {learner.spec.num_classes} classes leaves "
            f"{has} of {with_few} filters, so that answers get worse; begin anew with more",
            stacklevel=6,
        )


def _warn_of_more_bytes(state: State, learner: AnyLearner) -> None:
    """Say so when what is kept with a sample, a number of each class, makes the memory larger than was asked for."""
    memory = state.parameters["memory"]
    if isinstance(memory, str) and learner.memory_bytes > 1.1 * number_of_bytes(memory, "memory"):
        warnings.warn(
            f"memory is {memory!r}, and room for {learner.spec.num_classes} classes makes it "
            f"{learner.memory_bytes:,} bytes; begin anew with less if that is too much",
            stacklevel=6,
        )


def memory_samples(amount: Any, make: Callable[..., AnyLearner]) -> int:
    """How many samples the parameter ``memory`` stands for, in the learner that ``make`` gives."""
    if isinstance(amount, str):
        one, two = (make(memory_samples=count) for count in (1, 2))
        assert isinstance(one, ReplayLearner)
        assert isinstance(two, ReplayLearner)
        least, size = one.memory.nbytes, number_of_bytes(amount, "memory")
        if size < least:
            raise UsageError(f"memory is {amount!r}, and a memory for one sample takes {least} bytes; give more")
        return 1 + (size - least) // (two.memory.nbytes - least)
    return number_of_samples(amount)


def budget(amount: Any, layout: Layout) -> int:
    """How many bytes the parameter ``memory`` stands for: of so many samples, where it is a number."""
    if isinstance(amount, str):
        return number_of_bytes(amount, "memory")
    return number_of_samples(amount) * math.prod(layout.shape) * layout.dtype.itemsize


def number_of_samples(amount: Any) -> int:
    if not isinstance(amount, Integral) or isinstance(amount, bool) or int(amount) < 1:
        raise UsageError(f"memory is {amount!r}; give the number of samples to keep, at least 1, or a size as '3MB'")
    return int(amount)


def augmentation(kind: Any, layout: Layout) -> CropFlip:
    """``crop`` moves an image by up to an eighth of its shorter side; whether it may be mirrored, only its owner knows.

    ``auto`` crops images of at least 24 pixels. Small ones suffer: on the 8x8 digits, one class at a time, moving by a
    single pixel cost CCP 25 points.

    >>> augmentation("auto", Layout.of(torch.zeros(1, 32, 40, 3)))
    CropFlip(padding=4, flip=False)
    """
    if kind not in ("auto", "none", "crop", "crop+flip"):
        raise unknown("augment", str(kind), ["auto", "none", "crop", "crop+flip"])
    side = min(layout.sample_shape[1:], default=0)
    crop = side >= 24 if kind == "auto" else kind != "none"
    return CropFlip(side // 8 if crop else 0, flip=kind == "crop+flip")


def encoder(kind: Any, layout: Layout, *, frozen: bool, pretrained: bool = True) -> str | Encoder:
    """The learner's option ``encoder``: a name of ours as it is, a module or a model of timm as an :class:`Encoder`."""
    shape = layout.sample_shape
    if kind == "auto" and layout.axes == "vector" and layout.dtype != torch.uint8:
        kind = "scaled-mlp"  # numbers of any unit; bytes all have the same scale
    module: nn.Module
    if isinstance(kind, str) and kind.startswith(nets.TIMM):
        module = nets.timm_model(kind, shape, pretrained)
    elif isinstance(kind, nn.Module) and not isinstance(kind, Encoder):
        module = kind
    elif not frozen:
        return kind  # type: ignore[no-any-return]  # whatever else it is, the options refuse
    else:
        module = nets.create(kind, shape)
    return Adapted(module, shape, frozen=frozen, rescale=isinstance(kind, str))  # a module given stays as it is
