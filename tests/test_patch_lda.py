"""Statistics that do not depend on the order of the stream, and the classifier that follows from them."""

import pickle
from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch
from sklearn.covariance import oas
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from made_statistics import VECTORS, filters_of, learn, make, vectors
from onebyone import Dataset, Spec, UsageError, create
from onebyone.data import CropFlip
from onebyone.engine import measure_cost
from onebyone.engine.static import capture_problem
from onebyone.methods.patch_lda import PatchLDA, oracle_shrinkage
from onebyone.nets import Directions
from onebyone.runs.config import RunConfig
from onebyone.runs.run import run


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


@pytest.mark.parametrize(("samples", "features"), [(50, 10), (20, 30), (1000, 8), (2, 3)])
def test_shrinkage_by_itself_is_that_of_scikit_learn(samples: int, features: int) -> None:
    generator = torch.Generator().manual_seed(samples)
    mixed = torch.randn(features, features, generator=generator, dtype=torch.float64)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64) @ mixed
    found = oracle_shrinkage(x.T @ x / samples, torch.tensor(samples))
    assert found == pytest.approx(oas(x.numpy(), assume_centered=True)[1], rel=1e-9)


def test_too_little_shrinkage_is_refused_in_words(digits: Dataset) -> None:
    learner = learn(make(digits.spec, shrinkage=1e-12), digits.train_x[:20], digits.train_y[:20], 10)
    with pytest.raises(UsageError, match=r"with shrinkage 1e-12 the covariance has no inverse; raise it or leave"):
        learner.predict(digits.test_x)


def test_shrinkage_is_by_itself_unless_it_is_given(digits: Dataset) -> None:
    """The fewer samples, the more; with a million, as little as is ever used."""
    few, many = (learn(make(digits.spec), digits.train_x[:n], digits.train_y[:n]) for n in (30, 1400))
    shares = [float(oracle_shrinkage(each.moments.covariance(), each.counts.sum())) for each in (few, many)]
    assert 1e-3 < shares[1] < shares[0] < 1
    for each, share in zip((few, many), shares, strict=True):
        same = make(digits.spec, shrinkage=share)
        same.load_state_dict(each.state_dict())
        torch.testing.assert_close(same.scores(digits.test_x), each.scores(digits.test_x), rtol=1e-9, atol=1e-9)
    assert oracle_shrinkage(torch.zeros(4, 4), torch.tensor(1)) == 1


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


def test_the_order_does_not_matter(digits: Dataset) -> None:
    x, y = digits.train_x[:500], digits.train_y[:500]
    by_class = y.argsort()
    same_statistics(learn(make(digits.spec), x, y), learn(make(digits.spec), x[by_class], y[by_class], 9))


def test_filters_of_images_are_the_seeds_alone(digits: Dataset) -> None:
    learner = make(digits.spec, seed=1)
    before = learner.extractor.filters.clone()
    learn(learner, digits.train_x[:100], digits.train_y[:100])
    assert torch.equal(learner.extractor.filters, before)
    assert torch.equal(make(digits.spec, seed=1).extractor.filters, before)
    assert not torch.equal(make(digits.spec, seed=2).extractor.filters, before)


def test_steps_on_images_can_be_recorded(digits: Dataset) -> None:
    """From the first on, and an answer after a replay, which no Python code sees, is not an old one."""
    learner = make(digits.spec)
    assert learner.warm_up == 0
    assert capture_problem(learner, 10) is None
    x, y = digits.train_x[:200], digits.train_y[:200]
    other = learn(make(digits.spec), x, y)
    learn(learner, x[:100], y[:100]).scores(x)
    for name, tensor in other.state_dict(keep_vars=True).items():
        if name != "_extra_state":
            learner.state_dict(keep_vars=True)[name].copy_(tensor)
    assert torch.equal(learner.scores(x), other.scores(x))


def test_first_vectors_wait_and_are_learnt() -> None:
    """Not one of them is lost, and they take no memory of their own."""
    x, y = vectors()
    learner = make(VECTORS)
    before = learner.memory_bytes
    learn(learner, x[:49], y[:49], 7)
    assert learner.warm_up == 50
    assert not learner.moments.counts.any()
    learner.observe(x[49:53], y[49:53])
    torch.testing.assert_close(learner.extractor.mean, x[:50].mean(0))
    assert capture_problem(learner, 10) is None
    assert torch.equal(learner.moments.counts, torch.bincount(y[:53], minlength=4))
    features = learner.features(x[:53]).double()
    for label in y[:53].unique():
        expected = features[y[:53] == label].mean(0)
        torch.testing.assert_close(learner.moments.means()[label], expected, rtol=1e-6, atol=1e-8)
    assert learner.memory_bytes == before


@pytest.mark.parametrize("count", [1, 2, 30])
def test_asked_early_it_answers_with_what_there_is(count: int) -> None:
    x, y = vectors()
    learner = learn(make(VECTORS), x[:count], y[:count])
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    scores = learner.scores(x[:100])
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.state_dict().items())
    assert torch.equal(scores, learn(make(VECTORS, first_samples=count), x[:count], y[:count]).scores(x[:100]))
    assert torch.equal(learner.predict(x[:1]), y[:1])
    # and going on gives what never having been asked would have given
    undisturbed = learn(make(VECTORS), x[:200], y[:200])
    assert torch.equal(learn(learner, x[count:200], y[count:200], 200).predict(x[:9]), undisturbed.predict(x[:9]))


@pytest.mark.parametrize("count", [1, 2])
def test_one_image_is_enough(digits: Dataset, count: int) -> None:
    learner = learn(make(digits.spec), digits.train_x[:count], digits.train_y[:count])
    assert torch.equal(learner.predict(digits.train_x[:count]), digits.train_y[:count])


@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_a_state_may_be_loaded_at_any_moment(digits: Dataset, kind: str) -> None:
    x, y = (digits.train_x[:120], digits.train_y[:120]) if kind == "images" else vectors(120)
    spec = digits.spec if kind == "images" else VECTORS
    whole = learn(make(spec), x, y, 20)
    for stop in (20, 40, 60):
        first, second = learn(make(spec), x[:stop], y[:stop], 20), make(spec, seed=3)
        second.load_state_dict(first.state_dict())
        learn(second, x[stop:], y[stop:], 20)
        for name, tensor in whole.state_dict().items():
            assert torch.equal(second.state_dict()[name], tensor), name


def test_what_was_solved_is_solved_again_after_learning_or_loading(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = digits.train_x[:200], digits.train_y[:200]
    learner = learn(make(digits.spec), x[:100], y[:100])
    early = learner.scores(x)
    with monkeypatch.context() as patch:
        patch.setattr(learner, "solve", None)
        learner.scores(x)  # kept as long as nothing is learnt
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


@pytest.mark.parametrize("spec", [Spec((3, 224, 224), 100), VECTORS], ids=str)
def test_a_budget_may_be_large(spec: Spec) -> None:
    """A terabyte, on a device of shapes only: no size on the way to the answer is beyond what torch can name."""
    with torch.device("meta"):
        learner = create("patch-lda", spec, device="meta", budget=10**12)
    assert 0.999 * 10**12 < learner.memory_bytes <= 10**12


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(UsageError, match="budget is 100 bytes; with these samples and classes it must be at least"):
        make(Spec((1, 8, 8), 10), budget=100)
    with pytest.raises(UsageError, match="cannot store a first vector of 40000 bytes; raise the budget"):
        make(Spec((10_000,), 10, torch.float32), budget=101_000)


def test_vectors_are_standardised_by_the_first_ones() -> None:
    x, y = vectors()
    units, zeros = torch.logspace(-3, 3, 20), torch.linspace(-5, 5, 20)
    plain, other = make(VECTORS), make(VECTORS)
    learn(plain, x, y), learn(other, x * units + zeros, y)
    assert (plain.predict(x) == y).float().mean() > 0.9
    torch.testing.assert_close(plain.features(x), other.features(x * units + zeros), rtol=0.01, atol=0.01)
    constant = Directions((3,), 4)
    constant.fit(torch.Generator())
    constant.standardise(torch.ones(5, 3))
    assert constant(torch.ones(2, 3)).isfinite().all()


@pytest.mark.parametrize("gap", [5, 20, 100, 1e30])
def test_classes_far_from_the_first_are_told_apart(gap: float) -> None:
    """Units are those of the first class, so that all others may be many of them away."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(5).repeat_interleave(400)
    x = torch.randn(len(y), 3, generator=generator)
    x[:, 0] += gap * y
    learner = learn(make(Spec((3,), 5, torch.float32)), x[::2], y[::2])
    assert (learner.predict(x[1::2]) == y[1::2]).float().mean() > 0.95


@pytest.mark.parametrize("quiet", [0.0, 1e-6])
def test_what_the_first_class_lacks_does_not_drown_all_others(quiet: float) -> None:
    """Three features of noise, of which the first class has none or next to none."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(8).repeat_interleave(200)
    x = torch.randn(len(y), 20, generator=generator) + 3 * torch.randn(8, 20, generator=generator)[y]
    noise = 1000 * torch.randn(len(y), 3, generator=generator) * torch.where(y == 0, quiet, 1.0)[:, None]
    x = torch.cat([x, noise], 1)
    learner = learn(make(Spec((23,), 8, torch.float32)), x[::2], y[::2])
    assert (learner.predict(x[1::2]) == y[1::2]).float().mean() > 0.95


def test_rounding_of_a_constant_is_no_unit() -> None:
    """A feature that varies by rounding only until later classes come does not drown all others then."""
    x, y = vectors(400)
    order = y.argsort(stable=True)
    x, y = x[order], y[order]
    x[:, 0] = 0.3 + 1e-7 * (torch.arange(400) % 2)
    x[y > 0, 0] += x[y > 0, 1]
    learner = learn(make(VECTORS), x, y)
    first, *others = learner.extractor.get_buffer("deviation").tolist()
    assert min(others) <= first <= max(others)
    assert (learner.predict(x) == y).float().mean() > 0.9


def test_a_copy_answers_the_same_and_carries_no_solution() -> None:
    x, y = vectors(400)
    learner = learn(make(VECTORS), x, y)
    expected = learner.scores(x)
    copy = deepcopy(learner)
    assert len(pickle.dumps(copy)) == len(pickle.dumps(learner)) < 1.2 * len(pickle.dumps(learner.state_dict()))
    assert torch.equal(copy.scores(x), expected)
    assert torch.equal(learner.scores(x), expected)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_what_the_first_class_lacks_has_the_unit_of_the_others(unit: float) -> None:
    """Each class has a feature of its own, as texts have words, and the first class has none of the others'."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(4).repeat_interleave(300)
    x = torch.cat([torch.randn(len(y), 20, generator=generator), 4.0 * (y[:, None] == torch.arange(4))], 1) * unit
    learner = learn(make(Spec((24,), 4, torch.float32)), x[::2], y[::2])
    assert (learner.predict(x[1::2]) == y[1::2]).float().mean() > 0.95


def test_an_absurd_vector_among_the_first_is_no_measure() -> None:
    x, y = vectors(1000)
    expected = (learn(make(VECTORS), x, y).predict(x) == y).float().mean()
    spoilt = x.clone()
    spoilt[5] = 1e6
    assert (learn(make(VECTORS), spoilt, y).predict(x) == y).float().mean() > expected - 0.05


@pytest.mark.parametrize("views", [1, 2])
def test_operations_are_those_of_a_step(views: int) -> None:
    """Components, answers of filters and mirrored ones, their averages, class sums, and squares where they are kept."""
    learner = make(Spec((1, 8, 8), 10, augmentation=CropFlip(flip=views == 2)))
    filters = filters_of(learner)
    places, width, half = 5 * 5, 8 * filters, 4 * filters
    components, answers, averages = 15 * 16 * places, views * filters * 15 * places, views * 2 * filters * places * 4
    squares = half * (width + 1) + half * half
    assert measure_cost(learner).flops == 2 * (components + answers + averages + 10 * width + squares)


def test_a_run_on_digits_and_its_resumption(digits: Dataset, onebyone: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = onebyone("run", "--method", "patch-lda", "--set", "budget=100000", "--class-order", "random")
    assert (code, err) == (0, "")
    assert "result.json" in out
    result = run(RunConfig(method="patch-lda", options={"budget": 100_000}), data=digits)
    assert result.accuracy > 0.95
    assert result.forgetting is not None
    assert result.forgetting < 0.1
    assert result.cost.memory_bytes <= 100_000
