"""Saved classifiers: they continue bit for bit, and keep labels, options, encoders and seeds."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from classifiers import NAMES, REPLAY, bits, class_means
from onebyone import Dataset, OnlineClassifier, UsageError, nets
from onebyone.methods import AUTO, BudgetOptions, method
from onebyone.tensors import read_tensors
from tiers import mostly_slow


def taught(digits: Dataset, name: str = "ccp", **parameters: Any) -> OnlineClassifier:
    """A classifier that knows 18 classes, so that it has grown once, and has a full memory."""
    clf = OnlineClassifier(name, **{"memory": 30} | parameters)
    for start in range(0, 90, 5):
        clf.partial_fit(digits.train_x[start : start + 5], [f"class {start}"] * 5)
    return clf


def enough_memory(name: str) -> dict[str, Any]:
    """Parameters with enough memory for all classes of the test, for methods with a budget in bytes."""
    return {"memory": "30KB"} if name == AUTO or issubclass(method(name).options, BudgetOptions) else {}


CASES: list[tuple[str, dict[str, Any]]] = [(name, enough_memory(name)) for name in (*NAMES, AUTO)] + [
    (
        name,
        {"options": {"memory_policy": "balanced", "readout": class_means(name)}, "freeze_encoder": True}
        | enough_memory(name),
    )
    for name in REPLAY
]


@pytest.mark.parametrize(
    ("name", "parameters"),
    mostly_slow(CASES, fast=[case for case in CASES if case[0] in ("auto", "ccp", "icarl")]),
    ids=str,
)
def test_a_loaded_classifier_continues_bit_for_bit(
    digits: Dataset, name: str, parameters: dict[str, Any], tmp_path: Path
) -> None:
    clf = taught(digits, name, **parameters)
    clf.save(tmp_path / "file")
    other = OnlineClassifier.load(tmp_path / "file")
    assert other.get_params() == clf.get_params()
    assert other.method_ == clf.method_ == ("patch-lda" if name == AUTO else name)
    assert other.classes_.tolist() == clf.classes_.tolist()
    assert other.n_features_in_ == clf.n_features_in_
    assert bits(other) == bits(clf)
    np.testing.assert_allclose(other.predict_proba(digits.test_x), clf.predict_proba(digits.test_x), rtol=1e-9)
    for start in range(90, 300, 10):  # exceeds the capacity of 32 classes too
        for each in (clf, other):
            each.partial_fit(digits.train_x[start : start + 10], [f"class {start}"] * 10)
    assert bits(other) == bits(clf)
    assert other.classes_.tolist() == clf.classes_.tolist()


@pytest.mark.parametrize("label", [3, 2.0, True, "é\n\0", ("a", (1, None))], ids=repr)
def test_labels_survive_saving(label: Any, tmp_path: Path) -> None:
    OnlineClassifier().partial_fit([[1.0, 2.0]], [label]).save(tmp_path / "file")
    found = OnlineClassifier.load(tmp_path / "file").predict([[1.0, 2.0]]).tolist()
    assert found == [label]
    assert type(found[0]) is type(label)


def test_other_labels_are_refused_and_leave_no_file(tmp_path: Path) -> None:
    clf = OnlineClassifier().partial_fit([[1.0, 2.0]], [frozenset("a")])
    with pytest.raises(UsageError, match="a label of type frozenset cannot be saved"):
        clf.save(tmp_path / "file")
    clf = OnlineClassifier().partial_fit([[1.0, 2.0]], [(float("inf"),)])
    with pytest.raises(UsageError, match="cannot be saved"):
        clf.save(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("memory", [1, 2000, "100KB"])
def test_nbytes_is_the_size_of_the_file(digits: Dataset, memory: Any, tmp_path: Path) -> None:
    small = OnlineClassifier(memory=memory).partial_fit([[1.0], [2.0]], [0, 1])
    for clf in (taught(digits, memory=memory), taught(digits, AUTO, memory=memory), small):
        clf.save(tmp_path / "file")
        assert abs((tmp_path / "file").stat().st_size / clf.nbytes - 1) < 0.02
    other = OnlineClassifier.load(tmp_path / "file")
    assert other.nbytes == clf.nbytes
    assert other.memory == memory


def test_a_module_as_encoder_must_be_given_again(digits: Dataset, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU())
    clf = taught(digits, encoder=module)
    clf.save(tmp_path / "file")
    with pytest.raises(UsageError, match="its encoder was given as a module"):
        OnlineClassifier.load(tmp_path / "file")
    with pytest.raises(UsageError, match="cannot be loaded"):
        OnlineClassifier.load(tmp_path / "file", encoder=nn.Conv2d(1, 7, 3))
    other = OnlineClassifier.load(tmp_path / "file", encoder=nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU()))
    assert bits(other) == bits(clf)
    for each in (clf, other):
        each.partial_fit(digits.train_x[:200], list(map(str, range(200))))
    assert bits(other) == bits(clf)


def test_a_frozen_module_is_named_by_the_hash_of_its_weights(digits: Dataset, tmp_path: Path) -> None:
    """The file does not hold the weights. Other weights are refused with both hashes."""
    module = nn.Sequential(nn.Conv2d(1, 300, 3), nn.BatchNorm2d(300), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    clf = taught(digits, encoder=module, freeze_encoder=True)
    clf.save(tmp_path / "file")
    tensors, _ = read_tensors(tmp_path / "file")
    assert not [name for name in tensors if name.startswith("encoder.")]
    other = OnlineClassifier.load(tmp_path / "file", encoder=module)
    assert bits(other) == bits(clf)
    for each in (clf, other):
        each.partial_fit(digits.train_x[:200], list(map(str, range(200))))
    assert bits(other) == bits(clf)
    changed = deepcopy(module)
    with torch.no_grad():
        changed[1].running_mean[7] += 1e-3
    with pytest.raises(UsageError) as error:
        OnlineClassifier.load(tmp_path / "file", encoder=changed)
    assert nets.weights_hash(module) in str(error.value)
    assert nets.weights_hash(changed) in str(error.value)
    with pytest.raises(UsageError, match="cannot be loaded"):
        OnlineClassifier.load(tmp_path / "file", encoder=nn.Conv2d(1, 7, 3))


@pytest.mark.parametrize("encoder", ["scaled-mlp", "mlp"])
def test_a_file_holds_the_random_weights_of_a_frozen_network(encoder: str, tmp_path: Path) -> None:
    """They depend on the version of torch, and a scale is learnt."""
    x, y = np.random.default_rng(0).normal(5, 3, size=(40, 3)), [0, 1] * 20
    clf = OnlineClassifier("er", memory=9, encoder=encoder, freeze_encoder=True).partial_fit(x, y)
    clf.save(tmp_path / "file")
    assert [name for name in read_tensors(tmp_path / "file")[0] if name.startswith("encoder.")]
    assert np.array_equal(OnlineClassifier.load(tmp_path / "file").predict_proba(x), clf.predict_proba(x))


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3)], ids=["None", "RandomState"])
def test_a_random_seed_is_saved(random_state: Any, tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 3)), list(range(40))
    clf = OnlineClassifier(random_state=random_state).partial_fit(x[:10], y[:10])
    clf.save(tmp_path / "file")
    other = OnlineClassifier.load(tmp_path / "file")
    assert bits(clf.partial_fit(x, y)) == bits(other.partial_fit(x, y))  # also the new rows of a growing learner


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("patch-lda", {"patch": 10**12, "stride": 10**12}),
        ("mir", {"candidates": 10**12, "replay_size": 2**20}),
        ("ccp", {"projector": "none", "hidden": 10**12, "projection": 10**12}),
    ],
)
@pytest.mark.parametrize("shape", [(3,), (9, 9)], ids=["vectors", "images"])
def test_large_options_are_saved(name: str, options: dict[str, Any], shape: tuple[int, ...], tmp_path: Path) -> None:
    """Options that can be used for learning can be loaded."""
    clf = OnlineClassifier(name, memory=500, options=options).partial_fit(np.ones((2, *shape)), [0, 1])
    clf.save(tmp_path / "file")
    other = OnlineClassifier.load(tmp_path / "file")
    assert other.options == options
    assert bits(other) == bits(clf)


def test_names_of_features_survive_saving(tmp_path: Path) -> None:
    table = pytest.importorskip("pandas").DataFrame([[1.0, 2.0], [3.0, 4.0]], columns=["size", "weight"])
    clf = OnlineClassifier().partial_fit(table, [0, 1])
    clf.save(tmp_path / "file")
    assert OnlineClassifier.load(tmp_path / "file").feature_names_in_.tolist() == ["size", "weight"]


def test_an_empty_path_is_refused_and_is_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clf = OnlineClassifier("er", memory=5).partial_fit(np.eye(2), ["a", "b"])
    for call in (clf.save, clf.export, OnlineClassifier.load):
        with pytest.raises(UsageError, match="the path is empty; give a path"):
            call("")
    with pytest.raises(UsageError, match=r"\. is a folder; give the path of a file"):
        clf.save(".")
    with pytest.raises(UsageError, match="autosave is an empty text; give a folder"):
        OnlineClassifier("er", memory=5, autosave="").partial_fit(np.eye(2), ["a", "b"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("features", [20, 5000])
def test_a_file_of_statistics_has_the_size_of_the_memory(features: int) -> None:
    """Up to 2 KB of parameters, without the 5 KB of a random generator that is never used."""
    x = np.random.default_rng(0).normal(size=(40, features))
    clf = OnlineClassifier(memory="100KB").partial_fit(x, ["a", "b"] * 20)
    assert clf.method_ == "patch-lda"
    assert clf.nbytes < 102_500
