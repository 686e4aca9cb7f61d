"""What to use with so many bytes: by the numbers on record; where there are none, by the rule of ``OnlineClassifier``.

The package carries the numbers as ``recommendations.csv``; ``onebyone recommend --from results --write FILE`` makes it
anew.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.resources import files
from io import StringIO
from math import log2
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch

from onebyone.data import Spec, load
from onebyone.errors import UsageError
from onebyone.evaluation import measure_cost
from onebyone.experiments.paper import Value
from onebyone.experiments.records import PROTOCOLS
from onebyone.experiments.winners import winner
from onebyone.methods import BudgetOptions, choose, create, method

SPECS = {"cifar10": Spec((3, 32, 32), 10), "cifar100": Spec((3, 32, 32), 100)}  # what numbers are on record for
STATISTICS = "patch-lda"  # which the order of the stream does not change: one number serves all classes per task
LIKE = 2  # images whose sides differ by more than this factor say nothing about each other


@dataclass(frozen=True)
class Known:
    """What a method reached on a data set with so many bytes; the mean over seeds, in per cent."""

    dataset: str
    classes_per_task: int
    method: str
    bytes: int
    flops: float  # a sample
    accuracy: float
    std: float
    seeds: int
    held_out: bool  # on a held-out tenth of the training set, not on the test set
    passes: str = ""  # how samples pass the network: separate or joint; nothing for a method without the choice

    @property
    def options(self) -> dict[str, Any]:
        """What the method has to be told to do it so, beyond what was tuned."""
        usual = getattr(method(self.method).options(), "passes", "")
        return {"passes": self.passes} if self.passes and self.passes != usual else {}

    @property
    def what(self) -> str:
        return self.method + "".join(f" with {passes} passes" for passes in self.options.values())

    @property
    def stream(self) -> str:
        return "one class" if self.classes_per_task == 1 else f"{self.classes_per_task} classes"

    @property
    def reached(self) -> str:
        seeds = "one seed" if self.seeds == 1 else f"{self.seeds} seeds"
        where = "held-out tenth of the training set" if self.held_out else "test set"
        return f"{Value(self.accuracy, self.std, self.seeds)} % ({where}, {seeds})"


@dataclass(frozen=True)
class Question:
    """What is asked: for this data, with so many bytes, and at most ``compute`` times the operations of ER."""

    bytes: int
    spec: Spec
    dataset: str | None = None
    classes_per_task: int = 1
    compute: float | None = None


@dataclass(frozen=True)
class Advice:
    """A method, the bytes to give it, one sentence that says why and what to expect, and options beyond the tuned."""

    method: str
    bytes: int
    sentence: str
    options: Mapping[str, Any] = field(default_factory=dict)


def recommend(question: Question, known: Sequence[Known]) -> Advice:
    """The most accurate method that has a number and fits; without numbers, what the rule says.

    >>> asked = Question(700_000, SPECS["cifar10"], "cifar10")
    >>> recommend(asked, [Known("cifar10", 1, "ccp", 619_088, 6.5e8, 36.7, 2.7, 5, False)]).sentence
    'Use ccp: on cifar10, one class at a time, it reached 36.7 ± 2.7 % (test set, 5 seeds) with 619 KB.'
    """
    sample = question.spec.sample_bytes
    if question.bytes < sample:
        raise UsageError(f"--bytes is {size(question.bytes)}, and one sample has {size(sample)}; give more")
    if question.classes_per_task > question.spec.num_classes:
        raise UsageError(
            f"--classes-per-task is {question.classes_per_task}; with {question.spec.num_classes} classes it must lie "
            f"in 1..{question.spec.num_classes}"
        )
    if question.compute is not None and not question.compute > 0:
        raise UsageError(f"--compute is {question.compute}; it must be above 0")
    place = question.dataset if question.dataset in SPECS else _alike(question.spec)
    limit = _limit(question, SPECS[place] if place else question.spec)  # on the samples the numbers were measured on
    at_place = [row for row in known if row.dataset == place]
    there = [row for row in at_place if row.classes_per_task == question.classes_per_task]
    own = {row.bytes for row in there if row.method == STATISTICS}
    there += [row for row in at_place if row not in there and row.method == STATISTICS and row.bytes not in own]
    fitting = sorted(
        (row for row in there if row.bytes <= question.bytes and row.flops <= limit), key=lambda row: -row.accuracy
    )
    if not fitting:
        name = _by_rule(question)
        budget: dict[str, Any] = {"budget": question.bytes} if name == STATISTICS else {}
        limit = _limit(question, question.spec)
        if question.compute is not None and measure_cost(create(name, question.spec, **budget)).flops > limit:
            raise UsageError(
                f"nothing is known that takes at most {question.compute:g} times the operations of ER; raise --compute"
            )
        why = f"with so little, nothing was measured on {place}" if place else "nothing was measured on data like these"
        return Advice(name, question.bytes, f"Use {name}, by rule of thumb: {why}.")
    best = fitting[0]
    where = place if place == question.dataset else f"{place}, the nearest data with numbers"
    sentence = (
        f"Use {best.what}: on {where}, {best.stream} at a time, it reached {best.reached} with {size(best.bytes)}"
    )
    others = [row for row in fitting if row.method != best.method]
    if others:
        sentence += f", and the next best that fits, {others[0].what}, {others[0].reached}"
    # More bytes than those of the number are more filters, and more to compute.
    given = question.bytes if question.compute is None else best.bytes
    return Advice(best.method, given, f"{sentence}.", best.options)


def _limit(question: Question, spec: Spec) -> float:
    """The operations that may be spent on such a sample."""
    if question.compute is None:
        return float("inf")
    # A thousandth more is the same: with as many samples a step, heads differ by less than that.
    return 1.001 * question.compute * measure_cost(create("er", spec)).flops


def _by_rule(question: Question) -> str:
    """What the classifier chooses, which has to be able to begin."""
    spec = question.spec
    try:
        from onebyone.estimator import OnlineClassifier
    except ImportError:  # the command line does not need scikit-learn; the rule is there without it
        return choose(spec, question.bytes)
    blank = torch.zeros(1, *spec.shape, dtype=spec.dtype)
    classifier = OnlineClassifier(memory=f"{question.bytes}B", channels="first")
    try:
        return str(classifier.partial_fit(blank, [0], classes=range(spec.num_classes)).method_)
    except UsageError as error:
        raise UsageError(f"--bytes is {size(question.bytes)}, too little: {error}") from None


def _alike(spec: Spec) -> str | None:
    """The data set on record whose samples are most like these, if any are images of about that size."""

    def distance(name: str) -> float:
        other = SPECS[name]
        sides = [abs(log2(a / b)) for a, b in zip(spec.shape[1:], other.shape[1:], strict=True)]
        return float("inf") if max(sides) > log2(LIKE) else sum(sides) + abs(log2(spec.num_classes / other.num_classes))

    if not spec.is_image:
        return None
    best = min(SPECS, key=distance)
    return best if distance(best) < float("inf") else None


def commands(advice: Advice, question: Question) -> list[str]:
    """How to follow it: on the command line, where the data set has a name, and in Python."""
    name, spec = advice.method, question.spec
    tuned = winner(name, question.dataset, question.classes_per_task) if question.dataset else {}
    best = {**tuned, **advice.options}
    lines = []
    has_budget = issubclass(method(name).options, BudgetOptions)
    per_class = 0 if has_budget else _samples(name, spec, advice.bytes)
    if question.dataset and (has_budget or per_class):
        words = ["onebyone run", f"--method {name}", f"--dataset {question.dataset}"]
        if question.classes_per_task != 1:
            words.append(f"--classes-per-task {question.classes_per_task}")
        options: dict[str, Any] = dict(best)
        if has_budget:
            options["budget"] = advice.bytes
        else:
            words.append(f"--memory-per-class {per_class}")
        lines.append(" ".join([*words, *(f"--set {option}={value}" for option, value in options.items())]))
    given = f", options={best}" if best else ""
    if question.dataset and spec.augmentation.flip:  # which the classifier is not told by the images
        given += ', augment="crop+flip"'
    return [*lines, f'OnlineClassifier("{name}", memory="{advice.bytes}B"{given})']


def _samples(name: str, spec: Spec, budget: int) -> int:
    """How many samples of each class a method can keep in so many bytes, with all that it keeps beside them."""
    most = budget // spec.sample_bytes // spec.num_classes
    return bisect_right(range(1, most + 1), budget, key=lambda m: create(name, spec, memory_per_class=m).memory_bytes)


def size(count: int) -> str:
    """Bytes for people to read.

    >>> size(606_492), size(3_069_876), size(900)
    ('606 KB', '3.07 MB', '900 B')
    """
    for unit, worth in (("MB", 10**6), ("KB", 10**3)):
        if count >= worth:
            return f"{float(f'{count / worth:.3g}'):g} {unit}"
    return f"{count} B"


def spec_of(dataset: str | None, shape: str | None, classes: int | None) -> Spec:
    """What the words of the command line say about the data."""
    if dataset is not None:
        if shape is not None or classes is not None:
            raise UsageError(f"{dataset} has a shape and classes of its own; leave --shape and --classes out")
        if dataset in SPECS:
            return SPECS[dataset]
        if dataset == "digits":
            return load("digits").spec
        known = ", ".join(SPECS)
        raise UsageError(f"nothing is known of {dataset!r}; use {known} or digits, or give --shape and --classes")
    if shape is None:
        raise UsageError("say what the data are: --dataset cifar10, or --shape 3x32x32 --classes 10")
    sizes = shape.lower().split("x")
    if len(sizes) not in (1, 3) or not all(text.isdecimal() and int(text) > 0 for text in sizes):
        raise UsageError(f"--shape is {shape!r}; write channels, height and width as 3x32x32, or a number of features")
    return Spec(tuple(map(int, sizes)), classes or 10, torch.uint8 if len(sizes) == 3 else torch.float32)


# The numbers


@cache
def packaged() -> list[Known]:
    return from_csv((files("onebyone.experiments") / "recommendations.csv").read_text())


Key = tuple[str, int, str, int, str]  # data set, classes per task, method, bytes, passes


def gather(folder: Path) -> list[Known]:
    """Every mean over seeds that a folder of results has: of runs on record, and of statistics.

    Methods without a memory are the ends of every table and no rivals. A number on the test set takes the place of one
    on held-out data, and runs on record that of statistics, which may be the same runs.
    """
    numbers: dict[Key, dict[bool, list[float]]] = defaultdict(lambda: {True: [], False: []})
    flops: dict[Key, float] = {}
    for path in sorted(folder.glob("*.csv")):
        try:
            for row in (row for row in _rows(path) if "protocol" in row and int(row["memory_bytes"])):
                passes = PROTOCOLS.get(row["protocol"], "")
                key = row["dataset"], int(row["classes_per_task"]), row["method"], int(row["memory_bytes"]), passes
                numbers[key][False].append(100 * float(row["accuracy"]))
                flops[key] = float(row["flops"])
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path} is damaged ({error}); restore it or delete it") from None
    on_record = set(numbers)
    for held_out, name in ((False, "test.csv"), (True, "held-out.csv")):
        for row in (row for row in _rows(folder / "statistics" / name) if not row["options"]):
            key = row["dataset"], int(row["classes_per_task"]), STATISTICS, int(row["bytes"]), ""
            if key not in on_record:
                numbers[key][held_out].append(float(row["accuracy"]))
                flops.setdefault(key, 1e6 * float(row["mflop"]))
    found = []
    for key, by_set in numbers.items():
        held_out = not by_set[False]
        values = by_set[held_out]
        mean, std = round(fmean(values), 3), round(pstdev(values), 3)
        found.append(Known(*key[:4], flops[key], mean, std, len(values), held_out, passes=key[4]))
    if not found:
        raise UsageError(f"there are no records in {folder}; give a folder that `onebyone reproduce` wrote")
    return sorted(found, key=lambda row: (row.dataset, row.classes_per_task, row.method, row.bytes, row.passes))


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def to_csv(known: Iterable[Known]) -> str:
    """A line a number.

    >>> row = Known("cifar10", 1, "er", 619088, 6.5e8, 31.4, 1.2, 5, False)
    >>> from_csv(to_csv([row])) == [row]
    True
    """
    text = StringIO()
    writer = csv.DictWriter(text, [item.name for item in fields(Known)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) | {"held_out": "yes" if row.held_out else "no"} for row in known)
    return text.getvalue()


def from_csv(text: str) -> list[Known]:
    return [
        Known(
            dataset=row["dataset"],
            classes_per_task=int(row["classes_per_task"]),
            method=row["method"],
            bytes=int(row["bytes"]),
            flops=float(row["flops"]),
            accuracy=float(row["accuracy"]),
            std=float(row["std"]),
            seeds=int(row["seeds"]),
            held_out=row["held_out"] == "yes",
            passes=row["passes"],
        )
        for row in csv.DictReader(text.splitlines())
    ]
