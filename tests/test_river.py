"""The adapter for River. One test needs River, the others do not."""

import sys
from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import MultinomialNB

from onebyone import Dataset, OnlineClassifier, UsageError
from onebyone.river import RiverClassifier
from summing import registered


def pixels(row: Any) -> dict[str, float]:
    return {f"pixel {index}": float(value) for index, value in enumerate(row)}


def test_learn_one_equals_partial_fit_of_one_sample(digits: Dataset) -> None:
    x, y = digits.train_x.flatten(1).numpy()[:300], digits.train_y.numpy()[:300]
    model, expected = RiverClassifier(MultinomialNB(), classes=range(10)), MultinomialNB()
    correct = 0
    for number, (row, label) in enumerate(zip(x, y.tolist(), strict=True)):
        sample = pixels(row)
        if number % 2:
            sample = dict(reversed(sample.items()))  # the order of features means nothing
        if number:
            answer = model.predict_one(sample)
            assert type(answer) is int
            assert answer == expected.predict(row[None])[0]
            probabilities = model.predict_proba_one(sample)
            assert list(probabilities) == list(range(10))
            assert list(probabilities.values()) == expected.predict_proba(row[None])[0].tolist()
            correct += answer == label
        model.learn_one(sample, label)
        expected.partial_fit(row[None], [label], classes=range(10))
    assert correct > 150


def test_there_is_no_prediction_before_the_first_sample() -> None:
    model = RiverClassifier(SGDClassifier(loss="log_loss"), classes=["no", "yes"])
    assert model.predict_one({"a": 1}) is None
    assert model.predict_proba_one({"a": 1}) == {}
    model.learn_one({"b": 1, "c": 2.5}, "yes")  # a prediction does not fix the names
    assert model.predict_one({"c": 1, "b": 0}) in ("no", "yes")
    assert model.predict_proba_one({"c": 1, "b": 0}).keys() == {"no", "yes"}


@pytest.mark.parametrize("sample", [{"a": 1.0}, {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 1.0, 7: 2.0}, {}])
def test_features_that_are_missing_or_new_are_refused(sample: dict[Any, float]) -> None:
    model = RiverClassifier(MultinomialNB(), classes=[0, 1])
    model.learn_one({"a": 1, "b": 2}, 0)
    before = deepcopy(vars(model.model))
    for act in (model.predict_one, model.predict_proba_one, lambda x: model.learn_one(x, 1)):
        with pytest.raises(UsageError, match=r"expected those of the first sample, \['a', 'b'\]"):
            act(sample)
    assert all(np.array_equal(value, before[name]) for name, value in vars(model.model).items())


def test_new_features_count_as_zero_until_they_are_learnt() -> None:
    """As words do, of which the first sample has few."""
    texts = [("buy cheap pills", "spam"), ("see you", "mail"), ("cheap pills now", "spam"), ("lunch at", "mail")]
    words = ["buy", "cheap", "pills", "see", "you", "now", "lunch", "at"]  # in the order in which they came
    model, expected = RiverClassifier(MultinomialNB(), classes=["mail", "spam"], features=8), MultinomialNB()
    for text, label in texts:
        model.learn_one(dict.fromkeys(text.split(), 1), label)
        expected.partial_fit([[word in text.split() for word in words]], [label], classes=["mail", "spam"])
    for text in ("cheap lunch", "pills never heard of", "", "see you at noon"):
        asked = dict.fromkeys(text.split(), 1)
        (probabilities,) = expected.predict_proba([[word in asked for word in words]])
        assert list(model.predict_proba_one(asked).values()) == pytest.approx(probabilities)
    with pytest.raises(UsageError, match="there are 9 features, and features=8 is the room for them; start again"):
        model.learn_one({"noon": 1}, "mail")
    assert len(model.columns) == 8
    with pytest.raises(UsageError, match="features is 0; give the number of features"):
        RiverClassifier(MultinomialNB(), features=0)


def test_many_samples_are_learnt_as_one_by_one() -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.integers(0, 9, (40, 3)), columns=["a", "b", "c"], index=range(100, 140))
    labels = pd.Series([("x", "y")[row % 2] for row in range(40)], frame.index)
    weights = np.arange(40) % 3
    model, single = (RiverClassifier(MultinomialNB(), classes=["x", "y"], features=5) for _ in range(2))
    assert model.predict_many(frame).tolist() == [None] * 40
    assert model.predict_proba_many(frame).shape == (40, 0)
    model.learn_many(frame[["c", "a"]], labels, weights)
    for row, label, weight in zip(frame[["c", "a"]].to_dict("records"), labels, weights.tolist(), strict=True):
        single.learn_one(row, label, weight)
    predicted, probabilities = model.predict_many(frame), model.predict_proba_many(frame)  # b was never learnt
    assert predicted.index.equals(frame.index)
    assert predicted.tolist() == [single.predict_one(row) for row in frame.to_dict("records")]
    assert list(probabilities.columns) == ["x", "y"]
    expected = [list(single.predict_proba_one(row).values()) for row in frame.to_dict("records")]
    np.testing.assert_allclose(probabilities, expected)
    with pytest.raises(UsageError, match="y is None in row 1, so the sample has no label"):
        model.learn_many(frame[:2], ["x", None])
    with pytest.raises(UsageError, match=r"the feature 'a' has values that are not numbers .* encode it first"):
        model.learn_many(frame.assign(a="red"), labels)


def test_a_first_sample_that_is_refused_does_not_fix_the_names() -> None:
    model = RiverClassifier(MultinomialNB(), classes=[0, 1])
    with pytest.raises(ValueError, match="Negative"):
        model.learn_one({"a": -1}, 0)
    model.learn_one({"b": 1}, 0)
    assert model.predict_one({"b": 1}) == 0


def test_images_are_passed_unchanged(digits: Dataset) -> None:
    seen: list[Any] = []

    class Recorder:
        classes_ = np.array(["cat", "dog"])

        def partial_fit(self, X: Any, y: Any) -> None:
            seen.append((X.shape, X.dtype, y.tolist()))

        def predict(self, X: Any) -> Any:
            return np.array(["dog"])

        def predict_proba(self, X: Any) -> Any:
            return np.array([[0.25, 0.75]])

    model = RiverClassifier(Recorder())
    image = digits.train_x[0].numpy()
    model.learn_one(image, "cat")
    assert seen == [((1, 1, 8, 8), np.uint8, ["cat"])]
    assert model.predict_one(image) == "dog"
    assert type(model.predict_one(image)) is str
    assert model.predict_proba_one(image) == {"cat": 0.25, "dog": 0.75}


def test_the_given_classifier_is_not_trained() -> None:
    given = MultinomialNB()
    model = RiverClassifier(given, classes=[0, 1])
    model.learn_one({"a": 1}, 0)
    assert not hasattr(given, "classes_")
    assert model.model.classes_.tolist() == [0, 1]


def test_the_adapter_works_with_river(digits: Dataset) -> None:
    """If River is installed, its evaluation accepts the adapter, and a clone is untrained."""
    pytest.importorskip("river")
    from river import evaluate, metrics, preprocessing

    x, y = digits.train_x.flatten(1).numpy()[:300], digits.train_y.tolist()[:300]
    model = RiverClassifier(MultinomialNB(), classes=range(10))
    pairs = [(pixels(row), label) for row, label in zip(x, y, strict=True)]
    accuracy = evaluate.progressive_val_score(pairs, model, metrics.Accuracy())
    by_hand, correct = RiverClassifier(MultinomialNB(), classes=range(10)), 0
    for sample, label in pairs:
        correct += by_hand.predict_one(sample) == label
        by_hand.learn_one(sample, label)
    assert accuracy.get() == correct / 299  # River leaves out the first sample, which has no prediction
    evaluate.progressive_val_score(pairs, model.clone(), metrics.CrossEntropy())  # by predict_proba_one
    assert model.clone().predict_one(pairs[0][0]) is None
    pipeline = preprocessing.MinMaxScaler() | RiverClassifier(MultinomialNB(), classes=range(10))
    assert evaluate.progressive_val_score(pairs, pipeline, metrics.MacroF1()).get() > 0.3
    named = [({"digit": f"is {label}", "noise": str(row % 7)}, label) for row, label in enumerate(y)]
    encoded = preprocessing.OneHotEncoder() | RiverClassifier(MultinomialNB(), classes=range(10), features=20)
    assert evaluate.progressive_val_score(named, encoded, metrics.Accuracy()).get() > 0.9


def test_the_adapter_does_not_need_river() -> None:
    assert ("river" in sys.modules) == (RiverClassifier.__mro__[1] is not object)


def test_weights_and_unknown_samples(digits: Dataset) -> None:
    x, y = digits.train_x.flatten(1).float().numpy()[:100], digits.train_y[:100].tolist()
    with registered():
        model, expected = RiverClassifier(OnlineClassifier("sums"), unknown=-1), OnlineClassifier("sums")
        for number, (row, label) in enumerate(zip(x, y, strict=True)):
            model.learn_one(row, label, w=number % 3)
        expected.partial_fit(x, y, sample_weight=np.arange(100) % 3)
        np.testing.assert_allclose(
            model.model.decision_function(x), expected.decision_function(x), rtol=1e-9, atol=1e-9
        )
        assert model.model.n_samples_seen_ == 66
        assert model.predict_one(x[0]) in range(10)
        assert model.predict_one(x[0] + 1000) == -1


def test_a_sample_without_a_label_is_refused() -> None:
    """River's streams have None for "no label", and ``predict_one`` has it for "no answer"."""
    with registered():
        model = RiverClassifier(OnlineClassifier("sums"))
        for answer in (None, "yes"):
            with pytest.raises(UsageError, match="y is None, so the sample has no label; leave it out"):
                model.learn_one({"a": 1, "b": 2}, None)
            assert model.predict_one({"a": 1, "b": 2}) == answer
            model.learn_one({"a": 1, "b": 2}, "yes")
        assert model.model.classes_.tolist() == ["yes"]


def test_tuples_are_labels() -> None:
    with registered():
        model = RiverClassifier(OnlineClassifier("sums"), classes=[("cat", 1), ("dog", 2)])
        for number in range(6):
            model.learn_one({"a": number % 2, "b": 1}, [("cat", 1), ("dog", 2)][number % 2])
        assert model.predict_one({"a": 1, "b": 1}) == ("dog", 2)
        assert list(model.predict_proba_one({"a": 1, "b": 1})) == [("cat", 1), ("dog", 2)]


def test_a_feature_that_is_no_number_is_named() -> None:
    model = RiverClassifier(MultinomialNB(), classes=[0, 1])
    with pytest.raises(UsageError, match="the feature 'colour' is 'red'; expected a number"):
        model.learn_one({"size": 1, "colour": "red"}, 0)  # type: ignore[dict-item]
