"""Statistics that do not depend on the order of the stream, and the classifier that follows from them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from onebyone import Dataset, Spec, UsageError, create
from onebyone.evaluation import measure_cost
from onebyone.experiments.config import RunConfig
from onebyone.experiments.run import run
from onebyone.methods.patch_lda import PatchLDA
from onebyone.nets import Directions, Patches
from onebyone.nets.patches import FLOOR, REGULARISATION

VECTORS = Spec((20,), 4, torch.float32)


def make(spec: Spec, **options: Any) -> PatchLDA:
    learner = create("patch-lda", spec, **{"budget": 60_000, "first_samples": 50} | options)
    assert isinstance(learner, PatchLDA)
    return learner


def filters_of(learner: PatchLDA) -> int:
    return learner.moments.covariance_codes.shape[1] * 2 // (8 if learner.spec.is_image else 2)


def learn(learner: PatchLDA, x: Tensor, y: Tensor, size: int = 100) -> PatchLDA:
    for part, labels in zip(x.split(size), y.split(size), strict=True):
        assert learner.observe(part, labels) == 0
    return learner


def vectors(count: int = 300) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(4, (count,), generator=generator)
    return torch.randn(count, 20, generator=generator) + torch.randn(4, 20, generator=generator)[y], y


@pytest.mark.parametrize("solver", ["lsqr", "eigen"])
@pytest.mark.parametrize("shrinkage", [1e-3, 0.3])
def test_scores_are_those_of_scikit_learn(digits: Dataset, solver: str, shrinkage: float) -> None:
    learner = learn(make(digits.spec, shrinkage=shrinkage, budget=20_000), digits.train_x, digits.train_y, 10)
    reference = LinearDiscriminantAnalysis(solver=solver, shrinkage=shrinkage)
    reference.fit(learner.features(digits.train_x).double().numpy(), digits.train_y.numpy())
    expected = reference.decision_function(learner.features(digits.test_x).double().numpy())
    scores = learner.scores(digits.test_x).numpy()
    if solver == "eigen":  # whose scores are the same up to a number for each sample
        scores, expected = scores - scores.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True)
    assert np.abs(scores - expected).max() < 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("size", [1, 7, 1438])
@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_sizes_of_batches_do_not_matter(digits: Dataset, size: int, kind: str) -> None:
    x, y = (digits.train_x[:300], digits.train_y[:300]) if kind == "images" else vectors()
    spec = digits.spec if kind == "images" else VECTORS
    one, other = learn(make(spec), x, y, 50), learn(make(spec), x, y, size)
    assert torch.equal(one.extractor.filters, other.extractor.filters)
    same_statistics(one, other)
    torch.testing.assert_close(one.scores(x), other.scores(x), rtol=1e-5, atol=1e-5)


def same_statistics(one: PatchLDA, other: PatchLDA) -> None:
    assert torch.equal(one.moments.counts, other.moments.counts)
    means, covariance = one.moments.means(), one.moments.covariance()
    deviation = covariance.diagonal().sqrt()
    assert (other.moments.means() - means).abs().max() < 1e-6 * means.abs().max()
    assert ((other.moments.covariance() - covariance).abs() <= 1e-6 * (deviation[:, None] * deviation)).all()


def test_the_order_does_not_matter_once_there_are_filters(digits: Dataset) -> None:
    x, y = digits.train_x[:500], digits.train_y[:500]
    by_class = torch.cat([torch.arange(50), 50 + y[50:].argsort()])
    same_statistics(learn(make(digits.spec), x, y), learn(make(digits.spec), x[by_class], y[by_class], 9))


def test_first_samples_wait_and_are_learnt(digits: Dataset) -> None:
    """Not one of them is lost, and they take no memory of their own."""
    learner = make(digits.spec)
    before = learner.memory_bytes
    learn(learner, digits.train_x[:49], digits.train_y[:49], 7)
    assert learner.warm_up == 50
    assert not learner.extractor.filters.any()
    assert not learner.moments.counts.any()
    learner.observe(digits.train_x[49:53], digits.train_y[49:53])
    assert learner.extractor.filters.any()
    assert torch.equal(learner.moments.counts, torch.bincount(digits.train_y[:53], minlength=10))
    features = learner.features(digits.train_x[:53]).double()
    for label in digits.train_y[:53].unique():
        expected = features[digits.train_y[:53] == label].mean(0)
        torch.testing.assert_close(learner.moments.means()[label], expected, rtol=1e-6, atol=1e-8)
    assert learner.memory_bytes == before


@pytest.mark.parametrize("count", [1, 2, 30])
@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_asked_early_it_answers_with_what_there_is(digits: Dataset, count: int, kind: str) -> None:
    x, y = (digits.train_x, digits.train_y) if kind == "images" else vectors()
    spec = digits.spec if kind == "images" else VECTORS
    learner = learn(make(spec), x[:count], y[:count])
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    scores = learner.scores(x[:100])
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.state_dict().items())
    assert torch.equal(scores, learn(make(spec, first_samples=count), x[:count], y[:count]).scores(x[:100]))
    assert torch.equal(learner.predict(x[:1]), y[:1])
    # and going on gives what never having been asked would have given
    undisturbed = learn(make(spec), x[:200], y[:200])
    assert torch.equal(
        learn(learner, x[count:200], y[count:200], 200).scores(x[:9]).argmax(1), undisturbed.predict(x[:9])
    )
    assert torch.equal(learner.extractor.filters, undisturbed.extractor.filters)


def test_a_state_may_be_loaded_at_any_moment(digits: Dataset) -> None:
    x, y = digits.train_x[:120], digits.train_y[:120]
    whole = learn(make(digits.spec), x, y, 20)
    for stop in (20, 40, 60):
        first, second = learn(make(digits.spec), x[:stop], y[:stop], 20), make(digits.spec, seed=3)
        second.load_state_dict(first.state_dict())
        learn(second, x[stop:], y[stop:], 20)
        for name, tensor in whole.state_dict().items():
            assert torch.equal(second.state_dict()[name], tensor), name


def test_what_was_solved_is_solved_again_after_learning_or_loading(digits: Dataset) -> None:
    x, y = digits.train_x[:200], digits.train_y[:200]
    learner = learn(make(digits.spec), x[:100], y[:100])
    early = learner.scores(x)
    solved = learner.solution
    assert solved is not None
    learner.scores(x)
    assert learner.solution is solved  # kept as long as nothing is learnt
    state = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    learn(learner, x[100:], y[100:])
    assert not torch.equal(learner.scores(x), early)
    learner.load_state_dict(state)
    assert torch.equal(learner.scores(x), early)


@pytest.mark.parametrize(
    ("spec", "budget"),
    [
        (Spec((1, 8, 8), 10), 5_000),
        (Spec((1, 8, 8), 10), 614_400),
        (Spec((3, 32, 32), 10), 153_600),
        (Spec((3, 32, 32), 100), 6_144_000),
        (VECTORS, 20_000),
    ],
    ids=str,
)
def test_a_budget_is_used_and_never_exceeded(spec: Spec, budget: int) -> None:
    learner = make(spec, budget=budget)
    assert learner.memory_bytes == measure_cost(learner).memory_bytes <= budget
    another = sum(t.nbytes for part in learner.parts(filters_of(learner) + 1) for t in part.state_dict().values())
    assert another > budget


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(UsageError, match="budget is 100 bytes; with these samples and classes it must be at least"):
        make(Spec((1, 8, 8), 10), budget=100)
    with pytest.raises(UsageError, match="no place for a first sample of 150528 to wait in; raise the budget"):
        make(Spec((3, 224, 224), 10), budget=60_000)


def patches_by_hand(patches: Patches, images: Tensor) -> Tensor:
    """Every patch of every image and its mirror image, filter by filter."""
    size, rows = patches.patch, []
    for image in images:
        found = torch.zeros(2, 2, 2, len(patches.filters))  # side of the threshold, top or bottom, left or right
        for view in (image, image.flip(2)):
            places = range(0, view.shape[1] - size + 1, patches.stride)
            half = (len(places) + 1) // 2
            for i, row in enumerate(places):
                for j, column in enumerate(places):
                    patch = view[:, row : row + size, column : column + size]
                    patch = (patch - patch.mean()) / (patch.var(correction=0) + patches.floor).sqrt()
                    answer = (patches.filters.float() * patch).sum((1, 2, 3)) - patches.offsets
                    for top in {i >= half, i >= len(places) - half}:
                        for left in {j >= half, j >= len(places) - half}:
                            found[0, int(top), int(left)] += (answer - patches.threshold).relu() / half**2 / 2
                            found[1, int(top), int(left)] += (-answer - patches.threshold).relu() / half**2 / 2
        rows.append(found.permute(1, 2, 0, 3).flatten())
    return torch.stack(rows)


@pytest.mark.parametrize(("side", "stride"), [(8, 1), (9, 1), (12, 2)])
def test_features_are_what_filters_answer(side: int, stride: int) -> None:
    """With an odd number of places, the middle ones belong to both sides."""
    images = torch.rand(3, 3, side, side, generator=torch.Generator().manual_seed(0))
    patches = Patches((3, side, side), filters=5, patch=4, stride=stride, threshold=0.5)
    patches.fit(images, torch.Generator().manual_seed(0))
    torch.testing.assert_close(patches(images), patches_by_hand(patches, images), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(patches(images.flip(3)), patches(images), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(patches(3 * images + 2), patches(images), rtol=0.05, atol=0.05)  # contrast is normalised


def test_filters_are_whitened_patches() -> None:
    """So many filters that every patch gathers around itself alone: products with it, both of them whitened."""
    images = torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    patches = Patches((1, 6, 6), filters=3 * 16, patch=3)
    patches.fit(images, torch.Generator().manual_seed(0))
    every = F.unfold(images, 3).mT.flatten(0, 1).double()
    every = every - every.mean(1, keepdim=True)
    variance = every.square().mean(1, keepdim=True)
    every = every / (variance + FLOOR * variance.mean()).sqrt()
    values, vectors = torch.linalg.eigh(torch.cov(every.T, correction=0) + REGULARISATION * torch.eye(9))
    whitening = vectors @ values.rsqrt().diag() @ vectors.T
    white = (every - every.mean(0)) @ whitening
    expected = white / white.norm(dim=1, keepdim=True) * white.norm(dim=1).mean() @ whitening
    filters = patches.filters.double().flatten(1)
    assert torch.cdist(filters, expected).amin(1).max() < 0.01 * filters.norm(dim=1).mean()
    torch.testing.assert_close(patches.offsets.double(), filters @ every.mean(0), rtol=0.01, atol=1e-3)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 9), (3, 64, 48), (4, 5, 33)], ids=str)
def test_images_of_any_size(shape: tuple[int, ...]) -> None:
    x = torch.rand(40, *shape, generator=torch.Generator().manual_seed(0))
    x[20:] += torch.linspace(0, 3, shape[1])[:, None]
    y = torch.arange(40) // 20
    learner = learn(make(Spec(shape, 2, torch.float32), budget=300_000), x, y)
    assert learner.scores(x).isfinite().all()
    if shape != (1, 1, 1):  # of which nothing is left without its mean
        assert (learner.predict(x) == y).float().mean() > 0.9


def test_vectors_are_standardised_by_the_first_ones() -> None:
    x, y = vectors()
    units, zeros = torch.logspace(-3, 3, 20), torch.linspace(-5, 5, 20)
    plain, other = make(VECTORS), make(VECTORS)
    learn(plain, x, y), learn(other, x * units + zeros, y)
    assert (plain.predict(x) == y).float().mean() > 0.9
    torch.testing.assert_close(plain.features(x), other.features(x * units + zeros), rtol=0.01, atol=0.01)
    constant = Directions((3,), 4)
    constant.fit(torch.ones(5, 3), torch.Generator())
    assert constant(torch.ones(2, 3)).isfinite().all()


def test_operations_are_those_of_a_step_with_filters() -> None:
    """Answers of filters and mirrored ones, their averages, class sums and squares; not the waiting of the first."""
    learner = make(Spec((1, 8, 8), 10))
    filters = filters_of(learner)
    places, width = 5 * 5, 8 * filters
    answers, averages = 2 * filters * 16 * places, 2 * 2 * filters * places * 4
    assert measure_cost(learner).flops == 2 * (answers + averages + 10 * width + width**2)


def test_a_run_on_digits_and_its_resumption(digits: Dataset, onebyone: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = onebyone("run", "--method", "patch-lda", "--set", "budget=100000", "--class-order", "random")
    assert (code, err) == (0, "")
    assert "result.json" in out
    result = run(RunConfig(method="patch-lda", options={"budget": 100_000}), data=digits)
    assert result.accuracy > 0.95
    assert result.forgetting is not None
    assert result.forgetting < 0.1
    assert result.cost.memory_bytes <= 100_000
