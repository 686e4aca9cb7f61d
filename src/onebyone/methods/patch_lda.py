"""Streaming linear discriminant analysis of fixed features."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from onebyone.data import Spec
from onebyone.errors import UsageError
from onebyone.memory import Moments
from onebyone.methods.options import BudgetOptions
from onebyone.methods.registry import register
from onebyone.methods.warm_up import WarmUpLearner
from onebyone.nets import Directions, Patches
from onebyone.options import option
from onebyone.seeding import generator

MEGABYTE = 1_000_000
LEAST = 1e-3  # shrinkage with many samples: features are not normally distributed


@dataclass(frozen=True, kw_only=True)
class PatchLDAOptions(BudgetOptions):
    shrinkage: float = option(
        0.0,
        "shrinkage of the covariance, as in scikit-learn; 0: by the number of samples",
        low=0,
        high=1,
    )
    first_samples: int = option(200, "vectors that estimate the scale of each value; not used for images", low=1)
    patch: int = option(8, "side of a filter in pixels; at most half of the image", low=1)
    stride: int = option(0, "rows between patches; 0: 1 if the budget is below a megabyte, else 2, for speed", low=0)
    threshold: float = option(1.0, "threshold of a filter's response, positive or negative", low=0)


@register("patch-lda", PatchLDAOptions, section="not in the paper")
class PatchLDA(WarmUpLearner[PatchLDAOptions]):
    """No network, no gradient, no stored image: class means and one covariance of the responses of fixed filters.

    The order of the stream does not matter, so nothing is forgotten. Filters suit natural images in general and are
    computed before any is seen (for vectors: random directions). Scores are those of linear discriminant analysis,
    equal to scikit-learn's with the same features and shrinkage.

    Vectors have to be standardised. The first ones are stored until there are enough to estimate the scale, in the
    bytes that the statistics will use, so that the budget is never exceeded. Until then answers are computed from the
    samples so far.

    There is no loss: ``observe`` returns zero. Larger batches give the same statistics, faster.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = PatchLDA(PatchLDAOptions(budget=50_000), digits.spec)
    >>> loss = learner.observe(digits.train_x, digits.train_y)
    >>> learner.memory_bytes <= 50_000, bool((learner.predict(digits.test_x) == digits.test_y).float().mean() > 0.95)
    (True, True)
    """

    def __init__(self, options: PatchLDAOptions, spec: Spec, seed: int = 0, device: torch.device | str = "cpu") -> None:
        options = options.budgeted(spec)
        super().__init__(options, spec, seed, device)
        extractor, moments = self.parts(self.affordable())
        extractor.fit(generator(seed, "weights"))  # computed on the CPU: the same filters on every device
        self.extractor, self.moments = extractor.to(device), moments.to(device)
        self.warm_up = 0 if spec.is_image else self.first_samples()
        self.seen = 0  # samples so far, as a plain number: known without reading a tensor
        self.register_load_state_dict_post_hook(PatchLDA.restore_counters)  # type: ignore[no-untyped-call]

    def first_samples(self) -> int:
        """How many vectors are stored first; fewer than ``first_samples`` if the budget holds fewer."""
        fit = min(self.options.first_samples, *(len(room) for room in self.waiting()))
        if fit == 0:
            raise UsageError(
                f"budget is {self.options.budget} bytes, and statistics of this size cannot store a first vector of "
                f"{self.spec.sample_bytes} bytes; raise the budget"
            )
        return fit

    def parts(self, filters: int) -> tuple[Patches | Directions, Moments]:
        """Feature extractor and statistics with this number of filters."""
        options, shape = self.options, self.spec.shape
        extractor: Patches | Directions
        if self.spec.is_image:
            # By the budget, not by the number of filters, which falls when room for classes grows.
            stride = options.stride or (1 if options.budget < MEGABYTE else 2)
            mirrored = self.spec.augmentation.flip
            extractor = Patches(shape, filters, options.patch, stride, options.threshold, mirrored)
        else:
            extractor = Directions(shape, filters)
        return extractor, Moments(extractor.width, self.spec.num_classes)

    def affordable(self) -> int:
        """The number of filters that fit into the budget; none raises a ``UsageError``."""

        def size(filters: int) -> int:
            with torch.device("meta"):  # shapes only
                return nbytes(*self.parts(filters))

        budget = self.options.budget
        if size(1) > budget:
            raise UsageError(f"budget is {budget} bytes; with these samples and classes it must be at least {size(1)}")
        # The covariance alone takes more bytes than the square of that number, which bounds the search.
        return bisect_right(range(1, math.isqrt(budget) + 1), budget, key=size)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the statistics, without the solution, which is computed from them."""
        return nbytes(self.extractor, self.moments)

    def restore_counters(self, keys: object = None) -> None:
        """Set the plain numbers that a loaded state implies."""
        self.seen = int(self.counts.sum())
        if self.moments.counts.any():  # a learner that grew may have a longer warm-up than the one before it
            self.warm_up = min(self.warm_up, self.seen)

    @torch.no_grad()
    def take_over(self, old: Self) -> None:
        """Continue as ``old``. Room for more classes takes filters away; statistics of the others are kept."""
        self.generator.set_state(old.generator.get_state())
        if old.seen < old.warm_up:
            x, y = (room[: old.seen] for room in old.waiting())
            self.observe(x, y.long())
        else:
            for new, had in zip(self.extractor.buffers(), old.extractor.buffers(), strict=True):
                new.copy_(had[tuple(slice(size) for size in new.shape)])
            # Features are ordered by region and sign, and then by filter.
            columns = torch.arange(old.extractor.width).reshape(-1, old.extractor.count)[:, : self.extractor.count]
            columns = columns.flatten().to(self.device)
            means = torch.zeros(self.moments.mean_codes.shape, dtype=torch.float64, device=self.device)
            means[: len(old.counts)] = old.moments.means()[:, columns]
            self.moments.counts[: len(old.counts)] = old.moments.counts
            self.moments.set_means(self.moments.counts, means)
            self.moments.set_covariance(old.moments.covariance()[columns][:, columns])
        self.counts[: len(old.counts)] = old.counts
        self.steps.copy_(old.steps)
        self.restore_counters()

    @torch.no_grad()
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        self.count(y)
        early = max(0, self.warm_up - self.seen)
        if early:
            for room, values in zip(self.waiting(), (x, y), strict=True):
                room[self.seen : self.warm_up][: len(y)] = values[:early]
        self.seen += len(y)
        if early and self.seen >= self.warm_up:
            self.end_warm_up()
        if self.seen > self.warm_up:
            self.learn(x[early:], y[early:])
        return torch.zeros((), device=self.device)

    def repeat(self, x: Tensor, y: Tensor) -> Tensor:
        """Do nothing: the samples are in the statistics already."""
        return torch.zeros((), device=self.device)

    def waiting(self) -> tuple[Tensor, Tensor]:
        """Buffers for the first samples and their labels, in the bytes of the statistics, which are still empty."""
        size, shape = math.prod(self.spec.shape), self.spec.shape
        room = self.moments.covariance_codes.view(self.spec.dtype).flatten()
        return room[: len(room) // size * size].reshape(-1, *shape), self.moments.mean_codes.flatten()

    def sample_counts(self) -> list[Tensor]:
        return [*super().sample_counts(), self.moments.counts]

    def kept_labels(self) -> list[Tensor]:
        """Labels of the first samples while they are stored; none after the warm-up."""
        return [self.waiting()[1][: self.seen if self.seen < self.warm_up else 0]]

    @property
    def filters(self) -> int:
        return self.extractor.count

    def end_warm_up(self) -> None:
        """Estimate the scale from the stored vectors, and learn them."""
        x, y = (room[: self.warm_up].clone() for room in self.waiting())
        for room in self.waiting():
            room.zero_()
        assert isinstance(self.extractor, Directions)
        self.extractor.standardise(self.scaled(x))
        self.learn(x, y.long())

    def learn(self, x: Tensor, y: Tensor) -> None:
        for part, labels in zip(x.split(self.spec.chunk), y.split(self.spec.chunk), strict=True):
            self.moments.add(self.features(part), labels)

    def scaled(self, x: Tensor) -> Tensor:
        """Float images are divided by their largest value: their scale is unknown, and squares could overflow."""
        if not self.spec.is_image or x.dtype == torch.uint8:
            return super().scaled(x)
        return x / x.abs().amax((1, 2, 3), keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)

    def features(self, x: Tensor) -> Tensor:
        features: Tensor = self.extractor(self.scaled(x))
        return features

    def scores(self, x: Tensor, chunk: int | None = None) -> Tensor:
        return super(PatchLDA, self.ready()).scores(x, chunk)

    @torch.no_grad()
    def ready(self) -> Self:
        """This learner, or during the warm-up a copy that ends it with the samples so far."""
        if self.seen >= self.warm_up:
            return self
        copy = type(self)(self.options, self.spec, device=self.device)
        copy.load_state_dict(self.state_dict())
        copy.warm_up = copy.seen
        if copy.seen:
            copy.end_warm_up()
        return copy

    def readout(self) -> Callable[[Tensor], Tensor]:
        weights, offsets = self.reuse(self.solve)
        return lambda features: features.double() @ weights + offsets

    def solve(self) -> tuple[Tensor, Tensor]:
        """Weights [d, C] and offsets [C] of linear discriminant analysis; priors are the observed class frequencies."""
        means, covariance = self.moments.means(), self.moments.covariance()
        share = self.options.shrinkage or oracle_shrinkage(covariance, self.counts.sum()).clamp(min=LEAST)
        variance = covariance.diagonal().mean()
        covariance *= 1 - share
        covariance.diagonal().add_((share * variance).where(variance > 0, 1.0))  # one sample: the nearest mean
        root, failed = torch.linalg.cholesky_ex(covariance)
        if failed:
            raise UsageError(
                f"with shrinkage {float(share):.3g} the covariance has no inverse; raise it or leave it out"
            )
        weights = torch.cholesky_solve(means.T, root).contiguous()
        frequency = self.counts.double() / self.counts.sum()
        return weights, frequency.log() - (means.T * weights).sum(0) / 2


def oracle_shrinkage(covariance: Tensor, samples: Tensor) -> Tensor:
    """The best shrinkage for normally distributed samples (Chen et al., 2010); larger with fewer samples.

    scikit-learn's ``oas`` gives the same.

    >>> oracle_shrinkage(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor(9))
    tensor(1.)
    """
    square, variance = covariance.square().mean(), covariance.diagonal().mean().square()
    excess = (samples + 1) * (square - variance / len(covariance))
    return ((square + variance) / excess).where(excess > 0, 1.0).clamp(max=1)


def nbytes(*parts: nn.Module) -> int:
    return sum(tensor.nbytes for part in parts for tensor in part.state_dict().values())
