"""Encoders by name, and the small parts that methods put on top of them."""

from onebyone.nets import conv, mlp, resnet  # noqa: F401  (importing registers them)
from onebyone.nets.adapted import Adapted
from onebyone.nets.creation import (
    create,
    is_pretrained,
    pretrained,
    timm_model,
    weights_hash,
)
from onebyone.nets.encoder import Encoder, Precision, encoders, register
from onebyone.nets.heads import CosineHead, cosine, multilayer, unit
from onebyone.nets.normalization import separate_batches
from onebyone.nets.patches import LARGEST, Patches, unfitted
from onebyone.nets.preprocess import Preprocess, image_size, scaled

__all__ = [
    "LARGEST",
    "Adapted",
    "CosineHead",
    "Encoder",
    "Patches",
    "Precision",
    "Preprocess",
    "cosine",
    "create",
    "encoders",
    "image_size",
    "is_pretrained",
    "multilayer",
    "pretrained",
    "register",
    "scaled",
    "separate_batches",
    "timm_model",
    "unfitted",
    "unit",
    "weights_hash",
]
