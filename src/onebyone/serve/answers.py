"""Answers from one state of a classifier, while the classifier learns on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from onebyone.errors import UsageError
from onebyone.estimator import calibration
from onebyone.estimator.report import report
from onebyone.estimator.state import State
from onebyone.methods import Learner

Array = npt.NDArray[Any]


class Predictions(NamedTuple):
    """Answers for n samples and C classes."""

    labels: list[str]  # of the classes
    probabilities: Array  # [n, C]
    unknown: Array  # [n] whether a sample is like nothing learnt
    sequence: int  # of the last operation that the answers take into account


class Answer:
    """A solution that is computed once, and then never changes. It depends on nothing but the state.

    Parameters
    ----------
    state
        The state of a classifier, with a learner that is not changed any more.
    sequence
        Number of the last operation that it contains.
    prior, unknown_rate
        Parameters of the classifier.
    """

    def __init__(self, state: State, sequence: int, prior: Any, unknown_rate: float) -> None:
        learner = state.learner
        learner.eval().requires_grad_(False)
        self.sequence, self.layout = sequence, state.layout
        self.labels = [str(label) for label in state.labels]
        self._learner, self._columns = learner, torch.tensor(state.columns, device=learner.device)
        self._unseen = ~learner.observed[self._columns]
        with torch.no_grad():
            self._readout, self._typicality = learner.readout(), learner.typicality_readout()
            self._temperature, self._probabilities = calibration.temperature(state), calibration.probabilities(state)
            self._threshold = calibration.threshold(state, unknown_rate)
            shift = calibration.log_prior(state, prior)
            self._shift = None if shift is None else shift.to(learner.device)[self._columns]
            self.report: dict[str, Any] | None = None
            try:
                self.report = report(state, prior).to_dict()
            except UsageError as error:
                self.why_no_report = str(error)
        for part in learner.modules():
            if isinstance(part, Learner):
                part.drop_solution()  # it refers to the learner, so neither would be freed before garbage is collected

    @torch.no_grad()
    def predict(self, samples: Array) -> Predictions:
        """Answers for samples [n, ...] in the layout of the classifier."""
        learner = self._learner
        x = self.layout.channels_first(torch.tensor(samples)).to(learner.device)
        found, known = [], []
        for part in x.split(learner.chunk):
            features = learner.features(part)
            scores = self._readout(features)[:, self._columns].masked_fill(self._unseen, -torch.inf).double()
            decision = scores / self._temperature
            decision = decision if self._shift is None else decision + self._shift
            found.append(self._probabilities(decision).cpu().numpy())
            known.append((self._typicality(features, scores) >= self._threshold).cpu().numpy())
        return Predictions(self.labels, np.concatenate(found), ~np.concatenate(known), self.sequence)
