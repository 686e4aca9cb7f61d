"""Answers from one state of a classifier, while the classifier learns on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from onebyone.errors import UsageError
from onebyone.estimator.model import State
from onebyone.estimator.predictor import Predictor
from onebyone.estimator.report import report

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
        self.sequence, self.layout = sequence, state.layout
        self.labels = [str(label) for label in state.labels]
        predictor = Predictor(state, {"prior": prior, "unknown_rate": unknown_rate})
        self.report: dict[str, Any] | None = None
        try:
            self.report = report(predictor).to_dict()
        except UsageError as error:
            self.why_no_report = str(error)
        self._predictor = predictor.frozen()

    @torch.no_grad()
    def predict(self, samples: Array) -> Predictions:
        """Answers for samples [n, ...] in the layout of the classifier."""
        predictor, learner = self._predictor, self._predictor.state.learner
        x = self.layout.channels_first(torch.tensor(samples)).to(learner.device)
        found, unknown = [], []
        for part in x.split(learner.chunk):
            probabilities, typicality = predictor.answers(part)
            found.append(probabilities.cpu().numpy())
            unknown.append(predictor.is_unknown(typicality).cpu().numpy())
        return Predictions(self.labels, np.concatenate(found), np.concatenate(unknown), self.sequence)
