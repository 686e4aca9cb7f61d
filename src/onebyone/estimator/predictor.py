"""Answers of a classifier in one state: probabilities, what is unknown, and their export for other programs."""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor, nn

from onebyone.engine import reproducible
from onebyone.errors import UsageError, warn
from onebyone.estimator.evidence import ENOUGH
from onebyone.estimator.inputs import Samples
from onebyone.estimator.labels import to_json
from onebyone.estimator.model import State, check_finite, known_labels
from onebyone.files import atomic_write
from onebyone.methods.temperature import fitted_temperature, probabilities

SUPPORT = 2  # values that must be expected below a quantile of values
# torch warns here of each operator of torchvision that it cannot export because torchvision is not installed. No method
# uses one.
REGISTRATION = "torch.onnx._internal.exporter._registration"
CONFIDENCE = 0.95  # of a limit where fewer are


class Predictor:
    """The answers of a classifier in one state: from scores to probabilities, and what is unknown.

    ``predict``, ``export`` and the server turn scores into answers here. It never changes: a value that takes long to
    compute is computed when it is first needed, and then kept. A classifier drops its predictor when it changes. For
    answers that last longer, :meth:`frozen` returns a predictor that owns its tensors.

    Parameters
    ----------
    state
        The state of a classifier. It must not change while this object is used.
    parameters
        Those of the classifier, of which ``prior`` and ``unknown_rate`` are used.
    """

    def __init__(self, state: State, parameters: Mapping[str, Any]) -> None:
        self.state, self.parameters = state, parameters
        self.prior, self.unknown_rate = parameters["prior"], float(parameters["unknown_rate"])
        self._readouts: tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor], Tensor] | None = None

    @torch.no_grad()
    def frozen(self) -> Predictor:
        """A predictor with the same answers, for which everything is computed. The state must be a copy.

        It uses the learner for features only. What else it needs are tensors of its own.
        """
        learner = self.state.learner.eval().requires_grad_(False)
        found = copy(self)
        found._readouts = learner.readout(), learner.typicality_readout(), ~learner.observed
        _ = found.temperature, found.shift, found.threshold, found._columns
        learner.drop_solution()  # it refers to the learner, so neither would be freed before garbage is collected
        return found

    # From samples

    def decisions(self, samples: Samples) -> Tensor:
        """[n, classes] scores with the prior, in the order of ``classes_``, on the CPU."""
        learner = self.state.learner
        (scores,) = self._computed(samples, lambda x: (learner.scores(x),))
        return self._columns_of(self.decision(scores))

    def examined(self, samples: Samples) -> tuple[Tensor, Tensor]:
        """What :meth:`decisions` returns, and the typicality [n] in float64, with one pass through an encoder."""
        scores, typicality = self._computed(samples, self.scores_and_typicality)
        return self._columns_of(self.decision(scores)), typicality.double()

    @torch.no_grad()
    def typicality(self, samples: Samples) -> Tensor:
        """[n] in float64, on the CPU."""
        learner = self.state.learner
        (found,) = self._computed(samples, lambda x: (learner.typicality(x),))
        return found.double()

    def _computed(self, samples: Samples, answer: Callable[[Tensor], tuple[Tensor, ...]]) -> list[Tensor]:
        """The tensors [n, ...] of an answer to all samples, on the CPU and without NaN."""
        learner, device = self.state.learner, self.state.learner.counts.device
        with reproducible() if self.state.on_gpu else nullcontext():
            parts = [[each.cpu() for each in answer(part.to(device))] for part in samples.chunks()]
        found = [torch.cat(each) for each in zip(*parts, strict=True)]
        if any(bool(each.isnan().any()) for each in found):
            check_finite(learner)
            raise UsageError(
                "X has values so large that their scores are NaN; expected values as in training: scale or remove them"
            )
        return found

    def answers(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[n, *shape] as the learner reads samples -> probabilities [n, classes] and typicality [n]."""
        scores, typicality = self.scores_and_typicality(x)
        return self._softened(self._columns_of(self.decision(scores))), typicality  # programs may lack float64

    def scores_and_typicality(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[n, *shape] as the learner reads samples -> [n, C] scores of all slots, and [n]."""
        learner = self.state.learner
        if self._readouts is None:
            return learner.scores_and_typicality(x)
        readout, typicality, unseen = self._readouts
        features = learner.features(x)
        scores = readout(features).masked_fill(unseen, -torch.inf)
        return scores, typicality(features, scores)

    # From scores

    def decision(self, scores: Tensor) -> Tensor:
        """[n, C] scores of all slots -> [n, C] with the prior, to be divided by the temperature."""
        # The temperature takes a while to compute, and is not needed if all classes are equally probable.
        return scores if self.shift is None else scores + (self.temperature * self.shift).to(scores)

    def probabilities(self, decision: Tensor) -> Tensor:
        """[n, ...] scores with the prior -> [n, ...] in the same type, computed in float64."""
        return self._softened(decision.double()).to(decision)

    def _softened(self, decision: Tensor) -> Tensor:
        return probabilities(decision / self.temperature)

    def is_unknown(self, typicality: Tensor) -> Tensor:
        """[n] whether samples are like nothing learnt."""
        return ~(typicality.double() >= self.threshold)

    def _columns_of(self, decision: Tensor) -> Tensor:
        """[n, C] of all slots -> [n, classes] in the order of ``classes_``."""
        return decision[:, self._columns]

    @cached_property
    def temperature(self) -> float:
        """The number that scores are divided by before probabilities are computed."""
        expected = self.state.learner.temperature()
        if not self.state.uses_predictions:
            return expected
        scores, y, _ = self.state.evidence.predictions
        usable = scores.gather(1, y[:, None])[:, 0].isfinite()  # not of a class that the learner has never seen
        return fitted_temperature(expected, scores[usable].double(), y[usable])

    @cached_property
    def shift(self) -> Tensor | None:
        """[C] the logarithm of the probability of each slot's class, relative to equal ones; None if all are equal."""
        return log_prior(self.state, self.prior)

    @cached_property
    def threshold(self) -> float:
        """The typicality below which a sample is unknown; minus infinity while there are too few predictions.

        A new sample like those that were learnt is below it with the probability ``unknown_rate``, on average over
        samples.
        """
        found = self.state.learner.typical_values()
        values = (self.state.evidence.predictions.typicality if found is None else found.cpu()).double()
        enough = len(values) >= ENOUGH and self.unknown_rate
        return low_quantile(values, self.unknown_rate) if enough else -math.inf

    @cached_property
    def _columns(self) -> Tensor:
        return torch.tensor(self.state.columns)


def log_prior(state: State, prior: Any) -> Tensor | None:
    """[C] the logarithm of the probability of each slot's class, relative to equal ones; None if all are equal.

    Classes that a dictionary does not have share what is left to a sum of 1.
    """
    counts = state.learner.counts.cpu().double()
    seen = counts > 0
    if isinstance(prior, Mapping):
        shares = torch.zeros_like(counts)
        others = []
        for label, slot in state.slots.items():
            if label in prior:
                shares[slot] = float(prior[label])
            elif seen[slot]:
                others.append(slot)
        if others:
            shares[others] = max(0.0, 1 - sum(map(float, prior.values()))) / len(others)
        shares = shares.where(seen, 0)
        if not shares.sum() > 0:
            raise UsageError(f"prior is {prior!r}, and every class that was learnt has the probability 0; raise one")
        # Perhaps their labels are misspelt.
        missing = [label for label in prior if not (label in state.slots and seen[state.slots[label]])]
        if missing:
            names = ", ".join(map(repr, missing[:5])) + ", ..." * (len(missing) > 5)
            warn(
                f"prior has {names}, of which no sample was learnt, so the other classes share the probability; known "
                f"are {known_labels(state)}"
            )
    elif prior == "counts":
        shares = counts
    else:
        return None
    return (shares / shares.sum() * seen.sum()).log()


def low_quantile(values: Tensor, rate: float) -> float:
    """A number that a new value, drawn like the ``values`` [k], is below with the probability ``rate``, or less.

    It is the quantile of the values if at least two of them are expected below it. The smallest of few values is a
    matter of chance: of 20, the share of new ones below it is 5 % on average, and above 10 % in every eighth case. So
    with fewer, the number is at most :func:`tolerance_limit`, and new values are rarely below it.
    """
    ordered, count = values.sort().values, len(values)
    expected = rate * (count + 1)
    position = max(0.0, min(expected - 1, count - 1))
    below = int(position)
    above = min(below + 1, count - 1)
    quantile = float(ordered[below] + (position - below) * (ordered[above] - ordered[below]))
    return quantile if expected >= SUPPORT else min(quantile, tolerance_limit(values, rate))


def tolerance_limit(values: Tensor, rate: float) -> float:
    """A number that at most the share ``rate`` of new values is below, with a confidence of 95 %.

    This is the tolerance limit of a normal distribution with the mean and standard deviation of the values, by the
    approximation of Natrella. Values that are all negative are minus distances: their logarithms are taken as normal.

    >>> values = torch.linspace(-1, 1, 20)
    >>> round(tolerance_limit(values, 0.05) / float(values.std()), 2)  # 2.40 in tables
    -2.38
    """
    are_distances = bool((values < 0).all())
    spread = (-values).log() if are_distances else -values
    share, confidence, count = NormalDist().inv_cdf(1 - rate), NormalDist().inv_cdf(CONFIDENCE), len(values)
    first = 1 - confidence**2 / (2 * (count - 1))
    second = share**2 - confidence**2 / count
    factor = (share + math.sqrt(share**2 - first * second)) / first
    limit = float(spread.mean() + factor * spread.std())
    return -math.exp(limit) if are_distances else -limit


# Export: ONNX and torch.export


class AnswerModel(nn.Module):
    """Samples as given to ``predict_proba`` [n, ...] -> probabilities [n, classes], and typicality [n]."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        # Not a submodule: its learner has a memory of private samples, which must not be exported.
        self.predictor = predictor
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.predictor.answers(self.predictor.state.layout.channels_first(x))


def export(path: Path, predictor: Predictor) -> None:
    """Write ``path`` in the format given by its suffix."""
    state = predictor.state
    predictor = Predictor(replace(state, learner=state.learner.portable_copy()), predictor.parameters).frozen()
    texts = {
        "classes": json.dumps([to_json(label) for label in state.labels]),
        "temperature": json.dumps(predictor.temperature),
        "unknown_threshold": json.dumps(predictor.threshold if math.isfinite(predictor.threshold) else None),
    }
    samples = torch.zeros(2, *state.layout.shape, dtype=state.layout.dtype)
    match path.suffix:
        case ".pt2":
            write = export_torch
        case ".onnx":
            write = export_onnx
        case suffix:
            raise UsageError(f"{path} has the suffix {suffix!r}; use '.onnx', or '.pt2' for torch.export")
    with atomic_write(path) as temporary:
        write(temporary, AnswerModel(predictor), samples, texts)


def export_torch(path: Path, model: nn.Module, samples: Tensor, texts: dict[str, str]) -> None:
    program = torch.export.export(model, (samples,), dynamic_shapes=({0: torch.export.Dim("n")},))
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files={f"{name}.json": text for name, text in texts.items()})


def export_onnx(path: Path, model: nn.Module, samples: Tensor, texts: dict[str, str]) -> None:
    logger = logging.getLogger(REGISTRATION)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # from torch, about its own code
            program = torch.onnx.export(
                model,
                (samples,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("n")},),
                input_names=["samples"],
                output_names=["probabilities", "typicality"],
                verbose=False,
            )
    finally:
        logger.setLevel(level)
    assert program is not None
    program.model.metadata_props.update(texts)
    path.write_bytes(program.model_proto.SerializeToString())
