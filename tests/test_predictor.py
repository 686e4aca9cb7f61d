"""Answers that are frozen stay the same, bit for bit, while the classifier learns on."""

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch

from classifiers import X, Y
from onebyone import OnlineClassifier
from onebyone.estimator.predictor import Predictor
from onebyone.statistics.hybrid import Hybrid


def test_a_frozen_predictor_answers_as_the_classifier_did_while_that_learns_on() -> None:
    """With statistics and a network, classes that are not equally frequent, and classes in another order than slots."""
    clf = OnlineClassifier("hybrid", memory=5000, prior="counts", unknown_rate=0.3)
    uneven = [row for row, label in enumerate(Y[:300]) if label != "class 0" or row < 60]
    clf.partial_fit(X[uneven][::-1], np.array(Y)[uneven][::-1])
    new = X[300:400] * np.where(np.arange(100) < 30, -20, 1)[:, None]  # some like nothing learnt
    told = clf.examine(new)
    assert clf._state is not None
    copied = clf._state.copied()
    predictor = Predictor(copied, clf.get_params()).frozen()
    assert isinstance(copied.learner, Hybrid)
    copied.learner.statistics.moments.sums.zero_()  # from which everything was computed already
    clf.partial_fit(5 * X[400:600], ["another"] * 200)
    assert not np.array_equal(clf.predict(new), told.labels)
    scores, typicality = predictor.scores_and_typicality(torch.tensor(new, dtype=torch.float32))
    decision = predictor.decision(scores)[:, copied.columns]
    assert np.array_equal(predictor.probabilities(decision).numpy(), told.probabilities)
    assert np.array_equal(predictor.is_unknown(typicality).numpy(), told.unknown)
    assert told.unknown.any()
    assert not told.unknown.all()


@pytest.mark.parametrize("name", ["patch-lda", "er"])
def test_an_answer_is_that_of_the_last_call(name: str) -> None:
    """A copy, which has computed nothing, answers the same after each change."""
    clf = OnlineClassifier(name, memory=300).partial_fit(X[:200], Y[:200])
    label = Y[0]
    changes: list[Callable[[], object]] = [
        lambda: clf.partial_fit(X[200:230], Y[200:230]),
        lambda: clf.forget(X[200:210], Y[200:210]),
        lambda: clf.set_params(prior={label: 0.9}),
        lambda: clf.prior.update({label: 0.1}),  # type: ignore[union-attr]
        lambda: clf.set_params(prior="counts", unknown_rate=0.4),
        lambda: clf.rename({label: "another"}),
        lambda: clf.forget_class("another"),
        lambda: clf.replace_state(OnlineClassifier(name, memory=300).partial_fit(-X[:50], Y[:50]).state),  # type: ignore[arg-type]
    ]
    for number, change in enumerate(changes):
        clf.examine(X[300:])
        change()
        told, expected = clf.examine(X[300:]), deepcopy(clf).examine(X[300:])
        assert np.array_equal(told.labels, expected.labels), number
        np.testing.assert_allclose(told.probabilities, expected.probabilities, atol=1e-6, err_msg=str(number))
        np.testing.assert_allclose(told.typicality, expected.typicality, rtol=1e-6, err_msg=str(number))
