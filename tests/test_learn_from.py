"""Streams that do not fit into memory: iterables of batches and torch Datasets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from classifiers import X, Y, bits
from onebyone import OnlineClassifier, UsageError, load
from onebyone.river import RiverClassifier
from summing import registered

LABELS = torch.tensor([int(label[-1]) for label in Y])
VECTORS = torch.from_numpy(X).float()


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(zip(VECTORS, LABELS, strict=True))


class Photographs(TorchDataset[Any]):
    """PIL images of different sizes, as torchvision's ImageFolder gives them."""

    def __len__(self) -> int:
        return 70

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        colour = "red" if index % 2 else "blue"
        image = Image.effect_noise((30 + index, 40), 100 if index % 2 else 20).convert("RGB")
        image.paste(colour, (0, 0, 9, 9))
        return image, index % 2


@pytest.mark.parametrize(
    "stream",
    [
        lambda: ((VECTORS[start : start + 64], LABELS[start : start + 64]) for start in range(0, 900, 64)),
        lambda: DataLoader(TensorDataset(VECTORS, LABELS), batch_size=64),
        lambda: TensorDataset(VECTORS, LABELS),
        Stream,
    ],
    ids=["iterator", "loader", "dataset", "iterable dataset"],
)
def test_a_stream_is_the_same_as_its_batches(stream: Any) -> None:
    expected = OnlineClassifier()
    for start in range(0, 900, 64):
        expected.partial_fit(VECTORS[start : start + 64], LABELS[start : start + 64])
    assert bits(OnlineClassifier().learn_from(stream())) == bits(expected)


def test_images_of_different_sizes_are_samples() -> None:
    clf = OnlineClassifier(memory="60KB").learn_from(Photographs())
    assert clf.n_samples_seen_ == 70
    assert clf.classes_.tolist() == [0, 1]


def test_batches_before_an_error_stay_learnt() -> None:
    clf = OnlineClassifier()
    with pytest.raises(UsageError, match="batch 1 is a str; expected a pair"):
        clf.learn_from([(VECTORS[:9], LABELS[:9]), "text"])
    assert clf.n_samples_seen_ == 9


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "int is not an iterable of batches"),
        ("photos", "str is not an iterable of batches"),
        (Path("photos"), "Path is not an iterable of batches"),
        (load("digits"), "give data.train_x and data.train_y to partial_fit"),
        (TensorDataset(VECTORS), "a sample of the torch Dataset is not a pair"),
        ([VECTORS[:5]], "batch 0 is a Tensor"),
        ([(np.zeros((2, 3)), [1])], "X has 2 samples and y has 1 labels"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_anything_else_is_one_sentence(given: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        OnlineClassifier().learn_from(given)


def test_a_warning_points_at_the_line_that_learns() -> None:
    x = np.array([[0.0, 1e9], [5.0, 1e9 + 1]])
    with pytest.warns(UserWarning, match="subtract a fixed offset") as warned:
        OnlineClassifier().learn_from([(x, ["a", "b"])])
    with registered():
        model = RiverClassifier(OnlineClassifier("sums", prior={"z": 0.5}))
        model.learn_one({"a": 1}, "a")
        with pytest.warns(UserWarning, match="prior has 'z'") as also:
            model.predict_one({"a": 1})
    assert [each.filename for each in (*warned, *also)] == [__file__, __file__]
