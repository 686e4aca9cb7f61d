"""The contract, scikit-learn's checks and a folder of photographs, with statistics of encoders."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks
from torch import Tensor, nn

from classifiers import bits
from onebyone import OnlineClassifier, UsageError, nets
from onebyone.estimator.folders import find_images, learn_files
from onebyone.methods import registry
from onebyone.nets import Adapted, lite0
from onebyone.statistics.lda import LDA, LDAOptions
from onebyone.testing import checks
from test_examples import check_output


class FlatLDA(LDA):
    """Statistics of an encoder: the values of a sample in a row."""

    def build(self) -> None:
        encoder = Adapted(nn.Flatten(), self.spec.shape, frozen=True)
        self.options = replace(self.options, encoder=encoder)
        super().build()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([OnlineClassifier(encoder=nn.Identity(), freeze_encoder=True, memory="200KB")])
def test_scikit_learn_checks_with_an_encoder(
    estimator: OnlineClassifier, check: Callable[[OnlineClassifier], None]
) -> None:
    check(estimator)


class AsImages(nn.Module):
    """Any samples as colour images of 8 x 8 pixels."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool1d(x.flatten(1)[:, None].tanh(), 192).unflatten(2, (3, 8, 8))[:, 0]


def small_lite0() -> nn.Module:
    """`lite0` with its weights, in ONNX Runtime, on images of ``SIZE`` pixels."""
    return nn.Sequential(AsImages(), lite0.Lite0())


class SmallLite0LDA(LDA):
    def build(self) -> None:
        self.options = replace(self.options, encoder=Adapted(small_lite0(), self.spec.shape, frozen=True))
        super().build()


@pytest.mark.parametrize("learner", [FlatLDA, pytest.param(SmallLite0LDA, marks=pytest.mark.slow)])
def test_contract_with_an_encoder(learner: type[LDA], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lite0, "SIZE", 32)  # a fiftieth of the time
    registry.register("encoded", LDAOptions)(learner)
    found = list(checks("encoded"))
    assert len(found) > 10
    for _, check in found:
        check()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_checks_with_the_network_of_lite0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lite0, "SIZE", 32)
    encoder = small_lite0()
    before = nets.weights_hash(encoder)
    different = "joblib's hash of this module differs from that of its deep copy"
    check_estimator(
        OnlineClassifier(encoder=encoder, freeze_encoder=True, memory="20MB"),
        expected_failed_checks={"check_estimators_overwrite_params": different},
    )
    assert nets.weights_hash(encoder) == before


def write_photographs(root: Path) -> int:
    """300 files of mixed sizes, formats and modes: parts of two real photographs and enlarged digits."""
    random = np.random.default_rng(0)
    for name, pixels in zip(("temple", "flower"), load_sample_images().images, strict=True):
        (root / name).mkdir(parents=True)
        for number in range(100):
            side, left, top = map(int, random.integers((80, 0, 0), (220, 400, 200)))
            mode, suffix = [("RGB", "jpg"), ("L", "jpg"), ("RGBA", "png"), ("P", "png"), ("CMYK", "jpg")][number % 5]
            part = Image.fromarray(pixels).crop((left, top, left + side, top + side))
            size = tuple(map(int, random.integers(50, 500, 2)))
            part.resize(size).convert(mode).save(root / name / f"{number}.{suffix}")
    digits = load_digits()
    for digit in (3, 7):
        (root / f"digit {digit}").mkdir()
        for number, index in enumerate(np.flatnonzero(digits.target == digit)[:50]):
            image = Image.fromarray((15 * digits.images[index]).astype(np.uint8))
            image.resize((200, 160)).save(root / f"digit {digit}" / f"{number}.png")
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(load_sample_images().images[1]).save(root / "flower" / "turned.jpg", exif=turned)
    (root / "temple" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 nothing")
    return 301


@pytest.mark.slow
def test_a_folder_of_photographs_with_lite0(tmp_path: Path) -> None:
    """The commands on the page of the tutorial print what it shows."""
    assert write_photographs(tmp_path / "photos") == 301
    page = (Path(__file__).parent.parent / "docs" / "tutorials" / "own_images.md").read_text()
    (shown,) = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    commands = re.findall(r"\$ onebyone (.*)\n((?:[^$].*\n)*)", shown)
    assert [words.split()[0] for words, _ in commands] == ["learn", "learn", "predict", "info"]
    for words, lines in commands:
        call = ["bash", "-c", f"{sys.executable} -m onebyone {words}"]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
        check_output(lines, done.stdout + done.stderr)
    temples = [sys.executable, "-m", "onebyone", "predict", "pets.onebyone", "photos/temple", "--csv"]
    rows = subprocess.run(temples, cwd=tmp_path, capture_output=True, text=True, check=False).stdout.splitlines()[1:]
    assert len(rows) == 100
    assert [row.split(",")[1] for row in rows].count("temple") > 95


@pytest.mark.slow
def test_lite0_is_resumed_merged_forgotten_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_photographs(tmp_path / "photos")
    files = find_images(tmp_path / "photos")[0][::6]

    def new() -> OnlineClassifier:
        return OnlineClassifier(encoder="lite0", memory="8MB", batch_size=64)

    clf, other = new(), new()
    learn_files(clf, files[:25])
    clf.save(tmp_path / "model")
    again = OnlineClassifier.load(tmp_path / "model")
    for each in (clf, again):
        learn_files(each, files[25:])
    assert bits(again) == bits(clf)
    paths, labels = [file.path for file in files], [file.label for file in files]
    other.partial_fit(paths[:10], labels[:10])
    merged = again.merge(other).forget(paths[:10], labels[:10])
    # Probabilities also depend on the samples that are kept.
    np.testing.assert_allclose(merged.decision_function(paths), clf.decision_function(paths), rtol=1e-3, atol=1e-3)
    noise = np.random.default_rng(0).integers(0, 256, (20, 224, 224, 3), dtype=np.uint8)
    assert (clf.predict(noise, unknown="?") == "?").mean() >= 0.4
    assert clf.report().accuracy > 0.9

    class Other(lite0.Lite0):
        def __init__(self, limits: tuple[float, float]) -> None:
            super().__init__(limits)
            with torch.no_grad():
                next(self.parameters()).add_(1)

    monkeypatch.setattr("onebyone.nets.creation.Lite0", Other)
    with pytest.raises(UsageError, match="its encoder has weights with the SHA-256"):
        OnlineClassifier.load(tmp_path / "model")
