"""Shared by tests of `patch-lda`: a small learner, a function to train it, vectors of four classes, statistics."""

from typing import Any

import torch
from torch import Tensor

from onebyone import Spec, create
from onebyone.statistics.criterion import Summary
from onebyone.statistics.patch_lda import PatchLDA

VECTORS = Spec((20,), 4, torch.float32)


def make(spec: Spec, **options: Any) -> PatchLDA:
    learner = create("patch-lda", spec, **{"budget": 60_000} | options)
    assert isinstance(learner, PatchLDA)
    return learner


def filters_of(learner: PatchLDA) -> int:
    return learner.extractor.count


def learn(learner: PatchLDA, x: Tensor, y: Tensor, size: int = 100) -> PatchLDA:
    for part, labels in zip(x.split(size), y.split(size), strict=True):
        assert learner.observe(part, labels) == 0
    return learner


def vectors(count: int = 300) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(4, (count,), generator=generator)
    return torch.randn(count, 20, generator=generator) + torch.randn(4, 20, generator=generator)[y], y


def statistics(x: Tensor, y: Tensor) -> Summary:
    classes = int(y.max()) + 1
    weights = torch.bincount(y, minlength=classes).double()
    means = torch.stack([x[y == label].mean(0) for label in range(classes)])
    return Summary(weights, means, (x - means[y]).T @ (x - means[y]))
