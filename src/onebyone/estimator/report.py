"""How good a classifier is now, estimated without a test set."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onebyone.errors import UsageError
from onebyone.estimator.evidence import EvidenceSource
from onebyone.estimator.labels import Label, to_json
from onebyone.estimator.model import State
from onebyone.estimator.predictor import Predictor
from onebyone.text import escaped

BINS = 10  # of the confidence, for the calibration error
PAIRS = 10  # most confused pairs that are listed
ENOUGH = 12.0  # predictions of two classes from which these can be said to be alike
APART = 0.75  # share of two classes told apart, below which the upper end of the interval must be
LIMITS: dict[EvidenceSource, str] = {  # what a report does not say
    "left out by the statistics": "without the network, which has predicted too few samples before it learnt them",
    "predicted before learnt": "if classes arrived one at a time, the accuracy on all of them will differ",
}
NORMAL = 1.959964  # of a normal distribution, 95 % is within this many standard deviations


@dataclass(frozen=True)
class ClassReport:
    """How well one class is recognised."""

    label: Label
    samples: int  # predictions of samples of this class
    accuracy: float  # share of them that is right
    interval: tuple[float, float]  # 95 %


@dataclass(frozen=True)
class Confusion:
    """Samples of one class that were taken for another one."""

    label: Label
    predicted: Label
    samples: int


@dataclass(frozen=True)
class Alike:
    """Two classes that are told apart no better than by chance."""

    label: Label
    other: Label
    accuracy: float  # mean share of samples of either class that are closer to it than to the other class


@dataclass(frozen=True)
class Report:
    """The estimated accuracy of a classifier, which ``OnlineClassifier.report`` returns.

    It is computed from predictions of samples that were left out (methods that keep statistics) or held back
    (networks). While fewer than 20 samples are held back, it is computed from predictions of samples that were not
    learnt yet. If classes arrive one at a time, a network makes these while it does not know the later classes, so the
    accuracy on all classes is different from the reported one. Until ``hybrid`` has made 20 of them, its report is that
    of its statistics.

    ``print(report)`` prints a table, ``report.plot("report.png")`` draws a figure, and ``report.to_dict()`` returns
    plain values.
    """

    accuracy: float  # share of right predictions, in which each class has the weight that ``prior`` gives it
    interval: tuple[float, float]  # 95 % (Wilson) of the accuracy
    confidence: float  # mean probability of the predicted class
    calibration_error: float  # mean difference between confidence and accuracy, in 10 bins of the confidence
    samples: int  # number of predictions
    source: EvidenceSource  # "left out", "held back", "left out by the statistics" or "predicted before learnt"
    classes: tuple[ClassReport, ...]  # in the order of ``classes_``; classes without a prediction are left out
    confusions: tuple[Confusion, ...]  # the most frequent first
    alike: tuple[Alike, ...]  # classes that are told apart no better than by chance
    bins: tuple[tuple[float, float, int], ...]  # confidence, accuracy and samples of each bin that has any

    def __str__(self) -> str:
        low, high = self.interval
        lines = [
            f"accuracy           {100 * self.accuracy:.1f} %  (95 % interval {100 * low:.1f} to {100 * high:.1f})",
            f"mean confidence    {100 * self.confidence:.1f} %",
            f"calibration error  {100 * self.calibration_error:.1f} %",
            f"from               {self.samples} samples, {self.source}",
            "",
        ]
        if self.source in LIMITS:
            lines[-1:] = [f"                   ({LIMITS[self.source]})", ""]
        width = max(len(shown(each.label)) for each in self.classes)
        width = max(width, len("class"))
        lines.append(f"{'class':<{width}}  samples  accuracy  95 % interval")
        for each in self.classes:
            low, high = each.interval
            lines.append(
                f"{shown(each.label):<{width}}  {each.samples:>7}  {100 * each.accuracy:>6.1f} %  "
                f"{100 * low:.1f} to {100 * high:.1f}"
            )
        if self.confusions:
            lines += ["", "most often confused"]
            lines += [
                f"{shown(each.label)} taken for {shown(each.predicted)}: {each.samples}" for each in self.confusions
            ]
        if self.alike:
            lines += ["", "told apart no better than by chance"]
            lines += [
                f"{shown(each.label)} and {shown(each.other)}: {100 * each.accuracy:.0f} %" for each in self.alike
            ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to values that can be written as JSON.

        Returns
        -------
        dict of str to object
            The attributes of the report by their names.
        """
        return {
            "accuracy": self.accuracy,
            "interval": list(self.interval),
            "confidence": self.confidence,
            "calibration_error": self.calibration_error,
            "samples": self.samples,
            "source": self.source,
            "classes": [vars(each) | {"label": to_json(each.label)} for each in self.classes],
            "confusions": [
                vars(each) | {"label": to_json(each.label), "predicted": to_json(each.predicted)}
                for each in self.confusions
            ],
            "alike": [vars(each) | {"label": to_json(each.label), "other": to_json(each.other)} for each in self.alike],
            "bins": [list(each) for each in self.bins],
        }

    def plot(self, path: str | Path) -> None:
        """Draw accuracy per class and accuracy by confidence. Needs matplotlib.

        Parameters
        ----------
        path
            The file to write, of a type that matplotlib knows, such as ``*.png`` or ``*.svg``.

        Raises
        ------
        UsageError
            If matplotlib is not installed. It is a ValueError.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise UsageError("a picture needs matplotlib; install it with: pip install matplotlib") from None
        figure = Figure(figsize=(9, max(3.0, 1 + 0.25 * len(self.classes))), layout="constrained")
        left, right = figure.subplots(1, 2)
        accuracy = [each.accuracy for each in self.classes]
        errors = [
            [max(0.0, each.accuracy - each.interval[0]) for each in self.classes],
            [max(0.0, each.interval[1] - each.accuracy) for each in self.classes],
        ]
        left.barh([str(each.label) for each in self.classes], accuracy, xerr=errors, color="#00798c")
        left.axvline(self.accuracy, color="black", linewidth=1)
        left.invert_yaxis()
        left.set(xlabel="accuracy", xlim=(0, 1), title=f"{100 * self.accuracy:.1f} % of {self.samples} samples")
        right.plot([0, 1], [0, 1], color="gray", linewidth=1)
        right.plot([each[0] for each in self.bins], [each[1] for each in self.bins], "o-", color="#d1495b")
        right.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
        right.set_title(f"calibration error {100 * self.calibration_error:.1f} %")
        figure.savefig(path)


def shown(label: Label) -> str:
    return escaped(str(label))


def report(predictor: Predictor) -> Report:
    """The report of a state, with predictions that use the prior of the predictor."""
    state = predictor.state
    check_weights(state)
    (scores, y, _), source = state.evidence
    if not len(y):
        raise nothing_yet(state)
    wide = scores.new_full((len(y), state.learner.spec.num_classes), -math.inf, dtype=torch.float64)
    wide[:, : scores.shape[1]] = scores
    confidence, predicted = predictor.probabilities(predictor.decision(wide)).max(1)
    right = predicted == y
    weight = shares(predictor, y)
    accuracy, effective = float(weight @ right.double()), 1 / float(weight.square().sum())
    bins, error = binned(confidence, right, weight)
    return Report(
        accuracy=accuracy,
        interval=wilson(accuracy * effective, effective),
        confidence=float(weight @ confidence.double()),
        calibration_error=error,
        samples=len(y),
        source=source,
        classes=tuple(per_class(state, y, right)),
        confusions=tuple(confusions(state, y, predicted)),
        alike=tuple(alike(state, scores, y)),
        bins=tuple(bins),
    )


def shares(predictor: Predictor, y: Tensor) -> Tensor:
    """[k] the weight of each prediction: those of a class have together the probability of the class."""
    shift, classes = predictor.shift, predictor.state.learner.spec.num_classes
    probability = torch.ones(classes, dtype=torch.float64) if shift is None else shift.exp()
    weight = (probability / y.bincount(minlength=len(probability)).clamp(min=1))[y]
    return weight / weight.sum() if weight.any() else torch.full_like(weight, 1 / len(y))


def nothing_yet(state: State) -> UsageError:
    """The error to raise while there is no prediction."""
    learner, more = state.learner, "learn more samples of classes that are known already"
    interval = 1 if learner.leaves_out else learner.answer_interval(1)
    if interval > 1:
        return UsageError(
            f"there is nothing to report yet, because {state.method} predicts samples before it learns them only about "
            f"once in {interval} steps of one sample (larger steps: more often), and has made {int(learner.steps)} "
            f"steps; {more}"
        )
    return UsageError(f"there is nothing to report yet; {more}")


def check_weights(state: State) -> None:
    """Raise an error if statistics have samples, but of so little weight that none of them can be left out."""
    learner = state.learner
    learner = learner if state.uses_predictions else learner.leaving_out
    if learner.leaves_out and int(learner.counts.max()) > 1:
        heaviest = float(learner.total_weights.max())
        if heaviest < 2:
            raise UsageError(
                f"there is nothing to report, because no class has a total sample_weight of 2 or more (the largest is "
                f"{heaviest:.3g}); a weight of 1 counts as one sample, so give weights whose mean is about 1"
            )


def per_class(state: State, y: Tensor, right: Tensor) -> list[ClassReport]:
    found = []
    for label, slot in zip(state.labels, state.columns, strict=True):
        mine = right[y == slot]
        if len(mine):
            number = int(mine.sum())
            found.append(ClassReport(label, len(mine), number / len(mine), wilson(number, len(mine))))
    return found


def confusions(state: State, y: Tensor, predicted: Tensor) -> list[Confusion]:
    label_of = {slot: label for label, slot in state.slots.items()}
    wrong = predicted != y
    pairs, counts = torch.stack([y[wrong], predicted[wrong]], 1).unique(dim=0, return_counts=True)
    order = counts.argsort(descending=True, stable=True)[:PAIRS].tolist()
    return [
        Confusion(label_of[int(pairs[place, 0])], label_of[int(pairs[place, 1])], int(counts[place])) for place in order
    ]


def alike(state: State, scores: Tensor, y: Tensor) -> list[Alike]:
    """The classes that are told apart no better than by chance, as far as there are enough predictions to say so.

    Of two classes, samples that have a higher score for their own class than for the other one are told apart. Half of
    them are by chance. Classes count as alike if the 95 % interval of their share begins below a half and ends below
    ``APART``. Fewer than about 6 predictions of either class are no evidence.
    """
    present = y.bincount(minlength=scores.shape[1]).tolist()
    slots = [slot for slot in state.columns if slot < len(present) and present[slot] > ENOUGH / 4]
    scores, classes = scores.double(), torch.tensor(slots, dtype=torch.int64)
    own = scores.gather(1, y[:, None])
    wins = ((own > scores).double() + 0.5 * (own == scores).double())[:, classes]
    members = (y[:, None] == classes).double()  # [n, classes]
    counts = members.sum(0)
    shares = (members.T @ wins) / counts[:, None]  # [a, b]: of class a, against class b
    label_of = {slot: label for label, slot in state.slots.items()}
    found = []
    for first, second in itertools.combinations(range(len(slots)), 2):
        # Predictions of equally many samples of both classes whose mean would have the same variance.
        effective = 4 / float(1 / counts[first] + 1 / counts[second])
        accuracy = float(shares[first, second] + shares[second, first]) / 2
        low, high = wilson(accuracy * effective, effective)
        if effective >= ENOUGH and low <= 0.5 and high < APART:
            found.append(Alike(label_of[slots[first]], label_of[slots[second]], accuracy))
    return sorted(found, key=lambda each: each.accuracy)[:PAIRS]


def binned(confidence: Tensor, right: Tensor, weight: Tensor) -> tuple[list[tuple[float, float, int]], float]:
    """Mean confidence, accuracy and number of samples in each bin of the confidence, and the calibration error."""
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    found, error = [], 0.0
    for number in range(BINS):
        mask = (bins == number) & (weight > 0)
        if mask.any():
            share = weight[mask].sum()
            sure, correct = (float(weight[mask] @ values[mask].double() / share) for values in (confidence, right))
            found.append((sure, correct, int(mask.sum())))
            error += abs(sure - correct) * float(share)
    return found, error


def wilson(right: float, count: float) -> tuple[float, float]:
    """The 95 % interval of Wilson (1927) of a share.

    >>> [round(end, 3) for end in wilson(9, 10)]
    [0.596, 0.982]
    """
    share, square = right / count, NORMAL**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = NORMAL / (1 + square / count) * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    # Rounding errors could exclude the share itself at an end of the range.
    return max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share))
