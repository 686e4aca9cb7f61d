"""Statistics that do not depend on the order of the stream, and the classifier that follows from them."""

import pickle
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch
from torch import Tensor

from classifiers import units_of
from made_statistics import VECTORS, filters_of, learn, make, vectors
from onebyone import Dataset, Spec, UsageError, create
from onebyone.data import CropFlip
from onebyone.engine import measure_cost
from onebyone.engine.static import capture_problem
from onebyone.methods.temperature import probabilities
from onebyone.runs.config import RunConfig
from onebyone.runs.run import run
from onebyone.statistics.patch_lda import MOST_DIRECTIONS, PatchLDA


@pytest.mark.parametrize("size", [1, 7, 1438])
@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_sizes_of_batches_do_not_matter(digits: Dataset, size: int, kind: str) -> None:
    x, y = (digits.train_x[:300], digits.train_y[:300]) if kind == "images" else vectors()
    spec = digits.spec if kind == "images" else VECTORS
    one, other = learn(make(spec), x, y, 50), learn(make(spec), x, y, size)
    assert torch.equal(one.extractor.filters, other.extractor.filters)
    same_statistics(one, other)
    torch.testing.assert_close(one.scores(x), other.scores(x), rtol=1e-9, atol=1e-9)


def same_statistics(one: PatchLDA, other: PatchLDA) -> None:
    """Sums of images are equal to the bit; sums of vectors are rounded at 53 bits."""
    for name, expected in one.state_dict().items():
        found = other.state_dict()[name]
        if one.spec.is_image and not name.startswith(("_", "steps")):
            assert torch.equal(found, expected), name
    assert torch.equal(one.moments.weights, other.moments.weights)
    scatter = one.moments.scatter()
    size = scatter.diagonal().sqrt()
    assert ((other.moments.scatter() - scatter).abs() <= 1e-12 * (size[:, None] * size)).all()
    torch.testing.assert_close(other.moments.means(), one.moments.means(), rtol=1e-12, atol=1e-12)


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
    assert capture_problem(learner, 10) is None
    x, y = digits.train_x[:200], digits.train_y[:200]
    other = learn(make(digits.spec), x, y)
    learn(learner, x[:100], y[:100]).scores(x)
    for name, tensor in other.state_dict(keep_vars=True).items():
        if name != "_extra_state":
            learner.state_dict(keep_vars=True)[name].copy_(tensor)
    learner.drop_solution()  # as the engine does after a replay
    assert torch.equal(learner.scores(x), other.scores(x))


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


@pytest.mark.parametrize(
    ("spec", "budget"),
    [
        (Spec((1, 8, 8), 10), 5_000),
        (Spec((1, 8, 8), 10), 614_400),
        (Spec((3, 32, 32), 10), 153_600),
        (Spec((3, 32, 32), 100), 6_144_000),
        (VECTORS, 30_000),
    ],
    ids=str,
)
def test_a_budget_is_used_and_never_exceeded(spec: Spec, budget: int) -> None:
    learner = make(spec, budget=budget)
    assert learner.memory_bytes == measure_cost(learner).memory_bytes <= budget
    another = sum(t.nbytes for part in learner.parts(filters_of(learner) + 1) for t in part.state_dict().values())
    assert another + learner.chosen.scales.nbytes > budget or filters_of(learner) == MOST_DIRECTIONS


def test_a_budget_may_be_large() -> None:
    """A terabyte, on a device of shapes only: no size on the way to the answer is beyond what torch can name."""
    with torch.device("meta"):
        learner = create("patch-lda", Spec((3, 224, 224), 100), device="meta", budget=10**12)
        vectors = create("patch-lda", VECTORS, device="meta", budget=10**12)
    assert 0.999 * 10**12 < learner.memory_bytes <= 10**12
    assert filters_of(vectors) == MOST_DIRECTIONS


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(UsageError, match="budget is 100 bytes; with these samples and classes it must be at least"):
        make(Spec((1, 8, 8), 10), budget=100)


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
    """Components, answers of filters and mirrored ones, their averages, and squares where they are kept."""
    learner = make(Spec((1, 8, 8), 10, augmentation=CropFlip(flip=views == 2)))
    filters = filters_of(learner)
    places, width, half = 5 * 5, 8 * filters, 4 * filters
    components, answers, averages = 15 * 16 * places, views * filters * 15 * places, views * 2 * filters * places * 4
    squares = half * (width + 1) + half * half
    assert measure_cost(learner).flops == 2 * (components + answers + averages + squares)


def test_a_run_on_digits_and_its_resumption(digits: Dataset, onebyone: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = onebyone("run", "--method", "patch-lda", "--set", "budget=100000", "--class-order", "random")
    assert (code, err) == (0, "")
    assert "result.json" in out
    result = run(RunConfig(method="patch-lda", options={"budget": 100_000}), data=digits)
    assert result.accuracy > 0.95
    assert result.forgetting is not None
    assert result.forgetting < 0.1
    assert result.cost.memory_bytes <= 100_000


def test_units_and_offsets_of_vectors_do_not_matter_without_projections() -> None:
    x, y = vectors()
    units, offsets = torch.logspace(-3, 3, 20), torch.linspace(-5, 5, 20)
    plain, other = (make(VECTORS, budget=6_000) for _ in range(2))  # too small for many projections
    assert plain.extractor.count < 20
    learn(plain, x, y), learn(other, x * units + offsets, y)
    assert (plain.predict(x) == y).float().mean() > 0.85
    assert (other.predict(x * units + offsets) == y).float().mean() > 0.85


@pytest.mark.parametrize("budget", [20_000, 500_000])
def test_projections_count_as_far_as_they_help(budget: int) -> None:
    generator = torch.Generator().manual_seed(0)
    circle = torch.randn(600, 2, generator=generator)
    inside = (circle.norm(dim=1) < 1).long()
    learner = learn(make(Spec((2,), 2, torch.float32), budget=budget), circle[:400], inside[:400])
    assert (learner.predict(circle[400:]) == inside[400:]).float().mean() > 0.93
    values, projections = learner.solution().settings
    assert projections.share > 0.9
    for counts in ([200] * 4, [1500, 100, 60, 40]):  # normally distributed: no projection helps
        y = torch.repeat_interleave(torch.arange(4), torch.tensor(counts))
        x = torch.randn(len(y), 6, generator=generator) + 2 * torch.eye(4, 6)[y]
        learner = learn(make(Spec((6,), 4, torch.float32), budget=budget), x, y)
        assert learner.moments.width > 30
        values, projections = learner.solution().settings
        assert values.share > projections.share


@pytest.mark.parametrize("kind", ["images", "vectors", "circle"])
def test_answers_between_samples_are_those_of_the_state(digits: Dataset, kind: str) -> None:
    """Learning and asking in turn updates the last solution. A learner that loads the state gives the same answers."""
    x, y = (digits.train_x[:400], digits.train_y[:400]) if kind == "images" else vectors(400)
    spec = digits.spec if kind == "images" else VECTORS
    if kind == "circle":  # where projections count
        x = x[:, :2]
        y, spec = (x.norm(dim=1) < 1.5).long(), Spec((2,), 2, torch.float32)
    learner = learn(make(spec), x[:300], y[:300])
    learner.scores(x[:1])
    members, agree, updated = learner.solution().members, [], 0
    for step in range(300, 400):
        learner.settle(1)
        learner.observe(x[step : step + 1], y[step : step + 1])
        found = learner.scores(x)
        updated += learner.solution().members is members
        members = learner.solution().members
        if step % 10 == 0:
            fresh = fresh_of(learner)
            expected, found = (scores - scores.amax(1, keepdim=True) for scores in (fresh.scores(x), found))
            torch.testing.assert_close(expected, found, rtol=1e-6, atol=1e-6)
            assert fresh.temperature() == pytest.approx(learner.temperature(), rel=1e-6)
            fresh.refresh()
            agree.append((found.argmax(1) == fresh.scores(x).argmax(1)).double().mean())
    assert sum(agree) / len(agree) > 0.97
    assert updated == 99  # settings are chosen again after a sixth more samples
    assert torch.equal(deepcopy(learner).scores(x), fresh_of(learner).scores(x))


def fresh_of(learner: PatchLDA) -> PatchLDA:
    fresh = make(learner.spec)
    fresh.load_state_dict(learner.state_dict())
    return fresh


def close(one: PatchLDA, other: PatchLDA, x: Tensor) -> None:
    """Scores are the same up to a number per sample."""
    found, expected = (each.scores(x) for each in (one, other))
    found, expected = (scores - scores.amax(1, keepdim=True) for scores in (found, expected))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_statistics_can_be_merged_and_samples_removed(digits: Dataset, kind: str) -> None:
    x, y = (digits.train_x[:300], digits.train_y[:300]) if kind == "images" else vectors(300)
    spec = digits.spec if kind == "images" else VECTORS
    with units_of(x.numpy()) if kind == "vectors" else nullcontext():
        single = learn(make(spec), x, y)
        parts = [learn(make(spec), x[start::7], y[start::7], 5) for start in range(7)]
        left = learn(make(spec), x[:100], y[:100])
    merged = parts.pop(3)
    while parts:
        merged.merge(parts.pop())
    same_statistics(single, merged)
    close(merged, single, x)

    merged.forget(x[100:], y[100:])
    assert torch.equal(merged.counts, left.counts)
    kept = merged.kept.used().sum()
    assert torch.isin(merged.kept.keys[:kept], left.kept.keys).all()
    left.refresh()
    left.kept.load_state_dict(merged.kept.state_dict())  # samples that were dropped before do not come back
    close(merged, left, x)
    with pytest.raises(UsageError, match="cannot all have been learnt"):
        deepcopy(merged).forget(x[200:260], y[:60])


@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_classes_can_be_united_and_forgotten(digits: Dataset, kind: str) -> None:
    x, y = (digits.train_x[:300], digits.train_y[:300]) if kind == "images" else vectors(300)
    spec = digits.spec if kind == "images" else VECTORS
    united = learn(make(spec), x, y)
    united.unite(3, 1)
    expected = learn(make(spec), x, y.where(y != 3, 1))
    assert expected.extractor.filters.equal(united.extractor.filters)
    assert torch.equal(united.counts, expected.counts)
    expected.kept.load_state_dict(united.kept.state_dict())  # samples that were dropped before do not come back
    expected.refresh()
    close(united, expected, x)
    united.forget_class(1)
    assert united.counts[1] == 0
    assert 1 not in united.predict(x)
    learn(united, x[y == 1], y[y == 1])
    assert (united.predict(x[y == 1]) == 1).float().mean() > 0.7


def test_weights_repeat_samples(digits: Dataset) -> None:
    x, y = digits.train_x[:120], digits.train_y[:120]
    times = torch.arange(120) % 4
    weighted = make(digits.spec)
    weighted.observe(x, y, times.double())
    repeated = learn(make(digits.spec), x.repeat_interleave(times, 0), y.repeat_interleave(times))
    assert torch.equal(weighted.moments.products, repeated.moments.products)
    torch.testing.assert_close(weighted.scores(x), repeated.scores(x), rtol=1e-9, atol=1e-9)


def test_probabilities_are_calibrated(digits: Dataset) -> None:
    """The mean confidence is close to the accuracy, and the estimate of the accuracy to that on the test set."""
    for count in (50, 300):
        learner = learn(make(digits.spec, budget=400_000), digits.train_x[:count], digits.train_y[:count])
        scores = learner.scores(digits.test_x)
        confidence = probabilities(scores / learner.temperature()).amax(1).mean()
        accuracy = (scores.argmax(1) == digits.test_y).double().mean()
        assert abs(confidence - accuracy) < 0.1
        left_out = learner.left_out()
        assert left_out is not None
        assert abs((left_out.scores.argmax(1) == left_out.y).double().mean() - accuracy) < 0.2


def test_four_samples_of_two_classes_are_enough_for_a_sensible_confidence() -> None:
    gaps = []
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        means, y = 0.3 * torch.randn(2, 200, generator=generator), torch.arange(408) % 2
        x = means[y] + torch.randn(408, 200, generator=generator)
        learner = learn(make(Spec((200,), 2, torch.float32), budget=2_000_000), x[:8], y[:8])
        scores = learner.scores(x[8:])
        confidence = probabilities(scores / learner.temperature()).amax(1).mean()
        gaps.append(abs(confidence - (scores.argmax(1) == y[8:]).double().mean()))
    assert sum(gaps) / len(gaps) < 0.15


def test_a_rare_class_is_predicted(digits: Dataset) -> None:
    rare = (digits.train_y == 3).nonzero()[:5, 0]
    others = (digits.train_y != 3).nonzero()[:, 0]
    index = torch.cat([others, rare])
    learner = learn(make(digits.spec), digits.train_x[index], digits.train_y[index])
    found = learner.predict(digits.test_x)
    assert (found[digits.test_y == 3] == 3).float().mean() > 0.4
    assert (found == digits.test_y).float().mean() > 0.85
