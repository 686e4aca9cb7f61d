"""What OnlineClassifier reads as X: images of any kind and size, paths, and what it refuses in one sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from onebyone import Dataset, OnlineClassifier, UsageError
from test_data_images import COLOUR, GRAY, STORED, in_mode, rotated
from tiers import mostly_slow

RED, BLUE = (220, 30, 20), (20, 40, 210)


def picture(colour: tuple[int, int, int], number: int = 0, size: tuple[int, int] = (24, 16)) -> Image.Image:
    """Stripes of a colour on noise, horizontal for one colour and vertical for the other."""
    pixels = np.random.default_rng(number).integers(0, 60, (size[1], size[0], 3), np.uint8)
    if colour == RED:
        pixels[::4] = colour
    else:
        pixels[:, ::4] = colour
    return Image.fromarray(pixels)


IMAGES = [picture(colour, number) for number in range(6) for colour in (RED, BLUE)]
LABELS = ["red", "blue"] * 6


@pytest.fixture(scope="module")
def clf() -> OnlineClassifier:
    return OnlineClassifier(memory="100KB").partial_fit(IMAGES, LABELS)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    for number, image in enumerate(IMAGES):
        image.save(tmp_path / f"{number} ä.png")
    return [tmp_path / f"{number} ä.png" for number in range(len(IMAGES))]


def scores(clf: OnlineClassifier, X: Any) -> npt.NDArray[Any]:
    return np.asarray(clf.decision_function(X))


@given(st.sampled_from([mode for mode in COLOUR if mode != "LAB"]), st.sampled_from(sorted(STORED)))
def test_an_image_is_answered_alike_in_every_mode_and_orientation(
    clf: OnlineClassifier, mode: str, orientation: int
) -> None:
    image = picture(RED, 99)
    stored = rotated(in_mode(image, mode), orientation)
    np.testing.assert_allclose(scores(clf, [stored]), scores(clf, [image]), rtol=0.1)


@pytest.mark.parametrize("mode", mostly_slow(GRAY, fast=["L", "I;16"]))
def test_colour_images_are_converted_for_a_gray_classifier(mode: str) -> None:
    gray = [image.convert("L") for image in IMAGES]
    clf = OnlineClassifier(memory="100KB").partial_fit([in_mode(image, mode) for image in gray], LABELS)
    assert clf.n_features_in_ == 24 * 16
    np.testing.assert_array_equal(scores(clf, IMAGES), scores(clf, gray))


def test_gray_among_colour_and_mixed_sizes() -> None:
    mixed = [image if i % 3 else image.convert("L").resize((30 + i, 40 - i)) for i, image in enumerate(IMAGES)]
    mixed[0], mixed[2] = IMAGES[0], mixed[3]
    mixed[3] = mixed[2].resize((7, 5))
    clf = OnlineClassifier(memory="100KB").partial_fit(mixed, LABELS)
    assert clf.n_features_in_ == 24 * 16 * 3  # the size of the first
    big = [picture(colour, 50, (96, 64)) for colour in (RED, BLUE)]
    assert clf.predict([image.resize((24, 16)) for image in big]).tolist() == clf.predict(big).tolist()


def to_arrays(image: Image.Image) -> npt.NDArray[np.uint8]:
    return np.asarray(image)


def to_tensors(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image))


@pytest.mark.parametrize("kind", [to_arrays, to_tensors])
@pytest.mark.parametrize("dtype", mostly_slow([np.uint8, np.float64], fast=[np.uint8]))
def test_arrays_of_mixed_sizes_and_gray_among_colour(kind: Callable[[Image.Image], Any], dtype: type) -> None:
    given = [kind(image if i % 3 != 1 else image.convert("L").resize((30, 40))) for i, image in enumerate(IMAGES)]
    if dtype is np.float64:
        given = [x / 255 for x in given]
    clf = OnlineClassifier(memory="100KB").partial_fit(given, LABELS)
    assert clf.n_features_in_ == 24 * 16 * 3
    assert clf.predict(given[1:2]).tolist() == clf.predict(given)[1:2].tolist()


def test_arrays_are_resized_like_images(clf: OnlineClassifier) -> None:
    from onebyone.estimator.inputs import read_samples

    assert clf._state is not None
    for mode in ("RGB", "L"):
        big = [picture(colour, 50, (96, 64)).convert(mode) for colour in (RED, BLUE)]
        arrays = np.stack([np.asarray(image) for image in big])
        found, expected = (read_samples(X, clf._state.layout)[torch.arange(2)].int() for X in (arrays, big))
        assert found.shape == (2, 3, 16, 24)
        assert int((found - expected).abs().max()) <= 2
        assert scores(clf, arrays).shape == (2,)
    first = torch.from_numpy(arrays)[:, None].expand(-1, 3, -1, -1)  # as torch has it
    assert torch.equal(read_samples(first, clf._state.layout)[torch.arange(2)].int(), found)


def test_images_are_read_with_the_channels_first_if_arrays_were_learnt_so() -> None:
    arrays = np.stack([np.asarray(image).transpose(2, 0, 1) for image in IMAGES])
    clf = OnlineClassifier(memory="100KB").partial_fit(arrays, LABELS)
    np.testing.assert_array_equal(scores(clf, IMAGES), scores(clf, arrays))


def test_an_array_without_the_names_of_the_first_call_is_a_warning() -> None:
    """That of scikit-learn, as columns may be in another order."""
    x, y = np.random.default_rng(0).normal(size=(20, 2)), [0, 1] * 10
    clf = OnlineClassifier().partial_fit(pd.DataFrame(x, columns=["width", "height"]), y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        clf.predict(x)


@pytest.mark.slow
def test_large_images_are_resized() -> None:
    images = [Image.new("RGB", (4000, 1024)), Image.new("L", (9, 9))]
    with pytest.warns(UserWarning, match="images of 256 pixels are reduced to 32 pixels"):
        clf = OnlineClassifier(memory="100KB").partial_fit(images, [0, 1])
    assert clf.n_features_in_ == 1000 * 256 * 3


@pytest.mark.parametrize("lazily", [False, True])
def test_paths_are_the_images_in_them(paths: list[Path], lazily: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from onebyone.estimator import inputs

    if lazily:
        monkeypatch.setattr(inputs, "MAX_DECODED", 0)  # as for too many images to decode at once
    expected = OnlineClassifier("replay", memory=5).fit(IMAGES, LABELS)
    for X in (paths, [str(path) for path in paths], np.array([str(path) for path in paths]), tuple(paths)):
        clf = OnlineClassifier("replay", memory=5).fit(X, LABELS)
        np.testing.assert_array_equal(scores(clf, X), scores(expected, IMAGES))
    assert isinstance(inputs.read_samples(paths).source, torch.Tensor) != lazily


def test_one_image_or_path_is_one_sample(paths: list[Path]) -> None:
    clf = OnlineClassifier(memory="100KB").partial_fit(IMAGES[0], "red")
    clf.partial_fit(str(paths[1]), ["blue"]).partial_fit(IMAGES, LABELS)
    assert clf.n_samples_seen_ == 14
    assert clf.predict(IMAGES[0]).shape == clf.predict(paths[0]).shape == (1,)
    assert clf.predict_proba(IMAGES[1]).shape == (1, 2)


@pytest.mark.parametrize("lazily", [False, True])
def test_a_file_that_cannot_be_read_is_named_and_nothing_is_learnt(
    clf: OnlineClassifier, paths: list[Path], lazily: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onebyone.estimator import inputs

    if lazily:
        monkeypatch.setattr(inputs, "MAX_DECODED", 0)
    before = clf.n_samples_seen_
    paths[7].write_bytes(paths[7].read_bytes()[:200])
    paths.append(paths[0].with_name("missing.png"))
    for wrong in (paths[7], paths[12]):
        for call in (lambda X: clf.partial_fit(X, ["red"] * len(X)), clf.predict):
            with pytest.raises(UsageError, match=rf"{wrong.name} cannot be read \(.*\); (repair|correct the path)"):
                call([*paths[:5] * 4, wrong])
    assert clf.n_samples_seen_ == before


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        (
            lambda digits: digits,
            r"X is a Dataset; give its samples and labels, such as data\.train_x",
        ),
        (lambda digits: DataLoader(TensorDataset(digits.test_x)), "X is a DataLoader; call learn_from, or predict"),
        (lambda digits: TensorDataset(digits.test_x), "X is a torch Dataset; call learn_from, or predict"),
        (lambda digits: (x for x in digits.test_x), r"X is a generator; give list\(X\) if it yields samples, or call"),
        (lambda digits: iter(digits.test_x), r"give list\(X\)"),
        (lambda digits: Path(__file__).parent, r"X is the folder .*; give a list of its files, or .*from_folder"),
        (lambda digits: b"\x89PNG", r"X is bytes; open an encoded image with PIL\.Image\.open"),
    ],
)
def test_what_is_no_batch_is_refused_with_what_to_call(
    clf: OnlineClassifier, digits: Dataset, X: Callable[[Dataset], Any], sentence: str
) -> None:
    learn = OnlineClassifier().partial_fit
    for call in (clf.predict, learn, lambda X: learn(X, ["red", "blue"])):
        with pytest.raises(UsageError, match=sentence):
            call(X(digits))


def test_images_among_arrays_are_refused(clf: OnlineClassifier) -> None:
    with pytest.raises(UsageError, match="X mixes images or paths with other samples"):
        clf.predict([IMAGES[0], np.asarray(IMAGES[1])])


def test_images_for_a_classifier_of_other_samples_are_refused() -> None:
    for x in (np.zeros((2, 5)), np.zeros((2, 8, 8)), np.zeros((2, 8, 8, 2), np.uint8)):
        clf = OnlineClassifier().partial_fit(x, [0, 1])
        with pytest.raises(UsageError, match="X has images; expected arrays of"):
            clf.predict(IMAGES)


def test_one_array_without_the_sample_axis_is_refused(clf: OnlineClassifier) -> None:
    with pytest.raises(UsageError, match=r"samples of shape \(24, 3\); .* give a single sample as X\[None\]"):
        clf.predict(np.asarray(IMAGES[0]))
    assert clf.predict(np.asarray(IMAGES[0])[None]).shape == (1,)


@pytest.mark.parametrize("shape", [(8, 8), (5,)])
def test_bytes_among_other_numbers_are_refused(shape: tuple[int, ...]) -> None:
    """They would be used unscaled, as numbers 255 times as large."""
    x = [np.full(shape, 255, np.uint8), np.full(shape, 1.0, np.float32)]
    with pytest.raises(UsageError, match="X has samples of uint8 and of other types"):
        OnlineClassifier("er", memory=5).partial_fit(x, ["a", "b"])
    OnlineClassifier("er", memory=5).partial_fit([x[1], x[1].astype(np.int64)], ["a", "b"])
