"""``method="auto"``: the method that is chosen, and that it does not change later."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors import torch as safetensors
from sklearn.base import clone
from sklearn.metrics import log_loss
from torch import nn

from onebyone import Dataset, OnlineClassifier, Spec, UsageError
from onebyone.estimator import model
from onebyone.methods import choose
from onebyone.methods.choice import MAX_IMAGE_BYTES, MAX_VECTOR_BYTES
from onebyone.nets import Patches
from onebyone.tensors import digest


def one_by_one(clf: OnlineClassifier, digits: Dataset) -> OnlineClassifier:
    for label in range(10):
        x = digits.train_x[digits.train_y == label]
        clf.partial_fit(x, [label] * len(x))
    return clf


@pytest.mark.parametrize(
    ("parameters", "shape", "chosen"),
    [
        ({}, (8, 8), "patch-lda"),
        ({}, (32, 40, 3), "patch-lda"),
        ({}, (5,), "patch-lda"),
        ({}, (1,), "patch-lda"),
        ({"memory": "3KB"}, (8, 8), "patch-lda"),
        ({"memory": "2KB"}, (8, 8), "replay"),
        ({"memory": "20KB"}, (32, 32, 3), "patch-lda"),
        ({"memory": 1}, (32, 32, 3), "patch-lda"),  # of one image, statistics fit into 3 KB
        ({"memory": 1}, (2,), "replay"),
        ({"encoder": "conv"}, (8, 8), "replay"),
        ({"encoder": nn.Sequential(nn.Flatten(), nn.Linear(64, 5))}, (8, 8), "replay"),
        ({"freeze_encoder": True}, (8, 8), "replay"),
        ({"method": "er"}, (8, 8), "er"),
    ],
    ids=str,
)
def test_the_chosen_method(parameters: dict[str, Any], shape: tuple[int, ...], chosen: str) -> None:
    clf = OnlineClassifier(**parameters)
    assert not hasattr(clf, "method_")
    x = np.random.default_rng(0).integers(0, 256, (12, *shape), dtype=np.uint8)
    clf.partial_fit(x, range(12))
    assert clf.method_ == chosen
    assert clf.method == parameters.get("method", "auto")
    assert not hasattr(clone(clf), "method_")


@pytest.mark.slow
def test_the_choice_depends_on_the_number_of_classes() -> None:
    images = Spec((3, 32, 32), 10)
    sizes = [10**power for power in range(3, 10)]
    chosen = [choose(images, size) for size in sizes]
    assert chosen == sorted(chosen, reverse=True)  # replay, and from some size on patch-lda
    assert choose(images, 20_000) == "patch-lda"
    assert choose(Spec((3, 32, 32), 10_000), 20_000) == "replay"


@pytest.mark.slow
def test_statistics_are_limited_by_memory_and_by_the_time_of_a_step(digits: Dataset) -> None:
    for memory, most in (("12800B", 12_800), (200, 12_800), ("1GB", MAX_IMAGE_BYTES)):
        clf = OnlineClassifier(memory=memory).partial_fit(digits.train_x[:20], digits.train_y[:20])
        assert clf._state is not None
        assert 0.75 * most < clf._state.learner.memory_bytes <= most
    clf = OnlineClassifier(memory="1GB").partial_fit(np.eye(2, 3000, dtype=np.float32), [0, 1])
    assert clf._state is not None
    assert 0.95 * MAX_VECTOR_BYTES < clf._state.learner.memory_bytes <= MAX_VECTOR_BYTES
    with pytest.raises(UsageError, match="it must be at least"):
        OnlineClassifier("patch-lda", memory="1KB").partial_fit(np.zeros((2, 2000)), [0, 1])


def test_auto_beats_ccp_and_is_calibrated(digits: Dataset) -> None:
    """With the bytes of twenty images per class. The mean confidence is close to the accuracy."""
    truth = digits.test_y.numpy()
    clf, ccp = (one_by_one(OnlineClassifier(name, memory="12800B"), digits) for name in ("auto", "ccp"))
    accuracy, chances = clf.score(digits.test_x, truth), clf.predict_proba(digits.test_x)
    assert accuracy > ccp.score(digits.test_x, truth) + 0.03
    assert abs(chances.max(1).mean() - accuracy) < 0.06
    assert log_loss(truth, chances) < log_loss(truth, ccp.predict_proba(digits.test_x)) / 2


def test_statistics_predict_from_the_first_sample_on(digits: Dataset) -> None:
    clf = OnlineClassifier()
    for count in range(1, 30):
        clf.partial_fit(digits.train_x[count : count + 1], [int(digits.train_y[count])])
        assert clf.predict_proba(digits.test_x[:3]).shape == (3, len(clf.classes_))
    assert clf.score(digits.train_x[1:30], digits.train_y[1:30].numpy()) > 0.8


@pytest.mark.slow
def test_more_classes_than_the_memory_holds_are_refused_and_change_nothing(digits: Dataset) -> None:
    clf = OnlineClassifier(memory="3KB")
    refused = pytest.raises(
        UsageError, match=r"memory is '3KB', too little for \d\d classes \(.*; start again with a larger memory"
    )
    with refused:
        for label in range(128):  # for which there is no room
            clf.partial_fit(digits.train_x[label : label + 1], [label])
    known = clf.classes_.tolist()
    assert 64 < len(known) == clf.n_samples_seen_  # but for more than twice 32
    assert clf._state is not None
    assert clf._state.learner.memory_bytes <= 3000
    before = {name: tensor.clone() for name, tensor in clf._state.learner.state_dict().items()}
    with refused:
        clf.partial_fit(digits.train_x[:1], [128])
    assert clf.classes_.tolist() == known
    assert all(torch.equal(tensor, before[name]) for name, tensor in clf._state.learner.state_dict().items())
    clf.partial_fit(digits.train_x[:3], [1, 2, 3])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["auto", "hybrid"])
@pytest.mark.parametrize("announced", [True, False])
def test_losing_half_of_the_filters_gives_one_warning(
    name: str, announced: bool, digits: Dataset, tmp_path: Path
) -> None:
    x, y = digits.train_x[:300], digits.train_y[:300].tolist()
    clf = OnlineClassifier(name).partial_fit(x, y, classes=range(40))  # which leaves most of them
    many = list(range(300))
    with pytest.warns(UserWarning, match=r"capacity for 512 classes leaves \d of \d\d filters, .*; start again"):
        clf.partial_fit(x, y if announced else many, classes=many if announced else None)
    clf.save(tmp_path / "file")
    for each in (clf, OnlineClassifier.load(tmp_path / "file")):
        each.partial_fit(x, y, classes=range(600))  # a warning would be an error


# Files


def rewritten(path: Path, change: Any) -> None:
    """Write the file with another description, as another version would have written it."""
    with safe_open(path, framework="pt") as file:
        description = json.loads(file.metadata()["onebyone"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(description)
    text = json.dumps(description)
    path.write_bytes(safetensors.save(tensors, {"onebyone": text, "sha256": digest(tensors, text)}))


def test_a_file_continues_with_the_method_that_was_chosen(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the current version would choose another one."""
    clf = OnlineClassifier(memory=200).partial_fit(digits.train_x[:300], digits.train_y[:300])
    clf.save(tmp_path / "file")
    monkeypatch.setattr(model, "choose", lambda *_, **__: "er")
    monkeypatch.setattr(model, "auto_budget", lambda *_: 100)
    other = OnlineClassifier.load(tmp_path / "file")
    assert (other.method, other.method_) == ("auto", "patch-lda")
    for each in (clf, other):
        each.partial_fit(digits.train_x[300:], digits.train_y[300:])
    np.testing.assert_array_equal(other.predict_proba(digits.test_x), clf.predict_proba(digits.test_x))
    assert clone(other).fit(digits.train_x[:20], digits.train_y[:20]).method_ == "er"


def test_files_written_before_auto_existed_are_read(digits: Dataset, tmp_path: Path) -> None:
    clf = OnlineClassifier("ccp", memory=30).partial_fit(digits.train_x[:60], digits.train_y[:60])
    clf.save(tmp_path / "file")
    rewritten(tmp_path / "file", lambda description: description.pop("method"))
    other = OnlineClassifier.load(tmp_path / "file")
    assert (other.method, other.method_) == ("ccp", "ccp")
    for each in (clf, other):
        each.partial_fit(digits.train_x[60:90], digits.train_y[60:90])
    np.testing.assert_array_equal(other.predict_proba(digits.test_x), clf.predict_proba(digits.test_x))


def test_a_file_without_the_chosen_method_is_refused(digits: Dataset, tmp_path: Path) -> None:
    OnlineClassifier(memory=200).partial_fit(digits.train_x[:60], digits.train_y[:60]).save(tmp_path / "file")
    rewritten(tmp_path / "file", lambda description: description.pop("method"))
    with pytest.raises(UsageError, match="cannot be loaded"):
        OnlineClassifier.load(tmp_path / "file")


def test_wide_images_need_no_matrix_of_all_positions() -> None:
    assert Patches((3, 32, 20_000), filters=1).pooling.shape == (2, 4, 25 * 19_993)
