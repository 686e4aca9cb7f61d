"""What OnlineClassifier refuses, and that a refused call changes nothing."""

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn

from classifiers import DEFAULT_AND_CCP, state_of
from onebyone import Dataset, OnlineClassifier, UsageError

GOOD = np.arange(24, dtype=np.float32).reshape(6, 4), ["a", "b"] * 3


def samples_with(value: float) -> Any:
    x = GOOD[0].copy()
    x[4, 2] = value
    return x


BAD_BATCHES: dict[str, tuple[Any, Any, str]] = {
    "NaN": (samples_with(np.nan), GOOD[1], "X has NaN in row 4, column 2; .*SimpleImputer"),
    "infinite": (samples_with(np.inf), GOOD[1], "infinity, or .* in row 4, column 2; replace"),
    "NaN in a tensor": (torch.tensor(samples_with(np.nan)), GOOD[1], "NaN in row 4, column 2;"),
    "NaN in images": (np.full((6, 4, 4), np.nan), GOOD[1], "NaN in sample 0;"),
    "too large for float32": (GOOD[0].astype(np.float64) * 1e300, GOOD[1], "too large"),
    "more features": (np.zeros((6, 5)), GOOD[1], "X has 5 features, but OnlineClassifier is expecting 4"),
    "images after vectors": (np.zeros((6, 4, 4)), GOOD[1], "features|shape"),
    "bytes after numbers": (GOOD[0].astype(np.uint8), GOOD[1], "uint8"),
    "one sample without its axis": (GOOD[0][0], ["a"], "Expected 2D array, got 1D"),
    "five axes": (np.zeros((1, 2, 3, 4, 5)), ["a"], "shape|features"),
    "no samples": (GOOD[0][:0], [], "0 sample"),
    "no samples in a tensor": (torch.zeros(0, 4), [], "0 samples"),
    "fewer labels": (*(GOOD[0], GOOD[1][:5]), "X has 6 samples and y has 5 labels"),
    "more labels": (GOOD[0][:5], GOOD[1], "X has 5 samples and y has 6 labels"),
    "no labels": (GOOD[0], None, "requires y to be passed"),
    "labels of two types": (GOOD[0], ["a", 1] * 3, "different types"),
    "labels of another type than before": (GOOD[0], [1, 2] * 3, "different types"),
    "labels that are lists": (GOOD[0], [["a"]] * 6, "different types|hashed"),
    "a table of labels": (GOOD[0], np.zeros((6, 2)), "y has shape"),
    "dates": (GOOD[0], np.arange(6).astype("datetime64[ns]"), r"labels of type datetime64; give them as strings"),
    "dates in a list": (GOOD[0], list(np.arange(6).astype("datetime64[D]")), "labels of type datetime64"),
    "spans of time": (GOOD[0], np.arange(6).astype("timedelta64[ns]"), "labels of type timedelta64"),
    "complex numbers": (GOOD[0] + 1j, GOOD[1], "Complex data not supported"),
    "a complex tensor": (torch.zeros(6, 4, dtype=torch.complex64), GOOD[1], "real"),
    "masked values": (np.ma.masked_equal(GOOD[0], 3), GOOD[1], "masked values"),
    "samples that are dates": (np.arange(24).astype("datetime64[D]").reshape(6, 4), GOOD[1], "X has dates"),
    "a column of dates": (pd.DataFrame({"a": np.arange(6), "b": pd.date_range("2020", periods=6)}), GOOD[1], "X has d"),
    "a dictionary": (dict(enumerate(GOOD[0])), GOOD[1], "X is a dict; give an array"),
    "texts": ([["x", "y", "z", "w"]] * 6, GOOD[1], "X has 'x' in row 0, column 0, and samples must be numbers; enc"),
    "text in a column": (
        pd.DataFrame({"size": range(6), "colour": ["1", "red"] * 3}),
        GOOD[1],
        r"X has 'red' in row 1, column 'colour', .* by sklearn.preprocessing.OneHotEncoder\(",
    ),
    "no value in a table": ([[1, 2, None, 4]] * 6, GOOD[1], "X has NaN in row 0, column 2;"),
    "no value in a data frame": (
        pd.DataFrame({"age": pd.array([1, 2, None] * 2, "Int64")}),
        GOOD[1],
        "X has NaN in row 2, column 'age'; replace",
    ),
    "no label": (GOOD[0], ["a", None] * 3, r"y\[1\] is None, a missing label; leave the sample out"),
    "NaN as a label": (GOOD[0], np.array([1, 2, np.nan] * 2), r"y\[2\] is nan, a missing label"),
    "NA as a label": (GOOD[0], pd.array(["a", "b", None] * 2, "string"), r"y\[2\] is <NA>, a missing label"),
    "NaT as a label": (GOOD[0], [date(2020, 1, 1), pd.NaT] * 3, r"y\[1\] is NaT, a missing label"),
    "bytes as labels": (GOOD[0], np.array([b"a", b"b"] * 3), r"y\[0\] is b'a'; give text instead of bytes"),
}


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
@pytest.mark.parametrize("case", BAD_BATCHES)
def test_a_bad_batch_changes_nothing(case: str, name: str) -> None:
    x, y, message = BAD_BATCHES[case]
    clf = OnlineClassifier(name).partial_fit(*GOOD)
    before = state_of(clf)
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(x, y)
    assert state_of(clf) == before
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(x, y, classes=["new"])
    assert state_of(clf) == before
    if case not in ("more features", "images after vectors", "bytes after numbers") and "before" not in case:
        fresh = OnlineClassifier(name)
        untouched = state_of(fresh)
        for call in (fresh.partial_fit, fresh.fit, clf.fit):
            with pytest.raises(ValueError, match=message):
                call(x, y)
        assert state_of(fresh) == untouched
        assert state_of(clf) == before


BAD_IMAGES: dict[str, tuple[Any, str]] = {
    "one image without a list": (np.zeros((2, 8, 3), np.uint8), r"samples of shape \(8, 3\)"),
    "channels": (np.zeros((2, 8, 8, 2), np.uint8), r"samples of shape \(8, 8, 2\)"),
    "vectors": (np.zeros((2, 64), np.uint8), r"samples of shape \(64,\)"),
    "numbers after bytes": (np.zeros((2, 8, 8)), "type float32; expected uint8"),
    "bytes and numbers": ([np.zeros((8, 8), np.uint8), np.zeros((8, 9))], "uint8 and of other types"),
    "of two types": ([np.zeros((8, 8), np.float32), np.zeros((8, 9))], "different shapes"),
}


@pytest.mark.parametrize("case", BAD_IMAGES)
def test_other_images_than_before_are_refused(digits: Dataset, case: str) -> None:
    x, message = BAD_IMAGES[case]
    clf = OnlineClassifier(memory=100).partial_fit(digits.train_x[:9, 0], digits.train_y[:9])
    before = state_of(clf)
    for call in (lambda: clf.partial_fit(x, [0, 1]), lambda: clf.predict(x)):
        with pytest.raises(UsageError, match=message):
            call()
    assert state_of(clf) == before


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "cpp"}, "unknown method 'cpp'; did you mean 'ccp'"),
        (
            {"method": "ccp", "options": {"learning_rat": 1.0}},
            "unknown option of ccp 'learning_rat'; did you mean 'learning_rate'",
        ),
        ({"options": {"learning_rate": 0.1}}, "unknown option of patch-lda 'learning_rate'"),
        ({"encoder": "mlp", "options": {"shrinkage": 0.1}}, "unknown option of replay 'shrinkage'"),
        ({"method": "er", "options": {"learning_rate": -1.0}}, "learning_rate is -1.0"),
        ({"method": "er", "options": {"replay_size": 2**21}}, "replay_size is 2097152; it must be at most 1048576"),
        ({"options": {"encoder": "mlp"}}, "encoder is given as an option; use the parameter encoder"),
        ({"options": {"memory_samples": 5}}, "use the parameter memory"),
        ({"memory": 0}, "memory is 0"),
        ({"memory": True}, "memory is True"),
        ({"memory": 2.5}, "memory is 2.5"),
        ({"memory": "plenty"}, "memory is 'plenty'"),
        ({"memory": "0KB"}, "memory is '0KB', which is less than a byte; give"),
        ({"method": "patch-lda", "memory": "0.5B"}, "which is less than a byte"),
        ({"memory": "10B"}, "a memory for one sample takes"),
        ({"encoder": "resnet99"}, "unknown encoder 'resnet99'"),
        ({"encoder": nn.Linear(9, 2)}, "cannot read samples of shape"),
        ({"encoder": nn.Flatten(0)}, "must turn samples"),
        ({"encoder": "conv"}, "reads images"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"epochs": 1.5}, "epochs is 1.5"),
        ({"every": True}, "every is True"),
        ({"augment": "rotate"}, "unknown augment 'rotate'"),
        ({"channels": "middle"}, "channels is 'middle'"),
        ({"device": "gpu"}, "device 'gpu' cannot be used"),
        ({"random_state": -1}, "Seed must be between"),
    ],
    ids=str,
)
def test_bad_parameters_are_refused_in_the_first_call(parameters: dict[str, Any], message: str) -> None:
    clf = OnlineClassifier(**parameters)
    before = state_of(clf)
    for call in (clf.partial_fit, clf.fit):
        with pytest.raises(ValueError, match=message):
            call(*GOOD)
    assert state_of(clf) == before


def test_parameters_of_the_learner_must_not_change_between_calls() -> None:
    clf = OnlineClassifier("ccp", memory=20).partial_fit(*GOOD)
    clf.set_params(method="er", memory=30)
    before = state_of(clf)
    with pytest.raises(UsageError, match="memory, method changed since the first call"):
        clf.partial_fit(*GOOD)
    assert state_of(clf) == before
    clf.set_params(method="ccp", memory=20, batch_size=2).partial_fit(*GOOD)
    assert clf.set_params(method="er").fit(*GOOD).n_samples_seen_ == 6


def test_predictions_before_the_first_call_are_refused() -> None:
    clf = OnlineClassifier()
    for call in (clf.predict, clf.predict_proba, clf.decision_function):
        with pytest.raises(NotFittedError):
            call(GOOD[0])
    for name in ("nbytes", "n_samples_seen_", "classes_"):
        assert not hasattr(clf, name)
    with pytest.raises(NotFittedError):
        clf.save("nowhere")


def test_a_diverged_learner_raises_an_error() -> None:
    clf = OnlineClassifier("er", options={"learning_rate": 1e30}).partial_fit(*GOOD)
    before = state_of(clf)
    with pytest.raises(UsageError, match="diverged"):
        clf.partial_fit(*GOOD)
    assert state_of(clf) == before


def test_too_large_samples_are_not_reported_as_divergence(digits: Dataset) -> None:
    x = digits.train_x[:60, 0].numpy() / np.float32(255)
    clf = OnlineClassifier("er").partial_fit(x, digits.train_y[:60])
    with pytest.raises(UsageError, match="X has values so large that their scores are NaN"):
        clf.predict(x + np.float32(1e38))
    assert clf.predict(x).shape == (60,)


def test_ccp_with_nothing_to_train_is_refused() -> None:
    options = {"projector": "none", "prototype_gradient": "none"}
    clf = OnlineClassifier("ccp", freeze_encoder=True, options=options)
    with pytest.raises(UsageError, match=r"nothing is left to train.*; give projector=linear or another"):
        clf.partial_fit(*GOOD)
    for change in ({"projector": "linear"}, {"prototype_gradient": "all"}):
        clf.set_params(options=options | change).fit(*GOOD)
    clf.set_params(options=options, freeze_encoder=False).fit(*GOOD)


@pytest.mark.parametrize(("parameter", "value"), [("encoder", "conv"), ("freeze_encoder", True)])
def test_an_encoder_for_a_method_without_a_network_is_refused(parameter: str, value: Any, digits: Dataset) -> None:
    classifier = OnlineClassifier("patch-lda", **{parameter: value})
    with pytest.raises(UsageError, match=f"{parameter} is given, but patch-lda has no network; omit it, or use"):
        classifier.partial_fit(digits.train_x[:10], digits.train_y[:10])


@pytest.mark.parametrize(
    ("x", "parameters", "message"),
    [
        ([torch.zeros(2), torch.zeros(3)], {}, "different shapes"),
        (np.eye(2), {"options": ["learning_rate"]}, "give a dictionary"),
    ],
)
def test_refused_input_raises_a_value_error(x: Any, parameters: dict[str, Any], message: str) -> None:
    clf = OnlineClassifier(**parameters)
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(x, ["a", "b"])
    assert not hasattr(clf, "classes_")


def test_a_missing_label_in_classes_is_named() -> None:
    with pytest.raises(UsageError, match=r"classes\[1\] is None, a missing label"):
        OnlineClassifier().partial_fit(*GOOD, classes=["a", None])
