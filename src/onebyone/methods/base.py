"""The step all methods share. A method adds a page of equations to it."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import torch
from torch import Tensor, nn

from onebyone import memory, nets
from onebyone.data import Spec
from onebyone.errors import UsageError
from onebyone.memory import Rows
from onebyone.memory.policies import Policy
from onebyone.methods.losses import class_means
from onebyone.nets import Encoder, apart, cosine, unit
from onebyone.options import Checked, option
from onebyone.seeding import generator, seeded


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """What every method with a network can be told."""

    learning_rate: float = option(0.1, "step size of plain SGD (paper: 0.1)", above=0)
    encoder: str | Encoder = option(
        "auto", "network: resnet18, conv, mlp, timm:NAME (pretrained), or auto (by the shape of the samples)"
    )
    augment: bool = option(True, "crop and flip images, incoming and replayed (paper: yes)")
    channels_last: bool = option(
        True, "memory layout of convolutions on a CPU: faster there (not on a GPU, where it is not used)"
    )


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(Options):
    """What every method with a memory can be told."""

    memory_per_class: int = option(20, "M: the memory holds M x (number of classes) samples", low=1)
    memory_samples: int = option(0, "room for so many samples in all; 0: memory_per_class x number of classes", low=0)
    memory_policy: Policy = option("reservoir", "which samples are kept: reservoir, or balanced between classes")
    replay_size: int = option(10, "samples replayed a step (paper: 10)", low=1)
    replay_from: Literal["all", "others"] = option(
        "all", "replay from all of the memory, or only other classes than the incoming ones"
    )
    passes: Literal["separate", "joint"] = option(
        "separate", "incoming and replayed samples in separate forward passes (paper), or in one joint pass"
    )
    incoming_weight: float = option(1.0, "weight of the loss on incoming samples", low=0)
    replay_weight: float = option(1.0, "weight of the loss on replayed samples", low=0)
    readout: Literal["head", "ncm"] = option(
        "head", "answer by the trained head, or by the nearest class mean of the memory"
    )


@dataclass(frozen=True, kw_only=True)
class BudgetOptions(Checked):
    """What every method that divides a number of bytes by itself can be told."""

    memory_per_class: int = option(20, "M: the budget is the bytes of M x (number of classes) samples", low=1)
    budget: int = option(0, "bytes of all that is kept; 0: as memory_per_class says", low=0)

    def budgeted(self, spec: Spec) -> Self:
        """The same, with the bytes written out; a learner that gets room for more classes keeps them."""
        return replace(self, budget=self.budget or self.memory_per_class * spec.num_classes * spec.sample_bytes)


@dataclass(frozen=True)
class Encoded(Rows):
    """Samples of one step, with what the network computed from them."""

    view: Tensor = field(kw_only=True)  # [n, *shape] augmented, as the network reads them
    features: Tensor = field(kw_only=True)  # [n, d] as ``embed`` returns them
    shared: dict[str, Tensor] = field(kw_only=True, default_factory=dict)  # computed once, used by both losses


T = TypeVar("T")
C = TypeVar("C", bound=Checked)  # the options of a method
O = TypeVar("O", bound=Options)  # noqa: E741  (of one with a network)
R = TypeVar("R", bound=ReplayOptions)


class Learner(nn.Module, ABC, Generic[C]):
    """Learns from batches and answers at any time: ``observe(x, y)`` and ``scores(x)``.

    All it is lies in ``state_dict()``: weights, memory, class counts, step number, state of its random generator.
    Loading that dictionary into a new learner of the same making and going on gives the same bits.

    Inside ``observe`` no value of a tensor is ever looked at, so that it can be captured as a graph.
    """

    needs_boundaries: ClassVar[bool] = False  # whether the run has to say where a task ends
    stream: ClassVar[Literal["disjoint", "iid"]] = "disjoint"  # the order of samples it is meant for
    warm_up: int = 0  # samples whose steps are of another kind than all later ones; with any, no step is captured

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
        self.register_buffer("labels", torch.arange(spec.num_classes, device=device), persistent=False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64, device=device))
        self.generator = generator(seed, "learner", device)
        self._reused: tuple[tuple[bool, int], Any] | None = None

    @abstractmethod
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        """Learn from one batch, [n, *shape] and [n] on the learner's device; gives its loss."""

    def repeat(self, x: Tensor, y: Tensor) -> Tensor:
        """Train again on samples that were observed before; nothing is counted or kept a second time.

        This one suits learners that keep nothing but a network. Others override it.
        """
        counts = self.counts.clone()
        loss = self.observe(x, y)
        self.counts.copy_(counts)
        return loss

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """[n, *shape] samples as they are stored -> [n, d] what the class scores are made from."""

    @abstractmethod
    def readout(self) -> Callable[[Tensor], Tensor]:
        """What turns features [n, d] into class scores [n, C] at this moment."""

    def end_task(self) -> None:
        """Told after the last batch of each task, to methods with ``needs_boundaries`` only."""

    def take_over(self, old: Self) -> None:
        """Go on as ``old``, one of the same making with room for fewer classes.

        Every tensor of its state is laid into the leading corner of this one's, so that no method has to know of it.
        """
        state = self.state_dict()
        for name, tensor in old.state_dict().items():
            state[name][tuple(slice(size) for size in tensor.shape)] = tensor
        self.load_state_dict(state)  # what was written above is all there but the generator, which is no tensor

    def ready(self) -> Self:
        """What answers for it: itself, unless it has seen too little for that."""
        return self

    @property
    def generators(self) -> list[torch.Generator]:
        """Its own, and those of the learners it is made of, if any."""
        return [part.generator for part in self.modules() if isinstance(part, Learner)]

    @property
    def memory_bytes(self) -> int:
        """Bytes of all that is kept of the samples themselves, beyond a network."""
        return 0

    @property
    def device(self) -> torch.device:
        return self.steps.device

    @property
    def observed(self) -> Tensor:
        """[C] the classes seen so far, those of the batch being learnt included."""
        return self.counts > 0

    @torch.no_grad()
    def scores(self, x: Tensor, chunk: int = 1000) -> Tensor:
        """[n, *shape] -> [n, C] class scores; minus infinity for classes never seen."""
        training = self.training
        self.eval()
        try:
            readout = self.readout()
            parts = [readout(self.features(part)) for part in x.split(chunk)]
        finally:
            self.train(training)
        return torch.cat(parts).masked_fill(~self.observed, float("-inf"))

    def predict(self, x: Tensor) -> Tensor:
        """[n, *shape] -> [n] the class with the highest score, or -1 while no class is known."""
        best = self.scores(x).max(1)
        return best.indices.masked_fill(best.values == float("-inf"), -1)

    def reuse(self, compute: Callable[[], T]) -> T:
        """What ``compute`` returns, from the last call if no value of the learner has changed since.

        A checksum of all parameters and buffers decides, so every write is seen: by a step, by ``load_state_dict``, by
        user code, also through ``.data``. It costs about a hundredth of what class means of a memory cost. On a GPU,
        where a checksum would cost as much as most computations, ``compute`` is called each time.
        """
        if self.device.type != "cpu":
            return compute()
        key = self.training, checksum(self)
        if self._reused is None or self._reused[0] != key:
            self._reused = key, compute()
        result: T = self._reused[1]
        return result

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without the result kept by ``reuse``, which may be larger than everything else."""
        return self.__dict__ | {"_reused": None}

    def scaled(self, x: Tensor) -> Tensor:
        """Samples as numbers to compute with: bytes in [-1, 1], numbers as they are."""
        return x * (2 / 255) - 1 if x.dtype == torch.uint8 else x

    def count(self, y: Tensor) -> None:
        """Note that these classes have been seen; the first thing a step does."""
        self.counts.index_add_(0, y, torch.ones_like(y))
        self.steps += 1

    def in_batch(self, y: Tensor) -> Tensor:
        """[C] the classes of a batch."""
        return self.one_hot(y).any(0)

    def one_hot(self, y: Tensor) -> Tensor:
        """[n, C] true at the class of each sample."""
        return y[:, None] == self.labels

    def get_extra_state(self) -> Tensor:
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        self.generator.set_state(state.cpu())


class NetworkLearner(Learner[O]):
    """A learner with a network, trained by plain SGD, which keeps nothing between steps."""

    def __init__(self, options: O, spec: Spec, seed: int = 0, device: torch.device | str = "cpu") -> None:
        super().__init__(options, spec, seed, device)
        with seeded(seed, "weights"):  # drawn on the CPU: the same first weights on every device
            self.encoder = nets.create(options.encoder, spec.shape)
            self.build()
        self.to(device)
        self.channels_last = options.channels_last and torch.device(device).type == "cpu"
        if self.channels_last:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        # torch makes no optimizer of nothing, which is what a method without weights on a frozen encoder trains.
        self.optimizer = torch.optim.SGD(trained, options.learning_rate, foreach=True) if trained else None

    @abstractmethod
    def build(self) -> None:
        """Make what stands on the encoder. Called once, inside the seeded part of the constructor."""

    def embed(self, view: Tensor) -> Tensor:
        """[n, *shape] views -> [n, d] features: those of the encoder, unless a method puts more on top."""
        return self.encoder(view)

    def features(self, x: Tensor) -> Tensor:
        view = self.view(x, augment=False)
        if view.is_cuda and view.dim() == 4:  # unlike the few of a step, many at once are faster so, by a quarter
            view = view.contiguous(memory_format=torch.channels_last)
        return self.embed(view)

    def view(self, x: Tensor, augment: bool = True) -> Tensor:
        """Samples as the network reads them: augmented, scaled to [-1, 1], in its memory layout."""
        if augment and self.options.augment:
            x = self.spec.augmentation(x, self.generator)
        x = self.scaled(x)
        if self.channels_last and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return x

    def descend(self, loss: Tensor) -> None:
        """One step of SGD."""
        assert self.optimizer is not None, "all weights are frozen, so there is nothing to descend with"
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


class ReplayLearner(NetworkLearner[R]):
    """A learner with a memory: a loss on the incoming samples, a loss on the replayed ones, one step for both."""

    extra_fields: ClassVar[tuple[str, ...]] = ()  # what is kept with a sample: [C] numbers each

    def __init__(self, options: R, spec: Spec, seed: int = 0, device: torch.device | str = "cpu") -> None:
        super().__init__(options, spec, seed, device)
        self.memory = memory.create(
            options.memory_policy,
            options.memory_samples or options.memory_per_class * spec.num_classes,
            spec.shape,
            spec.dtype,
            spec.num_classes,
            dict.fromkeys(self.extra_fields, spec.num_classes),
        ).to(device)

    @property
    def memory_bytes(self) -> int:
        return self.memory.nbytes

    def take_over(self, old: Self) -> None:
        had, has = old.memory.capacity, self.memory.capacity
        if had != has:  # rows that were never written would pass for samples once the old memory was full
            raise UsageError(
                f"room for more classes would make a memory of {had} samples one of {has}, which no rule fills fairly; "
                "give memory_samples, which does not hang on the number of classes"
            )
        super().take_over(old)

    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        self.count(y)
        loss, kept = self.train_step(x, y)
        self.memory.add(x, y, self.generator, **kept)
        return loss

    def repeat(self, x: Tensor, y: Tensor) -> Tensor:
        """Train again on samples that were observed before; they are not offered to the memory again."""
        self.steps += 1
        return self.train_step(x, y)[0]

    def train_step(self, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """One SGD step on incoming and replayed samples: its loss, and the further fields to store with ``x``."""
        incoming = Rows(x, y, torch.ones(len(y), device=x.device))
        batches = [incoming, *(self.stand_in(rows, incoming) for rows in self.draw(incoming))]
        sizes = [len(batch.y) for batch in batches]
        views = self.view(torch.cat([batch.x for batch in batches]))
        features = self.encode(views, sizes)
        encoded = [
            Encoded(**vars(batch), view=view, features=feature)
            for batch, view, feature in zip(batches, views.split(sizes), features, strict=True)
        ]
        first, replay, *others = encoded
        loss = self.options.incoming_weight * self.incoming_loss(first, replay, *others)
        loss = loss + self.options.replay_weight * self.replay_loss(replay, first, *others)
        kept = self.keep(first)
        self.descend(loss)
        self.after_update(*encoded)
        return loss.detach(), kept

    def draw(self, incoming: Rows) -> tuple[Rows, ...]:
        """The samples to replay: first those of the replay loss, then any others the method asks for."""
        return (self.memory.sample(self.options.replay_size, self.generator, self.allowed(incoming)),)

    @abstractmethod
    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        """The loss on the incoming samples, given all drawn ones (the replayed samples first)."""

    @abstractmethod
    def replay_loss(self, replay: Encoded, incoming: Encoded, *others: Encoded) -> Tensor:
        """The loss on the replayed samples, given the incoming ones and any others that ``draw`` returned."""

    def after_update(self, incoming: Encoded, replay: Encoded, *others: Encoded) -> None:
        """What happens between the step and the writing of the memory; nothing for most."""

    def keep(self, incoming: Encoded) -> dict[str, Tensor]:
        """The further fields to store with the incoming samples, as they are before the step."""
        return {}

    @abstractmethod
    def logits(self, features: Tensor) -> Tensor:
        """[n, d] features -> [n, C] the class scores that training shapes."""

    def allowed(self, incoming: Rows) -> Tensor | None:
        """[capacity] the rows that may be replayed; None for all."""
        if self.options.replay_from == "all":
            return None
        return ~self.in_batch(incoming.y)[self.memory.y[:-1]]

    def stand_in(self, rows: Rows, incoming: Rows) -> Rows:
        """The same rows, with incoming samples in the place of missing ones; they still weigh nothing.

        A missing row could as well be blank, but for BatchNorm, whose statistics see every row of a batch.
        """
        x, y = incoming.x, incoming.y
        if len(rows.y) != len(y):
            index = torch.arange(len(rows.y), device=y.device) % len(y)
            x, y = x[index], y[index]
        there = rows.weight > 0
        x = rows.x.where(there.reshape(-1, *[1] * (x.dim() - 1)), x)
        return Rows(x, rows.y.where(there, y), rows.weight, rows.extra)

    def encode(self, views: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
        """Features of each part of the views: by a forward pass each, or by one for all together."""
        separate = self.options.passes == "separate"
        if separate and not self.encoder.one_pass:
            return tuple(self.embed(part) for part in views.split(sizes))
        with apart(sizes if separate else ()):  # one pass either way, but for what BatchNorm sees
            features: tuple[Tensor, ...] = self.embed(views).split(sizes)
        return features

    def readout(self) -> Callable[[Tensor], Tensor]:
        if self.options.readout != "ncm":
            return self.logits
        means, present = self.reuse(self.memory_means)
        return lambda features: cosine(features, means, 1.0).masked_fill(~present, float("-inf"))

    def memory_means(self, chunk: int = 1000) -> tuple[Tensor, Tensor]:
        """[C, d] the mean direction of each class in the memory, and [C] which classes are there."""
        rows = self.memory.everything()
        parts = [unit(self.embed(self.view(x, augment=False))) for x in rows.x.split(chunk)]
        return class_means(torch.cat(parts), self.one_hot(rows.y), rows.weight)


def checksum(module: nn.Module) -> int:
    """CRC-32 of the values of all parameters and buffers of a module on the CPU.

    >>> layer = nn.Linear(2, 2)
    >>> before = checksum(layer)
    >>> layer.weight.data[0, 0] += 1
    >>> checksum(layer) == before
    False
    """
    result = 0
    for tensor in (*module.parameters(), *module.buffers()):
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)  # as it lies in memory: nothing is copied
        values = tensor.detach().permute(order).reshape(-1).view(torch.uint8)
        result = zlib.crc32(values.numpy().data, zlib.crc32(bytes(order), result))
    return result
