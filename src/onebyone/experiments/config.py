"""What defines a run: everything that can change its numbers, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from onebyone.errors import UsageError
from onebyone.methods import Options, ReplayOptions, method
from onebyone.options import Checked, option, parse
from onebyone.streams.stream import Order


@dataclass(frozen=True, kw_only=True)
class RunConfig(Checked):
    """One run. ``options`` are the method's own, as texts or values; the rest is the same for every method.

    >>> RunConfig(method="er", options={"learning_rate": "0.01"}).method_options().learning_rate
    0.01
    """

    method: str = option("ccp", "one of `onebyone methods`")
    dataset: str = option("digits", "one of `onebyone datasets`")
    classes_per_task: int = option(1, "S: classes that arrive together", low=1)
    memory_per_class: int = option(20, "M: samples kept per class", low=1)
    seed: int = option(0, "of the stream, the first weights and the learner", low=0)
    device: str = option("auto", "cpu, cuda, cuda:N or auto")
    batch_size: int = option(10, "samples that arrive together (paper: 10)", low=1)
    class_order: Order = option("label", "classes by label (paper), or in a seeded random order")
    held_out: bool = option(False, "examine on a held-out tenth of the training set instead of the test set")
    prequential: bool = option(False, "also predict every batch before it is learnt")
    options: Mapping[str, Any] = field(default_factory=dict)

    def method_options(self) -> Options:
        """The method's options, checked. A method without a memory has no use for ``memory_per_class``."""
        if "memory_per_class" in self.options:
            raise UsageError("memory_per_class is an option of the run, not of the method; use --memory-per-class")
        kind = method(self.method).options
        texts = {name: str(value) for name, value in self.options.items()}
        if issubclass(kind, ReplayOptions):
            texts["memory_per_class"] = str(self.memory_per_class)
        return parse(kind, texts, f"option of {self.method}")

    def resolved(self, device: str, data: str) -> dict[str, Any]:
        """The configuration as it is recorded: every option with its value, the device and the data in use."""
        options = asdict(self.method_options())
        memory_per_class = options.pop("memory_per_class", None)
        return asdict(self) | {
            "memory_per_class": memory_per_class,
            "device": device,
            "data": data,
            "options": options,
        }


def short_hash(config: Mapping[str, Any]) -> str:
    """Eight characters that differ where a configuration does.

    >>> short_hash({"seed": 1}) == short_hash({"seed": 1}), short_hash({"seed": 1}) == short_hash({"seed": 2})
    (True, False)
    """
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]
