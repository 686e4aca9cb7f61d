"""The criterion against literal transcriptions: samples are removed, sums computed again, and matrices inverted."""

import math

import pytest
import torch
from torch import Tensor

from made_statistics import statistics
from onebyone.statistics import criterion
from onebyone.statistics.criterion import (
    NOTHING,
    RIDGES,
    RIVALS,
    SHARPNESS,
    SHRINKAGES,
    Omission,
    Setting,
    Spectrum,
    Summary,
    candidate_losses,
    choose,
    mixture,
    rivals,
    thin_root,
    without_samples,
)


def samples(sizes: list[int], width: int, seed: int = 0, distance: float = 1.0) -> tuple[Tensor, Tensor]:
    """Correlated samples of classes of these sizes, far from zero."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    mixing = torch.randn(width, width, generator=generator, dtype=torch.float64)
    centres = distance * torch.randn(len(sizes), width, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(y), width, generator=generator, dtype=torch.float64)
    return (noise + centres[y]) @ mixing + 30, y


CASES = {
    "unequal": samples([40, 15, 6, 3, 2], 7),
    "two classes": samples([9, 2], 4),
    "classes of 2": samples([2] * 6, 5),
    "more features": samples([6, 7, 8], 20),
    "thin": samples([9, 5, 3, 2], 90),
    "many classes": samples([2, 3] * 27, 9, distance=2.0),
    "many classes, thin": samples([2, 3] * 27, 600, distance=2.0),
}


def literal_unit(x: Tensor) -> float:
    """The mean square of a feature around the mean of all samples."""
    mean = sum(row for row in x) / len(x)
    return float(sum(((row - mean) ** 2).sum() for row in x)) / x.numel()


class Literal:
    """Sums of all samples but one, and the inverse of their scatter with a ridge."""

    def __init__(self, x: Tensor, y: Tensor, index: int, ridge: float, noise: float = 0.0) -> None:
        self.noise = noise
        classes, rest = int(y.max()) + 1, [i for i in range(len(y)) if i != index]
        self.weights = [sum(1 for i in rest if y[i] == label) for label in range(classes)]
        self.means = [sum(x[i] for i in rest if y[i] == label) / weight for label, weight in enumerate(self.weights)]
        away = torch.stack([x[i] - self.means[int(y[i])] for i in rest])
        scatter = away.T @ away
        self.middle = sum(x[i] for i in rest) / len(rest)
        self.centre = sum(self.means) / classes
        self.inverse = torch.linalg.inv(scatter + ridge * torch.eye(len(scatter), dtype=torch.float64))
        self.x = x[index] - self.centre

    def used(self, shrinkage: float) -> list[Tensor]:
        """Class means, moved towards their mean, and relative to it."""
        return [
            weight / (weight + shrinkage) * (mean - self.centre)
            for weight, mean in zip(self.weights, self.means, strict=True)
        ]

    def scores(self, shrinkage: float) -> Tensor:
        squares = [
            u @ self.inverse @ u - (weight / (weight + shrinkage)) ** 2 * self.noise / weight
            for weight, u in zip(self.weights, self.used(shrinkage), strict=True)
        ]
        products = [self.x @ self.inverse @ u for u in self.used(shrinkage)]
        return torch.stack(products) - torch.stack(squares) / 2


def literal_noise(x: Tensor, y: Tensor, ridge: float) -> float:
    """The expected product of the mean of one sample with itself, with the inverse between."""
    weights, _, scatter = statistics(x, y)
    inverse = torch.linalg.inv(scatter + ridge * torch.eye(len(scatter), dtype=torch.float64))
    return float((inverse @ scatter).trace()) / (len(y) - len(weights))


def spectrum_of(x: Tensor, y: Tensor, kept: Tensor) -> Spectrum:
    spectrum = Spectrum(statistics(x, y), x[kept], y[kept])
    if int(y.max()) >= RIVALS:
        spectrum.near = rivals([spectrum])
    return spectrum


def few(y: Tensor) -> Tensor:
    """Indices of about 20 kept samples, the last sample first."""
    return torch.arange(len(y))[:: max(1, len(y) // 20)].clone().index_fill_(0, torch.tensor([0]), len(y) - 1)


@pytest.mark.parametrize("case", CASES)
def test_samples_are_left_out_as_if_they_had_not_been_learnt(case: str) -> None:
    x, y = CASES[case]
    kept = few(y)
    spectrum = spectrum_of(x, y, kept)
    assert (spectrum.means.shape[1] < x.shape[1]) == ("thin" in case)
    assert (spectrum.near is None) == (not case.startswith("many"))
    assert spectrum.unit == pytest.approx(literal_unit(x), rel=1e-12)
    tried = [0, 3, 7] if len(x) > 100 else range(len(RIDGES))
    found = list(spectrum.omissions(RIDGES[tried]))
    for omission, number in zip(found, tried, strict=True):
        ridge = float(RIDGES[number]) * len(x) * literal_unit(x)
        noise = literal_noise(x, y, ridge)
        expected = [Literal(x, y, int(index), ridge, noise) for index in kept]
        for shrinkage in SHRINKAGES:
            scores = torch.stack([each.scores(shrinkage) for each in expected])
            if spectrum.near is not None:
                scores = scores.gather(1, spectrum.near)
            own = spectrum.own[:, None]
            scores = scores - scores.gather(1, own)
            got = omission.scores(shrinkage)
            scale = float(scores.abs().max())
            torch.testing.assert_close(got - got.gather(1, own), scores, rtol=1e-6, atol=1e-6 * scale)


@pytest.mark.parametrize("case", ["many classes", "many classes, thin"])
def test_of_many_classes_the_nearest_are_rivals(case: str) -> None:
    x, y = CASES[case]
    kept = few(y)
    spectrum = spectrum_of(x, y, kept)
    assert spectrum.near is not None
    assert spectrum.near.shape == (len(kept), RIVALS)
    assert torch.equal(spectrum.near[:, 0], y[kept])
    ridge = 0.1 * len(x) * literal_unit(x)
    noise = literal_noise(x, y, ridge)
    for index, near in zip(kept[:5].tolist(), spectrum.near.tolist(), strict=False):
        scores = Literal(x, y, index, ridge, noise).scores(0.5)
        scores[y[index]] = math.inf
        assert set(near) == set(scores.topk(RIVALS).indices.tolist())


def test_lengths_are_those_without_the_sample() -> None:
    x, y = CASES["unequal"]
    weights, means, scatter = statistics(x, y)
    ridge = 0.1 * len(x) * literal_unit(x)
    inverse = torch.linalg.inv(scatter + ridge * torch.eye(7, dtype=torch.float64))
    z, apart = x - means.mean(0), means - means.mean(0)
    on_means = apart @ inverse @ apart.T
    omission = Omission(
        (z @ inverse * z).sum(1),
        z @ inverse @ apart.T,
        on_means[y],
        on_means.diagonal()[None],
        weights[None],
        y,
        5,
        0.0,
    )
    middle = weights @ apart / weights.sum()
    itself, away = omission.lengths(weights, middle @ inverse @ middle)
    for index in range(len(y)):
        literal = Literal(x, y, index, ridge)
        assert float(itself[index]) == pytest.approx(float(literal.x @ literal.inverse @ literal.x), rel=1e-9)
        off = x[index] - literal.middle
        assert float(away[index]) == pytest.approx(float(off @ literal.inverse @ off), rel=1e-9)


@pytest.mark.parametrize("case", ["unequal", "classes of 2", "thin", "many classes"])
def test_losses_are_those_of_a_softmax_with_the_sharpness(case: str) -> None:
    x, y = CASES[case]
    kept = few(y)
    spectrum = spectrum_of(x, y, kept)
    losses, sizes = candidate_losses(spectrum)
    assert losses.shape == (len(RIDGES), len(SHRINKAGES), len(SHARPNESS))
    for number in (1, 5):
        ridge = float(RIDGES[number]) * len(x) * literal_unit(x)
        noise = literal_noise(x, y, ridge)
        literal = [Literal(x, y, int(index), ridge, noise) for index in kept]
        for place, shrinkage in enumerate(SHRINKAGES):
            rows = [each.scores(shrinkage) for each in literal]
            columns = [int(label) for label in y[kept]]
            if spectrum.near is not None:
                rows = [row[near] for row, near in zip(rows, spectrum.near, strict=True)]
                columns = [0] * len(rows)
            size = math.sqrt(sum(float(row.var(correction=0)) for row in rows) / len(rows))
            assert float(sizes[number, place]) == pytest.approx(size, rel=1e-6)
            for sharpness, loss in zip(SHARPNESS, losses[number, place], strict=True):
                each = [
                    -float((sharpness * row / size).log_softmax(0)[own]) for row, own in zip(rows, columns, strict=True)
                ]
                assert float(loss) == pytest.approx(sum(each) / len(each), rel=1e-5, abs=1e-9)


# One discriminant for several candidates


def spectra() -> list[Spectrum]:
    return [spectrum_of(x, y, few(y)) for x, y in (CASES[case] for case in list(CASES)[:6])]


def test_a_single_candidate_is_itself() -> None:
    for spectrum in spectra():
        for number, ridge in enumerate(RIDGES):
            gains = torch.zeros(len(RIDGES), dtype=torch.float64)
            gains[number] = 3.7
            assert spectrum.pole(gains) == pytest.approx((3.7, float(ridge)), rel=1e-8)


def literal_sum(spectrum: Spectrum, gains: Tensor, ridges: Tensor) -> float:
    """How large the scores of these discriminants are: the mean of gain / (L + r) over directions, by energy."""
    size = float(spectrum.means.square().sum())
    total = 0.0
    values = [*(spectrum.values / (spectrum.total * spectrum.unit)).tolist()]
    for gain, ridge in zip(gains.tolist(), ridges.tolist(), strict=True):
        for value, mean in zip(values, spectrum.means.T, strict=True):
            weight = float(mean.square().sum()) / size + criterion.EVEN / spectrum.features
            total += weight * gain / (value + ridge)
        total += criterion.EVEN * (spectrum.features - len(values)) / spectrum.features * gain / ridge
    return total


def test_two_candidates_become_one_between_them() -> None:
    for spectrum in spectra():
        for low, high in ((0, 1), (2, 3), (0, 7), (3, 6)):
            last = 0.0
            for share in (0.01, 0.3, 0.7, 0.99):
                gains = torch.zeros(len(RIDGES), dtype=torch.float64)
                gains[low], gains[high] = 1 - share, share
                gain, ridge = spectrum.pole(gains)
                assert float(RIDGES[low]) <= ridge <= float(RIDGES[high])
                assert ridge > last
                last = ridge
                found = literal_sum(spectrum, torch.tensor([gain]), torch.tensor([ridge], dtype=torch.float64))
                assert found == pytest.approx(literal_sum(spectrum, gains, RIDGES), rel=1e-6)


def test_the_one_scores_nearly_as_the_sum_of_neighbouring_ridges() -> None:
    for spectrum in spectra():
        for number in range(len(RIDGES) - 1):
            gains = torch.zeros(len(RIDGES), dtype=torch.float64)
            gains[number], gains[number + 1] = 0.3, 0.7
            gain, ridge = spectrum.pole(gains)
            (one,) = spectrum.omissions(torch.tensor([ridge], dtype=torch.float64))
            first, second = spectrum.omissions(RIDGES[number : number + 2])
            expected = 0.3 * first.scores(0.5) + 0.7 * second.scores(0.5)
            away = gain * one.scores(0.5) - expected
            centred = expected - expected.mean(1, keepdim=True)
            assert float((away - away.mean(1, keepdim=True)).norm() / centred.norm()) < 0.5


def test_one_discriminant_is_continuous_in_the_candidates() -> None:
    generator = torch.Generator().manual_seed(0)
    for spectrum in spectra():
        for _ in range(5):
            gains = torch.randn(len(RIDGES), generator=generator, dtype=torch.float64).mul(4).exp()
            moved = gains * (1 + 1e-10 * torch.randn(len(RIDGES), generator=generator, dtype=torch.float64))
            assert spectrum.pole(moved) == pytest.approx(spectrum.pole(gains), rel=1e-6)


# The choice


def numbers(settings: list[Setting]) -> Tensor:
    return torch.tensor([[s.share, s.gain, s.ridge, *s.shrinkages] for s in settings], dtype=torch.float64)


def assert_same(found: list[Setting], expected: list[Setting], tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(numbers(found), numbers(expected), rtol=tolerance, atol=tolerance)


def normal() -> tuple[Tensor, Tensor]:
    return samples([30, 20, 10, 4, 2], 8)


def integer() -> tuple[Tensor, Tensor]:
    x, y = normal()
    return x.sub(30).round(), y


def repeated() -> tuple[Tensor, Tensor]:
    x, y = samples([4, 3, 2], 6)
    return x.repeat(5, 1), y.repeat(5)


def one_hot() -> tuple[Tensor, Tensor]:
    labels = torch.arange(120)
    return torch.nn.functional.one_hot(labels % 12).double(), labels % 12 % 5


def binary() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(80) % 4
    return (torch.rand(80, 15, generator=generator) < 0.2 + 0.6 * (y[:, None] == torch.arange(15) % 4)).double(), y


def thin() -> tuple[Tensor, Tensor]:
    return samples([9, 8, 5, 2], 200)


def few_distinct() -> tuple[Tensor, Tensor]:
    """Each class has one value only, repeated."""
    return torch.eye(5, dtype=torch.float64).repeat(4, 1), torch.arange(5).repeat(4)


def many_bits() -> tuple[Tensor, Tensor]:
    """More classes than rivals, and many of them equally far away."""
    y = torch.arange(64).repeat(3)
    return (y[:, None] >> torch.arange(6) & 1).double(), y


KINDS = (normal, integer, repeated, one_hot, binary, thin, few_distinct, many_bits)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shrinkage", [0.0, 0.3])
def test_settings_are_continuous_in_the_sums(kind, shrinkage: float) -> None:
    x, y = kind()
    weights, means, scatter = statistics(x, y)
    settings = choose([Summary(weights, means, scatter)], [x], y, shrinkage)
    assert bool(numbers(settings).isfinite().all())
    generator = torch.Generator().manual_seed(1)

    def moved(values: Tensor) -> Tensor:
        return values * (1 + 1e-12 * torch.randn(values.shape, generator=generator, dtype=torch.float64))

    for _ in range(3):
        noise = moved(torch.ones_like(scatter))
        again = Summary(moved(weights), moved(means), scatter * (noise + noise.T) / 2)
        assert_same(choose([again], [x], y, shrinkage), settings)


@pytest.mark.parametrize("kind", KINDS)
def test_settings_do_not_depend_on_the_unit_or_the_offset(kind) -> None:
    x, y = kind()
    settings = choose([statistics(x, y)], [x], y)
    assert_same(choose([statistics(x + 100, y)], [x + 100], y), settings)
    scaled = choose([statistics(1024 * x, y)], [1024 * x], y)
    assert_same([each._replace(ridge=each.ridge / 1024**2) for each in scaled], settings)


@pytest.mark.parametrize("shrinkage", [0.0, 0.3])
def test_the_space_of_few_samples_gives_the_same_settings(monkeypatch: pytest.MonkeyPatch, shrinkage: float) -> None:
    for x, y in (thin(), CASES["thin"], (thin()[0].repeat(2, 1), thin()[1].repeat(2))):
        summary = statistics(x, y)
        assert Spectrum(summary, x, y).means.shape[1] < x.shape[1]
        settings = choose([summary], [x], y, shrinkage)
        with monkeypatch.context() as patch:
            patch.setattr(criterion, "THIN", 0)
            assert Spectrum(summary, x, y).means.shape[1] == x.shape[1]
            assert_same(choose([summary], [x], y, shrinkage), settings)


def test_the_factorisation_of_few_samples() -> None:
    x, y = samples([10, 10, 10, 10], 300)
    scatter = statistics(x, y).scatter
    root = thin_root(scatter, 40)
    assert root is not None
    assert len(root) == 36
    torch.testing.assert_close(root.T @ root, scatter, rtol=0, atol=1e-10 * float(scatter.diagonal().max()))
    assert thin_root(scatter, 35) is None
    empty = thin_root(torch.zeros(5, 5, dtype=torch.float64), 3)
    assert empty is not None
    assert len(empty) == 0


def test_with_a_shrinkage_of_the_covariance_one_ridge_is_tried() -> None:
    x, y = normal()
    weights, means, scatter = statistics(x, y)
    for shrinkage in (0.01, 0.3, 0.9):
        spectrum = Spectrum(statistics(x, y), x, y, shrinkage)
        assert len(spectrum.ridges) == 1
        (setting,) = choose([statistics(x, y)], [x], y, shrinkage)
        # (1 - s) W + s t I is proportional to W + s / (1 - s) t I, where t is the mean of the diagonal.
        assert setting.ridge == pytest.approx(shrinkage / (1 - shrinkage) * float(scatter.trace()) / 8, rel=1e-9)
        assert setting.share == pytest.approx(1 - criterion.LEAST)
    (strongest,) = choose([Summary(weights, means, scatter)], [x], y, 1.0)
    assert math.isfinite(strongest.ridge)
    assert math.isfinite(strongest.gain)


def circles(count: int = 200) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(count) % 2
    angle = 2 * math.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    radius = 1 + y + 0.15 * torch.randn(count, generator=generator, dtype=torch.float64)
    return radius[:, None] * torch.stack([angle.cos(), angle.sin()], 1), y


def test_a_useful_set_of_features_gets_a_large_share_and_a_useless_one_a_small_share() -> None:
    x, y = circles()
    useful = torch.cat([x, x.square()], 1)
    settings = choose([statistics(each, y) for each in (x, useful)], [x, useful], y)
    assert settings[1].share > 0.98
    assert settings[0] == NOTHING
    x, y = normal()
    useless = torch.randn(len(y), 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    settings = choose([statistics(each, y) for each in (x, useless)], [x, useless], y)
    assert settings[1].share < 0.05
    assert settings[0].share > 0.9


def test_candidates_count_by_the_loss_of_all_kept_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The literal way: weights exp(-n loss / 2), the mean sharpness of each candidate, and one ridge for all."""
    monkeypatch.setattr(criterion, "fitted_temperature", lambda expected, scores, y: 1.0)
    x, y = normal()
    kept = few(y)
    sets = [x, torch.cat([x, x[:, :3].sub(30).square()], 1)]
    settings = choose([statistics(part, y) for part in sets], [part[kept] for part in sets], y[kept])
    spectra = [spectrum_of(part, y, kept) for part in sets]
    weights, total = [], 0.0
    for spectrum in spectra:
        losses, _ = candidate_losses(spectrum)
        powers = (RIDGES * len(y) / (criterion.EXPECTED * spectrum.features)).log10() / criterion.UNSURE
        weights.append((-len(kept) * losses / 2 - (powers**2 / 2)[:, None, None]).exp())
        total += float(weights[-1].sum())
    assert all(setting.gain > 0 for setting in settings)
    for setting, spectrum, weight in zip(settings, spectra, weights, strict=True):
        share = float(weight.sum()) / total
        assert setting.share == pytest.approx(share - criterion.LEAST)
        _, sizes = candidate_losses(spectrum)
        gains = torch.zeros(len(RIDGES), len(SHRINKAGES), dtype=torch.float64)
        for ridge in range(len(RIDGES)):
            for shrinkage in range(len(SHRINKAGES)):
                each = weight[ridge, shrinkage]
                sharpness = math.exp(sum(w * math.log(s) for w, s in zip(each, SHARPNESS, strict=True)) / each.sum())
                gains[ridge, shrinkage] = each.sum() / total * sharpness / sizes[ridge, shrinkage]
        gain, ridge = spectrum.pole(gains.sum(1) * (share - criterion.LEAST) / share)
        assert setting.gain * len(y) == pytest.approx(gain)
        assert setting.ridge == pytest.approx(ridge * len(y) * spectrum.unit)
        assert setting.shrinkages == pytest.approx((gains.sum(0) / gains.sum()).tolist())


def test_a_set_of_features_comes_and_goes_without_a_jump() -> None:
    """Noise is added to a useful set by degrees, until the other set counts, too."""
    x, y = circles(60)
    squares = x.square()
    noise = torch.randn(60, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def at(size: float) -> Tensor:
        second = torch.cat([x, squares + size * noise], 1)
        settings = choose([statistics(each, y) for each in (x, second)], [x, second], y)
        return torch.tensor([[each.share, each.gain] for each in settings])

    shares, gains = torch.stack([at(size) for size in torch.linspace(4, 9, 201).tolist()]).unbind(2)
    assert shares[0, 0] == gains[0, 0] == 0
    assert shares[-1, 0] > 0.001
    assert gains[-1, 0] > 0.05
    assert float(shares.diff(dim=0).abs().max()) < 1e-3
    assert float(gains.diff(dim=0).abs().max()) < 0.2


def test_a_useless_set_that_comes_first_is_left_out() -> None:
    x, y = normal()
    useless = torch.randn(len(y), 40, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    alone = choose([statistics(x, y)], [x], y)
    found = choose([statistics(each, y) for each in (useless, x)], [useless, x], y)
    assert found[0].gain == 0
    assert found[1].ridge == pytest.approx(alone[0].ridge, rel=1e-6)


def test_samples_of_classes_with_one_sample_are_not_left_out() -> None:
    x, y = samples([8, 6, 1, 3, 1], 4)
    several = (y != 2) & (y != 4)
    summary = statistics(x, y)
    assert_same(choose([summary], [x], y), choose([summary], [x[several]], y[several]), 1e-12)


def test_without_a_class_of_two_samples_nothing_is_chosen() -> None:
    x, y = samples([1, 1, 1], 4)
    summary = statistics(x, y)
    for sets in (1, 2):
        settings = choose([summary] * sets, [x] * sets, y)
        assert settings == [without_samples(summary), NOTHING][:sets]
    assert settings[0].ridge == pytest.approx(0.1 * 3 * literal_unit(x))
    assert settings[0].gain == pytest.approx(1 / (1 + 4))  # 4 features, 1 sample per class


def test_without_kept_samples_nothing_is_chosen() -> None:
    x, y = normal()
    summary = statistics(x, y)
    assert choose([summary], [x[:0]], y[:0]) == [without_samples(summary)]


def test_one_class_has_a_setting() -> None:
    for count in (1, 2, 30):
        x, y = samples([count], 4)
        settings = choose([statistics(x, y)], [x], y)
        assert settings == [without_samples(statistics(x, y))]
        assert settings[0].ridge > 0


@pytest.mark.parametrize("value", [0.0, 0.1, 7.0])
def test_equal_samples_have_finite_settings(value: float) -> None:
    x, y = torch.full((12, 3), value, dtype=torch.float64), torch.arange(12) % 3
    settings = choose([statistics(x, y)], [x], y)
    assert bool(numbers(settings).isfinite().all())
    assert settings[0].ridge > 0


def test_a_mixture_leaves_out_what_does_not_count() -> None:
    asked: list[float] = []

    def compute(shrinkage: float) -> Tensor:
        asked.append(shrinkage)
        return torch.tensor(shrinkage + 1)

    assert float(mixture(compute, (0.25, 0.0, 0.75, 0.0))) == 0.25 * 1 + 0.75 * 5
    assert asked == [0.0, 4.0]


def test_sets_of_features_are_added_class_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """One set tells the rows of a square of classes apart, the other set the columns, so the nearest differ."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(64).repeat(5)
    centres = 3 * torch.randn(8, 6, generator=generator, dtype=torch.float64)
    rows = centres[y // 8] + torch.randn(len(y), 6, generator=generator, dtype=torch.float64)
    columns = rows.view(5, 8, 8, 6).transpose(1, 2).flatten(0, 2)
    summaries = [statistics(part, y) for part in (rows, columns)]
    found = choose(summaries, [rows, columns], y)
    monkeypatch.setattr(criterion, "RIVALS", 64)
    for one, other in zip(found, choose(summaries, [rows, columns], y), strict=True):
        assert one.share == pytest.approx(other.share, abs=0.02)
        assert one.gain == pytest.approx(other.gain, rel=0.3)
