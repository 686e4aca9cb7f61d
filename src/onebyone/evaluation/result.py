"""The result of a run: one frozen object, saved as JSON and read back equal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from onebyone.engine.cost import Cost
from onebyone.errors import UsageError
from onebyone.evaluation.metrics import Matrix, Metrics, metrics


@dataclass(frozen=True, kw_only=True)
class Result(Metrics):
    """The metrics of a run, the accuracy matrix they come from, its cost and its configuration.

    Accuracies are fractions. Everything but ``seconds`` is the same when the run is repeated on the same device.
    """

    accuracy_matrix: Matrix  # row t, column j: on task j after task t; for tasks to come 0, or None if not disjoint
    class_accuracy: tuple[float | None, ...]  # at the end, by class; None for a class without test samples
    prequential: float | None  # share of samples predicted correctly before they were learnt, if asked for
    tasks: tuple[tuple[int, ...], ...]  # the classes of each task
    disjoint: bool  # whether a class arrived in one task only
    samples: int  # samples of the stream
    updates: int  # the number of steps, one per batch
    cost: Cost  # the passes, operations and bytes of a step
    config: Mapping[str, Any]  # the complete configuration, as recorded
    seconds: Mapping[str, float]  # seconds of training and of evaluation
    environment: Mapping[str, str] = field(default_factory=dict)  # machine and versions; older files do not say

    def to_json(self) -> str:
        """The text of ``result.json``.

        Returns
        -------
        str
            JSON that :meth:`from_json` reads.
        """
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def read(cls, path: Path) -> Result:
        """The result in a file.

        Parameters
        ----------
        path
            A ``result.json``.

        Returns
        -------
        Result
            Equal to the one that was written.

        Raises
        ------
        UsageError
            The file holds something else.
        """
        try:
            return cls.from_json(path.read_bytes())
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None

    @classmethod
    def from_json(cls, text: str | bytes) -> Result:
        """The result that :meth:`to_json` wrote, of this version or of an earlier one.

        Parameters
        ----------
        text
            JSON.

        Returns
        -------
        Result
            Equal to the one that was written.

        Raises
        ------
        UsageError
            The text is something else.
        """
        try:
            found = json.loads(text)
            cost = Cost(**found.pop("cost"))
            config, seconds, environment = found.pop("config"), found.pop("seconds"), found.pop("environment", {})
            fields = {name: _tuples(value) for name, value in found.items()}
            # A metric that was added after the run is computed now.
            fields = vars(metrics(fields["accuracy_matrix"], fields["disjoint"])) | fields
            return cls(**fields, cost=cost, config=config, seconds=seconds, environment=environment)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"this is not a result of onebyone ({error}); delete it and run again") from None


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
