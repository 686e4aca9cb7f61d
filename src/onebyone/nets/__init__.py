"""Encoders by name, and the small parts that methods put on top of them."""

from onebyone.nets import conv, mlp, resnet  # noqa: F401  (importing registers them)
from onebyone.nets.adapted import Adapted
from onebyone.nets.encoder import Encoder, create, encoders, register
from onebyone.nets.heads import CosineHead, cosine, multilayer, unit

__all__ = ["Adapted", "CosineHead", "Encoder", "cosine", "create", "encoders", "multilayer", "register", "unit"]
