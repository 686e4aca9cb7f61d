"""Data without scatter, with equal rows, constant columns, offsets and other units: what sums decide is the same.

After merging, forgetting, asking, copying, saving and loading in any order, answers are those of one pass up to
rounding. With equal samples in several classes, which of these are kept to calibrate may depend on the order of the
classes, so only scores are compared then.
"""

from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from classifiers import decisions, learner_of, units_of, with_kept_of
from onebyone import OnlineClassifier

KINDS = ("integers", "few rows", "constant columns", "one-hot", "normal", "offset", "units", "binary", "repeated")
few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
many = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 2**32 - 1)


def drawn(kind: str, rng: np.random.Generator) -> tuple[Any, Any]:
    count, width, classes = (int(rng.integers(*between)) for between in ((6, 100), (1, 9), (1, 6)))
    y = rng.integers(0, classes, count)
    x = rng.normal(size=(count, width))
    match kind:
        case "integers":
            x = rng.integers(0, 4, (count, width)).astype(float)
        case "few rows":
            x = x[rng.integers(0, rng.integers(1, 5), count)]
            y = np.unique(x, axis=0, return_inverse=True)[1].ravel() if rng.random() < 0.5 else y
        case "constant columns":
            x[:, rng.random(width) < 0.5] = rng.choice([0, 0.1, 1 / 3, 1e6])
        case "one-hot":
            x = np.eye(width)[rng.integers(0, width, count)]
            y = x.argmax(1) if rng.random() < 0.5 else y
        case "normal":
            x += y[:, None]
        case "offset":
            x += y[:, None] + 1000
        case "units":
            x = (x + y[:, None]) * 10.0 ** rng.integers(-3, 4, width)
        case "binary":
            x = rng.integers(0, 2, (count, width)).astype(float)
        case "repeated":
            x = np.repeat(x, 5, 0)[:count]
    return x.astype(rng.choice(["float32", "float64"])), np.array([f"class {label}" for label in y])


def assert_same(clf: OnlineClassifier, expected: OnlineClassifier, x: Any, calibrated: bool = True) -> None:
    known = np.isin(clf.classes_, expected.classes_)
    found, wanted = (decisions(each, x)[:, columns] for each, columns in ((clf, known), (expected, slice(None))))
    found, wanted = (scores - scores.max(1, keepdims=True) for scores in (found, wanted))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * max(1, np.abs(wanted).max()))
    if calibrated:
        np.testing.assert_allclose(clf.predict_proba(x), expected.predict_proba(x), rtol=0, atol=1e-6)
        solution = learner_of(expected).solution()
        found, wanted = typicality(clf, x), typicality(expected, x)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * (solution.usual + np.abs(wanted).mean()))


def typicality(clf: OnlineClassifier, x: Any) -> Any:
    learner = learner_of(clf)
    return learner.typicality(torch.from_numpy(x).to(learner.spec.dtype)).numpy()


def shared(x: Any, y: Any) -> bool:
    """Whether classes have equal samples."""
    rows = {tuple(row) for row in x.tolist()}
    return len(rows) < len({(tuple(row), label) for row, label in zip(x.tolist(), y, strict=True)})


def merging_and_forgetting(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = drawn(kind, rng)
    memory = str(rng.choice(["20KB", "100KB"]))
    with units_of(x):
        merged_and_forgotten(x, y, memory, rng)


def merged_and_forgotten(x: Any, y: Any, memory: str, rng: np.random.Generator) -> None:
    def taught(index: Any) -> OnlineClassifier:
        return OnlineClassifier(memory=memory).partial_fit(x[index], y[index])

    order = rng.permutation(len(x))
    cut = int(rng.integers(1, len(x)))
    whole = taught(np.arange(len(x)))
    merged = taught(order[:cut])
    merged.predict(x)
    merged.merge(taught(order[cut:]))
    if shared(x, y):
        with_kept_of(whole, merged)
    assert_same(merged, whole, x, calibrated=not shared(x, y))
    for part in np.array_split(order[:cut], rng.integers(1, 4)):
        if len(part):
            merged.forget(x[part], y[part])
    rest = taught(order[cut:])
    with_kept_of(rest, merged)
    assert_same(merged, rest, x, calibrated=False)


def asking_copying_and_saving(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = drawn(kind, rng)
    quiet, asked = OnlineClassifier(memory="100KB"), OnlineClassifier(memory="100KB")
    start = 0
    while start < len(x):
        part = slice(start, start := start + int(rng.choice([1, 1, 2, 5, 40])))
        quiet.partial_fit(x[part], y[part])
        asked.partial_fit(x[part], y[part])
        match rng.integers(6):
            case 0 | 1:
                asked.predict(x[:3])
            case 2:
                asked = deepcopy(asked)
            case 3:
                deepcopy(asked).partial_fit(x[:3], y[:3])
            case 4:
                with TemporaryDirectory() as folder:
                    asked.save(Path(folder) / "clf")
                    asked = OnlineClassifier.load(Path(folder) / "clf") if rng.random() < 0.5 else asked
    assert_same(asked, quiet, x)


@few
@example("repeated", 3)
@given(st.sampled_from(KINDS), seeds)
def test_merging_and_forgetting_equal_one_pass(kind: str, seed: int) -> None:
    merging_and_forgetting(kind, seed)


@few
@given(st.sampled_from(KINDS), seeds)
def test_asking_copying_and_saving_change_no_answer(kind: str, seed: int) -> None:
    asking_copying_and_saving(kind, seed)


@pytest.mark.slow
@many
@given(st.sampled_from(KINDS), seeds)
def test_merging_and_forgetting_equal_one_pass_200_times(kind: str, seed: int) -> None:
    merging_and_forgetting(kind, seed)


@pytest.mark.slow
@many
@given(st.sampled_from(KINDS), seeds)
def test_asking_copying_and_saving_change_no_answer_200_times(kind: str, seed: int) -> None:
    asking_copying_and_saving(kind, seed)


@pytest.mark.parametrize("offset", [1e5, 1e6, 1e7])
def test_values_far_from_zero_are_told_apart(offset: float) -> None:
    """Seconds since 1970, map coordinates: as accurate as without the offset, in any order of the samples."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 50)
    x = (16 * rng.normal(size=(150, 6)) + 24 * y[:, None]).round() + offset  # whole numbers: exact in single precision
    clf, near = (OnlineClassifier(memory="100KB").partial_fit(values[::2], y[::2]) for values in (x, x - offset))
    assert clf.score(x[1::2], y[1::2]) >= near.score(x[1::2] - offset, y[1::2]) - 0.03
    order = 2 * rng.permutation(75)
    with units_of(x):
        clf, other = (OnlineClassifier(memory="100KB").partial_fit(x[i], y[i]) for i in (np.arange(0, 150, 2), order))
    assert_same(other, clf, x)


@pytest.mark.parametrize("times", [5, 30])
@pytest.mark.parametrize(
    "rows", [[[0, 0], [1, 1], [2, 4]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 1], [1, 0]]], ids=str
)
def test_repeated_points_are_answered_saved_and_loaded(rows: list[list[int]], times: int, tmp_path: Path) -> None:
    x, y = np.array(rows * times, dtype=float), np.array([f"class {row}" for row in rows] * times)
    clf = OnlineClassifier().partial_fit(x, y)
    before = clf.predict_proba(x)
    assert (clf.predict(x) == y).all()
    clf.save(tmp_path / "clf")
    np.testing.assert_array_equal(OnlineClassifier.load(tmp_path / "clf").predict_proba(x), before)
    clf.partial_fit([[5.0] * len(rows[0])] * 2, ["another"] * 2).forget([[5.0] * len(rows[0])] * 2, ["another"] * 2)
    np.testing.assert_allclose(clf.predict_proba(x)[:, clf.classes_ != "another"], before, atol=1e-6)


def test_a_file_with_statistics_without_inverse_is_opened(tmp_path: Path) -> None:
    """Opening a file computes no answer."""
    clf = OnlineClassifier().partial_fit([[1.0, 2.0]] * 3, ["a"] * 3)
    clf.save(tmp_path / "clf")
    again = OnlineClassifier.load(tmp_path / "clf")
    assert learner_of(again)._solution is None
    assert again.predict([[1.0, 2.0]]).tolist() == ["a"]
