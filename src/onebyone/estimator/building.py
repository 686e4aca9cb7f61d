"""Building a learner from the parameters of a classifier."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import torch
from torch import nn

from onebyone import nets
from onebyone.data import CropFlip, Spec
from onebyone.errors import UsageError, unknown, warn
from onebyone.estimator.priors import check_prior, is_share
from onebyone.estimator.samples import Layout
from onebyone.methods import (
    AUTO,
    BudgetOptions,
    LDAOptions,
    Options,
    ReplayOptions,
    auto_budget,
    choose,
    create,
    method,
)
from onebyone.methods.registry import AnyLearner
from onebyone.nets import Adapted, Encoder
from onebyone.options import number_of_bytes
from onebyone.seeding import seeded

# Capacity for classes at first. From 16 on, doubling it does not change a bit of any score. Products of smaller
# matrices are summed in another order.
INITIAL_CAPACITY = 16
EXPECTED_CLASSES = 64  # "auto" chooses statistics only if those of this many classes fit into the memory
LARGE_IMAGE = (3, 224, 224)  # a shape that every encoder of images reads
MAX_PATCH_IMAGE = 64  # pixels of the shorter side from which a warning recommends an encoder
MAX_REPLAY_SIZE = 2**20  # samples per step
MAX_VALIDATION_FRACTION = 0.5
# Parameters that may change between calls.
CHANGEABLE = ("batch_size", "epochs", "validation_fraction", "prior", "unknown_rate", "autosave", "every")
PARAMETER_OF_OPTION = {  # options of methods that are set by a parameter of the classifier
    "memory_samples": "memory",
    "memory_per_class": "memory",
    "budget": "memory",
    "encoder": "encoder",
    "augment": "augment",
}


def learner_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that define the learner. They must not change between calls of ``partial_fit``.

    Statistics freeze an encoder in any case, so classifiers with and without ``freeze_encoder`` are the same.
    """
    own = {name: value for name, value in parameters.items() if name not in CHANGEABLE}
    if own["method"] in (AUTO, "lda") and nets.is_pretrained(own["encoder"]):
        own["freeze_encoder"] = True
    return own | {"options": dict(own["options"] or {})}


def check_settings(parameters: Mapping[str, Any]) -> None:
    for name in ("batch_size", "epochs", "every"):
        value = parameters[name]
        if not isinstance(value, Integral) or isinstance(value, bool) or not 1 <= int(value) < 2**31:
            raise UsageError(f"{name} is {value!r}; it must be a whole number, at least 1")
    if not isinstance(parameters["options"], Mapping | None):
        raise UsageError(f"options is {parameters['options']!r}; give a dictionary such as {{'learning_rate': 0.01}}")
    share = parameters["validation_fraction"]
    if not is_share(share) or share > MAX_VALIDATION_FRACTION:
        raise UsageError(f"validation_fraction is {share!r}; it must be a number from 0 to {MAX_VALIDATION_FRACTION}")
    check_prior(parameters["prior"], parameters["unknown_rate"])


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
            'give encoder="lite0" (pip install \'onebyone[photos]\'), or give method="lda" a larger size in options',
        )


def build_learner(
    name: str, parameters: Mapping[str, Any], layout: Layout, seed: int, device: torch.device
) -> AnyLearner:
    """A learner of the method ``name``, with the initial capacity for classes."""
    options = dict(parameters["options"])
    kind = method(name).options
    for option, parameter in PARAMETER_OF_OPTION.items():
        if option in options:
            raise UsageError(f"{option} is given as an option; use the parameter {parameter} instead")
    spec = Spec(layout.sample_shape, INITIAL_CAPACITY, layout.dtype, augmentation(parameters["augment"], layout))
    options |= encoder_option(name, parameters, layout, seed)
    if not options.keys() & {"encoder"}:
        for parameter, default in (("encoder", AUTO), ("freeze_encoder", False)):
            if parameters[parameter] != default:
                raise UsageError(
                    f"{parameter} is given, but {name} has no network; omit it, or use another method, such as lda"
                )

    def build(**size: int) -> AnyLearner:
        learner = create(name, spec, seed=seed, device=device, **options, **size)
        check_replay_size(learner)
        return learner

    if issubclass(kind, BudgetOptions):
        frozen = options.get("encoder") if name == "lda" else None
        size = budget(parameters["memory"], layout, frozen if isinstance(frozen, Adapted) else None)
        encoded = isinstance(frozen, Adapted)
        return build(budget=auto_budget(spec, size, encoded=encoded) if parameters["method"] == AUTO else size)
    if issubclass(kind, ReplayOptions):
        return build(memory_samples=memory_samples(parameters["memory"], build))
    return build()


def check_replay_size(learner: AnyLearner) -> None:
    """Raise an error if a step would allocate too much. The value may come from a file that is not trusted."""
    if isinstance(learner.options, ReplayOptions) and learner.options.replay_size > MAX_REPLAY_SIZE:
        raise UsageError(f"replay_size is {learner.options.replay_size}; it must be at most {MAX_REPLAY_SIZE}")


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

    With an encoder these are the bytes of the images that it reads, or of its features if that is more. So a small
    image, which it enlarges, counts as much as a large one.
    """
    if isinstance(amount, str):
        return number_of_bytes(amount, "memory")
    sample = math.prod(layout.shape) * layout.dtype.itemsize
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


def encoder_option(
    name: str, parameters: Mapping[str, Any], layout: Layout, seed: int, *, pretrained: bool = True
) -> dict[str, Any]:
    """The option ``encoder`` of a method, or nothing if it has none. Statistics never change an encoder."""
    kind, given, frozen = method(name).options, parameters["encoder"], parameters["freeze_encoder"]
    if issubclass(kind, LDAOptions):
        if isinstance(given, str) and not nets.is_pretrained(given):
            return {"encoder": given}  # none, or one that the learner refuses
        frozen = True
    elif not issubclass(kind, Options):
        return {}
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
