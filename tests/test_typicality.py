"""Typicality: a ratio of distances or a distance, divided by scales of classes where that helps."""

import math
from statistics import fmean, pvariance

import numpy as np
import pytest
import torch
from torch import Tensor

from made_statistics import statistics
from onebyone import OnlineClassifier
from onebyone.statistics import typicality
from onebyone.statistics.criterion import choose
from onebyone.statistics.discriminant import Discriminant
from onebyone.statistics.typicality import ClassScales, Distances, weight_of_ratio


def chosen(x: Tensor, y: Tensor) -> Discriminant:
    """The discriminant with the setting that is chosen for these samples."""
    summary = statistics(x, y)
    (setting,) = choose([summary], [x], y)
    return Discriminant(summary, torch.ones(x.shape[1], dtype=torch.float64), setting)


@pytest.mark.parametrize("as_ratio", [False, True])
def test_typicality_is_a_ratio_if_samples_differ_in_scale(as_ratio: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    y = torch.arange(400) % 5
    centres, noise = (torch.randn(n, 12, generator=generator, dtype=torch.float64) for n in (5, 400))
    x = noise + 2 * centres[y]
    if as_ratio:
        x *= torch.logspace(-0.5, 0.5, 400, dtype=torch.float64)[torch.randperm(400, generator=generator), None]
    answer = chosen(x, y)
    found = answer.leave_out(x, y)
    usual = float((found.itself - 2 * found.plain.amax(1)).mean())
    known = found.distances(usual)
    assert weight_of_ratio(known, found.plain, y) == as_ratio
    far_away = answer.measured(100 * x).distances(usual).typicality(as_ratio)
    assert float(far_away.max()) < float(known.typicality(as_ratio).quantile(0.05))


def literal_scales(values: list[float], y: list[int], classes: int) -> tuple[list[float], float]:
    """Scales of classes by the one-way random-effects model, and its ratio of variances."""
    logs = [math.log(value) for value in values]
    logs = [log - fmean(logs) for log in logs]
    groups = [[log for log, label in zip(logs, y, strict=True) if label == c] for c in range(classes)]
    filled = [group for group in groups if group]
    count, freedom = len(logs), len(filled) - 1
    within = sum(len(group) * pvariance(group) for group in filled) / (count - len(filled))
    square = sum(len(group) * fmean(group) ** 2 for group in filled) / freedom
    between = (square - within) / ((count - sum(len(group) ** 2 for group in filled) / count) / freedom)
    prior = max(within / between, typicality.PRIOR)
    return [math.exp(sum(group) / (len(group) + prior)) for group in groups], prior


def test_scales_are_those_of_random_effects() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.tensor([0] * 12 + [1] * 9 + [3] * 7)  # none of class 2
    values = torch.rand(28, generator=generator, dtype=torch.float64).add(0.2) * torch.tensor([1.0, 3, 1, 9])[y]
    closest = y.clone()
    closest[:3] = torch.tensor([1, 2, 3])
    found = ClassScales.of(Distances(values, closest, values, 1.0), False, y, 4)
    expected, prior = literal_scales(values.tolist(), y.tolist(), 4)
    assert found.every.tolist() == pytest.approx(expected)
    assert expected[2] == 1
    logs = values.log() - values.log().mean()
    for index in (0, 1, 5, 20):  # taken for another class, for one without samples, and right ones
        others = [float(logs[i]) for i in range(28) if y[i] == closest[index] and i != index]
        assert float(found.left_out[index]) == pytest.approx(math.exp(sum(others) / (len(others) + prior)))


@pytest.mark.parametrize("values", [[0.0] * 30, [1.0] * 30, [0.0] * 29 + [1.0], [2.0] * 15 + [5.0] * 15], ids=str)
def test_scales_of_equal_distances_are_finite(values: list[float]) -> None:
    distances = torch.tensor(values, dtype=torch.float64)
    y = torch.tensor([0] * 15 + [1] * 14 + [2])
    for classes in (3, 5):
        found = ClassScales.of(Distances(distances, y, distances, 1.0), False, y, classes)
        assert bool(found.every.isfinite().all())
        assert bool(found.left_out.isfinite().all())


def spread(wide: float, seed: int, count: int = 400) -> tuple[Tensor, Tensor]:
    """Samples of four classes, of which the first has ``wide`` times the standard deviation of the others."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 4
    centres = 12 * torch.eye(4, 10, dtype=torch.float64)
    deviations = torch.tensor([wide, 1.0, 1.0, 1.0], dtype=torch.float64)
    return centres[y] + deviations[y, None] * torch.randn(count, 10, generator=generator, dtype=torch.float64), y


def test_scales_are_used_if_classes_vary_differently_only() -> None:
    for wide in (1.0, 4.0):
        x, y = spread(wide, 0)
        scales = ClassScales.of(chosen(x, y).leave_out(x, y).distances(1.0), False, y, 4)
        assert bool((scales.every == 1).all()) == (wide == 1)
    assert scales.every.argmax() == 0


def test_samples_of_a_class_that_varies_more_are_turned_away_less_often_with_scales(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = spread(4, 0)
    new, labels = spread(4, 1, 2000)
    rates = []
    for least in (typicality.UNEVEN, 1e9):
        monkeypatch.setattr(typicality, "UNEVEN", least)
        clf = OnlineClassifier(unknown_rate=0.05).partial_fit(x.numpy(), y.numpy())
        away = clf.predict(new.numpy(), unknown=-1) == -1
        rates.append([float(away[labels.numpy() == label].mean()) for label in range(4)])
        far = 60 * np.eye(10)[5:]  # on none of the axes of the classes
        assert bool((clf.predict(far, unknown=-1) == -1).all())
    scaled, unscaled = rates
    assert scaled[0] < unscaled[0]
    assert max(scaled[1:]) > 0
    assert max(unscaled[1:]) == 0
