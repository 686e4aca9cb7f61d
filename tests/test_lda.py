"""Statistics of the features of a frozen encoder."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn

from classifiers import bits, learner_of, with_kept_of
from onebyone import Dataset, OnlineClassifier, Spec, UsageError, create
from onebyone.estimator.model import encoder_size
from onebyone.nets import Adapted, Preprocess
from onebyone.statistics.lda import LDA


class Counted(nn.Module):
    """Fixed features of digits, which counts the samples that it reads."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(40, 64, generator=torch.Generator().manual_seed(seed)) / 8)
        self.read = 0

    def forward(self, x: Tensor) -> Tensor:
        self.read += len(x)
        return (x.flatten(1) @ self.weight.T).relu()


def classifier(module: nn.Module | None = None, **parameters: Any) -> OnlineClassifier:
    return OnlineClassifier(encoder=module or Counted(), freeze_encoder=True, **{"memory": "100KB"} | parameters)


def taught(digits: Dataset, count: int = 400, **parameters: Any) -> OnlineClassifier:
    return classifier(**parameters).partial_fit(digits.train_x[:count], digits.train_y[:count])


def module_of(clf: OnlineClassifier) -> Counted:
    learner = learner_of(clf)
    assert isinstance(learner, LDA)
    assert learner.encoder is not None
    assert isinstance(learner.encoder.module, Counted)
    return learner.encoder.module


def test_without_an_encoder_it_is_patch_lda(digits: Dataset) -> None:
    for spec, x in (
        (digits.spec, digits.train_x[:200]),
        (Spec((64,), 10, torch.float32), digits.train_x[:200].flatten(1) / 16),
    ):
        one, other = (create(name, spec, budget=60_000) for name in ("patch-lda", "lda"))
        for learner in (one, other):
            learner.observe(x, digits.train_y[:200])
        assert torch.equal(one.scores(x), other.scores(x))
        for name, tensor in one.state_dict().items():
            assert torch.equal(other.state_dict()[name], tensor), name


@settings(max_examples=8)
@given(st.integers(0, 2**20), st.integers(1, 60))
def test_neither_the_order_nor_batches_matter(seed: int, size: int) -> None:
    """Up to rounding at 53 bits; the encoder itself rounds at 24 bits, which depends on its batch."""
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(200, 30, generator=generator), torch.randint(4, (200,), generator=generator)
    encoder = Adapted(nn.ReLU(), (30,), frozen=True)
    one, other = (create("lda", Spec((30,), 4, torch.float32), budget=60_000, encoder=encoder) for _ in range(2))
    one.observe(x, y)
    for part in torch.randperm(200, generator=generator).split(size):
        other.observe(x[part], y[part])
    torch.testing.assert_close(one.scores(x), other.scores(x), rtol=1e-6, atol=1e-6)
    assert torch.equal(one.get_buffer("kept.keys"), other.get_buffer("kept.keys"))


@pytest.mark.parametrize("budget", [5_000, 8_000, 13_000, 40_000, 1_000_000])
def test_a_budget_is_used_and_never_exceeded(budget: int) -> None:
    """Features are reduced, used as they are, or used with projections."""
    encoder = Adapted(Counted(), (1, 8, 8), frozen=True)
    learner = create("lda", Spec((1, 8, 8), 10), budget=budget, encoder=encoder)
    assert isinstance(learner, LDA)
    assert 0.7 * budget < learner.memory_bytes <= budget
    assert learner.raw == (budget > 10_000)
    assert (learner.extractor.width > 40) == learner.raw


def test_each_sample_runs_through_the_encoder_once(digits: Dataset) -> None:
    clf = taught(digits, 100)
    module = module_of(clf)
    x, y = digits.train_x[100:130], digits.train_y[100:130]

    def read_by(call: Any) -> int:
        before = module.read
        call()
        return module.read - before

    assert read_by(lambda: clf.partial_fit(x, y)) == 30
    assert read_by(lambda: clf.predict(x)) == 30
    assert read_by(lambda: clf.predict(x, unknown=-1)) == 30
    assert read_by(lambda: clf.examine(x)) == 30
    assert read_by(lambda: clf.report()) == 0
    assert read_by(lambda: clf.merge(clf)) == 0
    assert read_by(lambda: clf.partial_fit(x, y + 100)) == 30  # more classes than there was room for
    assert read_by(lambda: clf.forget(x, y)) == 30


def test_examine_is_what_separate_calls_return(digits: Dataset) -> None:
    for clf in (taught(digits), OnlineClassifier("er").partial_fit(digits.train_x[:200], digits.train_y[:200])):
        found = clf.examine(digits.test_x)
        np.testing.assert_array_equal(found.labels, clf.predict(digits.test_x))
        np.testing.assert_allclose(found.probabilities, clf.predict_proba(digits.test_x), atol=1e-6)
        np.testing.assert_allclose(found.typicality, clf.typicality(digits.test_x), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found.unknown, clf.predict(digits.test_x, unknown=-1) == -1)


def test_projections_are_used_if_they_help(digits: Dataset) -> None:
    """Two classes inside and outside a sphere: no hyperplane separates them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 10, generator=generator)
    x[::2] *= 3
    x = torch.cat([x, torch.ones(4000, 1)], 1)  # the length of a vector is lost by normalisation, but for this one
    y = torch.arange(4000) % 2
    encoder = Adapted(nn.Identity(), (11,), frozen=True)
    learner = create("lda", Spec((11,), 2, torch.float32), budget=200_000, encoder=encoder)
    learner.observe(x[:3000], y[:3000])
    assert (learner.predict(x[3000:]) == y[3000:]).double().mean() > 0.9


def test_statistics_can_be_merged(digits: Dataset) -> None:
    x, y = digits.train_x[:300], digits.train_y[:300]
    both = classifier().partial_fit(x, y)
    one, other = classifier().partial_fit(x[:150], y[:150]), classifier().partial_fit(x[150:], y[150:])
    with pytest.raises(UsageError, match="different values of encoder"):
        one.merge(other)  # two modules, whose weights are not compared
    module = Counted()
    one, other = (classifier(module).partial_fit(x[half], y[half]) for half in (slice(150), slice(150, 300)))
    np.testing.assert_allclose(one.merge(other).predict_proba(x), both.predict_proba(x), atol=1e-6)


def test_an_encoder_that_changed_in_between_is_not_merged(digits: Dataset) -> None:
    module = Counted()
    one = classifier(module).partial_fit(digits.train_x[:50], digits.train_y[:50])
    with torch.no_grad():
        module.weight += 1
    other = classifier(module).partial_fit(digits.train_x[:50], digits.train_y[:50])
    with pytest.raises(UsageError, match="encoders of the classifiers have different weights"):
        one.merge(other)


def test_forgetting_is_as_if_never_learnt(digits: Dataset) -> None:
    x, y = digits.train_x[:200], digits.train_y[:200]
    clf, never = classifier().partial_fit(x, y), classifier().partial_fit(x[50:], y[50:])
    for part in torch.arange(50).split(7):  # in other batches than they were learnt in
        clf.forget(x[part], y[part])
    # Of the few kept samples that choose settings, the forgotten ones are not replaced.
    np.testing.assert_allclose(clf.predict_proba(x), never.predict_proba(x), atol=0.05)
    kept, expected = (learner_of(each).get_buffer("kept.keys") for each in (clf, never))
    assert set(kept.tolist()) <= {*expected.tolist(), 2**62}
    with_kept_of(never, clf)
    np.testing.assert_allclose(clf.predict_proba(x), never.predict_proba(x), rtol=1e-6, atol=1e-6)
    clf.rename({0: 1}).forget_class(2)
    assert clf.classes_.tolist() == [1, 3, 4, 5, 6, 7, 8, 9]


def test_weights_count_as_copies(digits: Dataset) -> None:
    x, y = digits.train_x[:60], digits.train_y[:60]
    twice = classifier().partial_fit(torch.cat([x, x]), torch.cat([y, y]))
    weighted = classifier().partial_fit(x, y, sample_weight=np.full(60, 2.0))
    np.testing.assert_allclose(weighted.decision_function(x), twice.decision_function(x), rtol=1e-5, atol=1e-5)


def test_a_file_continues_and_other_weights_are_refused(digits: Dataset, tmp_path: Path) -> None:
    clf = taught(digits, 100)
    clf.save(tmp_path / "clf")
    again = OnlineClassifier.load(tmp_path / "clf", encoder=Counted())
    for each in (clf, again):
        each.partial_fit(digits.train_x[100:200], digits.train_y[100:200])
    assert bits(again) == bits(clf)
    assert (again.predict_proba(digits.test_x) == clf.predict_proba(digits.test_x)).all()
    assert clf.nbytes == pytest.approx((tmp_path / "clf").stat().st_size, abs=300)
    assert clf.encoder_nbytes == 40 * 64 * 4
    with pytest.raises(UsageError, match=r"has weights with the SHA-256 .* and the encoder given now has"):
        OnlineClassifier.load(tmp_path / "clf", encoder=Counted(seed=1))


def test_autosave_continues_with_an_encoder(digits: Dataset, tmp_path: Path) -> None:
    clf = classifier(autosave=tmp_path / "folder", every=1)
    clf.partial_fit(digits.train_x[:50], digits.train_y[:50])
    clf.close()
    again = OnlineClassifier.load(tmp_path / "folder", encoder=Counted())
    assert bits(again.partial_fit(digits.train_x[50:60], digits.train_y[50:60])) != bits(clf)
    again.close()
    assert OnlineClassifier.load(tmp_path / "folder", encoder=Counted()).n_samples_seen_ == 60


def test_a_call_that_fails_changes_nothing_and_the_encoder_least(digits: Dataset) -> None:
    clf = taught(digits, 60)
    before = bits(clf)
    module_of(clf).register_forward_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        clf.partial_fit(digits.train_x[:5], digits.train_y[:5])
    module_of(clf)._forward_hooks.clear()
    assert bits(clf) == before


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_it_is_exported_with_its_encoder(digits: Dataset, tmp_path: Path, suffix: str) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.ReLU())
    clf = taught(digits, module=module)
    clf.export(path := tmp_path / f"clf{suffix}")
    x = digits.test_x[:20, 0]
    if suffix == ".pt2":
        found, _ = torch.export.load(path).module()(x[:, None])
    else:
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        found, _ = map(torch.from_numpy, session.run(None, {"samples": x[:, None].numpy()}))
    np.testing.assert_allclose(found, clf.predict_proba(x[:, None]), atol=1e-5)


def test_threads_can_share_it(digits: Dataset) -> None:
    clf, errors = taught(digits, 50), []

    def work(start: int) -> None:
        try:
            for index in range(start, 150, 3):
                clf.partial_fit(digits.train_x[index : index + 1], digits.train_y[index : index + 1])
                clf.predict(digits.test_x[:3], unknown=-1)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(50 + number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for name in ("moments.weights", "moments.sums"):
        found, expected = (learner_of(each).get_buffer(name) for each in (clf, taught(digits, 150)))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["hybrid", "replay"])
def test_networks_take_the_same_encoders(digits: Dataset, name: str) -> None:
    clf = classifier(method=name).partial_fit(digits.train_x[:100], digits.train_y[:100])
    if name == "hybrid":
        statistics = learner_of(clf).get_submodule("statistics")
        assert isinstance(statistics, LDA)
        assert statistics.encoder is not None
    assert clf.score(digits.test_x, digits.test_y) > 0.5


@pytest.mark.parametrize(
    ("encoder", "frozen", "chosen"),
    [(Counted(), True, "lda"), (Counted(), False, "replay"), ("conv", False, "replay")],
    ids=["frozen", "trained", "own"],
)
def test_auto_chooses_statistics_of_an_encoder_that_stays(
    digits: Dataset, encoder: Any, frozen: bool, chosen: str
) -> None:
    clf = OnlineClassifier(encoder=encoder, freeze_encoder=frozen)
    assert clf.partial_fit(digits.train_x[:20], digits.train_y[:20]).method_ == chosen


def test_an_untrained_network_is_no_encoder_of_statistics(digits: Dataset) -> None:
    with pytest.raises(UsageError, match="encoder is 'conv', which lda does not train; give lite0, timm:NAME"):
        create("lda", digits.spec, encoder="conv")
    with pytest.raises(UsageError, match="encoder is 'conv', which lda does not train"):
        OnlineClassifier("lda", encoder="conv").partial_fit(digits.train_x[:20], digits.train_y[:20])


def test_images_are_read_in_the_size_of_the_encoder_and_in_colour(tmp_path: Path) -> None:
    """Gray images of the first call must not make all later ones gray."""
    half = [0.5] * 3
    encoder = nn.Sequential(Preprocess((12, 20), half, half), nn.Flatten(), nn.Linear(720, 9))
    for name, image in (("a", Image.new("L", (400, 300), 99)), ("b", Image.new("RGB", (10, 9), "red"))):
        image.save(tmp_path / f"{name}.png")
    clf = OnlineClassifier(encoder=encoder, freeze_encoder=True)
    clf.partial_fit([tmp_path / "a.png", tmp_path / "b.png"], ["a", "b"])
    assert clf._state is not None
    assert clf._state.layout.shape == (12, 20, 3)
    assert clf.predict(tmp_path / "b.png").tolist() == ["b"]
    assert encoder_size("auto") is encoder_size(nn.Identity()) is None


def test_large_images_without_an_encoder_give_a_warning() -> None:
    x = np.random.default_rng(0).integers(0, 256, (4, 65, 80, 3), dtype=np.uint8)
    with pytest.warns(UserWarning, match='images of 65 pixels are reduced to 32 pixels.*encoder="lite0"'):
        OnlineClassifier(memory="50KB").partial_fit(x, [0, 1, 0, 1])
    OnlineClassifier(memory="50KB").partial_fit(x[:, :64], [0, 1, 0, 1])


def test_the_size_that_patches_see_is_an_option() -> None:
    """Classes that differ in a fine weave, which is lost if images are reduced."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(120) % 2
    grid = torch.arange(96)
    weave = torch.stack([(grid[:, None] + grid) % 2, (grid[:, None] // 2 + grid // 2) % 2]).double()  # 1 or 2 pixels
    x = (128 + 40 * weave[y] + 40 * torch.randn(120, 96, 96, generator=generator)).clamp(0, 255).byte()[:, None]
    spec = Spec((1, 96, 96), 2)
    accuracy = {}
    for size in (16, 96):
        learner = create("lda", spec, budget=20_000, size=size)
        learner.observe(x[:80], y[:80])
        accuracy[size] = float((learner.predict(x[80:]) == y[80:]).double().mean())
    assert accuracy[96] > 0.95 > 0.8 > accuracy[16]
