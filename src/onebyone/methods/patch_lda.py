"""Streaming linear discriminant analysis of fixed features."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from onebyone.data import Spec
from onebyone.errors import UsageError
from onebyone.memory import KeptSample, Moments
from onebyone.memory.moments import LARGEST_CODE
from onebyone.methods.discriminant import Discriminant, Member
from onebyone.methods.learner import Learner, LeftOut
from onebyone.methods.options import BudgetOptions
from onebyone.methods.projections import with_projections
from onebyone.methods.registry import register
from onebyone.methods.ridge import Statistics
from onebyone.methods.solution import Chosen, Solution, fingerprint, new_scatter
from onebyone.methods.temperature import probabilities
from onebyone.nets import LARGEST, Directions, Patches
from onebyone.options import option
from onebyone.seeding import derive
from onebyone.tensors import nbytes

MEGABYTE = 1_000_000
KEPT_SHARE = 0.03  # of the budget, for the samples that calibrate answers
MOST_KEPT = 256
MOST_PENDING = 100  # samples by which a solution is updated; with more it is computed again
FEW = 32  # samples of a call, up to which settings stay as they are until all samples have grown by this factor:
GROWTH = 1.2


@dataclass(frozen=True, kw_only=True)
class PatchLDAOptions(BudgetOptions):
    shrinkage: float = option(
        0.0,
        "shrinkage of the covariance, as in scikit-learn; 0: chosen by the statistics",
        low=0,
        high=1,
    )
    patch: int = option(8, "side of a filter in pixels; at most half of the image", low=1)
    stride: int = option(0, "2: every second patch; 0: 1 if the budget is below a megabyte, else 2, for speed", low=0)
    threshold: float = option(1.0, "threshold of a filter's response, positive or negative", low=0)


@register("patch-lda", PatchLDAOptions, section="not in the paper")
class PatchLDA(Learner[PatchLDAOptions]):
    """No network, no gradient: class means and one covariance of fixed features, and a few samples for calibration.

    The order of the stream does not matter, so nothing is forgotten. Features of images are responses of filters that
    suit natural images in general and are computed before any is seen. Features of vectors are their values, and
    projections on random directions if the budget has room for them. Scores are those of linear discriminant analysis
    with equal priors, shrunk class means, and a shrinkage of the covariance that the statistics choose
    (:class:`~onebyone.methods.discriminant.Discriminant`).

    All statistics are sums, so they can be merged, and samples can be removed. About 3 % of the budget holds random
    samples of every class. At any time, each of these is scored as if it had not been learnt, which gives an honest
    estimate of the accuracy, and the temperature that turns scores into probabilities.

    There is no loss: ``observe`` returns zero. Larger batches give the same statistics, faster.

    >>> from onebyone.data import load
    >>> digits = load("digits")
    >>> learner = PatchLDA(PatchLDAOptions(budget=50_000), digits.spec)
    >>> loss = learner.observe(digits.train_x, digits.train_y)
    >>> learner.memory_bytes <= 50_000, bool((learner.predict(digits.test_x) == digits.test_y).float().mean() > 0.95)
    (True, True)
    """

    steps_matter = False
    mergeable = leaves_out = takes_weights = own_typicality = True
    side: int = LARGEST  # pixels of the shorter side that patches see
    gain: float | None = None  # by which projections of an encoder's features must improve the separation
    one_unit: bool = False  # whether all features have the same unit

    def __init__(self, options: PatchLDAOptions, spec: Spec, seed: int = 0, device: torch.device | str = "cpu") -> None:
        options = options.budgeted(spec)
        super().__init__(options, spec, seed, device)
        self.build()
        extractor, moments, kept, chosen = self.affordable()
        extractor.fit(derive(seed, "weights"))  # computed on the CPU: the same filters on every device
        self.extractor, self.moments, self.kept = extractor.to(device), moments.to(device), kept.to(device)
        self.chosen = chosen.to(device)
        self._solution: Solution | None = None

    def build(self) -> None:
        """Create what the parts depend on."""

    @property
    def reads_patches(self) -> bool:
        """Whether features are those of patches of images, which are summed and kept as whole numbers."""
        return self.spec.is_image

    @property
    def keeps_samples(self) -> bool:
        """Whether samples themselves are kept, and not the features of images, which take fewer bytes if there are few.

        By the budget, not by the number of features, which falls when room for classes grows.
        """
        most_features = math.isqrt(self.options.budget // 2)  # their products take twice the square in bytes
        return not self.reads_patches or self.spec.sample_bytes < most_features

    def parts(self, filters: int, raw: bool = True) -> tuple[Patches | Directions, Moments, KeptSample]:
        """Feature extractor, statistics and kept samples with this number of filters."""
        options, shape, classes = self.options, self.spec.shape, self.spec.num_classes

        def kept(width: int, dtype: torch.dtype) -> KeptSample:
            width, dtype = (math.prod(shape), self.spec.dtype) if self.keeps_samples else (width, dtype)
            count = int(KEPT_SHARE * options.budget / (width * dtype.itemsize + 12))
            return KeptSample(min(MOST_KEPT, count), width, dtype)

        if self.reads_patches:
            # By the budget, not by the number of filters, which falls when room for classes grows.
            stride = options.stride or (1 if options.budget < MEGABYTE else 2)
            mirrored = self.spec.augmentation.flip
            patches = Patches(shape, filters, options.patch, stride, options.threshold, mirrored, self.side)
            return patches, Moments(patches.width, classes), kept(patches.width, torch.int8)
        directions = Directions(shape, filters, raw=raw)
        return directions, Moments(directions.width, classes, torch.float64), kept(0, self.spec.dtype)

    def affordable(self) -> tuple[Patches | Directions, Moments, KeptSample, Chosen]:
        """The parts with as many filters as fit into the budget; none raises a ``UsageError``."""
        budget = self.options.budget

        def parts(filters: int, raw: bool = True) -> tuple[Patches | Directions, Moments, KeptSample, Chosen]:
            extractor, moments, kept = self.parts(filters, raw)
            if isinstance(extractor, Patches):
                return extractor, moments, kept, Chosen(1, 1)  # all features have one factor
            projects = raw and filters > 0
            return extractor, moments, kept, Chosen(1 + projects, moments.width + projects * extractor.size)

        def size(filters: int, raw: bool = True) -> int:
            with torch.device("meta"):  # shapes only
                *counted, chosen = parts(filters, raw)
                return nbytes(*counted) + chosen.scales.nbytes

        raw = self.reads_patches or size(0) <= budget
        least = 0 if raw and not self.reads_patches else 1
        if (needed := size(least, raw)) > budget:
            raise UsageError(f"budget is {budget} bytes; with these samples and classes it must be at least {needed}")
        # The products alone take more bytes than the square of that number, which bounds the search.
        most = bisect_right(range(least, math.isqrt(budget) + 1), budget, key=lambda count: size(count, raw))
        return parts(least + most - 1, raw)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the statistics and kept samples, without the solution, which is computed from them."""
        return nbytes(self.extractor, self.moments, self.kept) + self.chosen.scales.nbytes

    @property
    def total_weights(self) -> Tensor:
        return self.moments.weights

    @property
    def filters(self) -> int:
        return 1 if self.raw else self.extractor.count  # projections are an addition to the values of vectors

    @property
    def raw(self) -> bool:
        """Whether the values of vectors are features themselves."""
        return isinstance(self.extractor, Directions) and self.extractor.raw

    def sample_counts(self) -> list[Tensor]:
        return [*super().sample_counts(), self.moments.weights]

    def kept_labels(self) -> list[Tensor]:
        return [self.kept.labels[self.kept.used()]]

    # Learning

    @torch.no_grad()
    def observe(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        followed = self.can_follow(len(y)) and weight is None
        self.count(y)
        size = self.chunk
        weights = [None] * len(x.split(size)) if weight is None else weight.split(size)
        for part, labels, amount in zip(x.split(size), y.split(size), weights, strict=True):
            read = self.read(part)
            features = self.codes(read)
            if followed and self._solution is not None:
                self._solution.pending.append(new_scatter(self.moments, features, labels))
            self.moments.add(features, labels, amount)
            values, identity = self.kept_form(part, read, features)
            self.kept.add(values, labels, amount, identity)
        self._solution = self._solution if followed else None
        if self._solution is not None:
            self._solution.key = self.state_key()
        return torch.zeros((), device=self.device)

    def repeat(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Do nothing: the samples are in the statistics already."""
        return torch.zeros((), device=self.device)

    def read(self, x: Tensor) -> Tensor:
        """[n, *shape] samples as they are stored -> what the extractor reads."""
        return self.scaled(x)

    def codes(self, read: Tensor) -> Tensor:
        """Features as they are summed: those of patches are rounded to whole numbers, so that sums are exact."""
        features: Tensor = self.extractor(read)
        return features.round().clamp(-LARGEST_CODE, LARGEST_CODE) if self.reads_patches else features

    def kept_form(self, x: Tensor, read: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """What is kept of samples, and the values that identify a sample."""
        values = x.flatten(1) if self.keeps_samples else features.to(torch.int8)
        return values, values

    def kept_features(self, values: Tensor) -> Tensor:
        """[k, d] features of kept samples."""
        return self.codes(self.read(values.unflatten(1, self.spec.shape))) if self.keeps_samples else values

    def scaled(self, x: Tensor) -> Tensor:
        """Float images are divided by their largest value: their scale is unknown, and squares could overflow."""
        if not self.spec.is_image or x.dtype == torch.uint8:
            return super().scaled(x)
        return x / x.abs().amax((1, 2, 3), keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)

    def features(self, x: Tensor) -> Tensor:
        return self.extractor(self.read(x))  # type: ignore[no-any-return]

    # Changes other than learning

    @torch.no_grad()
    def merge(self, other: Self) -> None:
        filters = zip(self.extractor.buffers(), other.extractor.buffers(), strict=True)
        if not all(torch.equal(*pair) for pair in filters):
            raise UsageError("the two have different filters; give both the same random_state, memory and options")
        self.chosen.drop()
        self.moments.merge(other.moments)
        self.kept.merge(other.kept)
        self.counts += other.counts
        self.steps += other.steps

    @torch.no_grad()
    def forget(self, x: Tensor, y: Tensor) -> None:
        self.chosen.drop()
        super().forget(x, y)
        before = self.moments.squares()
        minus, size = -torch.ones(len(y), dtype=torch.float64, device=y.device), self.chunk
        for part, labels, amount in zip(x.split(size), y.split(size), minus.split(size), strict=True):
            read = self.read(part)
            features = self.codes(read)
            self.moments.add(features, labels, amount)
            self.kept.remove(self.kept_form(part, read, features)[1], labels)
        self.moments.check_possible(before)

    @torch.no_grad()
    def forget_class(self, slot: int) -> None:
        self.chosen.drop()
        self.moments.forget_class(slot)
        self.kept.forget_class(slot)
        self.counts[slot] = 0

    @torch.no_grad()
    def unite(self, slot: int, into: int) -> None:
        self.chosen.drop()
        self.moments.unite(slot, into)
        self.kept.unite(slot, into)
        self.counts[into] += self.counts[slot]
        self.counts[slot] = 0

    @torch.no_grad()
    def reorder(self, slots: Tensor) -> None:
        for tensor in (self.counts, self.moments.weights, self.moments.sums):
            tensor.copy_(tensor[slots])
        self.kept.labels.copy_(slots.argsort()[self.kept.labels.long()].where(self.kept.used(), 0))

    @torch.no_grad()
    def take_over(self, old: Self) -> None:
        """Continue as ``old``. Room for more classes takes filters away; statistics of the others are kept."""
        if old.raw != self.raw:
            budget = self.options.budget
            raise UsageError(f"budget is {budget} bytes, too little for features of this length and that many classes")
        self.generator.set_state(old.generator.get_state())
        columns = old.extractor.columns(self.extractor.count).to(self.device)
        buffers = (extractor.state_dict().values() for extractor in (self.extractor, old.extractor))
        for new, had in zip(*buffers, strict=True):
            per_feature = had.dim() == 1 and len(had) == old.extractor.width
            kept = had[columns] if per_feature else had[tuple(slice(size) for size in new.shape)]
            new.zero_()[tuple(slice(size) for size in kept.shape)] = kept
        self.moments.take_over(old.moments, columns)
        values = old.kept.values if self.keeps_samples else old.kept.values[:, columns]
        self.kept.replace(old.kept.keys, values, old.kept.labels, old.kept.copies)
        self.counts[: len(old.counts)] = old.counts
        self.steps.copy_(old.steps)

    # Answers

    def readout(self) -> Callable[[Tensor], Tensor]:
        classes = self.spec.num_classes
        if not self.moments.weights.any():
            return lambda features: features.new_full((len(features), classes), float("-inf"), dtype=torch.float64)
        solution = self.solution()

        def scores(features: Tensor) -> Tensor:
            found = solution.scores(features)
            return found.new_full((found.shape[0], classes), float("-inf")).index_copy(1, solution.known, found)

        return scores

    def temperature(self) -> float:
        return self.solution().temperature if self.moments.weights.any() else 1.0

    def probabilities(self, scores: Tensor) -> Tensor:
        return probabilities(scores)

    def left_out(self) -> LeftOut | None:
        if not self.moments.weights.any():
            return None
        solution, found = self.solution(), self.solution().left_out
        scores = found.scores.new_full((len(found.y), self.spec.num_classes), float("-inf"))
        return LeftOut(scores.index_copy(1, solution.known, found.scores), solution.known[found.y], found.typicality)

    @torch.no_grad()
    def typicality(self, x: Tensor) -> Tensor:
        answer = self.solution()
        return torch.cat([answer.typicality(self.features(part)) for part in x.split(self.chunk)])

    def typicality_readout(self) -> Callable[[Tensor, Tensor], Tensor]:
        return self.solution().typicality_readout()

    def state_key(self) -> tuple[int, ...]:
        """Changes with every write to the state. Not computed on a GPU, where a solution is never used again."""
        return fingerprint(self.extractor, self.moments, self.kept) if self.device.type == "cpu" else ()

    def can_follow(self, samples: int) -> bool:
        """Whether the present solution can be updated by so many samples."""
        solution = self._solution
        return (
            solution is not None and solution.samples() + samples <= MOST_PENDING and solution.key == self.state_key()
        )

    def settings_serve(self) -> bool:
        """Whether the settings that were last chosen are used for the present samples."""
        # Values of another class may vary in other units. Responses of filters do not.
        classes = None if self.reads_patches else int((self.moments.weights > 0).sum())
        return self.chosen.serve(int(self.counts.sum()), classes, GROWTH)

    def settle(self, samples: int) -> None:
        if samples > FEW:
            self.chosen.drop()
        elif self.moments.weights.any() and not self.settings_serve():
            self.chosen.keep(int(self.counts.sum()), self.solution().members)

    @torch.no_grad()
    def solution(self) -> Solution:
        """The solution for the present statistics: the last one, that one updated, or a new one."""
        on_cpu, last = self.device.type == "cpu", self._solution
        if last is None or not on_cpu or last.key != self.state_key():
            last = None
        elif not last.pending:
            return last
        weights = self.moments.weights
        known = weights.nonzero()[:, 0]
        weights, means = weights[known], self.moments.means()[known]
        serve = on_cpu and self.settings_serve()
        if serve and last and last.can_continue(known):
            last.update(known, weights, means)
            self._solution = Solution(last.members, known, self, last)
            return self._solution
        values = self.extractor.size if isinstance(self.extractor, Directions) and self.raw else self.moments.width
        settings = (values, self.options.shrinkage, self.reads_patches, self.one_unit)
        statistics = Statistics(weights, means, self.moments.scatter(), self.moments.rounding())
        if serve:
            members: list[Member] = [
                (weight, Discriminant(statistics.part(slice(count)), *settings, like))
                for weight, count, like in self.chosen.settings()
            ]
        else:
            members = with_projections(
                statistics, values, self.extractor, lambda part: Discriminant(part, *settings), self.gain
            )
        self._solution = Solution(members, known, self)
        return self._solution

    def drop_solution(self) -> None:
        super().drop_solution()
        self._solution = None

    def refresh(self) -> None:
        super().refresh()
        self.chosen.drop()

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_solution": None}
