"""Streaming linear discriminant analysis of fixed features."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from onebyone.data import Spec
from onebyone.errors import UsageError, warn
from onebyone.methods.learner import Learner, LeftOut
from onebyone.methods.options import BudgetOptions
from onebyone.methods.registry import register
from onebyone.nets import LARGEST, Patches
from onebyone.options import option
from onebyone.seeding import derive
from onebyone.statistics.criterion import Summary, choose
from onebyone.statistics.discriminant import Discriminant
from onebyone.statistics.features import Directions
from onebyone.statistics.kept import KeptSample
from onebyone.statistics.solution import Chosen, Solution, new_scatter
from onebyone.statistics.sums import LARGEST_CODE, TINY, Moments
from onebyone.tensors import nbytes

MEGABYTE = 1_000_000
KEPT_SHARE = 0.03  # of the budget, for the samples that choose settings and calibrate answers
KEPT_VECTORS = 0.1  # the same for vectors, which are smaller
LARGEST_KEPT = 0.2  # the same for vectors, where a small budget holds few
MOST_KEPT = 256
MOST_SUMS = 2000  # of values of vectors that are too long: an answer takes seconds to prepare
MOST_DIRECTIONS = 500  # with two features each; more would gain a point at most, and take four times as long
FIRST = 50  # samples from which the units of values are taken before they are projected
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
    with equal priors.

    All statistics are sums, so they can be merged, and samples can be removed. A part of the budget holds random
    samples of every class. At any time, each of these is scored as if it had not been learnt. This gives an honest
    estimate of the accuracy, and it chooses how much the covariance and the class means are shrunk, how much
    projections count, and the temperature of probabilities (:mod:`onebyone.statistics.criterion`).

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
        # Samples that wait until the units of values are set, known without reading a tensor; None if none has to.
        self.waiting: int | None = 0 if isinstance(extractor, Directions) and extractor.needs_units else None
        self.register_load_state_dict_post_hook(PatchLDA.count_waiting)  # type: ignore[no-untyped-call]

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
            row, budget = width * dtype.itemsize + 20, options.budget
            # Vectors are few bytes, and their units need the first ones.
            share = KEPT_SHARE if self.reads_patches else max(KEPT_VECTORS, min(FIRST * row / budget, LARGEST_KEPT))
            return KeptSample(min(MOST_KEPT, round(share * budget) // row), width, dtype)

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
            projects = isinstance(extractor, Directions) and raw and filters > 0
            values = extractor.size if isinstance(extractor, Directions) and raw else moments.width
            factors = 1 if self.one_unit or self.reads_patches else values
            return extractor, moments, kept, Chosen(1 + projects, factors + projects)

        def size(filters: int, raw: bool = True) -> int:
            with torch.device("meta"):  # shapes only
                *counted, chosen = parts(filters, raw)
                return nbytes(*counted) + chosen.scales.nbytes

        raw = self.reads_patches or size(0) <= budget
        least = 0 if raw and not self.reads_patches else 1
        if (needed := size(least, raw)) > budget:
            raise UsageError(f"budget is {budget} bytes; with these samples and classes it must be at least {needed}")
        # The products alone take more bytes than the square of that number, which bounds the search.
        most = math.isqrt(budget)
        if not raw:
            most = min(MOST_SUMS, most)
        elif not self.reads_patches and not self.one_unit:
            most = MOST_DIRECTIONS
        filters = least + bisect_right(range(least, most + 1), budget, key=lambda count: size(count, raw)) - 1
        found = parts(filters, raw)
        if getattr(found[0], "needs_units", False) and len(found[2].keys) < FIRST:
            return parts(0, raw)  # the first samples are kept until their units are known
        return found

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
        followed = weight is None and self.can_follow(len(y))
        self.count(y)
        self._solution = self._solution if followed else None
        if self.waiting is not None:
            missing = max(FIRST - self.waiting, 0)
            self.waiting += len(y)
            self.learn(x[:missing], y[:missing], None if weight is None else weight[:missing])
            self.set_units()
            x, y, weight = x[missing:], y[missing:], None if weight is None else weight[missing:]
        self.learn(x, y, weight)
        return torch.zeros((), device=self.device)

    def learn(self, x: Tensor, y: Tensor, weight: Tensor | None) -> None:
        if not len(y):
            return
        size = self.chunk
        weights = [None] * len(x.split(size)) if weight is None else weight.split(size)
        for part, labels, amount in zip(x.split(size), y.split(size), weights, strict=True):
            read = self.read(part)
            features = self.codes(read)
            if self._solution is not None:
                self._solution.pending.append(new_scatter(self.moments, features, labels))
            self.moments.add(features, labels, amount)
            values, identity = self.kept_form(part, read, features)
            self.kept.add(values, labels, amount, identity)

    # Projections of vectors need units of the values. Until ``FIRST`` samples have come, all of them are kept, and
    # units and sums are computed again after each change. Then the units stay.

    def set_units(self) -> None:
        """Set the units by the samples so far, all of which are kept, and compute the sums of these again."""
        if self.waiting is not None:
            assert isinstance(self.extractor, Directions)
            settled = self.waiting >= FIRST
            self.extractor.set_units(self.kept_values(), self.kept.copies, settled)
            self.waiting = None if settled else self.waiting
            self.sum_again()

    def sum_again(self) -> None:
        """Compute the sums of samples that are all kept, in units that were set."""
        self.drop_solution()
        self.chosen.drop()
        self.moments.clear()
        self.moments.add(self.kept_features(self.kept.values), self.kept.labels.long(), self.kept.copies)

    @property
    def first_samples(self) -> int:
        return 0 if self.waiting is None else FIRST

    def prepare(self, x: Tensor) -> None:
        if isinstance(self.extractor, Directions) and self.waiting is not None:
            self.extractor.set_units(self.read(x), torch.ones(len(x), device=x.device))
            self.waiting = None

    def prepare_as(self, other: Self) -> None:
        if isinstance(other.extractor, Directions) and isinstance(self.extractor, Directions) and other.waiting is None:
            self.extractor.take_units(other.extractor)
            self.waiting = None

    def count_waiting(self, keys: object = None) -> None:
        """After a state was loaded: read how many samples wait for units."""
        if isinstance(self.extractor, Directions) and self.extractor.needs_units and self.device.type != "meta":
            self.waiting = None if self.extractor.settled else int(self.counts.sum())

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

    def kept_values(self) -> Tensor:
        """[k, values] kept vectors as numbers."""
        return self.read(self.kept.values.unflatten(1, self.spec.shape))

    def kept_features(self, values: Tensor) -> Tensor:
        """[k, d] features of kept samples."""
        return self.codes(self.read(values.unflatten(1, self.spec.shape))) if self.keeps_samples else values

    def kept_samples(self, known: Tensor) -> tuple[Tensor, Tensor]:
        """[k, d] features of kept samples, as often as each was learnt, and their classes [k] among the ``known``."""
        rows = self.kept.drawn()
        labels = self.kept.labels[rows].long()
        return self.kept_features(self.kept.values[rows]), torch.searchsorted(known, labels)

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
        self.drop_solution()
        self.chosen.drop()
        if isinstance(self.extractor, Directions) and self.extractor.needs_units:
            other = deepcopy(other)
            self.share_units(other)
        filters = zip(self.extractor.buffers(), other.extractor.buffers(), strict=True)
        if not all(torch.equal(*pair) for pair in filters):
            raise UsageError("the two have different filters; give both the same random_state, memory and options")
        self.moments.merge(other.moments)
        self.kept.merge(other.kept)
        self.counts += other.counts
        self.steps += other.steps
        self.count_waiting()
        self.set_units()

    def share_units(self, other: Self) -> None:
        """Give two learners, which will be merged, the same units of values."""
        one, two = self.extractor, other.extractor
        assert isinstance(one, Directions)
        assert isinstance(two, Directions)
        new = [each for each, units in ((self, one), (other, two)) if not units.settled]  # their samples are all kept
        if len(new) == 2:
            if int(self.counts.sum() + other.counts.sum()) < FIRST:
                return
            values = torch.cat([each.kept_values() for each in new])
            one.set_units(values, torch.cat([each.kept.copies for each in new]))
        elif not new and not one.same_units(two):
            warn(
                "the two were taught separately and project values in different units: they are merged without "
                "projections, which may cost accuracy; use distributed.fit, or teach copies of one that has learnt "
                f"{FIRST} samples and let all copies but one forget these"
            )
            for each, units in ((self, one), (other, two)):
                units.leave_out()
                each.moments.blank(one.size)
        for each, units in ((self, one), (other, two)):
            if each in new:
                units.take_units(one if one.settled else two)
                each.waiting = None
                each.sum_again()

    @torch.no_grad()
    def forget(self, x: Tensor, y: Tensor) -> None:
        self.drop_solution()
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
        self.count_waiting()
        self.set_units()

    @torch.no_grad()
    def forget_class(self, slot: int) -> None:
        self.drop_solution()
        self.chosen.drop()
        self.moments.forget_class(slot)
        self.kept.forget_class(slot)
        self.counts[slot] = 0
        self.count_waiting()
        self.set_units()

    @torch.no_grad()
    def unite(self, slot: int, into: int) -> None:
        self.drop_solution()
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
        buffers = old.extractor.state_dict()
        for name, new in self.extractor.state_dict().items():
            had = buffers[name]
            per_feature = had.dim() == 1 and len(had) == old.extractor.width
            kept = had[columns] if per_feature else had[tuple(slice(size) for size in new.shape)]
            new.zero_()[tuple(slice(size) for size in kept.shape)] = kept
        self.moments.take_over(old.moments, columns)
        values = old.kept.values if self.keeps_samples else old.kept.values[:, columns]
        self.kept.replace(old.kept.keys, values, old.kept.labels, old.kept.copies)
        self.counts[: len(old.counts)] = old.counts
        self.steps.copy_(old.steps)
        self.count_waiting()

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

    def can_follow(self, samples: int) -> bool:
        """Whether the present solution can be updated by so many samples."""
        return self._solution is not None and self._solution.samples() + samples <= MOST_PENDING

    def settings_serve(self) -> bool:
        """Whether the settings that were last chosen are used for the present samples."""
        # Values of another class may vary in other units. Responses of filters do not.
        classes = None if self.reads_patches else int((self.moments.weights > 0).sum())
        return self.chosen.serve(int(self.counts.sum()), classes, GROWTH)

    def settle(self, samples: int) -> None:
        if samples > FEW:
            self.chosen.drop()
        elif self.waiting is None and self.moments.weights.any() and not self.settings_serve():
            self.chosen.keep(int(self.counts.sum()), self.solution())

    @torch.no_grad()
    def solution(self) -> Solution:
        """The solution for the present statistics: the last one, that one updated, or a new one."""
        last = self._solution
        if last is not None and not last.pending:
            return last
        weights = self.moments.weights
        known = weights.nonzero()[:, 0]
        weights, means = weights[known], self.moments.means()[known]
        serve = self.settings_serve()
        if serve and last and last.can_continue(known):
            self._solution = last.updated(known, weights, means, self)
            return self._solution
        summary = Summary(weights, means, self.moments.scatter())
        factors = self.chosen.scales.clone() if serve else self.factors(summary)
        scale = self.scale(factors)
        counts = self.values, summary.means.shape[1]
        sets = [slice(count) for count in sorted(set(counts))]
        if serve:
            settings = self.chosen.settings()
        else:
            features, y = self.kept_samples(known)
            features = features.double() * scale
            scaled = Summary(weights, means * scale, summary.scatter * scale[:, None] * scale)
            settings = choose(
                [scaled.part(part) for part in sets], [features[:, part] for part in sets], y, self.options.shrinkage
            )
        members = [
            Discriminant(summary.part(part), scale[part], setting)
            for part, setting in zip(sets, settings, strict=False)
            if setting.gain
        ]
        self._solution = Solution(members, settings, factors, known, self)
        return self._solution

    @property
    def values(self) -> int:
        """How many features are used without projections, too."""
        extractor = self.extractor
        return extractor.size if isinstance(extractor, Directions) and extractor.raw else self.moments.width

    def factors(self, summary: Summary) -> Tensor:
        """The factors that make features comparable: of each value, or one for all, and one of all projections.

        Values are divided by their deviation over all samples, if their units are unknown. A value that varies by
        rounding errors only gets the factor 0.
        """
        weights, means, scatter = summary
        total = weights.sum()
        between = (weights[:, None] * (means - weights @ means / total).square()).sum(0)
        squares = (scatter.diagonal() + between).clamp(min=0)
        varies = torch.ones_like(squares)
        if (rounding := self.moments.rounding()) is not None:
            varies = ((squares / rounding.clamp(min=TINY)).log10() / 2 + 0.5).clamp(0, 1)
        variances = squares * varies / total
        parts = [variances[: self.values]]
        if self.one_unit or self.reads_patches:
            parts[0] = parts[0].mean(0, keepdim=True)
        if self.values < len(variances):
            parts.append(variances[self.values :].mean(0, keepdim=True))
        variance = torch.cat(parts)
        found = variance.where(variance > 0, 1.0).rsqrt()
        return (
            found if len(parts[0]) == 1 else found * torch.cat([varies[: self.values], found.new_ones(len(parts) - 1)])
        )

    def scale(self, factors: Tensor) -> Tensor:
        """[d] from what :meth:`factors` returned."""
        width, values = self.moments.width, self.values
        own = len(factors) - (values < width)
        first = factors[:own].expand(values) if own == 1 else factors[:own]
        return torch.cat([first, factors[own:].expand(width - values)]) if values < width else first

    def drop_solution(self) -> None:
        super().drop_solution()
        self._solution = None

    def refresh(self) -> None:
        super().refresh()
        self.chosen.drop()

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_solution": None}
