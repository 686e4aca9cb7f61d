"""Learners with a network that SGD trains."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

import torch
from torch import Tensor

from onebyone import nets
from onebyone.data import Spec
from onebyone.methods.learner import Learner
from onebyone.methods.options import Options
from onebyone.seeding import seeded

O = TypeVar("O", bound=Options)  # noqa: E741


class NetworkLearner(Learner[O]):
    """A learner with a network, trained by plain SGD without momentum, or by another ``optimizer`` that it sets."""

    def __init__(self, options: O, spec: Spec, seed: int = 0, device: torch.device | str = "cpu") -> None:
        super().__init__(options, spec, seed, device)
        with seeded(seed, "weights"):  # drawn on the CPU: the same initial weights on every device
            self.encoder = nets.create(options.encoder, spec.shape)
            self.encoder.precision = options.precision  # before copies of it are made
            self.build()
        self.to(device)
        faster = torch.device(device).type == "cpu" or options.precision == "bf16" or self.encoder.fused
        self.channels_last = options.channels_last and faster
        if self.channels_last:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        # torch refuses an optimizer without parameters, as with a frozen encoder and a method without weights.
        self.optimizer: torch.optim.Optimizer | None = None
        if trained:
            self.optimizer = torch.optim.SGD(trained, options.learning_rate, foreach=True)

    def make_portable(self) -> None:
        self.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.channels_last = False
        for part in self.modules():
            if isinstance(part, nets.Encoder):
                part.precision = "float32"

    @abstractmethod
    def build(self) -> None:
        """Create the modules on top of ``self.encoder``. Called once, while torch's generator is seeded."""

    def embed(self, view: Tensor) -> Tensor:
        """[n, *shape] views -> [n, d] features of the encoder; override it to add a projector."""
        return self.encoder(view)

    def embed_to_answer(self, view: Tensor) -> Tensor:
        """[n, *shape] views -> [n, d] the features that answers are computed from: by default those of ``embed``."""
        return self.embed(view)

    def features(self, x: Tensor) -> Tensor:
        view = self.view(x, augment=False)
        if view.is_cuda and view.dim() == 4:  # large batches are a quarter faster in this layout, small ones are not
            view = view.contiguous(memory_format=torch.channels_last)
        return self.embed_to_answer(view)

    def view(self, x: Tensor, augment: bool = True) -> Tensor:
        """Samples as the network reads them: augmented, scaled to [-1, 1], in its memory layout."""
        if augment and self.options.augment:
            x = self.spec.augmentation(x, self.generator)
        x = self.scaled(x)
        if self.channels_last and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return x

    def descend(self, loss: Tensor) -> None:
        """One step of the optimizer."""
        assert self.optimizer is not None, "all weights are frozen, so there is nothing to train"
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self._reused = None
