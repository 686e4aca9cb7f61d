"""Samples that a network has not learnt, on which it is examined."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from classifiers import forged, learner_of, state_of, vectors
from onebyone import Dataset, OnlineClassifier, UsageError
from onebyone.estimator.evidence import ENOUGH, FIRST, MOST, HeldBack
from summing import registered

X, Y = vectors(1200)


@pytest.fixture(autouse=True, scope="module")
def sums() -> Iterator[None]:
    with registered():
        yield


def held(clf: OnlineClassifier) -> HeldBack:
    assert clf._state is not None
    return clf._state.held_back


def rows(x: Any) -> Counter[bytes]:
    """How often each sample occurs."""
    return Counter(np.asarray(row, np.float32).tobytes() for row in x)


@contextmanager
def taught(clf: OnlineClassifier) -> Iterator[Counter[bytes]]:
    """All samples that the learner gets, in ``observe`` or ``repeat``."""
    found: Counter[bytes] = Counter()
    learner = learner_of(clf)

    def spy(original: Any) -> Any:
        def step(x: Any, y: Any, *weight: Any) -> Any:
            found.update(rows(x))
            return original(x, y, *weight)

        return step

    with mock.patch.multiple(learner, observe=spy(learner.observe), repeat=spy(learner.repeat)):
        yield found


@pytest.mark.parametrize("batch_size", [1, 10, 64])
def test_every_sample_is_learnt_or_held_back(batch_size: int) -> None:
    """None is lost, also of those that were held back for a while."""
    clf = OnlineClassifier("er", memory=2000, batch_size=batch_size, validation_fraction=0.2)
    clf.partial_fit(X[:5], Y[:5])
    with taught(clf) as learnt:
        for start in range(5, 1200, 239):
            clf.partial_fit(X[start : start + 239], Y[start : start + 239])
    assert learnt + rows(held(clf).x) == rows(X[5:])
    assert len(held(clf)) == MOST
    assert clf.n_samples_seen_ == 1200
    assert max(Counter(held(clf).y.tolist()).values()) <= MOST // 3 + 1  # the same number of each class


def test_about_the_share_is_held_back_but_not_of_the_first_samples() -> None:
    clf = OnlineClassifier("er", memory=2000).partial_fit(X[:600], Y[:600])
    assert 0.5 * 0.05 * 570 < len(held(clf)) < 2 * 0.05 * 570
    eager = OnlineClassifier("er", memory=2000, validation_fraction=0.5)
    eager.partial_fit(X[:FIRST], ["one"] * FIRST)
    assert not len(held(eager))
    eager.partial_fit(X[FIRST : 3 * FIRST], ["one"] * 2 * FIRST)
    assert len(held(eager))


def test_a_sample_that_is_given_again_is_held_back_again() -> None:
    clf = OnlineClassifier("er", memory=2000).partial_fit(X[:300], Y[:300])
    with taught(clf) as learnt:
        clf.partial_fit(X[100:300], Y[100:300])
    assert not learnt & rows(held(clf).x)


def test_later_epochs_do_not_learn_what_is_held_back() -> None:
    clf = OnlineClassifier("er", memory=2000).fit(X[:300], Y[:300])
    memory: Any = learner_of(clf).memory
    assert len(held(clf)) > 5
    assert rows(memory.x[:-1][memory.filled]) + rows(held(clf).x) == rows(X[:300])
    epochs: list[Counter[bytes]] = []
    original = type(learner_of(clf)).repeat

    def repeat(self: Any, x: Any, y: Any, weight: Any = None) -> Any:
        epochs.append(rows(x))
        return original(self, x, y, weight)

    with mock.patch.object(type(learner_of(clf)), "repeat", repeat):
        clf.fit(X[:300], Y[:300])
    assert sum(epochs, Counter()) == Counter(dict.fromkeys(rows(X[:300]) - rows(held(clf).x), 2))


@pytest.mark.parametrize(
    ("method", "changes", "weight"),
    [
        ("patch-lda", {}, None),  # leaves out samples that it has learnt
        ("sums", {}, None),  # can be merged exactly
        ("er", {"validation_fraction": 0}, None),
        ("er", {"memory": 300}, None),  # too few samples would be held back
        ("er", {}, 2.0),
    ],
    ids=str,
)
def test_nothing_is_held_back_where_that_is_no_use(method: str, changes: dict[str, Any], weight: float | None) -> None:
    clf = OnlineClassifier(method, **changes).partial_fit(X[:900], Y[:900], sample_weight=weight)
    assert not len(held(clf))
    assert int(learner_of(clf).counts.sum()) == 900


@pytest.mark.parametrize("method", ["ccp", "er", "finetune"])
def test_the_report_of_one_class_at_a_time_is_that_of_all_classes(digits: Dataset, method: str) -> None:
    """Predictions before learning are those of a network that does not know the later classes."""
    order = digits.train_y.sort(stable=True).indices
    x, y = digits.train_x[order].numpy(), digits.train_y[order].numpy()
    truth = digits.test_x.numpy(), digits.test_y.numpy()
    clf, before = (
        OnlineClassifier(method, memory=500, validation_fraction=share).partial_fit(x, y) for share in (0.1, 0.0)
    )
    found = clf.report()
    assert found.source == "held back"
    assert f"{found.samples} samples, held back\n\n" in str(found)
    assert found.interval[0] <= clf.score(*truth) <= found.interval[1]
    confidence = clf.predict_proba(truth[0]).max(1).mean()
    assert abs(confidence - clf.score(*truth)) < 0.15
    assert before.report().source == "predicted before learnt"
    assert abs(found.accuracy - clf.score(*truth)) < abs(before.report().accuracy - before.score(*truth))


def test_answers_are_those_of_the_saved_and_copied_classifier(tmp_path: Path) -> None:
    clf = OnlineClassifier("ccp", memory=2000, validation_fraction=0.1).partial_fit(X[:700], Y[:700])
    assert len(held(clf)) >= ENOUGH
    clf.save(tmp_path / "file")
    loaded, copied = OnlineClassifier.load(tmp_path / "file"), deepcopy(clf)
    for _ in range(2):
        for other in (loaded, copied):
            np.testing.assert_array_equal(other.predict_proba(X), clf.predict_proba(X))
            np.testing.assert_array_equal(other.predict(X, unknown="?"), clf.predict(X, unknown="?"))
            assert other.report() == clf.report()
            assert state_of(other) == state_of(clf)
        for each in (clf, loaded, copied):
            each.partial_fit(X[700:], Y[700:])


def test_a_call_that_fails_changes_nothing() -> None:
    clf = OnlineClassifier("er", memory=2000).partial_fit(X[:600], Y[:600])
    before = state_of(clf)
    diverged = mock.patch("onebyone.estimator.model.check_finite", side_effect=UsageError("training diverged"))
    with diverged, pytest.raises(UsageError, match="diverged"):
        clf.partial_fit(X[600:], Y[600:])
    assert state_of(clf) == before


def test_forgetting_finds_what_is_held_back() -> None:
    clf = OnlineClassifier("er", memory=2000, validation_fraction=0.2).partial_fit(X[:300], Y[:300])
    given = {np.asarray(row, np.float32).tobytes(): row for row in X[:300]}
    x = [given[row.numpy().tobytes()] for row in held(clf).x[:3]]
    names = [f"class {label}" for label in range(3)]
    slots = clf._state.slots  # type: ignore[union-attr]
    y = [next(name for name in names if slots[name] == slot) for slot in held(clf).y[:3].tolist()]
    count, learnt = len(held(clf)), int(learner_of(clf).counts.sum())
    clf.forget(np.array(x), y)
    assert len(held(clf)) == count - 3
    assert int(learner_of(clf).counts.sum()) == learnt
    assert clf.n_samples_seen_ == 297
    with pytest.raises(UsageError, match="nothing would be left"):
        clf.forget(X[:297], Y[:297])
    clf = OnlineClassifier("er", memory=2000, validation_fraction=0.2).partial_fit(X[:300], Y[:300])
    mask = np.array([row.astype(np.float32).tobytes() not in rows(held(clf).x) for row in X[:300]])
    before = state_of(clf)
    with pytest.raises(UsageError, match="nothing would be left"):  # all that was learnt, but not what is held back
        clf.forget(X[:300][mask], [label for label, own in zip(Y[:300], mask, strict=True) if own])
    assert state_of(clf) == before


def test_it_follows_the_classes() -> None:
    clf = OnlineClassifier("er", memory=2000, validation_fraction=0.2).partial_fit(X[:300], Y[:300])
    slots = dict(clf._state.slots)  # type: ignore[union-attr]
    counts = Counter(held(clf).y.tolist())
    assert len(counts) == 3
    united = deepcopy(clf).rename({"class 0": "class 1"})
    assert Counter(held(united).y.tolist())[slots["class 1"]] == counts[slots["class 0"]] + counts[slots["class 1"]]
    assert united.n_samples_seen_ == 300
    clf.forget_class("class 2")
    assert slots["class 2"] not in held(clf).y
    assert clf.n_samples_seen_ == sum(label != "class 2" for label in Y[:300])


@pytest.mark.parametrize("share", [-0.1, 0.6, True, "a", None, float("nan")])
def test_an_impossible_share_is_refused(share: Any) -> None:
    with pytest.raises(UsageError, match="validation_fraction is"):
        OnlineClassifier("er", validation_fraction=share).partial_fit(X, Y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"held_back.y": lambda y: y + 5}, "not those of its classes"),
        ({"held_back.y": lambda y: y[1:]}, "another type or shape"),
        ({"held_back.x": lambda x: x[:, 1:].clone()}, "another type or shape"),
        ({"held_back.x": lambda x: x.double()}, "another type or shape"),
        ({"held_back.x": lambda x: x * float("nan")}, "not those of its classes"),
        ({"held_back.x": lambda x: x.repeat(9, 1), "held_back.y": lambda y: y.repeat(9)}, "not those of its classes"),
        ({"held_back.y": None}, "damaged"),
    ],
    ids=["label", "labels", "shape", "type", "value", "number", "missing"],
)
def test_damaged_files_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    clf = OnlineClassifier("er", memory=2000, validation_fraction=0.2).partial_fit(X[:300], Y[:300])
    clf.save(tmp_path / "file")

    def damage(description: Any, tensors: dict[str, torch.Tensor]) -> None:
        for name, make in change.items():
            if make is None:
                del tensors[name]
            else:
                tensors[name] = make(tensors[name])

    forged((tmp_path / "file").read_bytes(), tmp_path / "file", damage)
    with pytest.raises(UsageError, match=message):
        OnlineClassifier.load(tmp_path / "file")


def test_images_are_held_back_in_the_layout_of_the_learner(digits: Dataset, tmp_path: Path) -> None:
    x, y = digits.train_x.numpy()[:, 0], digits.train_y.numpy()
    clf = OnlineClassifier("er", memory=2000).partial_fit(x, y)
    assert held(clf).x.dtype == torch.uint8
    assert tuple(held(clf).x.shape) == (len(held(clf)), 1, 8, 8)
    clf.save(tmp_path / "file")
    assert torch.equal(held(OnlineClassifier.load(tmp_path / "file")).x, held(clf).x)
    clf.forget(x[:700], y[:700])
    assert clf.n_samples_seen_ == len(x) - 700
