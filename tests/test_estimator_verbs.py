"""merge, forget, forget_class and rename: against one pass over what should be left."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from classifiers import decisions, state_of, units_of, vectors, with_kept_of
from onebyone import Dataset, OnlineClassifier, UsageError
from onebyone.estimator.storage import Autosave
from summing import Sums, registered

STATISTICS = ["sums", "patch-lda"]
X, Y = vectors(60)
IMAGES = np.random.default_rng(1).integers(0, 256, (60, 8, 8), dtype=np.uint8) // (2 + np.arange(60) % 3)[:, None, None]
KINDS: list[tuple[str, Any]] = [("sums", X), ("patch-lda", X), ("patch-lda", IMAGES.astype(np.uint8))]
NAMES = ["class 0", "class 1", "class 2"]

few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
many = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 2**32 - 1)
vector_kinds, kinds = st.sampled_from(KINDS[:2]), st.sampled_from(KINDS)
an_image = example(KINDS[2], 3)  # filters take half a second to compute


@pytest.fixture(autouse=True, scope="module")
def sums() -> Iterator[None]:
    """A method of sums; values are projected in the units of all samples."""
    with registered(), units_of(X):
        yield


def taught(name: str, index: Any, x: Any = X) -> OnlineClassifier:
    """A classifier that was taught the samples at ``index``, in this order."""
    return OnlineClassifier(name, memory="20KB").partial_fit(x[index], [Y[position] for position in index])


def assert_same(clf: OnlineClassifier, expected: OnlineClassifier, x: Any = X) -> None:
    """The same counts, and the same answers up to rounding."""
    assert clf.n_samples_seen_ == expected.n_samples_seen_
    known = [label in expected.classes_ for label in clf.classes_]  # others have lost all of their samples
    assert clf.classes_[known].tolist() == expected.classes_.tolist()
    actual, wanted = (decisions(each, x) for each in (clf, expected))
    assert (actual[:, ~np.array(known)] == -np.inf).all()
    np.testing.assert_allclose(actual[:, known], wanted, rtol=1e-6, atol=1e-6)


def merged_in_any_order(kind: tuple[str, Any], seed: int) -> None:
    """Streams split at random, taught apart, merged in random order and grouping."""
    name, x = kind
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    cuts = np.sort(rng.integers(0, len(X) + 1, rng.integers(1, 6)))
    parts = [taught(name, part, x) for part in np.split(order, cuts) if len(part)]
    while len(parts) > 1:
        first, second = (parts.pop(rng.integers(len(parts))) for _ in range(2))
        before = state_of(second)
        parts.append(first.merge(second))
        assert state_of(second) == before
    assert_same(parts[0], taught(name, np.arange(len(X)), x), x)


def forgotten_subset(kind: tuple[str, Any], seed: int) -> None:
    name, x = kind
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    count = int(rng.integers(1, len(X) - 15))
    gone, left = order[:count], order[count:]
    clf = taught(name, rng.permutation(len(X)), x)
    for part in np.array_split(gone, rng.integers(1, 4)):
        if len(part):
            clf.forget(x[part], [Y[position] for position in part])
    rest = taught(name, left, x)
    with_kept_of(rest, clf)  # samples that were dropped before do not come back
    assert_same(clf, rest, x)


def renamed(kind: tuple[str, Any], seed: int) -> None:
    name, x = kind
    rng = np.random.default_rng(seed)
    clf, expected = taught(name, rng.permutation(len(X)), x), np.array(Y, dtype=object)
    for _ in range(3):
        known = clf.classes_.tolist()
        old = rng.permutation(known)[: rng.integers(1, len(known) + 1)].tolist()
        new = rng.permutation(sorted({*known, "another", "one more"}))[: len(old)].tolist()
        names = dict(zip(old, new, strict=True))
        clf.rename(names)
        expected = np.array([names.get(label, label) for label in expected], dtype=object)
    wanted = OnlineClassifier(name, memory="20KB").partial_fit(x, expected.tolist())
    with_kept_of(wanted, clf)
    assert_same(clf, wanted, x)


@few
@an_image
@given(vector_kinds, seeds)
def test_merging_equals_one_pass(kind: tuple[str, Any], seed: int) -> None:
    merged_in_any_order(kind, seed)


@few
@an_image
@given(vector_kinds, seeds)
def test_forgetting_equals_one_pass_over_the_rest(kind: tuple[str, Any], seed: int) -> None:
    forgotten_subset(kind, seed)


@few
@an_image
@given(vector_kinds, seeds)
def test_renaming_equals_one_pass_with_the_new_labels(kind: tuple[str, Any], seed: int) -> None:
    renamed(kind, seed)


@pytest.mark.slow
@many
@given(kinds, seeds)
def test_merging_equals_one_pass_200_times(kind: tuple[str, Any], seed: int) -> None:
    merged_in_any_order(kind, seed)


@pytest.mark.slow
@many
@given(kinds, seeds)
def test_forgetting_equals_one_pass_over_the_rest_200_times(kind: tuple[str, Any], seed: int) -> None:
    forgotten_subset(kind, seed)


@pytest.mark.slow
@many
@given(kinds, seeds)
def test_renaming_equals_one_pass_with_the_new_labels_200_times(kind: tuple[str, Any], seed: int) -> None:
    renamed(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", STATISTICS)
def test_2000_parts_merged(name: str) -> None:
    x, y = vectors(4000, seed=1)
    parts = [
        OnlineClassifier(name, memory="20KB").partial_fit(x[start : start + 2], y[start : start + 2])
        for start in range(0, 4000, 2)
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole.merge(part)
    assert_same(whole, OnlineClassifier(name, memory="20KB").partial_fit(x, y))


@pytest.mark.parametrize("name", STATISTICS)
def test_a_classifier_merged_with_itself_has_seen_everything_twice(name: str) -> None:
    clf = taught(name, np.arange(60))
    assert clf.merge(clf) is clf
    assert_same(clf, taught(name, [*range(60), *range(60)]))


@pytest.mark.parametrize("name", STATISTICS)
def test_a_classifier_that_has_learnt_nothing_becomes_a_copy(name: str) -> None:
    other = taught(name, np.arange(60))
    clf = OnlineClassifier(name, memory="20KB").merge(other)
    assert state_of(clf)["tensors"] == state_of(other)["tensors"]
    before = state_of(other)
    clf.partial_fit(X[:3], Y[:3])
    assert state_of(other) == before
    on_cpu = OnlineClassifier(name, memory="20KB", device="cpu").partial_fit(X, Y)
    OnlineClassifier(name, memory="20KB").merge(on_cpu).partial_fit(X[:3], Y[:3])  # the device may be another one


@pytest.mark.parametrize("name", STATISTICS)
def test_more_classes_than_either_has_capacity_for(name: str) -> None:
    """All slots of both are in use, in another order."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 3)) + 5 * np.arange(64)[:, None]
    y = [str(number) for number in np.arange(64) // 2]
    mixed = rng.permutation(64)
    for first, second in ((x[:32], x[32:]), (x[mixed[:40]], x[mixed[40:]])):
        position = {tuple(row): label for row, label in zip(x, y, strict=True)}
        with units_of(x):
            one, two = (
                OnlineClassifier(name, memory="20KB").partial_fit(part, [position[tuple(row)] for row in part])
                for part in (first, second)
            )
            whole = OnlineClassifier(name, memory="20KB").partial_fit(x, y)
            one.merge(two)
        assert one.classes_.tolist() == whole.classes_.tolist()
        np.testing.assert_allclose(one.decision_function(x), whole.decision_function(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", STATISTICS)
def test_a_forgotten_class_is_gone_and_its_slot_is_used_again(name: str, tmp_path: Path) -> None:
    clf = taught(name, np.arange(60))
    count = Y.count("class 1")
    clf.forget_class("class 1")
    assert clf.classes_.tolist() == ["class 0", "class 2"]
    assert clf.n_samples_seen_ == 60 - count
    assert set(clf.predict(X)) == {"class 0", "class 2"}
    clf.save(tmp_path / "file")
    clf = OnlineClassifier.load(tmp_path / "file")
    slots = dict(clf._state.slots)  # type: ignore[union-attr]
    clf.partial_fit(X[:5] + 100, ["far"] * 5)
    assert clf._state.slots == slots | {"far": 3 - sum(slots.values())}  # type: ignore[union-attr]
    assert set(clf.predict(X[:5] + 100)) == {"far"}
    clf.save(tmp_path / "file")
    again = OnlineClassifier.load(tmp_path / "file")
    np.testing.assert_array_equal(again.decision_function(X), clf.decision_function(X))


@pytest.mark.parametrize("name", ["er", "ccp", "replay", "der++", "icarl", "finetune", "supbyol"])
def test_networks_forget_what_they_keep(digits: Dataset, name: str) -> None:
    """Samples leave memory and counts; a new class in the slot starts with the weights of a new learner."""
    x, y = digits.train_x[:120], digits.train_y[:120].tolist()
    clf = OnlineClassifier(name, memory=50, random_state=3).partial_fit(x, y)
    clf.forget(x[:20], y[:20])
    assert clf.n_samples_seen_ == 100
    kept = rows_of(clf)
    assert not any((each == row).all() for each in kept for row in x[:20])
    three = y[20:].count(3)
    clf.forget_class(3)
    assert clf.n_samples_seen_ == 100 - three
    assert 3 not in clf.classes_
    assert len(rows_of(clf)) <= 50
    assert set(clf.predict(digits.test_x[:50]).tolist()) <= set(range(10)) - {3}
    seen = [part.clone() for part in clf._state.learner.sample_counts()[1:]]  # type: ignore[union-attr]
    clf.rename({4: 9})
    assert seen == clf._state.learner.sample_counts()[1:]  # type: ignore[union-attr]
    assert clf.classes_.tolist() == [0, 1, 2, 5, 6, 7, 8, 9]
    assert clf.n_samples_seen_ == 100 - three
    clf.partial_fit(x[20:], y[20:])
    assert clf.classes_.tolist() == list(range(10))
    with pytest.raises(UsageError, match="weights of a network cannot be merged; teach one classifier"):
        clf.merge(clf)


def test_a_learner_says_what_it_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """By attributes: a method that is inherited may not suit the learner."""
    clf, other = taught("sums", np.arange(60)), taught("sums", np.arange(60))
    monkeypatch.setattr(Sums, "mergeable", False)
    monkeypatch.setattr(Sums, "takes_weights", False)
    with pytest.raises(UsageError, match="cannot be merged"):
        clf.merge(other)
    with pytest.raises(UsageError, match="takes no sample_weight"):
        clf.partial_fit(X[:2], Y[:2], sample_weight=[1, 2])


def rows_of(clf: OnlineClassifier) -> Any:
    memory = getattr(clf._state.learner, "memory", None)  # type: ignore[union-attr]
    return memory.x[:-1][memory.filled] if memory is not None else []


def test_labels_are_exchanged_at_the_same_time() -> None:
    clf = taught("sums", np.arange(60))
    before = dict(zip(NAMES, clf.predict_proba(X).T.tolist(), strict=True))
    clf.rename({"class 0": "class 1", "class 1": "class 0"})
    after = dict(zip(NAMES, clf.predict_proba(X).T.tolist(), strict=True))
    assert after == {"class 0": before["class 1"], "class 1": before["class 0"], "class 2": before["class 2"]}
    clf.rename(dict(zip(NAMES, range(3), strict=True)))  # all at once, labels may get another type
    assert clf.classes_.tolist() == [0, 1, 2]


def test_a_class_takes_the_label_of_one_that_was_announced() -> None:
    clf = taught("sums", np.arange(60)).partial_fit(X[:1], Y[:1], classes=["soon"])
    clf.rename({"class 1": "soon"})
    assert clf.classes_.tolist() == ["class 0", "class 2", "soon"]
    clf.partial_fit(X[:1], Y[:1], classes=["never"]).rename({"never": "soon"})
    assert clf.classes_.tolist() == ["class 0", "class 2", "soon"]


def other(x: Any = X, y: Any = Y, **parameters: Any) -> OnlineClassifier:
    return OnlineClassifier("sums", **{"memory": "20KB"} | parameters).partial_fit(x, y)


def named(x: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(x).add_prefix("f")


REFUSED: list[tuple[str, Any, str]] = [  # a function makes the argument
    ("merge", (3,), "not with a int"),
    ("merge", lambda: other(random_state=1), "different values of random_state"),
    ("merge", lambda: other(memory="30KB"), r"different values of memory \('20KB' and '30KB'\)"),
    ("merge", lambda: other(X[:, :3]), "learn different samples"),
    ("merge", lambda: other(named(X)), "different names of features: none and f0, f1"),
    ("merge", lambda: other(y=[1] * 60), "different types"),
    ("forget", (X[:2], ["class 0"]), "2 samples and y has 1"),
    ("forget", (X[:2], ["class 0", "class 9"]), "'class 9' is not a known class"),
    ("forget", (X[:1].repeat(59, 0), ["class 0"] * 59), "only .* were learnt"),
    ("forget", (X, Y), "nothing would be left"),
    ("forget", (X[:2, :2], Y[:2]), "features"),
    ("forget_class", ("class 9",), "is not a known class; known are 'class 0', "),
    ("forget_class", (9,), "different types"),
    ("rename", ({"class 9": "a"},), "is not a known class"),
    ("rename", ({"class 0": "a", "class 1": "a"},), "same new label"),
    ("rename", ({"class 0": 1},), "different types"),
    ("rename", (["class 0", "a"],), "names is a list; give a dictionary"),
]


@pytest.mark.parametrize(("verb", "given", "message"), REFUSED)
def test_a_refused_call_changes_nothing(verb: str, given: Any, message: str, tmp_path: Path) -> None:
    given = (given(),) if isinstance(given, Callable) else given
    clf = OnlineClassifier("sums", memory="20KB", autosave=tmp_path / "folder").partial_fit(X, Y)
    before, file = state_of(clf), tmp_path / "folder" / "classifier.safetensors"
    content = file.read_bytes()
    with pytest.raises(ValueError, match=message):
        getattr(clf, verb)(*given)
    assert state_of(clf) == before
    assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("forget", (X[:2], Y[:2])),
        ("forget_class", ("class 0",)),
        ("rename", ({"class 0": "class 1"},)),
        ("merge", ()),
    ],
)
def test_a_learner_that_fails_halfway_is_restored(verb: str, given: tuple[Any, ...]) -> None:
    clf, another = (OnlineClassifier("refusing").partial_fit(X, Y) for _ in range(2))
    before = state_of(clf)
    with pytest.raises(UsageError, match="refused"):
        getattr(clf, verb)(*given or [another])
    assert state_of(clf) == state_of(another) == before


def test_every_change_is_in_the_autosave_folder_when_the_call_returns(tmp_path: Path) -> None:
    clf = OnlineClassifier("sums", memory="20KB", autosave=tmp_path / "folder").partial_fit(X, Y)
    for verb, arguments in (
        ("merge", (other(),)),
        ("forget", (X[:5], Y[:5])),
        ("rename", ({"class 0": "zero"},)),
        ("forget_class", ("class 1",)),
    ):
        getattr(clf, verb)(*arguments)
        found = OnlineClassifier.load(tmp_path / "folder")
        assert state_of(found)["tensors"] == state_of(clf)["tensors"]
        assert found.classes_.tolist() == clf.classes_.tolist()


def test_a_prior_keeps_its_classes_when_these_are_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.eye(4), list("abca")
    clf = OnlineClassifier("er", memory=5, prior={"a": 0.7, "b": 0.2}, autosave=tmp_path / "state").partial_fit(x, y)
    before = clf.predict_proba(x)
    prior = clf.prior
    clf.rename({"a": "b", "b": "a"})
    np.testing.assert_array_equal(clf.predict_proba(x), before[:, [1, 0, 2]])
    assert clf.prior == {"b": 0.7, "a": 0.2}
    assert prior == {"a": 0.7, "b": 0.2}  # the dictionary of the caller is not changed
    assert OnlineClassifier.load(tmp_path / "state").prior == clf.prior
    with monkeypatch.context() as patched:
        patched.setattr(Autosave, "_write", lambda *_: (_ for _ in ()).throw(UsageError("full")))
        with pytest.raises(UsageError, match="full"):
            clf.rename({"a": "z"})
    assert clf.prior == {"b": 0.7, "a": 0.2}
    clf.rename({"a": "c"})  # united
    assert clf.prior == {"b": 0.7, "c": 0.2}
    clf.close()


def test_errors_of_rename_and_merge_name_what_has_labels_of_two_types() -> None:
    one = OnlineClassifier().partial_fit([[1.0], [2.0]], ["a", "b"])
    other = OnlineClassifier().partial_fit([[1.0], [2.0]], [1, 2])
    with pytest.raises(UsageError, match=r"^the result has labels of different types \(int, str\)"):
        one.merge(other)
    with pytest.raises(UsageError, match=r"^the result has labels of different types \(int, str\)"):
        one.rename({"a": 1})
    with pytest.raises(UsageError, match=r"^names has labels of different types \(int, str\)"):
        one.rename({1: "c"})
