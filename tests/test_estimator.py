"""OnlineClassifier: the contract of scikit-learn, ``fit``, ``partial_fit``, predictions, seeds and copies."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from classifiers import DEFAULT_AND_CCP, NAMES, state_of, vectors
from onebyone import Dataset, OnlineClassifier, UsageError
from onebyone.methods import AUTO, ReplayLearner
from tiers import mostly_slow


def weights_are_not_copies(estimator: OnlineClassifier) -> dict[str, str]:
    """The check that cannot hold for a network; test_estimator_weights.py tests what holds instead."""
    if estimator.method == AUTO:
        return {}
    checks = (f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse"))
    return dict.fromkeys(checks, "SGD takes one step with a sample of weight 2, not two")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([OnlineClassifier(), OnlineClassifier("ccp")], expected_failed_checks=weights_are_not_copies)
def test_scikit_learn_checks(estimator: OnlineClassifier, check: Callable[[OnlineClassifier], None]) -> None:
    check(estimator)


def test_words_in_a_pipeline() -> None:
    """Sparse rows of any format are learnt as arrays are; too large ones are refused with what to do."""
    texts = ["a red apple", "an apple tree", "apple pie", "the fast car", "a blue car", "cars and a car"] * 4
    labels = ["fruit", "fruit", "fruit", "car", "car", "car"] * 4
    words = make_pipeline(TfidfVectorizer(), OnlineClassifier()).fit(texts, labels)
    assert words.predict(["green apple", "the car"]).tolist() == ["fruit", "car"]
    x = TfidfVectorizer().fit_transform(texts)
    expected = OnlineClassifier().partial_fit(x.toarray(), labels).predict_proba(x.toarray())
    for kind in ("csc", "coo", "dok", "lil"):
        clf = OnlineClassifier().partial_fit(x.asformat(kind), labels)
        np.testing.assert_array_equal(clf.predict_proba(x), expected)
    with pytest.raises(UsageError, match=r"takes 80\.0 GB as an array, which is needed; give at most 13421 rows"):
        clf.partial_fit(csr_matrix((10**6, 10**4)), np.zeros(10**6))


@pytest.mark.parametrize("mode", mostly_slow([torch.no_grad, torch.inference_mode], fast=[torch.inference_mode]))
@pytest.mark.parametrize("name", NAMES)
def test_learning_works_with_gradients_disabled(name: str, mode: Callable[[], Any], tmp_path: Path) -> None:
    """As in a server: a classifier learns there, and so do classifiers that are built, copied or loaded there."""
    x, y = vectors(60)

    def learnt_more(clf: OnlineClassifier, x: Any) -> OnlineClassifier:
        return clf.partial_fit(x, y).partial_fit(x[:20], [f"new {label}" for label in range(20)])  # with more room

    with mode():
        tensor = torch.tensor(x, dtype=torch.float32)
        clf = OnlineClassifier(name).partial_fit(tensor, y).fit(tensor, y)
        clf.predict(tensor)
        clf.save(tmp_path / "file")
        others = [OnlineClassifier.load(tmp_path / "file"), deepcopy(clf), pickle.loads(pickle.dumps(clf))]
        learnt_more(clf, tensor)
    expected = learnt_more(OnlineClassifier(name).fit(x, y), x).decision_function(x)
    for each in (clf, *(learnt_more(other, tensor) for other in others)):
        np.testing.assert_array_equal(each.decision_function(x), expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_state_for_a_copy_is_independent(name: str) -> None:
    """It is read after the lock is released, when the classifier may already learn again."""
    x, y = vectors(40)
    clf = OnlineClassifier(name).partial_fit(x, y)
    given, before = clf.__getstate__(), state_of(clf)
    clf.partial_fit(x[::-1], y[::-1])
    copy = OnlineClassifier()
    copy.__setstate__(given)
    assert state_of(copy) == before != state_of(clf)
    assert state_of(copy.partial_fit(x[::-1], y[::-1])) == state_of(clf)


@pytest.mark.parametrize("name", NAMES)
def test_every_method_learns_classes_not_known_in_advance(digits: Dataset, name: str) -> None:
    clf = OnlineClassifier(name, memory=100)
    for label in (3, 1, 7):
        mine = digits.train_y == label
        clf.partial_fit(digits.train_x[mine][:100], [f"digit {label}"] * 100)
    assert clf.classes_.tolist() == ["digit 1", "digit 3", "digit 7"]
    asked = torch.isin(digits.test_y, torch.tensor([1, 3, 7]))
    x, y = digits.test_x[asked], [f"digit {label}" for label in digits.test_y[asked].tolist()]
    probabilities = clf.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    assert (clf.classes_[probabilities.argmax(1)] == clf.predict(x)).all()
    assert (clf.decision_function(x).argmax(1) == probabilities.argmax(1)).all()
    assert clf.n_samples_seen_ == 300
    if name == "ccp":
        assert clf.score(x, y) > 0.8


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
@pytest.mark.parametrize("sizes", [[1] * 30, [30], [1, 10, 7, 12]], ids=str)
@pytest.mark.parametrize("batch_size", [1, 7, 10])
def test_a_call_is_split_into_steps_in_the_given_order(batch_size: int, sizes: list[int], name: str) -> None:
    x, y = vectors(30)
    clf, seen = OnlineClassifier(name, batch_size=batch_size), 0
    for size in sizes:
        clf.partial_fit(x[seen : seen + size], y[seen : seen + size])
        seen += size
    assert clf._state is not None
    learner = clf._state.learner
    assert int(learner.steps) == (sum(-(-size // batch_size) for size in sizes) if learner.steps_matter else len(sizes))
    assert clf.n_samples_seen_ == 30
    if isinstance(learner, ReplayLearner):
        np.testing.assert_array_equal(learner.memory.x[:30], x.astype(np.float32))


@pytest.mark.parametrize(("name", "memory"), [("ccp", 60), (AUTO, 60), (AUTO, 4000)])
def test_classes_beyond_the_initial_capacity_are_learnt(name: str, memory: int) -> None:
    rng = np.random.default_rng(0)
    clf = OnlineClassifier(name, memory=memory)
    for label in range(70):
        clf.partial_fit(rng.normal(size=(2, 3)), [f"{label:02}"] * 2)
        assert clf.classes_.tolist() == [f"{known:02}" for known in range(label + 1)]
    assert clf.predict_proba(rng.normal(size=(5, 3))).shape == (5, 70)
    assert clf._state is not None
    assert clf._state.learner.spec.num_classes == 128


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
def test_two_classes_have_one_decision_value(name: str) -> None:
    x, y = vectors(40)
    two = [label == "class 1" for label in y]
    clf = OnlineClassifier(name).fit(x, two)
    decision = clf.decision_function(x)
    assert decision.shape == (40,)
    assert ((decision > 0) == clf.predict(x)).all()


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
def test_classes_without_samples_have_probability_zero(name: str) -> None:
    x, y = vectors(20)
    clf = OnlineClassifier(name).partial_fit(x, y, classes=["zebra", *sorted(set(y))])
    assert clf.classes_.tolist() == [*sorted(set(y)), "zebra"]
    assert (clf.predict_proba(x)[:, -1] == 0).all()
    assert (clf.decision_function(x)[:, -1] == -np.inf).all()
    clf.partial_fit(x[:3], ["zebra"] * 3)
    assert (clf.decision_function(x)[:, -1] > -np.inf).all()


@pytest.mark.parametrize("name", NAMES)
def test_fit_starts_from_scratch_and_partial_fit_continues(name: str) -> None:
    x, y = vectors(60)
    clf = OnlineClassifier(name).partial_fit(x, ["other"] * 60).fit(x, y)
    assert "other" not in clf.classes_
    assert state_of(clf)["tensors"] == state_of(OnlineClassifier(name).fit(x, y))["tensors"]
    assert clf.n_samples_seen_ == 60  # in any number of epochs
    assert clf.partial_fit(x, y).n_samples_seen_ == 2 * 60


def test_each_epoch_adds_steps_of_the_network() -> None:
    x, y = vectors(60)
    few, many = (OnlineClassifier("ccp", epochs=epochs).fit(x, y)._state for epochs in (1, 4))
    assert few is not None
    assert many is not None
    assert (int(few.learner.steps), int(many.learner.steps)) == (6, 24)
    assert torch.equal(few.learner.counts, many.learner.counts)


def test_statistics_count_each_sample_once_in_fit(digits: Dataset) -> None:
    """As in partial_fit. Repeated passes would count as more samples and make the shrinkage too small."""
    x, y = digits.train_x[:20], digits.train_y[:20]
    fitted, streamed = OnlineClassifier().fit(x, y), OnlineClassifier().partial_fit(x, y)
    assert fitted.method_ == "patch-lda"
    assert fitted.n_samples_seen_ == 20
    np.testing.assert_allclose(
        fitted.predict_proba(digits.test_x), streamed.predict_proba(digits.test_x), rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
@pytest.mark.parametrize("random_state", [0, 7, None, "state"])
def test_equal_seeds_give_equal_states(random_state: Any, name: str) -> None:
    x, y = vectors(200)
    seeds = [np.random.RandomState(3), np.random.RandomState(3)] if random_state == "state" else [random_state] * 2
    first, second = (OnlineClassifier(name, random_state=seed).fit(x, y) for seed in seeds)
    assert (state_of(first)["tensors"] == state_of(second)["tensors"]) == (random_state is not None)


@pytest.mark.parametrize(("name", "options"), [("er", {"learning_rate": 0.05}), (AUTO, {"shrinkage": 0.01})])
def test_clone_pipeline_pickle_and_the_global_generator(name: str, options: dict[str, float]) -> None:
    x, y = vectors(60)
    before = torch.get_rng_state()
    clf = OnlineClassifier(name, options=options).fit(x, y)
    assert clone(clf).get_params() == clf.get_params()
    assert make_pipeline(StandardScaler(), clone(clf)).fit(x, y).score(x, y) > 0.8
    other = pickle.loads(pickle.dumps(clf))
    clf.partial_fit(x, y)
    assert state_of(other.partial_fit(x, y)) == state_of(clf)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", NAMES)
def test_every_method_can_be_pickled(name: str) -> None:
    x, y = vectors(30)
    clf = OnlineClassifier(name).partial_fit(x, y)
    other = pickle.loads(pickle.dumps(clf))
    assert state_of(other.partial_fit(x, y)) == state_of(clf.partial_fit(x, y))


def test_numpy_integers_are_accepted_as_parameters(tmp_path: Path) -> None:
    x, y = vectors(60)
    numbers = {"memory": 30, "batch_size": 7, "epochs": 2, "random_state": 3, "every": 50}
    first = OnlineClassifier("er", **numbers).fit(x, y)  # type: ignore[arg-type]
    second = OnlineClassifier("er", **{name: np.int64(value) for name, value in numbers.items()}).fit(x, y)  # type: ignore[arg-type]
    assert state_of(first)["tensors"] == state_of(second)["tensors"]
    second.save(tmp_path / "file")
    loaded = OnlineClassifier.load(tmp_path / "file")
    assert loaded.get_params() == first.get_params()
    assert state_of(loaded)["tensors"] == state_of(first)["tensors"]
