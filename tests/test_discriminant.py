"""Discriminant analysis against literal transcriptions: scores, distances, leave-one-out, updates; kept samples."""

import math
from copy import deepcopy
from operator import mul
from typing import Any

import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from made_statistics import statistics
from onebyone.methods.temperature import fitted_temperature, probabilities
from onebyone.statistics import criterion
from onebyone.statistics.criterion import SHRINKAGES, Setting, Summary, choose
from onebyone.statistics.discriminant import Discriminant, added
from onebyone.statistics.kept import KeptSample, keys

MIXED = Setting(0.7, 1.3, 20.0, (0.4, 0.3, 0.2, 0.1))
PLAIN = Setting(1.0, 1.0, 20.0, (1.0, 0.0, 0.0, 0.0))


def samples(count: int = 200, width: int = 12, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (count,), generator=generator)
    mixing = torch.randn(width, width, generator=generator)
    centres = 1.5 * torch.randn(classes, width, generator=generator)
    return ((torch.randn(count, width, generator=generator) + centres[y]) @ mixing).double() + 10, y


def ones(width: int = 12) -> Tensor:
    return torch.ones(width, dtype=torch.float64)


def scales(width: int = 12) -> Tensor:
    return torch.logspace(-1, 1, width, dtype=torch.float64)


def rows_between(before: Summary, after: Summary) -> Tensor:
    """Rows whose transpose times themselves is the growth of the scatter."""
    values, vectors = torch.linalg.eigh(after.scatter - before.scatter)
    return (vectors * values.clamp(min=0).sqrt()).T


class Literal:
    """Sums of samples, the inverse of their scatter with the ridge, and the class means in use.

    ``noise`` is the expected product of the mean of one sample with itself; that of these samples if not given.
    """

    def __init__(self, x: Tensor, y: Tensor, setting: Setting, noise: float | None = None) -> None:
        self.weights, self.means, scatter = statistics(x, y)
        self.total = float(self.weights.sum())
        self.centre, self.middle = self.means.mean(0), x.mean(0)
        self.inverse = torch.linalg.inv(scatter + setting.ridge * torch.eye(x.shape[1], dtype=torch.float64))
        self.setting = setting
        freedom = len(y) - len(self.weights)
        self.noise = float((self.inverse @ scatter).trace()) / freedom if noise is None else noise

    def scores(self, z: Tensor, total: float) -> Tensor:
        """[C] of one sample: the mean over shrinkages of the scores with these."""
        sums = []
        for weight, mean in zip(self.weights, self.means, strict=True):
            score = torch.zeros((), dtype=torch.float64)
            for shrinkage, share in zip(SHRINKAGES, self.setting.shrinkages, strict=True):
                keeps = weight / (weight + shrinkage)
                used = keeps * (mean - self.centre)
                square = used @ self.inverse @ used - keeps**2 * self.noise / weight
                score += share * ((z - self.centre) @ self.inverse @ used - square / 2)
            sums.append(self.setting.gain * total * score)
        return torch.stack(sums)

    def distances(self, z: Tensor, total: float) -> tuple[Tensor, Tensor]:
        """[C] from the class means in use, and from the mean of all samples."""

        def distance(mean: Tensor, noise: float = 0.0) -> Tensor:
            return total * ((z - mean) @ self.inverse @ (z - mean) - noise)

        kept = [
            sum(share * n / (n + k) for k, share in zip(SHRINKAGES, self.setting.shrinkages, strict=True))
            for n in self.weights
        ]
        used = [self.centre + keeps * (mean - self.centre) for keeps, mean in zip(kept, self.means, strict=True)]
        noises = [self.noise * keeps**2 / n for keeps, n in zip(kept, self.weights, strict=True)]
        return torch.stack([distance(*each) for each in zip(used, noises, strict=True)]), distance(self.middle)


class Fixed(BaseEstimator):
    """An estimator of the covariance that returns this one for every class."""

    def __init__(self, covariance: Tensor) -> None:
        self.covariance = covariance

    def fit(self, x: Any) -> "Fixed":
        self.covariance_ = self.covariance.numpy()
        return self


def assert_scores(found: Tensor, expected: Tensor, tolerance: float = 1e-8) -> None:
    """Equal up to a number per sample."""
    centred = [each - each.mean(-1, keepdim=True) for each in (found, expected)]
    torch.testing.assert_close(*centred, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shrinkage", [1e-3, 0.3])
def test_a_ridge_without_shrunk_means_is_scikit_learns(shrinkage: float) -> None:
    x, y = samples()
    summary = statistics(x, y)
    ridge = shrinkage / (1 - shrinkage) * float(summary.scatter.trace()) / 12
    answer = Discriminant(summary, ones(), Setting(1.0, 1.0, ridge, (1.0, 0.0, 0.0, 0.0)))
    covariance = summary.scatter / 200
    covariance = (1 - shrinkage) * covariance + shrinkage * covariance.trace() / 12 * torch.eye(12).double()
    reference = LinearDiscriminantAnalysis(solver="lsqr", priors=[0.2] * 5, covariance_estimator=Fixed(covariance))
    expected = (1 - shrinkage) * torch.from_numpy(reference.fit(x, y).decision_function(x))
    noise = 200 * answer.noise / summary.weights / 2  # scikit-learn takes class means as they are
    assert_scores(answer.scores(x) - noise, expected)


@pytest.mark.parametrize("setting", [PLAIN, MIXED], ids=["plain", "mixed"])
@pytest.mark.parametrize("scale", [ones(), scales()], ids=["ones", "scales"])
def test_scores_and_distances_are_the_literal_ones(setting: Setting, scale: Tensor) -> None:
    x, y = samples()
    x[:40] = x[:40] + 3
    y = torch.where((y == 3) & (torch.arange(200) > 60), 2, y)
    summary = statistics(x, y)
    answer = Discriminant(summary, scale, setting)
    literal = Literal(x * scale, y, setting)
    new = samples(20, seed=0)[0] + 0.1
    expected = torch.stack([literal.scores(z, 200) for z in new * scale])
    assert_scores(answer.scores(new), expected)
    measured = answer.measured(new)
    torch.testing.assert_close(measured.scores, answer.scores(new))
    found = measured.distances(1.0)
    for index, z in enumerate(new * scale):
        away, centre = literal.distances(z, 200)
        torch.testing.assert_close(found.nearest[index], away.min(), rtol=1e-8, atol=1e-8)
        assert found.closest[index] == away.argmin()
        torch.testing.assert_close(found.centre[index], centre, rtol=1e-8, atol=1e-8)


def test_a_mean_of_few_samples_moves_most() -> None:
    x, y = samples(2000)
    keep = (y != 0) | (torch.arange(2000) < 20)
    answer = Discriminant(statistics(x[keep], y[keep]), ones(), MIXED)
    assert answer.weights[0] < 10
    assert answer.kept.argmin() == 0
    assert float(answer.kept[1:].min()) > 0.95


def test_class_means_of_few_samples_are_no_farther_than_others() -> None:
    """Without the noise of the means, new samples are as far from them as from means of many samples."""
    generator = torch.Generator().manual_seed(0)
    y = torch.tensor([0] * 3 + [1] * 1000)
    away = torch.zeros(2)
    for _ in range(50):
        x, new = (torch.randn(n, 30, generator=generator, dtype=torch.float64) for n in (1003, 200))
        measured = Discriminant(statistics(x, y), ones(30), Setting(1.0, 1.0, 1.0, (1.0, 0, 0, 0))).measured(new)
        away += (measured.itself[:, None] - 2 * measured.plain).mean(0)
    assert abs(away[0] / away[1] - 1) < 0.05


@pytest.mark.parametrize("times", [1.0, 1e4, 1e8, 1e12])
def test_dependent_features_have_an_inverse_however_many_samples_there_are(times: float) -> None:
    """The sum of one-hot features is always 1. Rounding errors of their scatter grow with the samples."""
    labels = torch.arange(1000)
    x, y = torch.nn.functional.one_hot(labels % 5).double(), (labels % 5 % 2)
    weights, means, scatter = statistics(x, y)
    summary = Summary(times * weights, means, times * scatter)
    (setting,) = choose([summary], [x[:100]], y[:100])
    answer = Discriminant(summary, ones(5), setting)
    assert torch.equal(answer.scores(x).argmax(1), y)
    assert torch.equal(answer.leave_out(x[:100], y[:100]).scores.argmax(1), y[:100])


@pytest.mark.parametrize("setting", [PLAIN, MIXED], ids=["plain", "mixed"])
def test_leave_one_out_is_that_of_statistics_without_the_sample(setting: Setting) -> None:
    """The literal way: remove the sample from the sums, and invert again."""
    x, y = samples(60)
    scale, every = scales(), torch.arange(60)
    answer = Discriminant(statistics(x, y), scale, setting)
    found = answer.leave_out(x, y)
    distances = found.distances(1.0)
    for index in range(60):
        literal, z = Literal((x * scale)[every != index], y[every != index], setting, answer.noise), x[index] * scale
        expected = literal.scores(z, 60)
        assert_scores(found.scores[index], expected, 1e-7)
        away, centre = literal.distances(z, 60)
        length = 60 * (z - literal.centre) @ literal.inverse @ (z - literal.centre)
        torch.testing.assert_close(found.itself[index], length, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(found.itself[index] - 2 * found.plain[index], away, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(distances.nearest[index], away.min(), rtol=1e-7, atol=1e-7)
        assert distances.closest[index] == away.argmin()
        torch.testing.assert_close(found.centre[index], centre, rtol=1e-7, atol=1e-7)


def test_scores_of_several_discriminants_are_added_and_their_distances_are_a_mean() -> None:
    x, y = samples(60)
    parts = [
        Discriminant(statistics(x[:, :width], y), ones(width), setting) for width, setting in ((5, MIXED), (12, PLAIN))
    ]
    one, other = (part.measured(x) for part in parts)
    both = added([(0.25, one), (0.5, other)])
    torch.testing.assert_close(both.scores, one.scores + other.scores)
    for index in (1, 2, 3):
        torch.testing.assert_close(both[index], (one[index] + 2 * other[index]) / 3)
    assert added([(0.3, one)]) is one


def assert_same_answers(found: Discriminant, expected: Discriminant, x: Tensor, y: Tensor) -> None:
    torch.testing.assert_close(found.inverse.matrix(), expected.inverse.matrix(), rtol=1e-8, atol=1e-10)
    for one, other in (
        (found.measured(x), expected.measured(x)),
        (found.leave_out(x, y), expected.leave_out(x, y)),
    ):
        assert_scores(one.scores, other.scores, 1e-7)
        torch.testing.assert_close(one[1:], other[1:], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("size", [1, 2, 20])
def test_an_update_is_a_new_discriminant_with_the_same_setting(size: int) -> None:
    x, y = samples(140)
    before = statistics(x[:100], y[:100])
    answer = Discriminant(before, scales(), MIXED)
    for end in range(100 + size, 141, size):
        after = statistics(x[:end], y[:end])
        if size == 1:
            n, label = before.weights[y[end - 1]], y[end - 1]
            rows = ((x[end - 1] - before.means[label]) * (n / (n + 1)).sqrt())[None]
        else:
            rows = rows_between(before, after)
        answer.update(rows, after.weights, after.means)
        before = after
    assert_same_answers(answer, Discriminant(before, scales(), MIXED), x[:30], y[:30])


def test_a_new_class_may_come_with_an_update() -> None:
    x, y = samples(120)
    first = (y != 2) & (torch.arange(120) < 100)
    places = torch.tensor([0, 1, 3, 4])
    before = statistics(x[first], torch.searchsorted(places, y[first]))
    answer = Discriminant(before, scales(), MIXED)
    answer.make_room(places, 5)
    after = statistics(x, y)
    answer.update(rows_between(before, after), after.weights, after.means)
    assert_same_answers(answer, Discriminant(after, scales(), MIXED), x[:30], y[:30])


def test_a_discriminant_of_fewer_features_takes_its_part_of_a_row() -> None:
    x, y = samples(101)
    before, after = statistics(x[:100], y[:100]), statistics(x, y)
    answer = Discriminant(before.part(slice(5)), ones(5), MIXED)
    n = before.weights[y[100]]
    answer.update(((x[100] - before.means[y[100]]) * (n / (n + 1)).sqrt())[None], after.weights, after.means[:, :5])
    assert_same_answers(answer, Discriminant(after.part(slice(5)), ones(5), MIXED), x[:30], y[:30])


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


@pytest.mark.parametrize("count", [5, 60, 256])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 3.1])
def test_the_temperature_is_the_mean_by_its_likelihood(count: int, temperature: float) -> None:
    """The literal way on a grid that is ten times as fine."""
    generator = torch.Generator().manual_seed(1)
    scores = 4 * torch.randn(count, 5, generator=generator, dtype=torch.float64)
    y = torch.multinomial(probabilities(scores / temperature), 1, generator=generator)[:, 0]
    weights, logs = [], []
    for step in range(-40, 41):
        tried = 1.3 * 2 ** (step / 10)
        likelihood = probabilities(scores / tried)[torch.arange(count), y].log().sum()
        logs.append(math.log(tried))
        weights.append(float(likelihood) - (math.log(tried / 1.3) / 0.5) ** 2 / 2)
    largest = max(weights)
    weights = [math.exp(weight - largest) for weight in weights]
    expected = math.exp(sum(map(mul, weights, logs)) / sum(weights))
    assert fitted_temperature(1.3, scores, y) == pytest.approx(expected, rel=0.02)


def test_temperatures_are_fitted_to_the_scores_of_the_discriminants(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = samples(100)
    z = torch.cat([x, x.square()], 1)
    seen: list[Tensor] = []

    def fitted(expected: float, scores: Tensor, labels: Tensor) -> float:
        assert expected == 1
        assert torch.equal(labels, y)
        seen.append(scores)
        return 2.0

    monkeypatch.setattr(criterion, "fitted_temperature", fitted)
    monkeypatch.setattr(criterion, "LEAST", -0.1)  # so that both sets count
    parts = (x, z)
    settings = choose([statistics(part, y) for part in parts], parts, y)
    members = [
        Discriminant(statistics(part, y), ones(part.shape[1]), setting)
        for part, setting in zip(parts, settings, strict=True)
    ]
    found = added([(each.setting.share, each.leave_out(part, y)) for each, part in zip(members, parts, strict=True)])
    assert_scores(found.scores, seen[0] / 2, 1e-6)


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
