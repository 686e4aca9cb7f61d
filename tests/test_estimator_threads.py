"""Threads that share a classifier."""

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from copy import deepcopy

import numpy as np
import pytest

from classifiers import DEFAULT_AND_CCP, vectors
from onebyone import Dataset, OnlineClassifier
from summing import registered
from tiers import mostly_slow


@pytest.mark.parametrize("method", mostly_slow(["patch-lda", "replay", "ccp"], fast=["ccp"]))
def test_threads_can_predict_while_another_learns(method: str, digits: Dataset) -> None:
    """Every prediction is that of a state between two calls, and learning is not affected."""
    x, y = digits.train_x, digits.train_y
    order = y.argsort(stable=True)[::3]  # one class after the other, so that all are met

    def taught(classifier: OnlineClassifier) -> OnlineClassifier:
        for index in order.split(20):
            classifier.partial_fit(x[index], [int(label) * 10 for label in y[index]])
            for extra in range(3):  # classes beyond the room at first, in a random order
                classifier.partial_fit(x[index[:1]], [1000 - int(index[0]) - extra])
        return classifier

    def begun() -> OnlineClassifier:
        return OnlineClassifier(method, memory="100KB").partial_fit(x[:2], [-1, -2])

    shared, done = begun(), threading.Event()

    def ask() -> int:
        asked = 0
        while not done.is_set():
            assert set(shared.predict(digits.test_x[:5])) <= set(shared.classes_)
            shared.predict_proba(digits.test_x[:5])
            asked += 1
        return asked

    with ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(ask) for _ in range(2)]
        try:
            taught(shared)
        finally:
            done.set()
    assert all(each.result() for each in asking)
    # Statistics that are asked between samples update their last solution; a copy computes its own.
    learnt, alone = deepcopy(shared), taught(begun())
    np.testing.assert_allclose(
        learnt.decision_function(digits.test_x), alone.decision_function(digits.test_x), rtol=1e-9
    )


def test_a_copy_has_a_lock_of_its_own(digits: Dataset) -> None:
    classifier = OnlineClassifier().partial_fit(digits.train_x[:10], digits.train_y[:10])
    for copy in (deepcopy(classifier), pickle.loads(pickle.dumps(classifier))):
        with vars(classifier)["_workings"].lock, ThreadPoolExecutor(1) as threads:
            threads.submit(copy.predict, digits.test_x[:5]).result(timeout=60)


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
def test_threads_may_make_the_first_calls(name: str) -> None:
    """The lock exists before the first call, so that every sample is counted."""
    x, y = vectors(400)
    for _ in range(3):
        clf, start = OnlineClassifier(name), threading.Barrier(4)

        def learn(part: int, clf: OnlineClassifier = clf, start: threading.Barrier = start) -> None:
            start.wait()
            clf.partial_fit(x[part::4], y[part::4])

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(learn, range(4)))
        assert clf.n_samples_seen_ == 400
        assert clf.classes_.tolist() == sorted(set(y))


@pytest.mark.parametrize(
    "ask",
    [
        lambda clf: pickle.loads(pickle.dumps(clf)).n_samples_seen_,
        lambda clf: deepcopy(clf).n_samples_seen_,
        lambda clf: clf.n_samples_seen_,
        lambda clf: clf.nbytes,
    ],
    ids=["pickle", "copy", "n_samples_seen_", "nbytes"],
)
def test_calls_wait_while_another_thread_learns(ask: Callable[[OnlineClassifier], int]) -> None:
    x, y = vectors(30)
    clf = OnlineClassifier("ccp", memory=20).partial_fit(x, y)
    with ThreadPoolExecutor(1) as threads:
        with vars(clf)["_workings"].lock:  # as a call has that goes on
            answer = threads.submit(ask, clf)
            wait([answer], timeout=0.3)
            assert not answer.done()
            clf.partial_fit(x, y).partial_fit(x[:20], [f"new {label}" for label in range(20)])
        assert answer.result(timeout=60) == ask(clf)  # of the end, and of no moment in between


def test_two_classifiers_that_merge_each_other_do_not_wait_for_each_other() -> None:
    x, y = vectors(60)
    with registered():
        one, two = (OnlineClassifier("sums").partial_fit(x, y) for _ in range(2))
        with ThreadPoolExecutor(4) as threads:
            for _ in range(10):
                calls = [threads.submit(one.merge, two), threads.submit(two.merge, one), threads.submit(one.predict, x)]
                for call in calls:
                    call.result(timeout=60)
        assert one.n_samples_seen_ % 60 == two.n_samples_seen_ % 60 == 0
        assert one.n_samples_seen_ > 60
