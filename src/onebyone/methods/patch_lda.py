"""Streaming statistics: linear discriminant analysis of what fixed filters answer."""

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
LEAST = 1e-3  # of shrinkage, however many samples there are: features are not normally distributed


@dataclass(frozen=True, kw_only=True)
class PatchLDAOptions(BudgetOptions):
    shrinkage: float = option(
        0.0,
        "share of the covariance that gives way to its mean variance, as in scikit-learn; 0: by the number of samples",
        low=0,
        high=1,
    )
    first_samples: int = option(200, "vectors that say what the unit of each feature is; not for images", low=1)
    patch: int = option(8, "pixels of a filter's side; at most half of the image", low=1)
    stride: int = option(
        0, "patches begin in every such row; 0: 1 if the budget is below a megabyte, else 2, for speed", low=0
    )
    threshold: float = option(1.0, "what an answer of a filter has to exceed, on either side", low=0)


@register("patch-lda", PatchLDAOptions, section="not in the paper")
class PatchLDA(WarmUpLearner[PatchLDAOptions]):
    """No network, no gradient, no stored image: class means and one covariance of what fixed filters answer.

    The order of the stream does not matter, so nothing is forgotten. Filters are made for natural images in general,
    before any is seen (for vectors: random directions). The answer is that of linear discriminant analysis:
    scikit-learn's, with the same features and shrinkage, gives the same scores.

    Vectors have to be standardised: the first ones wait until there are enough of them to say how, in the memory that
    the statistics will take, so that bytes in use never exceed the budget. A learner that is asked before answers with
    those it has so far.

    There is no loss: ``observe`` gives zero. Larger batches give the same statistics, faster.

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
        extractor.fit(generator(seed, "weights"))  # drawn on the CPU: the same filters on every device
        self.extractor, self.moments = extractor.to(device), moments.to(device)
        self.warm_up = 0 if spec.is_image else self.first_samples()
        self.seen = 0  # samples so far, while that matters: known without looking at a value
        self.register_load_state_dict_post_hook(PatchLDA.wake)  # type: ignore[no-untyped-call]

    def first_samples(self) -> int:
        """How many vectors wait; fewer than was asked for if the budget holds fewer."""
        fit = min(self.options.first_samples, *(len(room) for room in self.waiting()))
        if fit == 0:
            raise UsageError(
                f"budget is {self.options.budget} bytes, and statistics that fit into it have no place for a first "
                f"vector of {self.spec.sample_bytes} to wait in; raise the budget"
            )
        return fit

    def parts(self, filters: int) -> tuple[Patches | Directions, Moments]:
        """What is kept, with so many filters."""
        options, shape = self.options, self.spec.shape
        extractor: Patches | Directions
        if self.spec.is_image:
            # By the budget and not the filters, of which there are fewer when room for classes grows.
            stride = options.stride or (1 if options.budget < MEGABYTE else 2)
            mirrored = self.spec.augmentation.flip
            extractor = Patches(shape, filters, options.patch, stride, options.threshold, mirrored)
        else:
            extractor = Directions(shape, filters)
        return extractor, Moments(extractor.width, self.spec.num_classes)

    def affordable(self) -> int:
        """How many filters the budget allows; at least one."""

        def size(filters: int) -> int:
            with torch.device("meta"):  # shapes only
                return nbytes(*self.parts(filters))

        budget = self.options.budget
        if size(1) > budget:
            raise UsageError(f"budget is {budget} bytes; with these samples and classes it must be at least {size(1)}")
        # The covariance alone takes more bytes than the square of their number: more of them need not be tried.
        return bisect_right(range(1, math.isqrt(budget) + 1), budget, key=size)

    @property
    def memory_bytes(self) -> int:
        """Of what is kept; what an answer is computed with is found again from that."""
        return nbytes(self.extractor, self.moments)

    def wake(self, keys: object = None) -> None:
        """Begin where a loaded state ends."""
        self.seen = int(self.counts.sum())
        if self.moments.counts.any():  # one that grew may have room for more to wait than it waited for
            self.warm_up = min(self.warm_up, self.seen)

    @torch.no_grad()
    def take_over(self, old: Self) -> None:
        """Go on as ``old``; room for more classes is paid for with filters, and what the others answered is kept."""
        self.generator.set_state(old.generator.get_state())
        if old.seen < old.warm_up:
            x, y = (room[: old.seen] for room in old.waiting())
            self.observe(x, y.long())
        else:
            for new, had in zip(self.extractor.buffers(), old.extractor.buffers(), strict=True):
                new.copy_(had[tuple(slice(size) for size in new.shape)])
            # Features are laid out by region and side, and then by filter.
            columns = torch.arange(old.extractor.width).reshape(-1, old.extractor.count)[:, : self.extractor.count]
            columns = columns.flatten().to(self.device)
            means = torch.zeros(self.moments.mean_codes.shape, dtype=torch.float64, device=self.device)
            means[: len(old.counts)] = old.moments.means()[:, columns]
            self.moments.counts[: len(old.counts)] = old.moments.counts
            self.moments.set_means(self.moments.counts, means)
            self.moments.set_covariance(old.moments.covariance()[columns][:, columns])
        self.counts[: len(old.counts)] = old.counts
        self.steps.copy_(old.steps)
        self.wake()

    @torch.no_grad()
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        self.count(y)
        early = max(0, self.warm_up - self.seen)
        if early:
            for room, values in zip(self.waiting(), (x, y), strict=True):
                room[self.seen : self.warm_up][: len(y)] = values[:early]
        self.seen += len(y)
        if early and self.seen >= self.warm_up:
            self.settle()
        if self.seen > self.warm_up:
            self.learn(x[early:], y[early:])
        return torch.zeros((), device=self.device)

    def repeat(self, x: Tensor, y: Tensor) -> Tensor:
        """Nothing: they are in the statistics, which would take them for so many more samples."""
        return torch.zeros((), device=self.device)

    def waiting(self) -> tuple[Tensor, Tensor]:
        """Room for the first samples and their labels, in the memory of statistics that there are none of yet."""
        size, shape = math.prod(self.spec.shape), self.spec.shape
        room = self.moments.covariance_codes.view(self.spec.dtype).flatten()
        return room[: len(room) // size * size].reshape(-1, *shape), self.moments.mean_codes.flatten()

    def sample_counts(self) -> list[Tensor]:
        return [*super().sample_counts(), self.moments.counts]

    def kept_labels(self) -> list[Tensor]:
        """Of the samples that wait; none once there have been enough."""
        return [self.waiting()[1][: self.seen if self.seen < self.warm_up else 0]]

    @property
    def filters(self) -> int:
        return self.extractor.count

    def settle(self) -> None:
        """Standardise by the vectors that wait, and learn from these."""
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
        """Images of numbers by the largest of each: their unit says nothing, and squares of huge ones are infinite."""
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
        """A learner of the same making that is content with the samples so far, while there are too few."""
        if self.seen >= self.warm_up:
            return self
        copy = type(self)(self.options, self.spec, device=self.device)
        copy.load_state_dict(self.state_dict())
        copy.warm_up = copy.seen
        if copy.seen:
            copy.settle()
        return copy

    def readout(self) -> Callable[[Tensor], Tensor]:
        weights, offsets = self.reuse(self.solve)
        return lambda features: features.double() @ weights + offsets

    def solve(self) -> tuple[Tensor, Tensor]:
        """[d, C] and [C]: linear discriminant analysis with the classes as frequent as they were."""
        means, covariance = self.moments.means(), self.moments.covariance()
        share = self.options.shrinkage or oracle_shrinkage(covariance, self.counts.sum()).clamp(min=LEAST)
        variance = covariance.diagonal().mean()
        covariance *= 1 - share
        covariance.diagonal().add_((share * variance).where(variance > 0, 1.0))  # of one sample: the nearest mean
        root, failed = torch.linalg.cholesky_ex(covariance)
        if failed:
            raise UsageError(
                f"with a shrinkage of {float(share):.3g} the covariance has no inverse; raise it or leave it out"
            )
        weights = torch.cholesky_solve(means.T, root).contiguous()
        frequency = self.counts.double() / self.counts.sum()
        return weights, frequency.log() - (means.T * weights).sum(0) / 2


def oracle_shrinkage(covariance: Tensor, samples: Tensor) -> Tensor:
    """The share that is best for normally distributed samples (Chen et al., 2010): the fewer there are, the more.

    scikit-learn's ``oas`` gives the same.

    >>> oracle_shrinkage(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor(9))
    tensor(1.)
    """
    square, variance = covariance.square().mean(), covariance.diagonal().mean().square()
    excess = (samples + 1) * (square - variance / len(covariance))
    return ((square + variance) / excess).where(excess > 0, 1.0).clamp(max=1)


def nbytes(*parts: nn.Module) -> int:
    return sum(tensor.nbytes for part in parts for tensor in part.state_dict().values())
