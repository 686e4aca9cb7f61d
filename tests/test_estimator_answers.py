"""Prior, temperature, unknown samples and the report."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_wine
from sklearn.metrics import roc_auc_score

from classifiers import learner_of, state_of, vectors
from onebyone import Dataset, OnlineClassifier, UsageError
from onebyone.estimator.evidence import SIZE, Record
from onebyone.estimator.report import wilson
from onebyone.methods.temperature import fitted_temperature, probabilities
from summing import registered

X, Y = vectors(300)


@pytest.fixture(autouse=True, scope="module")
def sums() -> Iterator[None]:
    with registered():
        yield


@pytest.fixture(scope="module")
def network(digits: Dataset) -> OnlineClassifier:
    return OnlineClassifier("er", memory=300).partial_fit(digits.train_x[:800], digits.train_y[:800].tolist())


PRIORS: list[Any] = ["uniform", "counts", {0: 0.9}, dict.fromkeys(range(10), 0.1), {3: 0.0, 4: 0.5}]


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_answers_agree(network: OnlineClassifier, digits: Dataset, prior: Any) -> None:
    network.set_params(prior=prior)
    x = digits.test_x[:100]
    probabilities = network.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    best = network.predict(x)
    assert (network.classes_[probabilities.argmax(1)] == best).all()
    assert (network.classes_[network.decision_function(x).argmax(1)] == best).all()
    network.set_params(prior="uniform")


def test_a_prior_multiplies_the_odds(network: OnlineClassifier, digits: Dataset) -> None:
    """Those at the temperature that was fitted, of which probabilities are the middle."""
    x = digits.test_x[:100]
    equal = network.set_params(prior="uniform").decision_function(x)
    temperature = network._predictor().temperature
    network.set_params(prior={0: 0.5, 1: 0.25})
    given, found = network.decision_function(x), network.predict_proba(x)
    network.set_params(prior="uniform")
    shares = np.array([0.5, 0.25] + [0.25 / 8] * 8)  # the others share what is left
    odds = np.exp(equal / temperature) * shares
    wanted = odds / odds.sum(1, keepdims=True)
    at_temperature = torch.tensor(given / temperature).softmax(1).numpy()
    np.testing.assert_allclose(at_temperature, wanted, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found, probabilities(torch.tensor(given).double() / temperature), atol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"prior": "count"}, "it must be 'uniform', 'counts' or a dictionary"),
        ({"prior": {"class 0": 2}}, "must be probabilities"),
        ({"prior": {"class 0": 0.7, "class 1": 0.7}}, "sum of at most 1"),
        ({"prior": {}}, "must be probabilities"),
        ({"unknown_rate": 1}, "from 0 to less than 1"),
        ({"unknown_rate": "few"}, "from 0 to less than 1"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    clf = OnlineClassifier("sums").partial_fit(X, Y).set_params(**parameters)
    before = state_of(clf)
    for act in (lambda: clf.predict(X), lambda: clf.partial_fit(X, Y), clf.report):
        with pytest.raises(UsageError, match=message):
            act()
    assert state_of(clf) == before


def test_a_prior_of_zero_for_all_known_classes_is_refused() -> None:
    clf = OnlineClassifier("sums", prior={"elsewhere": 1.0}).partial_fit(X, Y)
    with pytest.raises(UsageError, match="every class that was learnt has the probability 0"):
        clf.predict(X)


def test_a_prior_is_saved(tmp_path: Path) -> None:
    prior = {("a", 1): 0.25, ("b", 2): 0.5}
    clf = OnlineClassifier("sums", prior=prior, unknown_rate=0.1).partial_fit(X[:2], [("a", 1), ("b", 2)])
    clf.save(tmp_path / "file")
    found = OnlineClassifier.load(tmp_path / "file")
    assert (found.prior, found.unknown_rate) == (prior, 0.1)
    np.testing.assert_array_equal(found.predict_proba(X), clf.predict_proba(X))


@given(st.floats(0.1, 10), st.integers(0, 100))
def test_the_temperature_of_calibrated_scores_is_found(temperature: float, seed: int) -> None:
    """Labels drawn with the probabilities that scores / temperature have."""
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(4000, 5, generator=generator)
    y = torch.multinomial(probabilities(scores), 1, generator=generator)[:, 0]
    found = fitted_temperature(1.0, (scores * temperature).double(), y)
    assert found == pytest.approx(temperature, rel=0.15)


def test_the_temperature_is_one_until_there_is_evidence(digits: Dataset) -> None:
    clf = OnlineClassifier("er", memory=300).partial_fit(digits.train_x[:20], digits.train_y[:20].tolist())
    expected = probabilities(torch.tensor(clf.decision_function(digits.test_x)).double()).numpy()
    np.testing.assert_allclose(clf.predict_proba(digits.test_x), expected, rtol=1e-5, atol=1e-30)
    assert not (clf.predict(255 - digits.test_x, unknown=-1) == -1).any()


@pytest.mark.parametrize(("method", "temperature"), [("replay", 0.1), ("hybrid", None)])
def test_before_there_is_evidence_the_learner_knows_a_temperature(
    digits: Dataset, method: str, temperature: float | None
) -> None:
    """That of cosines to class means, and that of the statistics."""
    clf = OnlineClassifier(method, memory=300).partial_fit(digits.train_x[:10], digits.train_y[:10].tolist())
    learner: Any = learner_of(clf)
    scores = torch.tensor(clf.decision_function(digits.test_x)).double()
    expected = probabilities(scores / (temperature or learner.statistics.temperature())).numpy()
    np.testing.assert_allclose(clf.predict_proba(digits.test_x), expected, rtol=1e-4, atol=1e-30)


def test_probabilities_of_a_network_are_calibrated(network: OnlineClassifier, digits: Dataset) -> None:
    """Confidence is within a tenth of the accuracy, and the report's accuracy within its interval."""
    probabilities = network.predict_proba(digits.test_x)
    assert abs(probabilities.max(1).mean() - network.score(digits.test_x, digits.test_y.tolist())) < 0.1
    report = network.report()
    low, high = report.interval
    assert low < report.accuracy < high
    assert low - 0.05 < network.score(digits.test_x, digits.test_y.tolist()) < high + 0.05


def test_few_known_and_many_unknown_samples_are_turned_away(digits: Dataset) -> None:
    """Digits 0 to 4 were learnt. The class means tell them from noise."""
    known = digits.train_y < 5
    x, y = digits.train_x[known], digits.train_y[known].tolist()
    for name in ("sums", "replay"):
        clf = OnlineClassifier(name, memory=100, unknown_rate=0.1).partial_fit(x, y)
        mine = digits.test_x[digits.test_y < 5]
        answers = clf.predict(mine, unknown=-1)
        assert 0.02 < (answers == -1).mean() < 0.25
        assert (answers[answers != -1] == clf.predict(mine)[answers != -1]).all()
        noise = torch.randint(256, (100, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        if name == "sums":
            assert (clf.predict(noise, unknown=-1) == -1).mean() > 0.9
        assert clf.typicality(noise).mean() < clf.typicality(mine).mean()
        assert not (clf.set_params(unknown_rate=0).predict(noise, unknown=-1) == -1).any()


def test_an_unknown_label_may_have_another_type() -> None:
    clf = OnlineClassifier("sums", unknown_rate=0.3).partial_fit(X, [int(label[-1]) for label in Y])
    answers = clf.predict(np.concatenate([X, X + 1000]), unknown="?").tolist()
    assert set(answers) == {0, 1, 2, "?"}
    assert set(answers[300:]) == {"?"}


@pytest.mark.parametrize("unknown", [("not", "known"), np.int64(-1), False], ids=repr)
def test_any_label_may_stand_for_unknown_samples(unknown: Any) -> None:
    for labels in ([int(label[-1]) for label in Y], [label[-1] == "0" for label in Y], [(label, 1) for label in Y]):
        if unknown is False and isinstance(labels[0], bool):  # a known class
            continue
        clf = OnlineClassifier("sums", unknown_rate=0.3).partial_fit(X, labels)
        answers = clf.predict(np.concatenate([X, X + 1000]), unknown=unknown).tolist()
        assert answers[300:] == [unknown] * 300
        known = [answer for answer in answers[:300] if answer != answers[-1]]
        assert {type(answer) for answer in known} == {type(labels[0])}


@pytest.mark.parametrize(("labels", "known"), [(Y, "class 1"), ([label == "class 1" for label in Y], False)])
def test_a_known_class_cannot_stand_for_unknown_samples(labels: list[Any], known: Any) -> None:
    clf = OnlineClassifier("sums").partial_fit(X, labels)
    with pytest.raises(UsageError, match=f"unknown is {known!r}, which is a known class; give a label that no class"):
        clf.predict(X, unknown=known)


def test_a_class_of_the_prior_that_was_never_learnt_is_named() -> None:
    """Its label may be misspelt, or written as another type."""
    clf = OnlineClassifier("sums", prior={"class 0": 0.5, "class_1": 0.25, "later": 0.25})
    clf.partial_fit(X, Y, classes=["later"])
    for ask in (clf.predict, clf.predict_proba, lambda x: clf.examine(x).labels):
        with pytest.warns(
            UserWarning, match="prior has 'class_1', 'later', of which no sample was learnt, .* 'class 1"
        ):
            ask(X[:3])
    clf.rename({"class 1": "class_1"}).partial_fit(X[:3], ["later"] * 3).predict(X[:3])


def test_the_report(network: OnlineClassifier, tmp_path: Path) -> None:
    report = network.report()
    assert report.source == "predicted before learnt"
    assert 200 < report.samples <= SIZE
    assert sum(each.samples for each in report.classes) == report.samples
    right = sum(each.samples * each.accuracy for each in report.classes)
    assert np.mean([each.accuracy for each in report.classes]) == pytest.approx(report.accuracy)
    assert sum(each.samples for each in report.confusions) <= report.samples - right + 1e-6
    assert [each.label for each in report.classes] == sorted(each.label for each in report.classes)
    for line in (
        f"{100 * report.accuracy:.1f} %",
        f"{report.samples} samples, predicted before learnt",
        "one at a time",
    ):
        assert line in str(report)
    assert json.loads(json.dumps(report.to_dict()))["accuracy"] == report.accuracy
    report.plot(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 5000


@pytest.mark.parametrize("prior", ["uniform", "counts", {0: 0.7}])
def test_classes_count_in_a_report_as_the_prior_says(prior: Any) -> None:
    """Even if hardly any samples of one were left out."""
    rng = np.random.default_rng(1)

    def samples(*counts: int) -> tuple[Any, Any]:
        y = np.repeat([0, 1], counts)
        return rng.normal(size=(sum(counts), 10)) + 0.6 * y[:, None], y

    clf = OnlineClassifier(prior=prior).partial_fit(*samples(1000, 40))
    report = clf.report()
    shares = {"uniform": [0.5, 0.5], "counts": [1000 / 1040, 40 / 1040]}.get(str(prior), [0.7, 0.3])
    assert report.accuracy == pytest.approx(np.dot(shares, [each.accuracy for each in report.classes]))
    assert report.interval[0] <= report.accuracy <= report.interval[1]
    x, y = samples(3000, 3000)
    weight = np.array(shares)[y]
    assert report.interval[0] <= clf.score(x, y, sample_weight=weight) <= report.interval[1]


def test_the_report_of_samples_with_few_different_values() -> None:
    """Equal samples have equal hashes: none of them may fill the kept samples."""
    rng = np.random.default_rng(0)
    centres = rng.random((4, 3, 3)) + 0.2

    def samples(count: int) -> tuple[Any, Any]:
        y = rng.integers(0, 4, count)
        chances = centres[y] / centres[y].sum(2, keepdims=True)
        values = (chances.cumsum(2) < rng.random((count, 3, 1))).sum(2)
        return np.eye(3, dtype=np.float32)[values].reshape(count, 9), y

    clf = OnlineClassifier(memory="1MB").partial_fit(*samples(4000))
    report, (x, y) = clf.report(), samples(4000)
    assert report.interval[0] <= clf.score(x, y) <= report.interval[1]
    assert abs(clf.predict_proba(x).max(1).mean() - clf.score(x, y)) < 0.05
    assert (clf.predict(x, unknown=-1) == -1).mean() < 0.12


@pytest.mark.parametrize("right", range(0, 300, 7))
def test_an_interval_contains_its_share(right: int) -> None:
    for count in (300, right or 1):
        low, high = wilson(min(right, count), count)
        assert low <= min(right, count) / count <= high


def test_a_report_without_a_prediction_is_refused() -> None:
    clf = OnlineClassifier("er").partial_fit(X[:3], ["a", "b", "c"])
    with pytest.raises(UsageError, match="nothing to report yet"):
        clf.report()


def test_the_interval_covers_the_true_share() -> None:
    """In about 95 of 100 cases."""
    rng = np.random.default_rng(0)
    for share in (0.5, 0.9, 0.98):
        ends = np.array([wilson(int(right), 100) for right in rng.binomial(100, share, 2000)])
        assert 0.92 < ((ends[:, 0] <= share) & (share <= ends[:, 1])).mean() < 0.99


@pytest.mark.parametrize("name", ["er", "replay"])
def test_the_record_does_not_depend_on_calls_and_survives_a_file(digits: Dataset, name: str, tmp_path: Path) -> None:
    """As if one process had given all samples in one call."""
    x, y = digits.train_x[:400], digits.train_y[:400].tolist()
    one, two = (OnlineClassifier(name, memory=60, batch_size=10) for _ in range(2))
    one.partial_fit(x, y)
    two.partial_fit(x[:200], y[:200]).save(tmp_path / "file")
    two = OnlineClassifier.load(tmp_path / "file").partial_fit(x[200:], y[200:])
    mine, yours = (clf._state.record for clf in (one, two))  # type: ignore[union-attr]
    assert len(mine.y) > 50
    count = min(len(mine.y), len(yours.y))
    for a, b in zip(mine.left_out, yours.left_out, strict=True):
        torch.testing.assert_close(a[-count:], b[-count:], rtol=0, atol=0)


def test_the_record_follows_the_classes() -> None:
    scores = torch.tensor([[3.0, 1.0, 2.0], [0.0, 1.0, 2.0], [5.0, -torch.inf, 1.0]])
    record = Record().added(scores, torch.tensor([0, 2, 1]), torch.tensor([1.0, 2.0, 3.0]))
    assert record.y.tolist() == [0, 2]  # the third is of a class that was not known
    united = record.united(2, 1)
    assert united.y.tolist() == [0, 1]
    assert united.scores[:, :2].tolist() == [[3.0, 2.0], [0.0, 2.0]]
    assert (united.scores[:, 2] < -1e30).all()
    assert record.without(0).y.tolist() == [2]
    assert (record.y.tolist(), record.scores.tolist()) == ([0, 2], scores[:2].tolist())  # it is not changed
    many = record
    for _ in range(200):
        many = many.added(scores, torch.tensor([0, 2, 0]), torch.zeros(3))
    assert len(many.y) == len(many.scores) == SIZE


def test_scores_of_different_samples_can_be_compared() -> None:
    """As one class against the rest, by sklearn's calibration. The scores of LDA share an offset of each sample."""
    x, y = load_wine(return_X_y=True)
    clf = OnlineClassifier().fit(x, y)
    scores = clf.decision_function(x)
    assert all(roc_auc_score(y == label, scores[:, label]) > 0.99 for label in range(3))
    np.testing.assert_array_equal(scores.argmax(1), clf.predict(x))
    unlikely = clf.set_params(prior={0: 0.0}).decision_function(x)
    assert (unlikely[:, 0] == -np.inf).all()
    assert np.isfinite(unlikely[:, 1:]).all()
    calibrated = CalibratedClassifierCV(OnlineClassifier(), cv=2).fit(x[::2], y[::2])
    assert calibrated.score(x[1::2], y[1::2]) > 0.9
