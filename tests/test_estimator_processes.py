"""A classifier that is sent to other processes."""

import multiprocessing
import pickle
from multiprocessing.queues import SimpleQueue
from multiprocessing.reduction import ForkingPickler
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from torch import nn

from classifiers import state_of, vectors
from onebyone import OnlineClassifier

X, Y = vectors(60)


def learn_and_answer(clf: OnlineClassifier, answers: "SimpleQueue[Any]") -> None:
    """What a process does."""
    answers.put(clf.partial_fit(X, Y).decision_function(X))


@pytest.mark.slow
@pytest.mark.parametrize("start", ["forkserver", "spawn"])
def test_a_process_gets_a_classifier_as_an_argument(start: str) -> None:
    context, clf = multiprocessing.get_context(start), OnlineClassifier("ccp").partial_fit(X, Y)
    for _ in range(2):  # the server of forks survives the first one
        answers = context.SimpleQueue()
        process = context.Process(target=learn_and_answer, args=(clf, answers))
        process.start()
        process.join(60)
        assert process.exitcode == 0
        found = answers.get()
    np.testing.assert_array_equal(clf.partial_fit(X, Y).decision_function(X), found)


@pytest.mark.slow
def test_joblib_sends_a_classifier_and_gets_it_back() -> None:
    from joblib import Parallel, delayed

    clf = OnlineClassifier(encoder=nn.Linear(4, 8)).partial_fit(X, Y)
    learnt = Parallel(n_jobs=2)(delayed(clf.partial_fit)(X[part::2], Y[part::2]) for part in range(2))
    assert [each.n_samples_seen_ for each in learnt] == [90, 90]
    assert clf.n_samples_seen_ == 60


@pytest.mark.parametrize(("name", "encoder"), [("ccp", nn.Linear(4, 4)), ("hybrid", "auto")])
def test_nothing_of_a_pickle_is_shared_between_processes(name: str, encoder: Any) -> None:
    """PyTorch has its own reductions of tensors for processes, which send a file descriptor or the name of a file."""
    clf = OnlineClassifier(name, encoder=encoder).partial_fit(X, Y)
    sent = ForkingPickler.dumps(clf)
    assert b"torch.multiprocessing" not in bytes(sent)
    other = pickle.loads(sent)
    assert state_of(other) == state_of(clf)
    np.testing.assert_array_equal(other.decision_function(X), clf.decision_function(X))
    assert state_of(other.partial_fit(X, Y)) == state_of(clf.partial_fit(X, Y))


def test_an_encoder_that_is_defined_in_a_notebook_can_be_sent() -> None:
    """cloudpickle sends the code of such a class; the process that gets it has no such module."""
    space: dict[str, Any] = {"nn": nn, "__name__": "__main__"}
    exec("class Own(nn.Linear):\n    def forward(self, x): return super().forward(x).relu()", space)
    clf = OnlineClassifier(encoder=space["Own"](4, 8)).partial_fit(X, Y)
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(clf)
    other = pickle.loads(cloudpickle.dumps(clf))
    assert torch.equal(torch.tensor(other.predict_proba(X)), torch.tensor(clf.predict_proba(X)))
