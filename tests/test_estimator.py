"""OnlineClassifier: scikit-learn's contract, what may come in, and what is refused."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor

from classifiers import DEFAULT_AND_CCP, NAMES, state_of, vectors
from onebyone import Dataset, OnlineClassifier, UsageError
from onebyone.estimator.inputs import as_tensor
from onebyone.estimator.labels import as_labels, from_json, to_json
from onebyone.estimator.samples import Layout
from onebyone.methods import AUTO, ReplayLearner


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([OnlineClassifier(), OnlineClassifier("ccp")])
def test_scikit_learn(estimator: OnlineClassifier, check: Callable[[OnlineClassifier], None]) -> None:
    check(estimator)


# What may come in


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_that_are_switched_off(name: str, mode: Callable[[], Any], tmp_path: Path) -> None:
    """As whoever serves answers does: it learns all the same, and so does what is made, copied or loaded there."""
    x, y = vectors(60)

    def taught(clf: OnlineClassifier, x: Any) -> OnlineClassifier:
        return clf.partial_fit(x, y).partial_fit(x[:20], [f"new {label}" for label in range(20)])  # with more room

    with mode():
        tensor = torch.tensor(x, dtype=torch.float32)
        clf = OnlineClassifier(name).partial_fit(tensor, y).fit(tensor, y)
        clf.predict(tensor)
        clf.save(tmp_path / "file")
        others = [OnlineClassifier.load(tmp_path / "file"), deepcopy(clf), pickle.loads(pickle.dumps(clf))]
        taught(clf, tensor)
    expected = taught(OnlineClassifier(name).fit(x, y), x).decision_function(x)
    for each in (clf, *(taught(other, tensor) for other in others)):
        np.testing.assert_array_equal(each.decision_function(x), expected)


def test_labels_that_are_tensors() -> None:
    x, _ = vectors(3)
    clf = OnlineClassifier().partial_fit(x, [torch.tensor(2), torch.tensor(1), torch.tensor(2)])
    assert clf.classes_.tolist() == [1, 2]
    with pytest.raises(UsageError, match=r"a tensor of shape \(2,\); give one value per sample"):
        clf.partial_fit(x, list(torch.eye(2)[[0, 1, 1]]))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_copied_or_pickled_is_nobody_elses(name: str) -> None:
    """It is read after the turn is over, when the classifier may be learning again."""
    x, y = vectors(40)
    clf = OnlineClassifier(name).partial_fit(x, y)
    given, before = clf.__getstate__(), state_of(clf)
    clf.partial_fit(x[::-1], y[::-1])
    copy = OnlineClassifier()
    copy.__setstate__(given)
    assert state_of(copy) == before != state_of(clf)
    assert state_of(copy.partial_fit(x[::-1], y[::-1])) == state_of(clf)


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
def test_what_is_refused_is_a_value_error(x: Any, parameters: dict[str, Any], message: str) -> None:
    clf = OnlineClassifier(**parameters)
    with pytest.raises(ValueError, match=message):
        clf.partial_fit(x, ["a", "b"])
    assert not hasattr(clf, "classes_")


def test_tensors_and_arrays_in_one_list() -> None:
    assert as_tensor([torch.ones(2), np.zeros(2)]).tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize("name", NAMES)
def test_every_method_learns_classes_nobody_announced(digits: Dataset, name: str) -> None:
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


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda x: x, (1, 8, 8)),
        (lambda x: x[:, 0], (1, 8, 8)),
        (lambda x: x[:, 0].numpy(), (1, 8, 8)),
        (lambda x: x[:, 0, :, :, None].numpy(), (1, 8, 8)),
        (lambda x: x.repeat(1, 3, 1, 1).numpy(), (3, 8, 8)),
        (lambda x: x.repeat(1, 3, 1, 1).permute(0, 2, 3, 1).numpy(), (3, 8, 8)),
        (lambda x: x.flatten(1).numpy(), (64,)),
        (lambda x: [Image.fromarray(image[0].numpy()) for image in x], (1, 8, 8)),
        (lambda x: [Image.fromarray(image[0].numpy()).convert("RGB") for image in x], (3, 8, 8)),
        (lambda x: [Image.fromarray(image[0].numpy()).convert("RGB").convert("P") for image in x], (3, 8, 8)),
        (lambda x: [image[0].numpy() for image in x], (1, 8, 8)),
        (list, (1, 8, 8)),
        (lambda x: x[:, 0].numpy()[:, ::-1], (1, 8, 8)),
        (lambda x: x[:, :, :5, :7], (1, 5, 7)),
    ],
)
def test_bytes_stay_bytes_in_any_layout(digits: Dataset, make: Callable[[Tensor], Any], shape: tuple[int, ...]) -> None:
    y = digits.train_y[:30].numpy()
    clf = OnlineClassifier("ccp", memory=10).partial_fit(make(digits.train_x[:30]), y)
    assert clf._state is not None
    learner = clf._state.learner
    assert isinstance(learner, ReplayLearner)
    assert learner.memory.x.shape[1:] == shape
    assert learner.memory.x.dtype == torch.uint8
    assert clf.predict(make(digits.test_x[:5])).dtype == y.dtype
    assert clf.n_features_in_ == np.prod(shape)


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
def test_the_same_images_in_another_layout_teach_the_same(digits: Dataset, name: str) -> None:
    colour = digits.train_x[:30].repeat(1, 3, 1, 1)
    first, last = OnlineClassifier(name), OnlineClassifier(name)
    first.partial_fit(colour, digits.train_y[:30])
    last.partial_fit(colour.permute(0, 2, 3, 1).numpy(), digits.train_y[:30])
    assert state_of(first)["tensors"] == state_of(last)["tensors"]


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int16, bool])
def test_other_numbers_are_used_as_they_are(kind: Any) -> None:
    x, y = np.arange(40).reshape(10, 4).astype(kind), [0, 1] * 5
    clf = OnlineClassifier().fit(x, y)
    assert clf._state is not None
    assert clf._state.learner.spec.dtype == torch.float32
    np.testing.assert_array_equal(as_tensor(x).numpy(), x.astype(np.float32))


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
@pytest.mark.parametrize("sizes", [[1] * 30, [30], [1, 10, 7, 12]], ids=str)
@pytest.mark.parametrize("batch_size", [1, 7, 10])
def test_a_call_is_cut_in_steps_in_order_of_arrival(batch_size: int, sizes: list[int], name: str) -> None:
    x, y = vectors(30)
    clf, seen = OnlineClassifier(name, batch_size=batch_size), 0
    for size in sizes:
        clf.partial_fit(x[seen : seen + size], y[seen : seen + size])
        seen += size
    assert clf._state is not None
    learner = clf._state.learner
    assert int(learner.steps) == sum(-(-size // batch_size) for size in sizes)
    assert clf.n_samples_seen_ == 30
    kept = learner.memory.x if isinstance(learner, ReplayLearner) else learner.waiting()[0]
    np.testing.assert_array_equal(kept[:30], x.astype(np.float32))


@pytest.mark.parametrize(("name", "memory"), [("ccp", 60), (AUTO, 60), (AUTO, 4000)])
def test_classes_are_learnt_one_by_one_beyond_any_room(name: str, memory: int) -> None:
    rng = np.random.default_rng(0)
    clf = OnlineClassifier(name, memory=memory)
    for label in range(70):
        clf.partial_fit(rng.normal(size=(2, 3)), [f"{label:02}"] * 2)
        assert clf.classes_.tolist() == [f"{known:02}" for known in range(label + 1)]
    assert clf.predict_proba(rng.normal(size=(5, 3))).shape == (5, 70)
    assert clf._state is not None
    assert clf._state.learner.spec.num_classes == 128


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["b", "a", "c"], "U"),
        ([5, -3, 2**40], "i"),
        ([True, False], "b"),
        ([2.0, 1.0, 0.0], "f"),
        ([("b", 1), ("a", 2)], "O"),
        ([("b", 1), (2, 2)], "O"),
        ([b"two", b"one"], "O"),
        ([2**70, 1], "O"),
        (["a\0", "a"], "O"),
        ([frozenset("b"), frozenset("a"), frozenset("ab")], "O"),
        ([None], "O"),
    ],
)
def test_labels_of_any_type(labels: list[Any], kind: str) -> None:
    x = np.eye(len(labels) + 1)[: len(labels)] * 10
    clf = OnlineClassifier("ccp", memory=50, batch_size=1)
    for _ in range(40):
        clf.partial_fit(x, labels)
    assert clf.classes_.dtype.kind == kind
    try:
        expected = sorted(labels) if not isinstance(labels[0], (frozenset, bytes)) else labels
    except TypeError:
        expected = labels
    assert clf.classes_.tolist() == expected
    assert clf.predict(x).tolist() == labels
    assert clf.score(x, labels) == 1.0
    assert clf.score(x, labels, sample_weight=range(1, len(labels) + 1)) == 1.0


def test_labels_in_arrays_are_plain_values() -> None:
    assert as_labels(np.array([1, 2], dtype=np.int8)) == [1, 2]
    assert as_labels(np.array(["a", "b"], dtype=object)) == ["a", "b"]
    assert as_labels([np.int64(3), 4]) == [3, 4]
    assert as_labels(torch.tensor([3, 4])) == [3, 4]
    assert {type(label) for label in as_labels([np.str_("a")])} == {str}


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
def test_two_classes_have_one_decision(name: str) -> None:
    x, y = vectors(40)
    two = [label == "class 1" for label in y]
    clf = OnlineClassifier(name).fit(x, two)
    decision = clf.decision_function(x)
    assert decision.shape == (40,)
    assert ((decision > 0) == clf.predict(x)).all()


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
def test_announced_classes_have_columns_and_no_chance(name: str) -> None:
    x, y = vectors(20)
    clf = OnlineClassifier(name).partial_fit(x, y, classes=["zebra", *sorted(set(y))])
    assert clf.classes_.tolist() == [*sorted(set(y)), "zebra"]
    assert (clf.predict_proba(x)[:, -1] == 0).all()
    assert (clf.decision_function(x)[:, -1] == -np.inf).all()
    clf.partial_fit(x[:3], ["zebra"] * 3)
    assert (clf.decision_function(x)[:, -1] > -np.inf).all()


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
def test_numbers_of_any_unit_are_learnt(name: str) -> None:
    x, y = vectors(300)
    units = np.array([1e-6, 1.0, 1e4, 1e9])
    for factor in (1.0, units):
        clf = OnlineClassifier(name).fit(x * factor + 5 * factor, y)
        assert clf.score(x * factor + 5 * factor, y) > 0.9


@pytest.mark.parametrize("given", [np.asarray, torch.tensor, lambda x: x.tolist(), lambda x: list(torch.tensor(x))])
def test_columns_that_float32_would_round_away_are_warned_of(given: Callable[[Any], Any]) -> None:
    y = np.arange(60) % 2
    x = np.random.default_rng(0).normal(size=(60, 4)) + 20 * y[:, None]
    moved = x + np.array([0, 1.7e9, 0, 0])
    clf = OnlineClassifier().partial_fit(given(x), y)
    for call in (lambda: clf.partial_fit(given(moved), y), lambda: clf.predict(given(moved))):
        with pytest.warns(UserWarning, match=r"\(column 1\), .* float32, .*; subtract a fixed offset") as warned:
            call()
        assert [each.filename for each in warned] == [__file__]


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64, np.uint64, np.float64])
def test_large_numbers_that_differ_little(kind: type) -> None:
    """The differences of integers are exact, however large these are."""
    largest = 2**50 if kind is np.float64 else np.iinfo(kind).max
    with pytest.warns(UserWarning, match=r"column 0, 2\)"):
        as_tensor(np.array([[largest - 100, 1, largest - 1000], [largest, 1000, largest]], kind))


@pytest.mark.parametrize(
    "x",
    [
        [[1.7e9, 1.0]],
        [[1.7e9, 1.0], [1.7e9, 2.0]],
        [[0.1 + 0.2, 1.0], [0.3, 2.0]],  # constants that were computed
        [[0, -(2**62)], [2**40, 2**62]],
        [[1.0, 1.0], [1.0001, 2.0]],
        np.float32([[1e9, 1.0], [1e9 + 64, 1.0]]),  # there is nothing left to lose
        np.int16([[32767, 1], [32766, 1]]),
        torch.tensor([[1e9, 1.0]], dtype=torch.float64),
        np.full((2, 3, 3), 1e9) + np.arange(18).reshape(2, 3, 3),  # no columns
    ],
    ids=str,
)
def test_numbers_that_float32_tells_apart_or_that_are_the_same(x: Any) -> None:
    as_tensor(x)  # a warning would be an error


@pytest.mark.parametrize("name", NAMES)
def test_fit_begins_anew_and_partial_fit_goes_on(name: str) -> None:
    x, y = vectors(60)
    clf = OnlineClassifier(name).partial_fit(x, ["other"] * 60).fit(x, y)
    assert "other" not in clf.classes_
    assert state_of(clf)["tensors"] == state_of(OnlineClassifier(name).fit(x, y))["tensors"]
    assert clf.n_samples_seen_ == 60  # however often it was shown them
    assert clf.partial_fit(x, y).n_samples_seen_ == 2 * 60


def test_epochs_are_steps_of_a_network() -> None:
    x, y = vectors(60)
    few, many = (OnlineClassifier("ccp", epochs=epochs).fit(x, y)._state for epochs in (1, 4))
    assert few is not None
    assert many is not None
    assert (int(few.learner.steps), int(many.learner.steps)) == (6, 24)
    assert torch.equal(few.learner.counts, many.learner.counts)


def test_statistics_see_a_sample_once_in_fit(digits: Dataset) -> None:
    """As often as in partial_fit: more passes would pass for more samples, and the shrinkage would be too small."""
    x, y = digits.train_x[:20], digits.train_y[:20]
    fitted, gone_by = OnlineClassifier().fit(x, y), OnlineClassifier().partial_fit(x, y)
    assert fitted.method_ == "patch-lda"
    assert fitted.n_samples_seen_ == 20
    np.testing.assert_allclose(
        fitted.predict_proba(digits.test_x), gone_by.predict_proba(digits.test_x), rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
@pytest.mark.parametrize("random_state", [0, 7, None, "state"])
def test_seeds(random_state: Any, name: str) -> None:
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


def test_integers_of_numpy_are_integers(tmp_path: Path) -> None:
    x, y = vectors(60)
    numbers = {"memory": 30, "batch_size": 7, "epochs": 2, "random_state": 3, "every": 50}
    first = OnlineClassifier("er", **numbers).fit(x, y)  # type: ignore[arg-type]
    second = OnlineClassifier("er", **{name: np.int64(value) for name, value in numbers.items()}).fit(x, y)  # type: ignore[arg-type]
    assert state_of(first)["tensors"] == state_of(second)["tensors"]
    second.save(tmp_path / "file")
    loaded = OnlineClassifier.load(tmp_path / "file")
    assert loaded.get_params() == first.get_params()
    assert state_of(loaded)["tensors"] == state_of(first)["tensors"]


# Scoring


@pytest.mark.parametrize(
    ("learnt", "asked", "names"),
    [
        ([0, 1], ["0", "1"], "int, str"),
        (["0", "1"], [0, 1], "int, str"),
        ([0, 1], np.array(["0", "1"]), "int, str"),
        ([0, 1], [("0",), ("1",)], "int, tuple"),
    ],
)
def test_a_score_of_labels_that_no_answer_can_equal_is_refused(learnt: Any, asked: Any, names: str) -> None:
    clf = OnlineClassifier().partial_fit(np.eye(2), learnt)
    with pytest.raises(UsageError, match=rf"y has labels of different types \({names}\); give all of them one type"):
        clf.score(np.eye(2), asked)
    with pytest.raises(UsageError, match=rf"y has labels of different types \({names}\)"):
        clf.partial_fit(np.eye(2), asked)


@pytest.mark.parametrize(
    ("learnt", "asked", "expected"),
    [
        ([0, 1], [0.0, 1.0], 1.0),
        ([0.0, 1.0], [0, 1], 1.0),
        ([0, 1], [False, True], 1.0),
        ([0, 1], torch.tensor([0, 7]), 0.5),
        (["a", "b"], ["never seen", "b"], 0.5),
        (["a", "b"], ["never seen", "nor this"], 0.0),
    ],
)
def test_a_score_of_numbers_of_another_type_and_of_labels_never_seen(learnt: Any, asked: Any, expected: float) -> None:
    assert OnlineClassifier().partial_fit(np.eye(2), learnt).score(np.eye(2), asked) == expected


# Layouts and codes


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((5,), "vector"), ((4, 4), "gray"), ((3, 28, 28), "first"), ((28, 28, 3), "last"), ((1, 5, 5), "first")],
)
def test_where_channels_stand(shape: tuple[int, ...], axes: str) -> None:
    assert Layout.of(torch.zeros(2, *shape)).axes == axes


@pytest.mark.parametrize("shape", [(3, 28, 4), (13, 28, 28), (3, 3, 3)])
def test_where_channels_stand_must_be_said_if_it_is_not_clear(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="set channels='first' or channels='last'"):
        Layout.of(torch.zeros(2, *shape))
    assert Layout.of(torch.zeros(2, *shape), "first").sample_shape == shape
    assert Layout.of(torch.zeros(2, *shape), "last").sample_shape == (shape[2], shape[0], shape[1])
    x, y = np.zeros((4, *shape), np.uint8), [0, 1, 0, 1]
    assert OnlineClassifier(channels="first", encoder="conv").partial_fit(x, y).predict(x).shape == (4,)


@pytest.mark.parametrize("label", ["a", "", 3, -1.0, True, None, (), ("a", (1, (None, True)))], ids=repr)
def test_labels_as_json(label: Any) -> None:
    found = from_json(to_json(label))
    assert found == label
    assert type(found) is type(label)


@pytest.mark.parametrize("found", [[1], {"tuple": 1}, {"list": []}, {"tuple": [[1]]}, {}], ids=repr)
def test_other_json_is_no_label(found: Any) -> None:
    with pytest.raises(UsageError, match="is not a label"):
        from_json(found)
