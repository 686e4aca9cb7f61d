"""Encoders by name, and the small parts that methods put on top of them."""

from onebyone.nets import conv, mlp, resnet  # noqa: F401  (importing registers them)
from onebyone.nets.adapted import Adapted
from onebyone.nets.creation import TIMM, create, timm_has, timm_model
from onebyone.nets.encoder import Encoder, encoders, register
from onebyone.nets.heads import CosineHead, cosine, multilayer, unit
from onebyone.nets.normalization import separate_batches
from onebyone.nets.patches import Directions, Patches

__all__ = [
    "TIMM",
    "Adapted",
    "CosineHead",
    "Directions",
    "Encoder",
    "Patches",
    "cosine",
    "create",
    "encoders",
    "multilayer",
    "register",
    "separate_batches",
    "timm_has",
    "timm_model",
    "unit",
]
