"""Results as rows: one record per run, read from run folders or from CSV files, with one mean over seeds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from onebyone.engine import Cost
from onebyone.errors import UsageError, unknown
from onebyone.evaluation import Metrics, Result
from onebyone.runs.folder import RESULT
from onebyone.runs.formats import configuration

if TYPE_CHECKING:
    from pandas import DataFrame

FRACTIONS = (*(item.name for item in fields(Metrics) if item.name != "anytime"), "prequential")
METRICS = (*FRACTIONS, *(f"cost.{item.name}" for item in fields(Cost)), "seconds.training", "seconds.evaluation")


@dataclass(frozen=True)
class Value:
    """A mean over runs, with its standard deviation."""

    mean: float  # over the runs
    std: float  # of a sample: the divisor is the number of runs - 1; 0 for a single run
    runs: int  # how many

    def __str__(self) -> str:
        return self.text(".1f")

    @property
    def percent(self) -> Value:
        """Fractions as per cent."""
        return Value(100 * self.mean, 100 * self.std, self.runs)

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; 0 for a single run."""
        return self.std / math.sqrt(self.runs)

    def text(self, form: str) -> str:
        """Mean ± standard deviation.

        Parameters
        ----------
        form
            The format of both numbers, such as ``".1f"``.

        Returns
        -------
        str
            The mean alone if there is only one run.
        """
        return f"{self.mean:{form}} ± {self.std:{form}}" if self.runs > 1 else f"{self.mean:{form}}"


def summarize(numbers: Iterable[float | None]) -> Value | None:
    """Mean and sample standard deviation over runs (the divisor is the number of runs - 1).

    None if there is no run, or if a run lacks the number.

    >>> print(summarize([50.0, 60.0]))
    55.0 ± 7.1
    """
    found = list(numbers)
    known = [number for number in found if number is not None]
    if not known or len(known) < len(found):
        return None
    return Value(fmean(known), stdev(known) if len(known) > 1 else 0.0, len(known))


@dataclass(frozen=True)
class Record:
    """One run: its configuration, its numbers and the machine it ran on.

    Accuracies are fractions. A record from a CSV file has only the metrics that the file has.
    """

    config: Mapping[str, Any]  # the complete configuration, as in result.json
    metrics: Mapping[str, float | None]  # numbers by name, such as ``accuracy`` or ``cost.flops``
    anytime: tuple[float, ...]  # accuracy over the classes seen so far, after each task
    class_accuracy: tuple[float | None, ...]  # at the end of the stream
    environment: Mapping[str, str]  # name of the device, and versions

    @classmethod
    def from_result(cls, result: Result) -> Record:
        """What a run returns, as a record.

        Parameters
        ----------
        result
            The result of :func:`onebyone.runs.run`, or one of a sweep.

        Returns
        -------
        Record
            A record with all metrics.
        """
        metrics = {name: _number(result, name) for name in METRICS}
        config = configuration(result.config)
        return cls(config, metrics, result.anytime, result.class_accuracy, result.environment)

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The fields of the configuration and the options of the method in one mapping."""
        config = dict(self.config)
        options: dict[str, Any] = config.pop("options")
        return {name: tuple(v) if isinstance(v, list) else v for name, v in (config | options).items()}


def _number(result: Result, metric: str) -> float | None:
    kind, _, name = metric.rpartition(".")
    value: float | None = result.seconds[name] if kind == "seconds" else getattr(getattr(result, kind, result), name)
    return value


@dataclass(frozen=True, repr=False)
class Results:
    """The records of some runs.

    >>> from onebyone.runs import RunConfig, run
    >>> configs = [RunConfig(method="finetune", batch_size=200, seed=seed) for seed in (0, 1)]
    >>> results = Results.from_runs(run(config) for config in configs)
    >>> len(results.where(method="finetune")), results.summarize("cost.memory_bytes")
    (2, Value(mean=0.0, std=0.0, runs=2))
    """

    rows: tuple[Record, ...] = ()  # one per run

    @classmethod
    def from_runs(cls, results: Iterable[Result]) -> Results:
        """Records of what :func:`onebyone.runs.run` returned.

        Parameters
        ----------
        results
            The results.

        Returns
        -------
        Results
            One record per run.
        """
        return cls(tuple(map(Record.from_result, results)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} runs)"  # the rows of all runs would fill many screens

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.rows)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The fields that at least one run has: of its configuration, or options of its method."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.fields))

    def where(self, **fields: Any) -> Results:
        """The runs whose fields have these values.

        Parameters
        ----------
        **fields
            Fields of the configuration, or options of the method.

        Returns
        -------
        Results
            Some of these runs.

        Raises
        ------
        UsageError
            No run has a field of this name.
        """
        for name in fields:
            if name not in self.names:
                raise unknown("field", name, self.names)
        chosen = (row for row in self.rows if all(row.fields.get(n, _MISSING) == v for n, v in fields.items()))
        return Results(tuple(chosen))

    def summarize(self, metric: str) -> Value | None:
        """Mean and standard deviation of a metric over all of these runs.

        Parameters
        ----------
        metric
            Such as ``accuracy``, ``forgetting`` or ``cost.flops``.

        Returns
        -------
        Value or None
            None if one of the runs lacks the metric, or if there is no run.

        Raises
        ------
        UsageError
            There is no metric of this name.
        """
        if metric not in METRICS:
            raise unknown("metric", metric, METRICS)
        return summarize(row.metrics.get(metric) for row in self.rows)

    def to_pandas(self) -> DataFrame:
        """A data frame with one row per run: its fields, its metrics, the anytime curve and the class accuracies.

        Returns
        -------
        pandas.DataFrame
            Accuracies are fractions.

        Raises
        ------
        UsageError
            pandas is not installed.
        """
        pandas = import_pandas("to_pandas")
        measured = [name for name in METRICS if any(row.metrics.get(name) is not None for row in self.rows)]
        lists = ("anytime", "class_accuracy")
        records = [
            row.fields | {n: row.metrics.get(n) for n in measured} | {n: getattr(row, n) for n in lists}
            for row in self.rows
        ]
        # prequential is a field and a metric: the accuracy, where it was measured, says more than the field.
        return pandas.DataFrame.from_records(records, columns=list(dict.fromkeys([*self.names, *measured, *lists])))


_MISSING = object()


def import_pandas(use: str) -> Any:
    """The module, for a use that needs it."""
    try:
        import pandas
    except ImportError as error:
        raise UsageError(f"{use} needs pandas ({error}); pip install 'onebyone[research]'") from error
    return pandas


def finished_runs(folder: Path) -> list[Result]:
    """The results of all run folders below this one. Damaged files are skipped, with one warning that names them."""
    results, damaged = [], []
    for path in sorted(folder.rglob(RESULT)):
        try:
            results.append(Result.read(path))
        except UsageError as error:
            damaged.append(str(error))
    if damaged:
        warnings.warn(f"{len(damaged)} damaged {RESULT} skipped: {' | '.join(damaged)}", stacklevel=3)
    return results


def read_results(path: str | Path) -> Results:
    """Read the results of runs, one record per run.

    Parameters
    ----------
    path
        A folder with run folders anywhere below it, a folder with CSV files such as ``results/``, or one such CSV
        file. Runs without a result are left out, and those whose result is damaged with a warning. A run that is
        found twice counts once. In a folder, CSV files of other programs are ignored.

    Returns
    -------
    Results
        One record per run.

    Raises
    ------
    UsageError
        There is no result at this path, or a CSV file or the file given is damaged.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import onebyone
    >>> from onebyone.runs import RunConfig, run
    >>> with TemporaryDirectory() as folder:
    ...     result = run(RunConfig(method="finetune", batch_size=200), out=f"{folder}/first")
    ...     results = onebyone.read_results(folder)
    >>> [(row.fields["method"], row.fields["seed"]) for row in results]
    [('finetune', 0)]
    """
    from onebyone.runs import record_files

    path = Path(path)
    if path.is_file() and path.name == RESULT:
        return Results.from_runs([Result.read(path)])
    if path.is_file() and not record_files.is_record(path):
        raise UsageError(f"{path} is neither a {RESULT} nor a CSV file of results; give one, or a folder of runs")
    if path.is_file():
        return Results(tuple(record_files.read([path])))
    recorded = record_files.read(file for file in sorted(path.glob("*.csv")) if record_files.is_record(file))
    finished = Results.from_runs(finished_runs(path))
    # Of equal runs the last one counts: a run folder has more numbers, most with a prequential accuracy.
    rows = (*recorded, *sorted(finished, key=lambda row: bool(row.config.get("prequential"))))
    found = {(record_files.identity(row.config), row.config["protocol"]): row for row in rows}
    if not found:
        raise UsageError(
            f"there is no readable {RESULT} below {path}, and no CSV file of results; give a folder of runs"
        )
    return Results(tuple(found.values()))
