"""Samples as arrays and tensors: layouts of images, types of numbers, and digits lost in float32."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from classifiers import DEFAULT_AND_CCP, state_of, vectors
from onebyone import Dataset, OnlineClassifier, UsageError
from onebyone.estimator.inputs import Layout, as_tensor
from onebyone.methods import ReplayLearner


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((5,), "vector"), ((4, 4), "gray"), ((3, 28, 28), "first"), ((28, 28, 3), "last"), ((1, 5, 5), "first")],
)
def test_the_channel_axis_is_inferred(shape: tuple[int, ...], axes: str) -> None:
    assert Layout.of(torch.zeros(2, *shape)).axes == axes


@pytest.mark.parametrize("shape", [(3, 28, 4), (13, 28, 28), (3, 3, 3)])
def test_an_ambiguous_channel_axis_must_be_given(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="set channels='first' or channels='last'"):
        Layout.of(torch.zeros(2, *shape))
    assert Layout.of(torch.zeros(2, *shape), "first").sample_shape == shape
    assert Layout.of(torch.zeros(2, *shape), "last").sample_shape == (shape[2], shape[0], shape[1])
    x, y = np.zeros((4, *shape), np.uint8), [0, 1, 0, 1]
    assert OnlineClassifier(channels="first", encoder="conv").partial_fit(x, y).predict(x).shape == (4,)


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
def test_the_layout_of_images_does_not_change_the_learner(digits: Dataset, name: str) -> None:
    colour = digits.train_x[:30].repeat(1, 3, 1, 1)
    first, last = OnlineClassifier(name), OnlineClassifier(name)
    first.partial_fit(colour, digits.train_y[:30])
    last.partial_fit(colour.permute(0, 2, 3, 1).numpy(), digits.train_y[:30])
    assert state_of(first)["tensors"] == state_of(last)["tensors"]


def test_tensors_and_arrays_can_be_mixed_in_a_list() -> None:
    assert as_tensor([torch.ones(2), np.zeros(2)]).tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int16, bool])
def test_other_numbers_are_converted_to_float32(kind: Any) -> None:
    x, y = np.arange(40).reshape(10, 4).astype(kind), [0, 1] * 5
    clf = OnlineClassifier().fit(x, y)
    assert clf._state is not None
    assert clf._state.learner.spec.dtype == torch.float32
    np.testing.assert_array_equal(as_tensor(x).numpy(), x.astype(np.float32))


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
def test_features_of_different_scales_are_learnt(name: str) -> None:
    x, y = vectors(300)
    units = np.array([1e-6, 1.0, 1e4, 1e9])
    for factor in (1.0, units):
        clf = OnlineClassifier(name).fit(x * factor + 5 * factor, y)
        assert clf.score(x * factor + 5 * factor, y) > 0.9


@pytest.mark.parametrize("given", [np.asarray, torch.tensor, lambda x: x.tolist(), lambda x: list(torch.tensor(x))])
def test_columns_that_float32_rounds_away_give_a_warning(given: Callable[[Any], Any]) -> None:
    y = np.arange(60) % 2
    x = np.random.default_rng(0).normal(size=(60, 4)) + 20 * y[:, None]
    moved = x + np.array([0, 1.7e9, 0, 0])
    clf = OnlineClassifier().partial_fit(given(x), y)
    for call in (lambda: clf.partial_fit(given(moved), y), lambda: clf.predict(given(moved))):
        with pytest.warns(UserWarning, match=r"\(column 1\), .* float32, .*; subtract a fixed offset") as warned:
            call()
        assert [each.filename for each in warned] == [__file__]


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64, np.uint64, np.float64])
def test_large_numbers_that_differ_little_give_a_warning(kind: type) -> None:
    """The differences of large integers are exact."""
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
        np.float32([[1e9, 1.0], [1e9 + 64, 1.0]]),  # float32 already
        np.int16([[32767, 1], [32766, 1]]),
        torch.tensor([[1e9, 1.0]], dtype=torch.float64),
        np.full((2, 3, 3), 1e9) + np.arange(18).reshape(2, 3, 3),  # no columns
    ],
    ids=str,
)
def test_other_numbers_give_no_warning(x: Any) -> None:
    as_tensor(x)  # a warning would be an error
