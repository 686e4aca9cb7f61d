"""What every method is: a module that observes batches and scores samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from onebyone.data import Spec
from onebyone.errors import UsageError
from onebyone.methods import optimizers
from onebyone.nets import Adapted, scaled
from onebyone.options import Checked
from onebyone.seeding import generator

T = TypeVar("T")
C = TypeVar("C", bound=Checked)  # the options of a method
GENERATOR = "_extra_state"  # name of the state of a random generator, whose format depends on the type of device
NOT_MERGEABLE = (
    "weights of a network cannot be merged; teach one classifier with the samples of both, or use a method that keeps "
    "statistics, such as patch-lda"
)


class LeftOut(NamedTuple):
    """Predictions of samples that were learnt, each made as if that sample had not been learnt."""

    scores: Tensor  # [k, C] as ``Learner.scores`` returns them
    y: Tensor  # [k]
    typicality: Tensor  # [k] as ``Learner.typicality`` returns it


class Learner(nn.Module, ABC, Generic[C]):
    """Base class of all methods: ``observe(x, y)`` learns from a batch, ``scores(x)`` scores samples at any time.

    ``state_dict()`` is its complete state. A new learner with the same options that loads it continues bit for bit.
    Inside ``observe`` no value of a tensor is read. Therefore a step can be captured as a CUDA graph.
    """

    needs_boundaries: ClassVar[bool] = False  # whether it must be told where a task ends
    stream: ClassVar[Literal["disjoint", "iid"]] = "disjoint"  # the order of samples it is meant for
    steps_matter: ClassVar[bool] = True  # whether it learns something else in fewer steps of more samples
    # What it can do. A learner that overrides one of these methods sets the attribute.
    mergeable: ClassVar[bool] = False  # merge and reorder
    leaves_out: ClassVar[bool] = False  # left_out
    takes_weights: ClassVar[bool] = False  # observe and repeat, with the argument weight
    own_typicality: ClassVar[bool] = False  # typicality and typicality_readout

    counts: Tensor
    labels: Tensor
    steps: Tensor

    def __init__(self, options: C, spec: Spec, seed: int = 0, device: torch.device | str = "cpu") -> None:
        super().__init__()
        self.options = options
        self.spec = spec
        self.seed = seed
        counts = torch.zeros(spec.num_classes, dtype=torch.int64, device=device)
        self.register_buffer("counts", counts)  # samples seen, by class
        # On the device ``meta``, where there are no values, ``arange`` would import torch's compiler.
        numbers = torch.zeros if counts.is_meta else torch.arange
        labels = numbers(spec.num_classes, dtype=torch.int64, device=device)
        self.register_buffer("labels", labels, persistent=False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64, device=device))
        self.generator = generator(seed, "learner", device)
        self._reused: tuple[bool, Any] | None = None  # what ``reuse`` computed last, and whether in training mode

    @abstractmethod
    def observe(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Learn from one batch, on the learner's device.

        Parameters
        ----------
        x, y
            Samples [n, *shape] and their classes [n].
        weight
            [n] numbers above 0: a sample of weight 2 counts as much as two equal samples. None: all are 1.

        Returns
        -------
        Tensor
            The loss, a scalar.
        """

    def repeat(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Train again on samples that were observed before; nothing is counted or kept a second time.

        This one suits learners that keep nothing but a network. Others override it.
        """
        counts = self.counts.clone()
        loss = self.observe(x, y) if weight is None else self.observe(x, y, weight)
        self.counts.copy_(counts)
        return loss

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """[n, *shape] samples as they are stored -> [n, d] the features that class scores are computed from."""

    @abstractmethod
    def readout(self) -> Callable[[Tensor], Tensor]:
        """A function from features [n, d] to class scores [n, C], for the current state."""

    def end_task(self) -> None:
        """Called after the last batch of each task, for methods with ``needs_boundaries`` only."""

    def take_over(self, old: Self) -> None:
        """Continue as ``old``, a learner with the same options and room for fewer classes.

        Every tensor of its state is copied to the leading corner of this one's, which works for most methods.
        """
        self.begin_optimizers_as(old)
        state = self.state_dict()
        for name, tensor in old.state_dict().items():
            state[name][tuple(slice(size) for size in tensor.shape)] = tensor
        self.load_state_dict(state)  # for the generator; the tensors were written above

    # Changes other than learning. Values of tensors may be read here. A change that raises may leave the learner
    # half changed, so callers change a copy.

    def merge(self, other: Self) -> None:
        """Learn what ``other`` has learnt, as if this learner had observed its samples too. See ``mergeable``.

        ``other`` has the same options, seed and number of classes, and the same classes in the same slots.
        """
        raise UsageError(NOT_MERGEABLE)

    def forget(self, x: Tensor, y: Tensor) -> None:
        """Forget samples [n, *shape] and [n] that were observed: here they are only no longer counted.

        Raises
        ------
        UsageError
            If they cannot all have been observed.
        """
        forgotten = torch.bincount(y, minlength=len(self.counts))
        missing = (forgotten > self.counts).nonzero().flatten()
        if len(missing):
            slot = int(missing[0])
            raise UsageError(
                f"{int(forgotten[slot])} samples of a class are to be forgotten, but only {int(self.counts[slot])} "
                "were learnt; give samples that were learnt, with their labels"
            )
        self.counts -= forgotten
        self._reused = None

    @torch.no_grad()
    def forget_class(self, slot: int) -> None:
        """Forget a class. Its slot is then as in a new learner, for another class.

        Every tensor with one entry per class gets the initial value at this slot, which works for most methods.
        """
        larger = replace(self.spec, num_classes=self.spec.num_classes + 1)
        fresh = type(self)(self.options, larger, self.seed, self.device)
        fresh.begin_optimizers_as(self)
        initial = fresh.state_dict()
        for name, tensor in self.state_dict().items():
            per_class = [axis for axis, size in enumerate(tensor.shape) if size != initial[name].shape[axis]]
            if len(per_class) == 1:  # the axis of classes is the one that grows with their number
                tensor.select(per_class[0], slot).copy_(initial[name].select(per_class[0], slot))
        self._reused = None

    @torch.no_grad()
    def unite(self, slot: int, into: int) -> None:
        """Make two classes one, in the slot ``into``. The other slot is then as in a new learner."""
        self.counts[into] += self.counts[slot]
        self.counts[slot] = 0  # what is forgotten is a class without samples
        self.forget_class(slot)

    @property
    def first_samples(self) -> int:
        """How many samples it has to see before parts of a stream can be learnt by several copies and merged."""
        return 0

    def prepare(self, x: Tensor) -> None:
        """Fix what depends on the first samples, before copies learn; ``x`` are ``first_samples``, or all there are."""

    def prepare_as(self, other: Self) -> None:
        """Fix it as in another learner with the same options, which may have learnt."""

    def reorder(self, slots: Tensor) -> None:
        """Move every class: the class of slot ``slots[i]`` goes to slot i. ``slots`` [C] is a permutation.

        Needed by learners that have ``merge``, whose classes must be in the same slots.
        """
        raise UsageError("the classes of a network cannot be moved to other slots")

    # How far answers can be trusted

    def temperature(self) -> float:
        """The number that scores are divided by before probabilities are computed.

        That of a learner without ``left_out`` is an expectation, until it has predicted enough samples.
        """
        return 1.0

    def left_out(self) -> LeftOut | None:
        """Honest predictions of samples that were learnt, or None for a learner that has none."""
        return None

    @property
    def leaving_out(self) -> Learner[Any]:
        """The learner to ask for ``left_out``: itself, or the part of it that keeps statistics."""
        return self

    def typical_values(self) -> Tensor | None:
        """[k] the typicality of learnt samples as if they had not been learnt, or None for a learner that has none."""
        found = self.left_out()
        return None if found is None else found.typicality

    def typicality_readout(self) -> Callable[[Tensor, Tensor], Tensor]:
        """A function from features [n, d] and scores [n, C] to typicality [n], for the current state: for export."""
        return lambda features, scores: scores.amax(1)

    def answer_interval(self, batch: int) -> int:
        """How many steps of ``batch`` samples take at least twice as long as one answer; 1 if an answer is cheap."""
        return 1

    def typicality(self, x: Tensor) -> Tensor:
        """[n, *shape] -> [n] numbers, larger for samples that are more like something learnt."""
        return self.scores(x).amax(1)

    def portable_copy(self) -> Self:
        """A copy that answers as this one does now on the CPU, in types that every program has: for export."""
        copy = deepcopy(self).eval().requires_grad_(False).cpu()
        for part in copy.modules():
            if isinstance(part, Learner):
                part.make_portable()
        return copy

    def make_portable(self) -> None:
        """Use nothing that is special to this device, such as a memory format."""

    @property
    def fixed_encoders(self) -> dict[str, Adapted]:
        """Encoders whose weights never change, by their names in the state. A file holds their hash instead."""
        return {name: part for name, part in self.named_modules() if isinstance(part, Adapted) and part.fixed}

    def unused_generators(self) -> set[str]:
        """The names in the state of random generators that have drawn nothing: 5 KB each, and most statistics."""
        parts = [(f"{name}.{GENERATOR}".lstrip("."), part) for name, part in self.named_modules()]
        return {
            name
            for name, part in parts
            if isinstance(part, Learner)
            and torch.equal(part.get_extra_state(), generator(part.seed, "learner", part.device).get_state())
        }

    def sample_counts(self) -> list[Tensor]:
        """The counts of samples in its state, to validate a state from a file."""
        return [self.counts]

    def kept_labels(self) -> list[Tensor]:
        """The labels of all samples in its state, for the same purpose."""
        return []

    @property
    def total_weights(self) -> Tensor:
        """[C] the weight of all samples of each class."""
        return self.counts

    @property
    def filters(self) -> int:
        """How many filters its statistics have: fewer with more classes. 0 if it keeps no statistics."""
        return 0

    @property
    def generators(self) -> list[torch.Generator]:
        """Its own, and those of learners that are parts of it."""
        return [part.generator for part in self.modules() if isinstance(part, Learner)]

    @property
    def memory_bytes(self) -> int:
        """Bytes of replay memory or statistics; 0 if it keeps neither."""
        return 0

    @property
    def chunk(self) -> int:
        """Number of samples to compute with at once."""
        return self.spec.chunk

    @property
    def device(self) -> torch.device:
        return self.steps.device

    @property
    def observed(self) -> Tensor:
        """[C] the classes seen so far, including those of the current batch."""
        return self.counts > 0

    @torch.no_grad()
    def scores(self, x: Tensor, chunk: int | None = None) -> Tensor:
        """Compute a score for each class.

        Parameters
        ----------
        x
            Samples [n, *shape], in the type in which the data set stores them.
        chunk
            Number of samples to compute at once. None: as many as suit the method.

        Returns
        -------
        Tensor
            Scores [n, C]. The score of a class that was never seen is minus infinity.
        """
        training = self.training
        self.eval()
        try:
            readout = self.readout()
            parts = [readout(self.features(part)) for part in x.split(chunk or self.chunk)]
        finally:
            self.train(training)
        return torch.cat(parts).masked_fill(~self.observed, float("-inf"))

    @torch.no_grad()
    def scores_and_typicality(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[n, *shape] -> what ``scores`` and ``typicality`` return, with one pass through an encoder."""
        training = self.training
        self.eval()
        try:
            readout, typicality = self.readout(), self.typicality_readout()
            parts = []
            for part in x.split(self.chunk):
                features = self.features(part)
                scores = readout(features).masked_fill(~self.observed, float("-inf"))
                parts.append((scores, typicality(features, scores)))
        finally:
            self.train(training)
        return torch.cat([scores for scores, _ in parts]), torch.cat([found for _, found in parts])

    def predict(self, x: Tensor) -> Tensor:
        """Predict the class with the highest score.

        Parameters
        ----------
        x
            Samples [n, *shape], in the type in which the data set stores them.

        Returns
        -------
        Tensor
            Classes [n], or -1 if no class was seen yet.
        """
        best = self.scores(x).max(1)
        return best.indices.masked_fill(best.values == float("-inf"), -1)

    def reuse(self, compute: Callable[[], T]) -> T:
        """What ``compute`` returns, from the last call if the learner has not changed since.

        All methods that change a learner call :meth:`drop_solution`: ``count`` and ``descend`` for those that learn,
        ``forget``, ``forget_class``, ``load_state_dict`` and a move to another device. So does the engine after a step
        of a captured graph. Other code that writes to parameters or buffers has to call it, too.
        """
        if self._reused is None or self._reused[0] != self.training:
            self._reused = self.training, compute()
        result: T = self._reused[1]
        return result

    def drop_solution(self) -> None:
        """Compute the next answer from the state alone, as a learner that loads the present state does."""
        self._reused = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.drop_solution()
        return super()._apply(fn, recurse)  # type: ignore[no-any-return, no-untyped-call]

    def settle(self, samples: int) -> None:
        """Before this number of samples is observed: choose settings that are due for those observed so far.

        For learners whose answers use settings of somewhat fewer samples. Without this, the choice would depend on when
        an answer was asked for. ``observe`` cannot do it, because values of tensors are read here.
        """

    def refresh(self) -> None:
        """Compute the next answer anew, also settings that otherwise stay while samples come one by one."""
        self.drop_solution()

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without the result kept by ``reuse``, which may be larger than everything else."""
        return self.__dict__ | {"_reused": None}

    def scaled(self, x: Tensor) -> Tensor:
        """Samples as numbers: bytes scaled to [-1, 1], other numbers unchanged."""
        return scaled(x)

    def count(self, y: Tensor) -> None:
        """Count the samples of a batch and the step. Call it first in ``observe``."""
        self._reused = None
        self.counts.index_add_(0, y, torch.ones_like(y))
        self.steps += 1

    def in_batch(self, y: Tensor) -> Tensor:
        """[C] true for the classes of a batch."""
        return self.one_hot(y).any(0)

    def one_hot(self, y: Tensor) -> Tensor:
        """[n, C] true at the class of each sample."""
        return y[:, None] == self.labels

    # A module's state has no place for optimizers, which are plain attributes.

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        """The torch optimizers among its attributes, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Optimizer)}

    @property
    def optimizer_prefixes(self) -> tuple[str, ...]:
        """The beginnings of the names in ``state_dict()`` that appear only with the first step of an optimizer."""
        parts = ((prefix, part) for prefix, part in self.named_modules() if isinstance(part, Learner))
        return tuple(f"{prefix}.{name}.".lstrip(".") for prefix, part in parts for name in part.optimizers)

    def begin_optimizers_as(self, other: Self) -> None:
        """Give optimizers that have taken no step yet the state of those of ``other``, as zeros."""
        for name, optimizer in self.optimizers.items():
            optimizers.begin_as(optimizer, other.optimizers[name])

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, optimizer in self.optimizers.items():
            found = optimizers.state_of(optimizer)
            destination.update({f"{prefix}{name}.{entry}": tensor for entry, tensor in found.items()})

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        self.drop_solution()
        for name, optimizer in self.optimizers.items():
            start = f"{prefix}{name}."
            entries = [entry for entry in state_dict if entry.startswith(start)]
            try:
                optimizers.load(optimizer, {entry.removeprefix(start): state_dict.pop(entry) for entry in entries})
            except (IndexError, RuntimeError, ValueError) as error:
                error_msgs.append(f"the state of {prefix}{name} does not fit its parameters ({error})")
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def get_extra_state(self) -> Tensor:
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        self.generator.set_state(state.cpu())
