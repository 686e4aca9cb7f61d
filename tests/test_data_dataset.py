from dataclasses import replace
from pathlib import Path

import pytest
import torch

from onebyone.data import CropFlip, Dataset, Spec, datasets, load, register
from onebyone.data.dataset import check_labels, check_samples, split_by_class
from onebyone.data.registry import DATASETS
from onebyone.errors import UsageError


@pytest.fixture
def numbered() -> Dataset:
    """Three classes of 50, 100 and 150 samples, whose value is their index; in the test set it is -1."""
    y = torch.cat([torch.full((count,), label) for label, count in enumerate((50, 100, 150))])
    y = y[torch.randperm(300, generator=torch.Generator().manual_seed(0))]
    x = torch.arange(300.0)[:, None]
    return Dataset("numbered", x, y, -torch.ones(3, 1), torch.arange(3), ("a", "b", "c"))


def test_held_out_is_a_tenth_of_each_class(numbered: Dataset) -> None:
    tuning = numbered.held_out()
    assert tuning.test_y.bincount().tolist() == [5, 10, 15]
    assert tuning.train_y.bincount().tolist() == [45, 90, 135]
    assert tuning.classes == numbered.classes


def test_held_out_is_disjoint_and_without_the_test_set(numbered: Dataset) -> None:
    tuning = numbered.held_out(0.3)
    train, test = set(tuning.train_x.flatten().tolist()), set(tuning.test_x.flatten().tolist())
    assert not train & test
    assert train | test == set(range(300))
    for x, y in ((tuning.train_x, tuning.train_y), (tuning.test_x, tuning.test_y)):
        assert torch.equal(numbered.train_y[x.flatten().long()], y)


def test_held_out_is_random_but_the_same_for_a_seed(numbered: Dataset) -> None:
    first, again, other = numbered.held_out(seed=1), numbered.held_out(seed=1), numbered.held_out(seed=2)
    assert torch.equal(first.test_x, again.test_x)
    assert not torch.equal(first.test_x, other.test_x)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_held_out_fraction_is_between_0_and_1(numbered: Dataset, fraction: float) -> None:
    with pytest.raises(UsageError, match=f"held-out fraction is {fraction}; it must be between 0 and 1"):
        numbered.held_out(fraction)


def test_split_keeps_one_of_each_class_and_the_stored_order() -> None:
    y = torch.tensor([2, 0, 0, 1, 1, 1, 1])
    train, test = split_by_class(y, 0.9, seed=0)
    assert y[train].bincount().tolist() == [1, 1, 1]
    assert y[test].bincount().tolist() == [1, 3]
    assert train.tolist() == sorted(train.tolist())
    assert test.tolist() == sorted(test.tolist())
    assert len(split_by_class(y, 0.01, seed=0)[1]) == 2  # one from each class that has two or more


def test_spec_and_device(numbered: Dataset) -> None:
    assert numbered.spec == Spec((1,), 3, torch.float32, CropFlip())
    assert not numbered.spec.is_image
    assert load("digits").spec.is_image
    assert numbered.to("cpu").train_x.device.type == "cpu"


def test_data_that_are_on_the_device_are_not_copied(numbered: Dataset) -> None:
    assert numbered.to("cpu") is numbered


def test_check_samples() -> None:
    check_samples(torch.zeros(2, 3), "it")
    check_samples(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), "it")
    with pytest.raises(UsageError, match=r"it has samples of type torch.float64; convert them to uint8 or"):
        check_samples(torch.zeros(2, 3, dtype=torch.float64), "it")
    for shape in ((3,), (2, 3, 4), (0, 3), (2, 0)):
        with pytest.raises(UsageError, match=r"it has shape .*; expected at least one sample, as \[n, feat"):
            check_samples(torch.zeros(shape), "it")
    for bad in (float("nan"), float("inf")):
        with pytest.raises(UsageError, match=r"it has NaN or infinite values \(first in sample 1\)"):
            check_samples(torch.tensor([[0.0], [bad], [bad]]), "it")


def test_check_labels() -> None:
    x = torch.zeros(2, 3)
    check_labels(x, torch.tensor([0, 4]), 5, "it")
    with pytest.raises(UsageError, match=r"it has 2 samples and labels of shape \(3,\); give one label per sample"):
        check_labels(x, torch.tensor([0, 1, 2]), 5, "it")
    with pytest.raises(UsageError, match=r"it has labels of type torch.int32; convert them to int64"):
        check_labels(x, torch.tensor([0, 1], dtype=torch.int32), 5, "it")
    for labels in ([-1, 0], [0, 5]):
        with pytest.raises(UsageError, match=r"with 5 classes they must be in 0\.\.4"):
            check_labels(x, torch.tensor(labels), 5, "it")


def test_training_and_test_samples_have_the_same_shape_and_type(numbered: Dataset) -> None:
    with pytest.raises(UsageError, match=r"samples are \(1,\) float32 and test samples \(2,\) float32; give"):
        replace(numbered, test_x=torch.zeros(3, 2))
    with pytest.raises(UsageError, match="the test set has NaN"):
        replace(numbered, test_x=torch.full((3, 1), torch.nan))


def test_few_keeps_the_first_samples_of_each_class(digits: Dataset) -> None:
    small = digits.few(classes=3, train=4, test=10_000)
    assert small.spec.num_classes == 3
    assert small.classes == ("0", "1", "2")
    assert small.train_y.bincount().tolist() == [4, 4, 4]
    assert small.test_y.bincount().tolist() == digits.test_y.bincount()[:3].tolist()  # no more than there are
    first = (digits.train_y == 2).nonzero().flatten()[:4]
    assert torch.equal(small.train_x[small.train_y == 2], digits.train_x[first])
    assert small.augmentation == digits.augmentation
    assert small.fingerprint != digits.fingerprint


def test_registry(numbered: Dataset) -> None:
    assert {"arrays", "cifar10", "cifar100", "digits", "folder"} <= set(datasets())
    assert all(entry.summary and entry.about for entry in datasets().values())
    with pytest.raises(UsageError, match="unknown data set 'cifar'; did you mean 'cifar10'"):
        load("cifar")

    def load_mine(root: Path | None) -> Dataset:
        """One line.

        And more.
        """
        return replace(numbered, name=str(root))

    try:
        register("mine", about="here")(load_mine)
        assert datasets()["mine"].summary == "One line."
        assert load("mine", "there").name == "there"
        assert load("mine").name == "None"
    finally:
        del DATASETS.entries["mine"]


def changed(value: object) -> object:
    """The same kind of value, with another content."""
    if isinstance(value, torch.Tensor):
        return value.flip(0) if len(set(value.flatten().tolist())) > 1 else value * 2
    return tuple(f"{name}!" for name in value) if isinstance(value, tuple) else f"{value}!"


def test_data_sets_are_equal_if_all_of_their_content_is(numbered: Dataset) -> None:
    copies = {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in vars(numbered).items()}
    assert Dataset(**copies) == numbered == numbered.to("cpu")
    assert len({Dataset(**copies), numbered}) == 1
    for name in ("name", "train_x", "train_y", "test_x", "test_y", "classes"):
        other = replace(numbered, **{name: changed(getattr(numbered, name))})
        assert other != numbered, name
    assert numbered != replace(numbered, augmentation=CropFlip(0, False))
    assert numbered != numbered.held_out()
    assert numbered != "numbered"
    assert numbered in [numbered.held_out(), numbered]
