"""Maps of a function over items: on this machine, on a Ray cluster, or on a SLURM cluster."""

from __future__ import annotations

from typing import Any

from onebyone.errors import UsageError, unknown
from onebyone.executors.executor import Executor, Failed, Lost, Status, Worker
from onebyone.executors.local import LocalExecutor
from onebyone.executors.ray_cluster import RayExecutor
from onebyone.executors.slurm import SlurmExecutor

__all__ = [
    "Executor",
    "Failed",
    "LocalExecutor",
    "Lost",
    "RayExecutor",
    "SlurmExecutor",
    "Status",
    "Worker",
    "executor_named",
]

EXECUTORS = ("local", "ray", "slurm")


def executor_named(given: str | Executor, address: str | None = None) -> Executor:
    """The executor of this name, or the one that is given.

    ``slurm`` may be followed by parameters for submitit, as in ``slurm:timeout_min=60,slurm_partition=gpu``.

    >>> type(executor_named("local")).__name__, executor_named("slurm:mem_gb=8").parameters
    ('LocalExecutor', {'mem_gb': 8})
    """
    if isinstance(given, Executor):
        return given
    name, colon, text = given.partition(":")
    if name not in EXECUTORS:
        raise unknown("executor", name, EXECUTORS)
    if address is not None and name != "ray":
        raise UsageError(f"an address is for the executor ray, not for {name}; leave it out")
    if colon and name != "slurm":
        raise UsageError(f"the executor {name} takes no parameters, but {text!r} is given; leave it out")
    if name == "ray":
        return RayExecutor(address)
    if name == "slurm":
        return SlurmExecutor(**dict(_parameter(each) for each in text.split(",") if each))
    return LocalExecutor()


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise UsageError(f"{text!r} is not of the form NAME=VALUE; write for example slurm:timeout_min=60")
    return name, int(value) if value.isdecimal() else value
