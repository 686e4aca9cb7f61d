"""The configuration of a run: everything that can change its numbers, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from onebyone.data.registry import DATASETS
from onebyone.engine import choose_device
from onebyone.errors import UsageError
from onebyone.methods import BudgetOptions, ReplayOptions, find
from onebyone.methods.registry import METHODS
from onebyone.nets.encoder import ENCODERS
from onebyone.options import Checked, option, parse
from onebyone.registry import Registry
from onebyone.streams import Order, in_full
from onebyone.streams.registry import STREAMS

AUTO = "auto"
Protocol = Literal["none", "printed", "separate", "joint", "both"]


@dataclass(frozen=True, kw_only=True)
class RunConfig(Checked):
    """The configuration of one run.

    Raises
    ------
    UsageError
        A value has the wrong type, or is out of its bounds.

    >>> config = RunConfig(method="er", options={"learning_rate": "0.01"})
    >>> config.method_options().learning_rate
    0.01
    """

    # `onebyone run` has an option for each of these, with this help; a letter before a colon stands for the value.
    method: str = option("ccp", "`onebyone methods`, or FILE.py:NAME")
    dataset: str = option("digits", "See `onebyone datasets`")
    classes_per_task: int = option(1, "S: Classes that arrive together", low=1)
    memory_per_class: int = option(20, "M: Samples kept per class, or their bytes", low=1)
    seed: int = option(0, "Random seed of stream and learner", low=0)
    device: str = option("auto", "cpu, cuda, cuda:N or auto")
    stream: str = option(AUTO, "See `onebyone streams`")
    batch_size: int = option(10, "Samples that arrive together", low=1)
    class_order: Order = option("label", "Order of arrival: label or random")
    held_out: bool = option(False, "Evaluate on a held-out tenth of the training set")
    prequential: bool = option(False, "Also predict every batch before learning it")
    # How the paper's methods are run (paper/protocols.yaml). The paper's tables have runs of a protocol only. A method
    # without replay is the same run in `separate` and `joint`: both.
    protocol: Protocol = option("none", "Protocol of the paper's tables that the run is for")
    options: Mapping[str, Any] = field(default_factory=dict)  # options of the method, as values or text

    def method_options(self) -> Checked:
        """The options of the method, checked.

        Returns
        -------
        Checked
            The options, with ``memory_per_class`` if the method has a memory.

        Raises
        ------
        UsageError
            There is no such method, it has no such option, or a value is wrong.
        """
        if "memory_per_class" in self.options:
            raise UsageError("memory_per_class is an option of the run, not of the method; give it to the run")
        kind = find(self.method).options
        texts = {name: str(value) for name, value in self.options.items()}
        if issubclass(kind, ReplayOptions | BudgetOptions):
            texts["memory_per_class"] = str(self.memory_per_class)
        return parse(kind, texts, f"option of {self.method}")

    def full_stream(self) -> str:
        """The stream with all its options.

        Returns
        -------
        str
            Its name and options. The method iid has a shuffled stream.

        Raises
        ------
        UsageError
            There is no such stream, an option of it is wrong, or the method cannot learn it.

        >>> RunConfig().full_stream(), RunConfig(stream="returning:periods=2").full_stream()
        ('class-incremental:imbalance=1.0', 'returning:imbalance=1.0,periods=2')
        """
        shuffled = find(self.method).learner.stream == "iid"
        own = "iid" if shuffled else "class-incremental"
        found = in_full(own if self.stream == AUTO else self.stream)
        if shuffled and not found.startswith("iid:"):
            raise UsageError(f"{self.method} learns a shuffled stream, not {self.stream}; leave stream out or use iid")
        return found

    def in_full(self, device: str) -> RunConfig:
        """The same run in the one form that is recorded: every option with its value, converted to its type.

        Parameters
        ----------
        device
            The type of the device in use.

        Returns
        -------
        RunConfig
            Two configurations that give the same run become equal.

        >>> spelt = RunConfig(method="er", stream="class-incremental", options={"learning_rate": "1e-1"})
        >>> spelt.in_full("cpu") == RunConfig(method="er").in_full("cpu")
        True
        """
        options = asdict(self.method_options())
        memory_per_class = options.pop("memory_per_class", RunConfig.memory_per_class)  # unused without a memory
        return replace(
            self,
            method=absolute(self.method),
            memory_per_class=memory_per_class,
            device=device,
            stream=self.full_stream(),
            options=options,
        )

    def resolved(self, device: str, data: str) -> dict[str, Any]:
        """The configuration as it is recorded.

        If the method, the data set, the stream or the encoder is not of this package, ``code`` is a hash of their
        source code.

        Parameters
        ----------
        device
            The type of the device in use.
        data
            The fingerprint of the data in use.

        Returns
        -------
        dict of str to object
            Every option with its value, the device type and the data.
        """
        found = asdict(self.in_full(device)) | {"data": data}
        if not issubclass(find(self.method).options, ReplayOptions | BudgetOptions):
            found["memory_per_class"] = None
        if code := self.code():
            found["code"] = code
        return found

    def code(self) -> str:
        """The source code that is not of this package, as it was when this process imported it.

        Returns
        -------
        str
            A hash. It is empty if all of the code is of this package, or has no file.

        >>> RunConfig(method="er").code()
        ''
        """
        find(self.method)  # which imports it
        names: dict[Registry[Any], str] = {
            METHODS: bare_name(self.method),
            DATASETS: self.dataset,
            STREAMS: self.stream.partition(":")[0],
            ENCODERS: str(self.options.get("encoder", "")),
        }
        codes = sorted({code for registry, name in names.items() if (code := registry.code(name))})
        return codes[0] if len(codes) == 1 else short_hash({"code": codes}) if codes else ""

    def folder_name(self) -> str:
        """The name of the folder that commands and sweeps give to this run.

        Returns
        -------
        str
            The main fields, and a hash of everything that can change a number.

        >>> RunConfig(method="er", seed=3, device="cpu").folder_name()
        'er-digits-s1-m20-seed3-...'
        """
        return folder_name(self.resolved(choose_device(self.device).type, data=""))


def bare_name(method: str) -> str:
    """The name that a method is registered under, without the file or module that registers it.

    >>> bare_name("mine.py:means"), bare_name("er")
    ('means', 'er')
    """
    return method.rpartition(":")[2]


def absolute(method: str) -> str:
    """The name of a method: without the module if it belongs to this package, and with the absolute path of a file.

    >>> absolute("onebyone.methods.er:er"), absolute("/tmp/../tmp/mine.py:means")
    ('er', '/tmp/mine.py:means')
    """
    source, _, name = method.rpartition(":")
    if source.startswith("onebyone."):
        return name
    return f"{Path(source).resolve()}:{name}" if source.endswith(".py") else method


def folder_name(resolved: Mapping[str, Any]) -> str:
    """The folder name of a resolved configuration: its main fields, and a hash of everything that can change a number.

    The data are not part of the name: a folder that holds a run on other data is refused when it is opened.
    """
    named = {name: value for name, value in resolved.items() if name != "data"}
    return f"{readable_name(resolved)}-{short_hash(named)}"


def readable_name(resolved: Mapping[str, Any]) -> str:
    """The main fields of a resolved configuration, as folder names begin."""
    method, stream = bare_name(resolved["method"]), resolved["stream"].partition(":")[0]
    other_stream = "" if stream in (method, "class-incremental") else f"-{stream}"
    memory = resolved["memory_per_class"]
    if memory is None:
        memory = RunConfig.memory_per_class
    sizes = f"s{resolved['classes_per_task']}-m{memory}-seed{resolved['seed']}"
    return f"{method}-{resolved['dataset']}{other_stream}-{sizes}"


def short_hash(config: Mapping[str, Any]) -> str:
    """A hash of a configuration, eight characters long.

    >>> short_hash({"seed": 1}) == short_hash({"seed": 1}), short_hash({"seed": 1}) == short_hash({"seed": 2})
    (True, False)
    """
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:8]
