"""Answers that are frozen stay the same, bit for bit, while the classifier learns on."""

import numpy as np
import torch

from classifiers import X, Y
from onebyone import OnlineClassifier
from onebyone.estimator.predictor import Predictor
from onebyone.methods.hybrid import Hybrid


def test_a_frozen_predictor_answers_as_the_classifier_did_while_that_learns_on() -> None:
    """With statistics and a network, classes that are not equally frequent, and classes in another order than slots."""
    clf = OnlineClassifier("hybrid", memory=5000, prior="counts", unknown_rate=0.3)
    uneven = [row for row, label in enumerate(Y[:300]) if label != "class 0" or row < 60]
    clf.partial_fit(X[uneven][::-1], np.array(Y)[uneven][::-1])
    new = X[300:400] * np.where(np.arange(100) < 30, -20, 1)[:, None]  # some like nothing learnt
    told = clf.examine(new)
    assert clf._state is not None
    copied = clf._state.copied()
    predictor = Predictor(copied, clf.prior, clf.unknown_rate).freeze()
    assert isinstance(copied.learner, Hybrid)
    copied.learner.statistics.moments.sums.zero_()  # from which everything was computed already
    clf.partial_fit(5 * X[400:600], ["another"] * 200)
    assert not np.array_equal(clf.predict(new), told.labels)
    scores, typicality = predictor.scores_and_typicality(torch.tensor(new, dtype=torch.float32))
    decision = predictor.in_order(predictor.decision(scores))
    assert np.array_equal(predictor.probabilities_of(decision.double()).to(decision).numpy(), told.probabilities)
    assert np.array_equal(predictor.is_unknown(typicality).numpy(), told.unknown)
    assert told.unknown.any()
    assert not told.unknown.all()
