"""Predictions of a classifier, and how far they can be trusted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onebyone.engine import reproducible
from onebyone.errors import UsageError
from onebyone.estimator import calibration, persistence
from onebyone.estimator.inputs import read_samples
from onebyone.estimator.labels import Label, as_array, as_labels, check_comparable, plain
from onebyone.estimator.locking import synchronized
from onebyone.estimator.priors import check_prior
from onebyone.estimator.report import Report, report
from onebyone.estimator.stateful import StatefulClassifier

Array = npt.NDArray[Any]


class Answers(NamedTuple):
    """Predictions of samples, and how far they can be trusted."""

    labels: Array  # [n] the most probable class
    probabilities: Array  # [n, classes] in the order of ``classes_``
    typicality: Array  # [n] larger for samples that are more like something learnt
    unknown: Array  # [n] whether a sample is like nothing learnt, as ``predict(X, unknown=...)`` decides it


class AnsweringClassifier(StatefulClassifier):
    """The part of :class:`OnlineClassifier` that predicts."""

    channels: str
    prior: Any
    unknown_rate: float

    @synchronized
    def predict(self, X: Any, *, unknown: Label | None = None) -> Array:
        """Predict the class of each sample.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.
        unknown
            The label to return for samples that are unlike anything learnt, which must not be one of ``classes_``. If
            None, every sample gets one of ``classes_``. A sample is unknown if its ``typicality`` is below a threshold,
            which is chosen such that about a share ``unknown_rate`` of the samples of known classes is below it. At
            least 20 samples must be learnt first. If fewer than ``2 / unknown_rate`` samples are available to choose
            the threshold, it is set lower, and only unknown samples that are far from all classes are found.

        Returns
        -------
        Labels [n], of the type of ``classes_``.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` or ``unknown`` is invalid. It is a ValueError.
        """
        if unknown is None:
            best = self._decision(X).argmax(1).numpy()
            predicted: Array = self.classes_[best]
            return predicted
        found, state = self.examine(X), self._fitted()
        label = plain(unknown)
        if label in state.labels and isinstance(label, bool) == isinstance(state.labels[0], bool):  # 0 equals False
            raise UsageError(f"unknown is {label!r}, which is a known class; give a label that no class has")
        labels: Array = as_array([*state.labels, label])
        return labels[np.where(found.unknown, len(state.labels), found.probabilities.argmax(1))]

    @synchronized
    def examine(self, X: Any) -> Answers:
        """Compute labels, probabilities and typicality together, with one pass through the encoder instead of three.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.

        Returns
        -------
        A named tuple with the results of ``predict``, ``predict_proba`` and ``typicality`` as ``labels`` [n],
        ``probabilities`` [n, classes] and ``typicality`` [n]. ``unknown`` [n] tells which samples are unknown.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` is invalid. It is a ValueError.
        """
        state = self._fitted()
        check_prior(self.prior, self.unknown_rate)
        learner, samples = state.learner, read_samples(X, state.layout, self.channels, self)
        with reproducible():
            parts = [learner.scores_and_typicality(part.to(learner.device)) for part in samples.chunks()]
            scores, typicality = (torch.cat([part[index].cpu() for part in parts]) for index in (0, 1))
            decision = calibration.decision(state, self._finite(scores), self.prior)[:, state.columns]
            typical = self._finite(typicality.double()).numpy()
            rejected = typical < calibration.threshold(state, float(self.unknown_rate))
            probabilities = self._probabilities(decision)
        return Answers(self.classes_[decision.argmax(1).numpy()], probabilities, typical, rejected)

    @synchronized
    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class.

        Probabilities are the softmax of the scores divided by a temperature, and depend on ``prior``. The temperature
        is chosen such that a class that is predicted with the probability 0.8 is right in about 80 % of the cases. It
        is fitted to the predictions from which ``report`` is computed, so it needs no test set. Methods that keep
        statistics average the softmax at half, once and twice this temperature. So does ``hybrid`` while its report is
        that of its statistics.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.

        Returns
        -------
        Probabilities [n, classes], in the order of ``classes_``.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` is invalid. It is a ValueError.
        """
        return self._probabilities(self._decision(X))

    @synchronized
    def decision_function(self, X: Any) -> Array:
        """Compute the scores of each class, as the logarithm of their softmax.

        What is common to the scores of all classes is not part of them. So the scores of different samples can be
        compared, as calibration, one-vs-rest and ROC curves do.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.

        Returns
        -------
        Scores [n, classes], in the order of ``classes_``, of which none is above 0. With two classes [n]: the score of
        the second minus the score of the first. The score of a class that has no samples yet is minus infinity.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` is invalid. It is a ValueError.
        """
        scores = self._decision(X)
        if scores.shape[1] == 2:
            return (scores[:, 1] - scores[:, 0]).numpy()
        # The offset that scores of a sample have in common differs more between samples than scores between classes.
        # A maximum would make all predicted classes equal, and a mean would depend on classes that are far away.
        return scores.double().log_softmax(1).to(scores).numpy()

    @synchronized
    def typicality(self, X: Any) -> Array:
        """Compute how similar each sample is to the samples of the nearest class.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.

        Returns
        -------
        Numbers [n], larger for samples that are more like the samples of some class. Their scale depends on the method.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` is invalid. It is a ValueError.
        """
        state = self._fitted()
        learner, samples = state.learner, read_samples(X, state.layout, self.channels, self)
        with reproducible(), torch.no_grad():
            parts = [learner.typicality(part.to(learner.device)).cpu() for part in samples.chunks()]
        return self._finite(torch.cat(parts).double()).numpy()

    @synchronized
    def report(self) -> Report:
        """Estimate how good the classifier is now, without a test set.

        Methods that keep statistics predict some of the learnt samples as if these had been left out. Networks predict
        samples that are held back (``validation_fraction``). While fewer than 20 are held back, they use the last 256
        predictions of samples that they had not learnt yet, without those of the first samples of a class. Until
        ``hybrid`` has 20 of these, the report is that of its statistics alone. ``source`` says which predictions were
        used.

        The accuracy is that for classes as frequent as ``prior`` says: by default, all classes count the same, even if
        few samples of one were predicted. It is too high if the samples of a class are nearly equal, such as pictures
        that a camera took within seconds, because a sample that is left out has nearly equal ones among the others.

        Returns
        -------
        A :class:`Report`: accuracy with an interval, accuracy per class, calibration error, most confused classes.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If there is no such prediction yet. It is a ValueError.
        """
        check_prior(self.prior, self.unknown_rate)
        return report(self._fitted(), self.prior)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the accuracy: the fraction of samples whose class is predicted correctly.

        Parameters
        ----------
        X
            Samples [n, ...], in any form that the class accepts.
        y
            True labels [n]. They may be of classes that are not known.
        sample_weight
            Weights [n] of the samples.

        Returns
        -------
        The accuracy, from 0 to 1.

        Raises
        ------
        NotFittedError
            If nothing was learnt yet.
        UsageError
            If ``X`` or ``y`` is invalid. It is a ValueError.
        """
        labels, predicted = as_labels(y), self.predict(X).tolist()
        check_comparable(labels, predicted)
        if len(labels) != len(predicted):
            raise UsageError(
                f"X has {len(predicted)} samples and y has {len(labels)} labels; give one label per sample"
            )
        correct = [guess == label for guess, label in zip(predicted, labels, strict=True)]
        return float(np.average(correct, weights=sample_weight))

    def _decision(self, X: Any) -> Tensor:
        """[n, classes] scores with the prior, in the order of ``classes_``, on the CPU."""
        state = self._fitted()
        check_prior(self.prior, self.unknown_rate)
        learner, samples = state.learner, read_samples(X, state.layout, self.channels, self)
        with reproducible():
            parts = [learner.scores(part.to(learner.device)).cpu() for part in samples.chunks()]
            return calibration.decision(state, self._finite(torch.cat(parts)), self.prior)[:, state.columns]

    def _probabilities(self, decision: Tensor) -> Array:
        """[n, classes] from scores with the prior."""
        state = self._fitted()
        scores = decision.double() / calibration.temperature(state)
        return calibration.probabilities(state)(scores).to(decision).numpy()

    def _finite(self, numbers: Tensor) -> Tensor:
        if numbers.isnan().any():
            persistence.check_finite(persistence.contents(self._fitted()))
            raise UsageError(
                "X has values so large that their scores are NaN; expected values as in training: scale or remove them"
            )
        return numbers
