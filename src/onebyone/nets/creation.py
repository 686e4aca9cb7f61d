"""Encoders from names: networks of this library, and pretrained ones."""

from __future__ import annotations

from copy import deepcopy
from types import ModuleType

from torch import nn

from onebyone.errors import UsageError
from onebyone.nets.adapted import Adapted
from onebyone.nets.encoder import ENCODERS, Encoder, encoders
from onebyone.nets.lite0 import LITE0, Lite0
from onebyone.nets.onnx import ONNX, OnnxNetwork
from onebyone.nets.preprocess import Preprocess
from onebyone.tensors import digest

TIMM = "timm:"  # before the name of a model of timm


def create(name: str | Encoder, shape: tuple[int, ...]) -> Encoder:
    """Build a network for samples of this shape.

    ``name`` is one of :func:`encoders`, ``auto`` (by the shape), or a pretrained network: ``lite0``, ``timm:NAME`` or
    ``onnx:FILE``. An :class:`Encoder` is copied. A name that is unknown, or does not suit the shape, raises a
    ``UsageError``.

    >>> create("auto", (3, 32, 32)).width, create("auto", (1, 8, 8)).width, create("auto", (20,)).width
    (160, 64, 128)
    """
    if isinstance(name, Encoder):
        return deepcopy(name)
    name = str(name)
    if is_pretrained(name):
        return Adapted(pretrained(name, shape), shape)
    if name == "auto":
        name = "mlp" if len(shape) == 1 else "resnet18" if min(shape[1:]) >= 24 else "conv"
    if name not in encoders() and timm_has(name):
        raise UsageError(f"unknown encoder {name!r}; for the model of timm with this name, write '{TIMM}{name}'")
    build = ENCODERS.get(name)
    if len(shape) == 1 and not name.endswith("mlp"):
        raise UsageError(f"encoder {name!r} reads images, and the samples are vectors of {shape[0]}; use encoder=mlp")
    return build(shape)


def is_pretrained(name: object) -> bool:
    """Whether this is the name of a pretrained network.

    >>> [is_pretrained(name) for name in ("lite0", "timm:resnet18", "resnet18", None)]
    [True, True, False, False]
    """
    return isinstance(name, str) and (name == LITE0 or name.startswith((TIMM, ONNX)))


def pretrained(
    name: str, shape: tuple[int, ...], *, weights: bool = True, limits: tuple[float, float] = (-1.0, 1.0)
) -> nn.Module:
    """The pretrained network of this name, for images of this shape, with the preprocessing that it needs.

    Without ``weights``, those of a model of timm are random and nothing is downloaded. ``limits`` are the values of
    black and white in floating-point images.
    """
    if name.startswith(ONNX):
        return OnnxNetwork(name.removeprefix(ONNX), limits)
    if len(shape) != 3:
        raise UsageError(
            f"encoder {name!r} reads images, and the samples are vectors of {shape[0]}; use encoder='auto'"
        )
    return Lite0(limits) if name == LITE0 else timm_model(name, weights=weights, limits=limits)


def timm_model(name: str, *, weights: bool = True, limits: tuple[float, float] = (-1.0, 1.0)) -> nn.Module:
    """The model of timm that ``timm:NAME`` names, without its head, after the preprocessing of its configuration.

    Raises a ``UsageError`` if timm or a package it needs is missing, if it has no such model, or if its weights are
    neither in timm's cache nor can be downloaded.
    """
    timm, model = _timm(name), name.removeprefix(TIMM)
    if not timm.is_model(model):  # a name it knows, never an address to load from
        raise UsageError(f"timm has no model {model!r}; timm.list_models() lists those it has")
    try:
        network: nn.Module = timm.create_model(model, pretrained=weights, num_classes=0)
    except Exception as error:  # of timm, its hub, or the network
        if not weights:
            raise
        reason = str(error).strip().split("\n")[0]
        raise UsageError(
            f"the weights of encoder {name!r} are not in timm's cache and cannot be downloaded ({reason}); call "
            f"timm.create_model({model!r}, pretrained=True) once with network access, or give a module with weights "
            "of your own as encoder"
        ) from None
    config = timm.data.resolve_model_data_config(network)
    interpolation = "bilinear" if config["interpolation"] == "bilinear" else "bicubic"
    size, crop = tuple(config["input_size"][1:]), config["crop_pct"]
    mean, std = config["mean"], config["std"]
    preprocess = Preprocess(size, mean, std, interpolation=interpolation, crop=crop, limits=limits)
    return nn.Sequential(preprocess, network)


def _timm(name: str) -> ModuleType:
    try:
        import timm
    except ImportError as error:
        missing = error.name or "timm"
        raise UsageError(
            f"encoder {name!r} needs the package {missing}, which cannot be imported; pip install {missing}"
        ) from None
    except RuntimeError as error:  # torchvision raises it if it was built for another torch
        raise UsageError(
            f"encoder {name!r} needs timm, which cannot be imported ({error}); install the torchvision that was built "
            "for your torch"
        ) from None
    module: ModuleType = timm
    return module


def timm_has(name: str) -> bool:
    """Whether timm is installed and has a model of this name (without the prefix)."""
    try:
        return bool(_timm(name).is_model(name))
    except UsageError:
        return False


def weights_hash(module: nn.Module) -> str:
    """SHA-256 of the weights and buffers of a module, with their names, types and shapes.

    >>> weights_hash(nn.Linear(1, 1)) == weights_hash(nn.Linear(1, 1))  # both random
    False
    """
    return digest(module.state_dict())
