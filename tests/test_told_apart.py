"""Classes that differ in brightness or in fine texture only are told apart, or the report names them."""

import warnings

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.datasets import load_sample_images

from onebyone import OnlineClassifier

Images = npt.NDArray[np.uint8]


def parts(count: int, side: int, seed: int) -> npt.NDArray[np.float64]:
    """Parts of two real photographs."""
    random = np.random.default_rng(seed)
    scenes = load_sample_images().images
    corners = random.integers(0, (len(scenes), 427 - side, 640 - side), (count, 3))
    return np.stack([scenes[n][top : top + side, left : left + side] for n, top, left in corners]).astype(np.float64)


def levels(count: int, seed: int) -> tuple[Images, list[str]]:
    """The same scenes, half of them darker."""
    x = 60 + parts(2 * count, 32, seed) * 0.4
    x[:count] -= 50
    return x.round().astype(np.uint8), ["dark"] * count + ["light"] * count


def weaves(count: int, seed: int) -> tuple[Images, list[str]]:
    """The same scenes at 224 pixels, under a weave along rows or along columns, of which 32 pixels show nothing."""
    x = 40 + parts(2 * count, 224, seed) * 0.7
    thread = np.tile([20.0, -20.0, 20.0, -20.0, 20.0, -20.0, 0.0], 32)
    x[:count] += thread[:, None, None]
    x[count:] += thread[None, :, None]
    return x.clip(0, 255).round().astype(np.uint8), ["rows"] * count + ["columns"] * count


def pairs(clf: OnlineClassifier) -> set[frozenset[object]]:
    return {frozenset((each.label, each.other)) for each in clf.report().alike}


def test_brightness_alone_is_named_in_the_report() -> None:
    """Patches are normalised, so they do not see it."""
    clf = OnlineClassifier(memory="1MB").partial_fit(*levels(60, seed=0))
    assert pairs(clf) == {frozenset(("dark", "light"))}
    assert "told apart no better than by chance\ndark and light: " in str(clf.report())
    (found,) = clf.report().to_dict()["alike"]
    assert found["label"] == "dark"
    assert found["accuracy"] < 0.7
    textured, labels = levels(60, seed=0)
    textured[:60, ::4] = 255
    assert pairs(OnlineClassifier(memory="1MB").partial_fit(textured, labels)) == set()


def test_few_predictions_are_no_evidence() -> None:
    clf = OnlineClassifier(memory="1MB").partial_fit(*levels(4, seed=0))
    assert pairs(clf) == set()


@pytest.mark.slow
def test_a_fine_weave_needs_a_larger_size_or_is_named() -> None:
    with pytest.warns(UserWarning, match="images of 224 pixels are reduced to 32 pixels, so fine detail is lost"):
        clf = OnlineClassifier(memory="8MB").partial_fit(*weaves(60, seed=0))
    assert pairs(clf) == {frozenset(("rows", "columns"))}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf = OnlineClassifier("lda", memory="1MB", options={"size": 224}).partial_fit(*weaves(40, seed=0))
    assert pairs(clf) == set()
    assert clf.score(*weaves(20, seed=1)) > 0.95
