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
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor, nn

from classifiers import DEFAULT_AND_CCP, NAMES, state_of, vectors
from onebyone import Dataset, OnlineClassifier, Spec, UsageError, create
from onebyone.engine.static import capture_problem
from onebyone.estimator import persistence
from onebyone.estimator.inputs import as_tensor
from onebyone.estimator.labels import as_labels, from_json, to_json
from onebyone.estimator.samples import Layout
from onebyone.methods import AUTO, NetworkLearner, Options, ReplayLearner, method
from onebyone.nets import Adapted
from onebyone.nets.mlp import ScaledMLP
from onebyone.options import number_of_bytes

NETWORKS = [name for name in NAMES if issubclass(method(name).options, Options)]


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
    with pytest.raises(UsageError, match=r"a tensor of shape \(2,\); give one value a sample"):
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
    with pytest.raises(UsageError, match=f"{parameter} is given, and patch-lda has no network; leave it out or use"):
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


# Memory


@pytest.mark.parametrize(("text", "size"), [("3MB", 3_000_000), ("500 kb", 500_000), ("1.5GB", 1.5e9), ("70B", 70)])
def test_sizes(text: str, size: int) -> None:
    assert number_of_bytes(text, "memory") == size


@pytest.mark.parametrize("policy", ["reservoir", "balanced"])
@pytest.mark.parametrize("name", ["ccp", "der++"])
def test_a_memory_by_size_is_as_large_as_fits(digits: Dataset, name: str, policy: str) -> None:
    clf = OnlineClassifier(name, memory="20KB", options={"memory_policy": policy})
    clf.partial_fit(digits.train_x[:20], digits.train_y[:20])
    assert clf._state is not None
    learner = clf._state.learner
    assert isinstance(learner, ReplayLearner)
    row = 64 + 8 + 4 * (policy == "balanced") + 4 * 16 * (name == "der++")
    assert 20_000 - row < learner.memory.nbytes <= 20_000


def test_a_memory_by_size_that_classes_make_larger_is_warned_of() -> None:
    """DER++ keeps a number of each class with each sample."""
    x = np.random.default_rng(0).normal(size=(300, 16))
    clf = OnlineClassifier("der++", memory="60KB").partial_fit(x[:16], range(16))
    with pytest.warns(
        UserWarning, match=r"memory is '60KB', and room for 512 classes makes it [\d,]+ bytes; "
    ) as warned:
        clf.partial_fit(x, range(300))
    (warning,) = warned
    assert clf._state is not None
    assert f"{clf._state.learner.memory_bytes:,} bytes" in str(warning.message)
    assert clf._state.learner.memory_bytes > 10 * 60_000
    assert warning.filename == __file__
    clf.partial_fit(x, range(300))  # a warning would be an error: it has not grown again


@pytest.mark.parametrize(
    ("name", "memory"), [("der++", 200), ("ccp", "60KB"), ("replay", "60KB"), ("hybrid", "8MB"), ("auto", "8MB")]
)
def test_a_memory_that_classes_make_hardly_larger_is_not_warned_of(name: str, memory: int | str) -> None:
    x = np.random.default_rng(0).normal(size=(300, 16))
    OnlineClassifier(name, memory=memory).partial_fit(x, range(300))  # a warning would be an error


# Encoders


def test_any_module_is_an_encoder_and_is_left_alone(digits: Dataset) -> None:
    module = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    clf = OnlineClassifier(encoder=module).partial_fit(digits.train_x[:30], digits.train_y[:30])
    assert clf._state is not None
    assert clf._state.learner.encoder.width == 6 * 6 * 6
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    own = clf._state.learner.encoder.state_dict()
    assert not torch.equal(own["module.0.weight"], before["0.weight"])
    clf.partial_fit(digits.train_x[:40], [100 + number for number in range(40)])  # grows
    assert clf.score(digits.train_x[:40], digits.train_y[:40]) >= 0


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("encoder", ["conv", nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU())])
def test_a_frozen_encoder_stays_as_it_is(digits: Dataset, encoder: Any, name: str) -> None:
    clf = OnlineClassifier(name, encoder=encoder, freeze_encoder=True, memory=50)
    clf.partial_fit(digits.train_x[:1], digits.train_y[:1])
    before = {part: tensor.clone() for part, tensor in frozen(clf).items()}
    for label in range(20):
        clf.partial_fit(digits.train_x[label : label + 10], [label] * 10)
    after = frozen(clf)
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[part]) for part, tensor in before.items())


@pytest.mark.parametrize("name", NETWORKS)
def test_vectors_are_standardised_with_a_frozen_encoder_too(name: str) -> None:
    x, y = vectors(300)
    parameters: dict[str, Any] = {"freeze_encoder": True, "memory": 100}
    clf = OnlineClassifier(name, **parameters).partial_fit(x, y)
    far = OnlineClassifier(name, **parameters).partial_fit(1000 * x + 5000, y)
    assert far.score(1000 * x + 5000, y) == pytest.approx(clf.score(x, y), abs=0.02)
    module = ScaledMLP((4,))
    given = OnlineClassifier(name, encoder=module, **parameters).partial_fit(x, y)
    assert all(torch.equal(frozen(given)[f"module.{part}"], tensor) for part, tensor in module.state_dict().items())


def frozen(clf: OnlineClassifier) -> dict[str, torch.Tensor]:
    """The weights of its network, or of the network of its part that has one."""
    assert clf._state is not None
    found: Any = next(part for part in clf._state.learner.modules() if isinstance(part, NetworkLearner))
    return dict(found.encoder.state_dict())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_networks_here_keep_steps_static(name: str) -> None:
    spec = Spec((5,), 16, torch.float32)
    frozen = Adapted(nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)), (5,), frozen=True)
    for encoder in ("scaled-mlp", frozen):
        assert capture_problem(create(name, spec, encoder=encoder), batch_size=10) is None


def test_a_model_of_timm(digits: Dataset, timm: list[tuple[Any, ...]]) -> None:
    OnlineClassifier(encoder="timm:tiny").partial_fit(digits.train_x[:9], digits.train_y[:9])
    assert timm == [("tiny", True, 0, 1)]
    with pytest.raises(UsageError, match="timm has no model 'hf-hub:somebody/thing'"):
        OnlineClassifier(encoder="timm:hf-hub:somebody/thing").partial_fit(digits.train_x[:9], digits.train_y[:9])
    with pytest.raises(UsageError, match="reads images"):
        OnlineClassifier(encoder="timm:tiny").partial_fit([[1.0, 2.0]], [1])


def test_a_name_of_timm_without_its_prefix_is_refused(digits: Dataset, timm: list[tuple[Any, ...]]) -> None:
    """Names without a prefix are ours: the same name in timm is another network."""
    for frozen in (True, False):
        with pytest.raises(UsageError, match="write 'timm:tiny'"):
            OnlineClassifier(encoder="tiny", freeze_encoder=frozen).partial_fit(digits.train_x[:9], digits.train_y[:9])
        OnlineClassifier(encoder="conv", freeze_encoder=frozen).partial_fit(digits.train_x[:9], digits.train_y[:9])
    assert timm == []


def test_a_file_that_names_a_model_of_timm_without_the_prefix_is_read(
    digits: Dataset, timm: list[tuple[Any, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As files were written before there was a prefix."""
    clf = OnlineClassifier(encoder="timm:tiny").partial_fit(digits.train_x[:9], digits.train_y[:9])
    describe = persistence.describe
    with monkeypatch.context() as patch:
        patch.setattr(persistence, "describe", lambda *given: describe(*given).replace("timm:tiny", "tiny"))
        clf.save(tmp_path / "old")
    loaded = OnlineClassifier.load(tmp_path / "old")
    assert loaded.encoder == "timm:tiny"
    assert np.array_equal(loaded.predict_proba(digits.test_x[:9]), clf.predict_proba(digits.test_x[:9]))
    loaded.partial_fit(digits.train_x[:9], digits.train_y[:9])


# What is refused

GOOD = np.arange(24, dtype=np.float32).reshape(6, 4), ["a", "b"] * 3


def spoilt(value: float) -> Any:
    x = GOOD[0].copy()
    x[4, 2] = value
    return x


BAD_BATCHES: dict[str, tuple[Any, Any, str]] = {
    "NaN": (spoilt(np.nan), GOOD[1], "X contains NaN"),
    "infinite": (spoilt(np.inf), GOOD[1], "infinity"),
    "NaN in a tensor": (torch.tensor(spoilt(np.nan)), GOOD[1], "NaN"),
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
    "dates": (GOOD[0], np.arange(6).astype("datetime64[ns]"), r"labels of type datetime64; give them as texts"),
    "dates in a list": (GOOD[0], list(np.arange(6).astype("datetime64[D]")), "labels of type datetime64"),
    "spans of time": (GOOD[0], np.arange(6).astype("timedelta64[ns]"), "labels of type timedelta64"),
    "complex numbers": (GOOD[0] + 1j, GOOD[1], "Complex data not supported"),
    "a complex tensor": (torch.zeros(6, 4, dtype=torch.complex64), GOOD[1], "real"),
    "texts": ([["x", "y", "z", "w"]] * 6, GOOD[1], "could not convert"),
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
    "numbers after bytes": (np.zeros((2, 8, 8)), "type float32; those learnt were uint8"),
    "of two types": ([np.zeros((8, 8), np.uint8), np.zeros((8, 9))], "different shapes"),
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
def test_bad_parameters_are_refused_when_learning_begins(parameters: dict[str, Any], message: str) -> None:
    clf = OnlineClassifier(**parameters)
    before = state_of(clf)
    for call in (clf.partial_fit, clf.fit):
        with pytest.raises(ValueError, match=message):
            call(*GOOD)
    assert state_of(clf) == before


def test_what_learner_it_is_must_not_change_on_the_way() -> None:
    clf = OnlineClassifier("ccp", memory=20).partial_fit(*GOOD)
    clf.set_params(method="er", memory=30)
    before = state_of(clf)
    with pytest.raises(UsageError, match="memory, method changed since learning began"):
        clf.partial_fit(*GOOD)
    assert state_of(clf) == before
    clf.set_params(method="ccp", memory=20, batch_size=2).partial_fit(*GOOD)
    assert clf.set_params(method="er").fit(*GOOD).n_samples_seen_ == 6


def test_nothing_is_answered_before_anything_is_learnt() -> None:
    clf = OnlineClassifier()
    for call in (clf.predict, clf.predict_proba, clf.decision_function):
        with pytest.raises(NotFittedError):
            call(GOOD[0])
    for name in ("nbytes", "n_samples_seen_", "classes_"):
        assert not hasattr(clf, name)
    with pytest.raises(NotFittedError):
        clf.save("nowhere")


def test_a_learner_that_has_diverged_says_so() -> None:
    clf = OnlineClassifier("er", options={"learning_rate": 1e30}).partial_fit(*GOOD)
    before = state_of(clf)
    with pytest.raises(UsageError, match="diverged"):
        clf.partial_fit(*GOOD)
    assert state_of(clf) == before


def test_learning_is_not_blamed_for_samples_that_are_too_large(digits: Dataset) -> None:
    x = digits.train_x[:60, 0].numpy() / np.float32(255)
    clf = OnlineClassifier("er").partial_fit(x, digits.train_y[:60])
    with pytest.raises(UsageError, match="X has values too large for what was learnt"):
        clf.predict(x + np.float32(1e38))
    assert clf.predict(x).shape == (60,)


def test_ccp_with_nothing_to_train_says_what_to_change() -> None:
    options = {"projector": "none", "prototype_gradient": "none"}
    clf = OnlineClassifier("ccp", freeze_encoder=True, options=options)
    with pytest.raises(UsageError, match=r"nothing is left to train.*; give projector=linear or another"):
        clf.partial_fit(*GOOD)
    for change in ({"projector": "linear"}, {"prototype_gradient": "all"}):
        clf.set_params(options=options | change).fit(*GOOD)
    clf.set_params(options=options, freeze_encoder=False).fit(*GOOD)


# Layouts and codes


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((5,), "vector"), ((4, 4), "gray"), ((3, 28, 28), "first"), ((28, 28, 3), "last"), ((1, 5, 5), "first")],
)
def test_where_channels_stand(shape: tuple[int, ...], axes: str) -> None:
    assert Layout.of(torch.zeros(2, *shape)).axes == axes


@pytest.mark.parametrize("shape", [(3, 28, 4), (13, 28, 28), (3, 3, 3)])
def test_where_channels_stand_must_be_said_if_it_is_not_clear(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="say channels='first' or channels='last'"):
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
    with pytest.raises(UsageError, match="is no label"):
        from_json(found)
