"""Options that families of methods share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

from onebyone.data import Spec
from onebyone.memory.policies import Policy
from onebyone.nets import Encoder, Precision
from onebyone.options import Checked, option


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """Options of every method with a network."""

    learning_rate: float = option(0.1, "step size of plain SGD (paper: 0.1)", above=0)
    encoder: str | Encoder = option(
        "auto",
        "network: resnet18, conv or mlp; lite0, timm:NAME or onnx:FILE (pretrained); auto: by the shape of the samples",
    )
    augment: bool = option(True, "crop and flip images, incoming and replayed (paper: yes)")
    channels_last: bool = option(
        True, "memory layout of convolutions: faster on a CPU, and on a GPU for resnet18 (by Triton) and for bf16"
    )
    precision: Precision = option(
        "float32", "numbers that the encoder computes with: float32, or bf16 (faster on a GPU, less exact)"
    )


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(Options):
    """Options of every method with a replay memory."""

    memory_per_class: int = option(20, "M: the memory holds M x (number of classes) samples", low=1)
    memory_samples: int = option(0, "samples in the memory; 0: memory_per_class x number of classes", low=0)
    memory_policy: Policy = option("reservoir", "which samples are kept: reservoir, or balanced between classes")
    replay_size: int = option(10, "samples replayed per step (paper: 10)", low=1)
    replay_from: Literal["all", "others"] = option(
        "all", "replay from the whole memory, or only from classes that are not in the incoming batch"
    )
    passes: Literal["separate", "joint"] = option(
        "separate", "incoming and replayed samples in separate forward passes, or in one joint pass"
    )
    incoming_weight: float = option(1.0, "weight of the loss on incoming samples", low=0)
    replay_weight: float = option(1.0, "weight of the loss on replayed samples", low=0)
    readout: Literal["head", "ncm"] = option(
        "head", "answer by the trained head, or by the nearest class mean of the memory"
    )


@dataclass(frozen=True, kw_only=True)
class BudgetOptions(Checked):
    """Options of every method that divides a budget of bytes itself."""

    memory_per_class: int = option(20, "M: the budget is the bytes of M x (number of classes) samples", low=1)
    budget: int = option(0, "bytes of everything that is kept; 0: as memory_per_class says", low=0)

    def budgeted(self, spec: Spec) -> Self:
        """The same options with ``budget`` set, so that it stays the same with room for more classes."""
        return replace(self, budget=self.budget or self.memory_per_class * spec.num_classes * spec.sample_bytes)
