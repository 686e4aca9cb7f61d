"""Networks from names: those registered here, and the pretrained models of timm as ``timm:NAME``."""

from __future__ import annotations

from copy import deepcopy

from torch import nn

from onebyone.errors import UsageError
from onebyone.nets.adapted import Adapted
from onebyone.nets.encoder import ENCODERS, Encoder, encoders

TIMM = "timm:"  # before the name of a model of timm


def create(name: str | Encoder, shape: tuple[int, ...]) -> Encoder:
    """Build a network for samples of this shape.

    ``name`` is one of :func:`encoders`, ``auto`` (by the shape), or ``timm:NAME`` for a pretrained model of timm. An
    :class:`Encoder` is copied. A name that is unknown, or does not suit the shape, raises a ``UsageError``.

    >>> create("auto", (3, 32, 32)).width, create("auto", (1, 8, 8)).width, create("auto", (20,)).width
    (160, 64, 128)
    """
    if isinstance(name, Encoder):
        return deepcopy(name)
    name = str(name)
    if name.startswith(TIMM):
        return Adapted(timm_model(name, shape), shape)
    if name == "auto":
        name = "mlp" if len(shape) == 1 else "resnet18" if min(shape[1:]) >= 24 else "conv"
    if name not in encoders() and timm_has(name):
        raise UsageError(f"unknown encoder {name!r}; for the model of timm with this name, write '{TIMM}{name}'")
    build = ENCODERS.get(name)
    if len(shape) == 1 and not name.endswith("mlp"):
        raise UsageError(f"encoder {name!r} reads images, and the samples are vectors of {shape[0]}; use encoder=mlp")
    return build(shape)


def timm_model(name: str, shape: tuple[int, ...], pretrained: bool = True) -> nn.Module:
    """The model of timm that ``timm:NAME`` names, without its head, for images of this shape.

    Raises a ``UsageError`` if timm or a package it needs is missing, if it has no such model, or if the samples are
    vectors.
    """
    try:
        import timm
    except ImportError as error:
        missing = error.name or "timm"
        raise UsageError(
            f"encoder {name!r} needs the package {missing}, which cannot be imported; pip install {missing}"
        ) from None
    model = name.removeprefix(TIMM)
    if not timm.is_model(model):  # a name it knows, never an address to load from
        raise UsageError(f"timm has no model {model!r}; timm.list_models() lists those it has")
    if len(shape) != 3:
        raise UsageError(
            f"encoder {name!r} reads images, and the samples are vectors of {shape[0]}; use encoder='auto'"
        )
    network: nn.Module = timm.create_model(model, pretrained=pretrained, num_classes=0, in_chans=shape[0])
    return network


def timm_has(name: str) -> bool:
    """Whether timm is installed and has a model of this name (without the prefix)."""
    try:
        import timm
    except ImportError:
        return False
    return bool(timm.is_model(name))
