"""What defines a run: everything that can change its numbers, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from onebyone.errors import UsageError
from onebyone.methods import BudgetOptions, ReplayOptions, find
from onebyone.options import Checked, option, parse
from onebyone.streams import Order, in_full

AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class RunConfig(Checked):
    """One run. ``options`` are the method's own, as texts or values; the rest is the same for every method.

    >>> RunConfig(method="er", options={"learning_rate": "0.01"}).method_options().learning_rate
    0.01
    """

    method: str = option("ccp", "one of `onebyone methods`, or FILE.py:NAME")
    dataset: str = option("digits", "one of `onebyone datasets`")
    classes_per_task: int = option(1, "S: classes that arrive together", low=1)
    memory_per_class: int = option(20, "M: samples kept per class, or statistics of as many bytes", low=1)
    seed: int = option(0, "of the stream, the first weights and the learner", low=0)
    device: str = option("auto", "cpu, cuda, cuda:N or auto")
    batch_size: int = option(10, "samples that arrive together (paper: 10)", low=1)
    class_order: Order = option("label", "classes by label (paper), or in a seeded random order")
    held_out: bool = option(False, "examine on a held-out tenth of the training set instead of the test set")
    prequential: bool = option(False, "also predict every batch before it is learnt")
    stream: str = option(AUTO, "one of `onebyone streams`, as in blurry:share=0.3; auto: class-incremental")
    options: Mapping[str, Any] = field(default_factory=dict)

    def method_options(self) -> Checked:
        """The method's options, checked. A method that keeps nothing has no use for ``memory_per_class``."""
        if "memory_per_class" in self.options:
            raise UsageError("memory_per_class is an option of the run, not of the method; use --memory-per-class")
        kind = find(self.method).options
        texts = {name: str(value) for name, value in self.options.items()}
        if issubclass(kind, ReplayOptions | BudgetOptions):
            texts["memory_per_class"] = str(self.memory_per_class)
        return parse(kind, texts, f"option of {self.method}")

    def arrival(self) -> str:
        """The stream with its options written out; the method iid has a shuffled one and takes no other.

        >>> RunConfig().arrival(), RunConfig(stream="returning:periods=2").arrival()
        ('class-incremental:imbalance=1.0', 'returning:imbalance=1.0,periods=2')
        """
        shuffled = find(self.method).learner.stream == "iid"
        own = "iid" if shuffled else "class-incremental"
        found = in_full(own if self.stream == AUTO else self.stream)
        if shuffled and not found.startswith("iid:"):
            raise UsageError(
                f"{self.method} learns a shuffled stream, not {self.stream}; leave --stream out or use iid"
            )
        return found

    def record(self) -> dict[str, Any]:
        """Names and values, one text for one stream.

        The stream that the method has anyway is left out: it is what every run had before there were others.
        """
        found = asdict(self) | {"stream": self.arrival()}
        if found["stream"] == replace(self, stream=AUTO).arrival():
            del found["stream"]
        return found

    def resolved(self, device: str, data: str) -> dict[str, Any]:
        """The configuration as it is recorded: every option with its value, the device and the data in use."""
        options = asdict(self.method_options())
        memory_per_class = options.pop("memory_per_class", None)
        return self.record() | {
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
