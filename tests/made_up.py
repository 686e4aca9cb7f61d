"""A made-up study: results as runs would write them, with numbers that a test can predict."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from onebyone.engine import Cost
from onebyone.evaluation import Result, metrics
from onebyone.paper.printed import PARTS, Part, printed
from onebyone.paper.records import from_results
from onebyone.paper.report import Study
from onebyone.paper.reproduce import configs
from onebyone.runs import RunConfig
from onebyone.runs.grid import plan

MACHINE = {"device": "a made-up machine", "onebyone": "0", "torch": "0", "python": "0"}


def result(config: RunConfig, accuracy: float, forgetting: float = 0.1, **environment: str) -> Result:
    """A result of this configuration whose accuracy and forgetting are these, in a stream of ten classes."""
    tasks = 10 // config.classes_per_task
    best = accuracy + forgetting * tasks / (tasks - 1)  # forgetting is the mean over all tasks but the last
    early = [[best if j <= t else 0.0 for j in range(tasks)] for t in range(tasks - 1)]
    last = [best - forgetting] * (tasks - 1)
    matrix = [*early, [*last, tasks * accuracy - sum(last)]]
    memory = asdict(config.method_options()).get("memory_per_class", 0)
    numbers = metrics(matrix)
    if config.method == "iid":
        numbers = metrics(matrix, disjoint=False)
    return Result(
        **vars(numbers),
        accuracy_matrix=tuple(map(tuple, matrix)),
        class_accuracy=tuple(value for value in matrix[-1] for _ in range(config.classes_per_task)),
        prequential=None,
        tasks=tuple((t,) for t in range(tasks)),
        disjoint=config.method != "iid",
        samples=100,
        updates=10,
        cost=Cost(
            forward_passes=2, backward_passes=2, flops=4e8, network_bytes=4_000_000, memory_bytes=30_720 * memory
        ),
        config=config.resolved("cpu", "00000000"),
        seconds={"training": 1.0, "evaluation": 1.0},
        environment=MACHINE | environment,
    )


def results(
    parts: Iterable[Part], protocols: Sequence[str] = ("separate", "joint"), seeds: int = 2, **change: float
) -> list[Result]:
    """A study whose means are the printed ones, or 20 and 30 where none is printed; ``change`` is by method."""
    made = []
    for part in parts:
        for config in plan(configs([part], protocols, seeds), "cpu").values():
            found = [printed(part.in_print, config.method, config.memory_per_class, m) for m in METRICS]
            means = [value.mean if value else default for value, default in zip(found, (20.0, 30.0), strict=True)]
            wobble = 0.1 if config.seed % 2 else -0.1  # so that the standard deviation is not zero
            accuracy = means[0] + wobble + change.get(config.method.replace("+", "p").replace("-", "_"), 0.0)
            made.append(result(config, accuracy / 100, means[1] / 100))
    return made


METRICS: tuple[Any, ...] = ("accuracy", "forgetting")


def made_study() -> Study:
    """The paper's own numbers, except for CCP, which misses. Joint has no run of MIR. CIFAR-100 only at M = 100."""
    made = results(PARTS[:3], ccp=-9)
    some = [r for r in made if (r.config["method"], r.config["protocol"]) != ("mir", "joint")]
    tried = [
        {"method": "ccp", "memory_per_class": [50, 100], "protocol": "separate", "tried": "a longer <sweep> & more"},
        {"method": "ccp", "tried": "the complete table"},
    ]
    return Study(from_results(some, PARTS), PARTS, ("separate", "joint"), "onebyone reproduce all --seeds 2", tried)
