"""Discriminant analysis against literal transcriptions: shrinkage, leave-one-out, updates."""

import math
from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from onebyone.methods.ridge import Ridge, Statistics, best_ridge, feature_scale, identity, thin_root
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from made_statistics import statistics
from onebyone.methods.temperature import ANY_FEATURES, expected_temperature, fitted_temperature, probabilities
from onebyone.statistics.discriminant import Discriminant
from onebyone.statistics.kept import KeptSample, keys


def samples(count: int = 200, width: int = 12, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (count,), generator=generator)
    mixing = torch.randn(width, width, generator=generator)
    centres = 1.5 * torch.randn(classes, width, generator=generator)
    return ((torch.randn(count, width, generator=generator) + centres[y]) @ mixing).double(), y


@pytest.mark.parametrize("shrinkage", [1e-3, 0.3])
def test_a_ridge_without_shrunk_means_is_scikit_learns(shrinkage: float) -> None:
    x, y = samples()
    weights, means, scatter, _ = statistics(x, y)
    freedom = len(x) - 5
    ridge = Ridge.of(weights, means, scatter, shrinkage / (1 - shrinkage) * freedom / 12)
    found = ridge.scale * (x @ ridge.solved.T - (means * ridge.solved).sum(1) / 2)
    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(x, y)
    expected = torch.from_numpy(reference.decision_function(x)) - (weights / len(x)).log()
    expected *= freedom / len(x)
    expected = expected - expected.mean(1, keepdim=True)
    torch.testing.assert_close(found - found.mean(1, keepdim=True), expected, rtol=1e-9, atol=1e-9)


def test_with_many_samples_class_means_stay() -> None:
    x, y = samples(20_000)
    answer = Discriminant(statistics(x, y), 12)
    torch.testing.assert_close(answer.mixing, identity(answer.ridge.weights), rtol=0, atol=0.02)


def test_a_mean_of_few_samples_moves_most() -> None:
    x, y = samples(2000)
    keep = (y != 0) | (torch.arange(2000) < 20)
    answer = Discriminant(statistics(x[keep], y[keep]), 12)
    assert answer.ridge.weights[0] < 10
    centre = answer.ridge.weights @ answer.ridge.means / answer.ridge.weights.sum()
    moved = (answer.used - centre).norm(dim=1) / (answer.ridge.means - centre).norm(dim=1)
    assert moved.argmin() == 0


def test_a_rare_class_is_favoured_by_up_to_half_a_temperature() -> None:
    x, y = samples(2000)
    few = (y != 3) | (torch.arange(2000) < 60)
    weights, means, scatter, _ = statistics(x[few], y[few])
    answer = Discriminant(Statistics(weights, means, scatter, None), 12)
    signal, deviation = answer.ridge.signal_and_deviation(answer.mixing)
    temperature = deviation.square().sum() / signal.sum()
    expected = (1 - weights / weights.mean()).clamp(min=0) * temperature / 2
    assert expected[3] > 0.45 * temperature > expected.sum() - expected[3]
    torch.testing.assert_close(answer.favour, expected)
    scores = answer.ridge.scale * (answer.scaled(x) @ (answer.mixing @ answer.ridge.solved).T - answer.squares / 2)
    torch.testing.assert_close(answer.scores(x), scores + expected)


def test_without_differences_between_classes_a_rare_one_is_favoured_by_no_more_than_scores_deviate() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(900, 12, generator=generator, dtype=torch.float64), (torch.arange(900) % 30 > 0).long()
    answer = Discriminant(statistics(x, y), 12)
    scores = answer.scores(x)
    assert 0 <= float(answer.favour.max()) < 2 * float((scores[:, 1] - scores[:, 0]).std())


def test_the_strength_with_the_largest_separation_is_found() -> None:
    for count, width in ((60, 40), (2000, 12)):
        statistic = statistics(*samples(count, width, seed=count))
        best = best_ridge(*statistic[:3])
        freedom = max(count - 5, 1)
        for strength in torch.logspace(-4, 3, 15).tolist():
            if strength >= 0.1 * min(1, width / freedom):
                assert best.separation > 0.97 * Ridge.of(*statistic[:3], strength).separation


def test_the_strength_changes_little_from_sample_to_sample() -> None:
    """The search takes steps of a factor of 3.2; a solution that is updated would differ from the next complete one."""
    x, y = samples(400, 60)
    found = [best_ridge(*statistics(x[:count], y[:count])[:3]).strength for count in range(100, 400, 4)]
    ratios = [max(one / other, other / one) for one, other in pairwise(found)]
    assert max(found) > 2 * min(found)
    assert max(ratios) < 2


@pytest.mark.parametrize("times", [1.0, 1e4, 1e8, 1e12])
def test_dependent_features_have_an_inverse_however_many_samples_there_are(times: float) -> None:
    """The sum of one-hot features is always 1. Rounding errors of their scatter grow with the samples."""
    labels = torch.arange(1000)
    x, y = torch.nn.functional.one_hot(labels % 5).double(), (labels % 5 % 2)
    weights, means, scatter, _ = statistics(x, y)
    answer = Discriminant(Statistics(times * weights, means, times * scatter, None), 5)
    assert torch.equal(answer.scores(x).argmax(1), y)


def test_leave_one_out_is_that_of_statistics_without_the_sample() -> None:
    """The literal way: remove the sample from the sums, invert again, keep ridge and mixing of the class means."""
    x, y = samples(60)
    weights, means, scatter, _ = statistics(x, y)
    answer = Discriminant(Statistics(weights, means, scatter, None), 12)
    found = answer.leave_out(x, y, torch.arange(60))
    assert torch.equal(found.y, y)
    for index in range(60):
        rest = torch.arange(60) != index
        _, means, scatter, _ = statistics(answer.scaled(x[rest]), y[rest])
        regular = scatter + answer.ridge.ridge * torch.eye(12)
        used, scale, z = answer.mixing @ means, answer.ridge.scale - 1, answer.scaled(x)[index]
        solved = torch.linalg.solve(regular, used.T).T
        expected = scale * (solved @ z - (used * solved).sum(1) / 2) + answer.favour
        torch.testing.assert_close(found.measured.scores[index], expected, rtol=1e-6, atol=1e-6)
        distances = torch.stack([scale * (z - m) @ torch.linalg.solve(regular, z - m) for m in used])
        torch.testing.assert_close(found.measured.distances(1.0).nearest[index], distances.min(), rtol=1e-6, atol=1e-6)
        centre = z - answer.scaled(x[rest]).mean(0)
        expected = scale * centre @ torch.linalg.solve(regular, centre)
        torch.testing.assert_close(found.measured.centre[index], expected, rtol=1e-6, atol=1e-6)


def test_division_by_the_distance_keeps_the_order_of_classes_and_is_the_same_for_left_out_samples() -> None:
    x, y = samples(60)
    plain, divided = (Discriminant(statistics(x, y), 12, by_distance=by_distance) for by_distance in (False, True))
    z = x * divided.scale

    def relative(rest: Tensor) -> Tensor:
        away = (z - z[rest].mean(0)).square().sum(1)
        return (away / away[rest].mean()).sqrt()

    expected = plain.scores(x) / relative(torch.ones(60, dtype=torch.bool))[:, None]
    torch.testing.assert_close(divided.scores(x), expected)
    assert torch.equal(divided.scores(x).argsort(1), plain.scores(x).argsort(1))
    found, before = (answer.leave_out(x, y, torch.arange(60)) for answer in (divided, plain))
    for index in range(60):
        distance = relative(torch.arange(60) != index)[index]
        torch.testing.assert_close(found.relative[index], distance)
        torch.testing.assert_close(found.measured.scores[index], before.measured.scores[index] / distance)
    torch.testing.assert_close(found.measured[1:], before.measured[1:])
    assert divided.scores(x.mean(0, keepdim=True)).isfinite().all()


def test_the_factorisation_of_few_samples_gives_the_same_solution() -> None:
    weights, means, scatter, _ = statistics(*samples(40, 300))
    thin = thin_root(scatter, 35)
    assert thin is not None
    torch.testing.assert_close(thin.T @ thin, scatter, rtol=0, atol=1e-10 * float(scatter.diagonal().max()))
    few, full = (Ridge.of(weights, means, scatter, 0.3, root) for root in (thin, None))
    torch.testing.assert_close(few.solved, full.solved, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(few.inverse(), full.inverse(), rtol=1e-9, atol=1e-12)
    assert few.trace == pytest.approx(full.trace, rel=1e-9)
    assert thin_root(scatter, 30) is None


def test_a_new_class_may_come_with_an_update() -> None:
    x, y = samples(120)
    first = (y != 2) & (torch.arange(120) < 100)
    places = torch.tensor([0, 1, 3, 4])
    answer = Discriminant(statistics(x[first], torch.searchsorted(places, y[first])), 12)
    answer.make_room(places, 5)
    weights, means, scatter, _ = statistics(x, y)
    before = statistics(x[first], torch.searchsorted(places, y[first]))[2]
    values, vectors = torch.linalg.eigh(scatter - before)
    answer.update((vectors * values.clamp(min=0).sqrt()).T, weights, means)
    regular = scatter * answer.scale[:, None] * answer.scale + answer.ridge.ridge * torch.eye(12)
    expected = answer.scaled(means) @ torch.linalg.inv(regular)
    torch.testing.assert_close(answer.ridge.solved, expected, rtol=1e-5, atol=1e-6)


def test_probabilities_are_the_mean_over_three_temperatures() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = 5 * torch.randn(50, 4, generator=generator, dtype=torch.float64)
    found = probabilities(scores)
    for row, expected in zip(found.tolist(), scores.tolist(), strict=True):
        for label in range(4):
            mean = 0.0
            for times, share in ((0.5, 1 / 6), (1, 2 / 3), (2, 1 / 6)):
                mean += share * math.exp(expected[label] / times) / sum(math.exp(score / times) for score in expected)
            assert row[label] == pytest.approx(mean, rel=1e-12)
    assert torch.equal(found.argmax(1), scores.argmax(1))
    torch.testing.assert_close(found.sum(1), torch.ones(50, dtype=torch.float64))


@pytest.mark.parametrize("temperature", [0.7, 1.0, 3.1])
def test_the_temperature_of_the_largest_likelihood_is_found_between_grid_points(temperature: float) -> None:
    x, y = samples(2000)
    answer = Discriminant(statistics(x, y), 12)
    generator = torch.Generator().manual_seed(1)
    scores = 4 * torch.randn(20_000, 5, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(probabilities(scores / temperature), 1, generator=generator)[:, 0]
    found = fitted_temperature(
        expected_temperature(answer.ridge, answer.mixing, ANY_FEATURES), scores, labels, ANY_FEATURES.doubt
    )
    assert found == pytest.approx(temperature, rel=0.04)  # neighbouring grid points differ by 19 %


def test_distances_are_those_from_the_nearest_class_and_from_the_mean_of_all() -> None:
    x, y = samples(200)
    answer = Discriminant(statistics(x, y), 12)
    z = answer.scaled(x[:20])
    inverse = answer.ridge.scale * answer.ridge.inverse()
    means = [*answer.used, answer.scaled(x).mean(0)]
    expected = torch.stack([torch.einsum("ni,ij,nj->n", z - m, inverse, z - m) for m in means])
    found = answer.measured(x[:20]).distances(1.0)
    torch.testing.assert_close(found.nearest, expected[:-1].amin(0), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.centre, expected[-1], rtol=1e-8, atol=1e-8)


def test_an_update_is_a_solution_with_the_same_ridge() -> None:
    x, y = samples(120)
    answer = Discriminant(statistics(x[:100], y[:100]), 12)
    answer.leave_out(x[:30], y[:30], torch.arange(30))
    weights, means, scatter, _ = statistics(x, y)
    values, vectors = torch.linalg.eigh(scatter - statistics(x[:100], y[:100])[2])
    rows = (vectors * values.clamp(min=0).sqrt()).T
    answer.update(rows, weights, means)
    means, scatter = answer.scaled(means), scatter * answer.scale[:, None] * answer.scale
    regular = scatter + answer.ridge.ridge * torch.eye(12)
    torch.testing.assert_close(answer.inverse.matrix(), torch.linalg.inv(regular), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(answer.ridge.solved, means @ torch.linalg.inv(regular), rtol=1e-5, atol=1e-6)
    assert answer.ridge.trace == pytest.approx(float(torch.linalg.inv(regular).trace()), rel=1e-5)
    kept = answer.leave_out(x[:30], y[:30], torch.arange(30))
    answer._kept = None
    torch.testing.assert_close(kept.measured.scores, answer.leave_out(x[:30], y[:30], torch.arange(30)).measured.scores)


def test_an_update_by_one_sample() -> None:
    x, y = samples(101)
    before, after = statistics(x[:100], y[:100]), statistics(x, y)
    answer = Discriminant(before, 12)
    n = before[0][y[100]]
    row = (x[100] - before[1][y[100]]) * (n / (n + 1)).sqrt()
    answer.update(row[None], after[0], after[1])
    regular = after[2] * answer.scale[:, None] * answer.scale + answer.ridge.ridge * torch.eye(12)
    expected = answer.scaled(after[1]) @ torch.linalg.inv(regular)
    torch.testing.assert_close(answer.ridge.solved, expected, rtol=1e-5, atol=1e-6)


def kept_in_any_order(x: Tensor, y: Tensor, capacity: int) -> KeptSample:
    """Samples that were merged from two parts. The bits are those of adding them at once, and in other orders."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
    sets = []
    for index, size in ((torch.arange(len(y)), len(y)), (order, 7), (order.flip(0), 1)):
        sets.append(KeptSample(capacity, x.shape[1], torch.int8))
        for part in index.split(size):
            sets[-1].add(x[part], y[part])
    merged, other = (KeptSample(capacity, x.shape[1], torch.int8) for _ in range(2))
    merged.add(x[::2], y[::2])
    other.add(x[1::2], y[1::2])
    merged.merge(other)
    for each in sets:
        assert all(torch.equal(tensor, each.state_dict()[name]) for name, tensor in merged.state_dict().items())
    return merged


def test_kept_samples_depend_on_the_samples_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-127, 128, (500, 9), generator=generator).to(torch.int8)
    y = torch.arange(500) % 4
    merged = kept_in_any_order(x, y, 40)
    kept = deepcopy(merged)
    assert len(merged) == 40
    assert torch.bincount(merged.labels).tolist() == [10, 10, 10, 10]
    merged.remove(kept.values[:5], kept.labels[:5])
    assert len(merged) == 35
    merged.forget_class(1)
    assert not (merged.labels[merged.used()] == 1).any()


def test_equal_samples_are_kept_once_and_counted() -> None:
    """In any order, after merging, removing and uniting classes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 3, (600, 2), generator=generator).to(torch.int8)
    y = torch.randint(0, 3, (600,), generator=generator)
    merged = kept_in_any_order(x, y, 20)
    assert len(merged) == 20
    for value, label, copies in zip(merged.values, merged.labels, merged.copies, strict=True):
        assert copies == ((x == value).all(1) & (y == label)).sum()
    rows = merged.drawn()
    assert 18 <= len(rows) <= 22
    assert all(abs(int((merged.labels[rows] == label).sum()) - 6.5) < 1 for label in range(3))
    merged.remove(x[:100], y[:100])
    rest = KeptSample(20, 2, torch.int8)
    rest.add(x[100:], y[100:])
    assert all(torch.equal(tensor, rest.state_dict()[name]) for name, tensor in merged.state_dict().items())
    whole, united = KeptSample(30, 2, torch.int8), KeptSample(30, 2, torch.int8)
    whole.add(x, y.where(y != 2, 0))
    united.add(x, y)
    united.unite(2, 0)
    assert all(torch.equal(tensor, whole.state_dict()[name]) for name, tensor in united.state_dict().items())


def test_a_rare_class_is_kept_like_the_others() -> None:
    x = torch.arange(1000)[:, None].to(torch.int16) * torch.ones(3, dtype=torch.int16)
    y = (torch.arange(1000) % 250 == 7).long() + 2 * (torch.arange(1000) % 2)
    kept = KeptSample(30, 3, torch.int16)
    for part in torch.arange(1000).split(64):
        kept.add(x[part], y[part])
    assert torch.bincount(kept.labels).tolist() == [13, 0, 13, 4]
    assert torch.equal(kept.keys, kept.keys.sort().values)


def test_keys_look_random() -> None:
    x = torch.arange(4096)[:, None].to(torch.int16) * torch.ones(3, dtype=torch.int16)
    found = keys(x)
    assert len(found.unique()) == 4096
    assert found.min() >= 0
    assert abs(float(found.double().mean()) / 2**61 - 1) < 0.05
    assert abs(float((found % 2).double().mean()) - 0.5) < 0.05


def test_features_are_standardised_by_degrees() -> None:
    """There is no share of the variance at which factors jump: rounding errors would decide on which side they are."""
    last = None
    for share in torch.linspace(0.0, 0.6, 301, dtype=torch.float64):
        scatter = torch.cat([torch.ones(4), share.repeat(16)]).double().diag() * 100 + 1e-3
        scale = feature_scale(
            Statistics(torch.tensor([60.0, 60.0]).double(), torch.zeros(2, 20).double(), scatter, None)
        )
        if last is not None and share > 0.01:
            assert float((scale / last).log().abs().max()) < 0.15
        last = scale
    assert last is not None
    assert float(last.std()) == 0  # evenly distributed: one factor
