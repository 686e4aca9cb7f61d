"""Learners with a network and a memory of samples: the step that all replay methods share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self, TypeVar

import torch
from torch import Tensor

from onebyone import memory
from onebyone.data import Spec
from onebyone.errors import UsageError
from onebyone.memory import Rows
from onebyone.methods.losses import class_means
from onebyone.methods.network import NetworkLearner
from onebyone.methods.options import ReplayOptions
from onebyone.nets import cosine, separate_batches, unit

R = TypeVar("R", bound=ReplayOptions)
COSINES = 0.1  # temperature of cosines to class means, as in cosine heads: makes them comparable with log-probabilities


@dataclass(frozen=True)
class Encoded(Rows):
    """Samples of one step, and what the network computed from them."""

    view: Tensor = field(kw_only=True)  # [n, *shape] augmented, as the network reads them
    features: Tensor = field(kw_only=True)  # [n, d] as ``embed`` returns them
    sample_weight: Tensor | None = field(kw_only=True, default=None)  # [n] ``weight``, if samples came with weights
    shared: dict[str, Tensor] = field(kw_only=True, default_factory=dict)  # computed once, used by both losses


class ReplayLearner(NetworkLearner[R]):
    """A learner with a memory: one loss on incoming samples, one on replayed samples, one SGD step on their sum.

    Weights of incoming samples are in ``incoming.weight``, by which ``incoming_loss`` averages.
    """

    takes_weights = True
    extra_fields: ClassVar[tuple[str, ...]] = ()  # further fields stored with a sample: [C] numbers each

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

    def sample_counts(self) -> list[Tensor]:
        return [*super().sample_counts(), self.memory.seen]

    def kept_labels(self) -> list[Tensor]:
        filled, y = self.memory.filled, self.memory.y
        empty = torch.cat([y[:-1][~filled], y[-1:]])
        return [y[:-1][filled], empty[(empty != 0) & (empty != -1)]]  # rows without a sample have 0 or -1

    def take_over(self, old: Self) -> None:
        had, has = old.memory.capacity, self.memory.capacity
        if had != has:  # new rows would count as filled once the old memory was full
            raise UsageError(
                f"room for more classes would change the memory from {had} to {has} samples, which no policy can fill "
                "fairly; give memory_samples, which does not depend on the number of classes"
            )
        super().take_over(old)

    def forget(self, x: Tensor, y: Tensor) -> None:
        """Remove these samples from the memory and from the counts. The weights still carry what they taught."""
        super().forget(x, y)
        self.memory.remove(self.memory.find(x, y), len(y))

    def forget_class(self, slot: int) -> None:
        """Remove the class from the memory; its weights become those of a class that was never seen."""
        self.memory.forget_class(slot, int(self.counts[slot]))
        kept = {name: tensor.clone() for name, tensor in self.memory.state_dict().items()}
        super().forget_class(slot)
        self.memory.load_state_dict(kept)  # where it has one entry per class, it is right already

    def unite(self, slot: int, into: int) -> None:
        """Give the samples in the memory to the other class, which replay then teaches to the network."""
        self.memory.relabel(slot, into)
        super().unite(slot, into)

    def observe(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        self.count(y)
        loss, kept = self.train_step(x, y, weight)
        self.memory.add(x, y, self.generator, **kept)
        self._reused = None  # ``after_update`` may have asked
        return loss

    def repeat(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Train again on samples that were observed before; they are not offered to the memory again."""
        self.steps += 1
        return self.train_step(x, y, weight)[0]

    def train_step(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """One SGD step on incoming and replayed samples: its loss, and the further fields to store with ``x``."""
        incoming = Rows(x, y, torch.ones(len(y), device=x.device) if weight is None else weight.float())
        batches = [incoming, *(self.fill_missing(rows, incoming) for rows in self.draw(incoming))]
        sizes = [len(batch.y) for batch in batches]
        views = self.view(torch.cat([batch.x for batch in batches]))
        features = self.encode(views, sizes)
        encoded = [
            Encoded(**vars(batch), view=view, features=feature)
            for batch, view, feature in zip(batches, views.split(sizes), features, strict=True)
        ]
        if weight is not None:
            encoded[0] = replace(encoded[0], sample_weight=incoming.weight)
        first, replay, *others = encoded
        loss = self.options.incoming_weight * self.incoming_loss(first, replay, *others)
        if weight is not None:  # it is a mean by weight; now each sample has its share of the loss times its weight
            loss = loss * (incoming.weight.sum().clamp(min=1) / len(weight))
        loss = loss + self.options.replay_weight * self.replay_loss(replay, first, *others)
        kept = self.keep(first)
        self.descend(loss)
        self.after_update(*encoded)
        return loss.detach(), kept

    def draw(self, incoming: Rows) -> tuple[Rows, ...]:
        """Draw from the memory: first the samples of the replay loss, then any others the method needs."""
        return (self.memory.sample(self.options.replay_size, self.generator, self.allowed(incoming)),)

    @abstractmethod
    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        """The loss on the incoming samples, given all drawn ones (the replayed samples first)."""

    @abstractmethod
    def replay_loss(self, replay: Encoded, incoming: Encoded, *others: Encoded) -> Tensor:
        """The loss on the replayed samples, given the incoming ones and any others that ``draw`` returned."""

    def after_update(self, incoming: Encoded, replay: Encoded, *others: Encoded) -> None:
        """Called after the SGD step and before the memory is written; does nothing by default."""

    def keep(self, incoming: Encoded) -> dict[str, Tensor]:
        """The ``extra_fields`` to store with the incoming samples, computed before the step."""
        return {}

    @abstractmethod
    def logits(self, features: Tensor) -> Tensor:
        """[n, d] features -> [n, C] class scores."""

    def allowed(self, incoming: Rows) -> Tensor | None:
        """[capacity] which rows of the memory may be replayed; None for all."""
        if self.options.replay_from == "all":
            return None
        return ~self.in_batch(incoming.y)[self.memory.y[:-1]]

    def fill_missing(self, rows: Rows, incoming: Rows) -> Rows:
        """Replace missing rows by incoming samples; their weight stays zero.

        Blank rows would do, except for BatchNorm, whose statistics include every row of a batch.
        """
        x, y = incoming.x, incoming.y
        if len(rows.y) != len(y):
            index = torch.arange(len(rows.y), device=y.device) % len(y)
            x, y = x[index], y[index]
        stored = rows.weight > 0
        x = rows.x.where(stored.reshape(-1, *[1] * (x.dim() - 1)), x)
        return Rows(x, rows.y.where(stored, y), rows.weight, rows.extra)

    def encode(self, views: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
        """Features of each part of the views, by one forward pass per part or by one for all."""
        separate = self.options.passes == "separate"
        if separate and not self.encoder.one_pass:
            return tuple(self.embed(part) for part in views.split(sizes))
        with separate_batches(sizes if separate else ()):  # one pass either way; only BatchNorm differs
            features: tuple[Tensor, ...] = self.embed(views).split(sizes)
        return features

    @property
    def answers_by_means(self) -> bool:
        """Whether answers are the nearest class mean of the memory."""
        return self.options.readout == "ncm"

    def readout(self) -> Callable[[Tensor], Tensor]:
        if not self.answers_by_means:
            return self.logits
        means, present = self.reuse(self.memory_means)
        return lambda features: cosine(features, means, 1.0).masked_fill(~present, float("-inf"))

    def temperature(self) -> float:
        return COSINES if self.answers_by_means else 1.0

    def answer_interval(self, batch: int) -> int:
        """Class means are a forward pass over the memory; a step computes about three per sample."""
        if not self.answers_by_means:
            return 1
        return math.ceil(2 * self.memory.capacity / (3 * (batch + self.options.replay_size)))

    def memory_means(self) -> tuple[Tensor, Tensor]:
        """[C, d] the mean direction of each class in the memory, and [C] which classes have samples."""
        rows = self.memory.everything()
        parts = [unit(self.embed_to_answer(self.view(x, augment=False))) for x in rows.x.split(self.spec.chunk)]
        return class_means(torch.cat(parts), self.one_hot(rows.y), rows.weight)
