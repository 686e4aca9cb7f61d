"""Streaming linear discriminant analysis of the features of any frozen encoder."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from onebyone import nets
from onebyone.errors import UsageError
from onebyone.methods.registry import register
from onebyone.nets import LARGEST, Adapted, Encoder, Patches
from onebyone.options import option
from onebyone.statistics.features import Directions
from onebyone.statistics.kept import KeptSample, as_words
from onebyone.statistics.patch_lda import KEPT_SHARE, MOST_KEPT, PatchLDA, PatchLDAOptions
from onebyone.statistics.sums import Moments

AUTO = "auto"
MOST_ENCODED, ENCODED_BYTES = 1000, 2**26  # samples that an encoder is given at once


@dataclass(frozen=True, kw_only=True)
class LDAOptions(PatchLDAOptions):
    encoder: str | Encoder = option(
        AUTO,
        "frozen encoder: lite0, timm:NAME or onnx:FILE; auto: none, patches of images and values of vectors are used",
    )

    size: int = option(LARGEST, "without an encoder, the shorter side in pixels that images are reduced to", low=4)


@register("lda", LDAOptions)
class LDA(PatchLDA):
    """Class means and one covariance of the features of a frozen encoder; without one it is `patch-lda`.

    Features of an encoder are treated like vectors. They are used as they are, and projections on random directions
    are added if the budget has room for them. If the budget has no room for all features, they are reduced. The budget
    counts statistics, projections and kept samples, but not the encoder, which stays as it was given. Each sample runs
    through the encoder once. Of the samples that are kept for calibration, the encoder's features are stored.

    >>> from onebyone.data import load
    >>> from torch import nn
    >>> digits = load("digits")
    >>> encoder = Adapted(nn.Sequential(nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(3)), (1, 8, 8), frozen=True)
    >>> learner = LDA(LDAOptions(budget=100_000, encoder=encoder), digits.spec)
    >>> loss = learner.observe(digits.train_x, digits.train_y)
    >>> learner.memory_bytes <= 100_000, bool((learner.predict(digits.test_x) == digits.test_y).float().mean() > 0.8)
    (True, True)
    """

    options: LDAOptions
    encoder: Adapted | None

    def build(self) -> None:
        self.side = self.options.size
        self.encoder = frozen_encoder(self.options.encoder, self.spec.shape)
        if self.encoder is not None:
            if self.device.type != "meta":  # where only shapes are asked for, a given encoder is not used
                self.encoder.to(self.device)
            # A learner with room for more classes shares the encoder, which never changes.
            self.options = replace(self.options, encoder=self.encoder)
            self.one_unit = True

    @property
    def chunk(self) -> int:
        """With an encoder, 64 MB of samples: it divides them itself, and statistics take many at once faster."""
        if self.encoder is None:
            return super().chunk
        return max(1, min(MOST_ENCODED, ENCODED_BYTES // self.spec.sample_bytes))

    @property
    def reads_patches(self) -> bool:
        return self.encoder is None and super().reads_patches

    def parts(self, filters: int, raw: bool = True) -> tuple[Patches | Directions, Moments, KeptSample]:
        if self.encoder is None:
            return super().parts(filters, raw)
        width = self.encoder.width
        directions = Directions((width,), filters, raw=raw, normalised=True)
        kept = min(MOST_KEPT, int(KEPT_SHARE * self.options.budget / (4 * width + 20)))
        moments = Moments(directions.width, self.spec.num_classes, torch.float64)
        return directions, moments, KeptSample(kept, width, torch.float32)

    def read(self, x: Tensor) -> Tensor:
        return super().read(x) if self.encoder is None else self.encoder(x).float()

    def kept_form(self, x: Tensor, read: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        # Features depend on the other samples of a batch in their last bits, so they cannot identify a sample.
        if self.encoder is None:
            return super().kept_form(x, read, features)
        return read, as_words(x.flatten(1))

    def kept_features(self, values: Tensor) -> Tensor:
        if self.encoder is None:
            return super().kept_features(values)
        features: Tensor = self.extractor(values)
        return features


def frozen_encoder(kind: str | Encoder, shape: tuple[int, ...]) -> Adapted | None:
    """The encoder that never changes: the one given if it is such a one, a copy of another, or None for ``auto``."""
    if kind == AUTO:
        return None
    if isinstance(kind, Adapted) and kind.fixed:
        return kind
    if isinstance(kind, Encoder):
        return Adapted(kind.module if isinstance(kind, Adapted) else kind, shape, frozen=True)
    if not nets.is_pretrained(kind):
        raise UsageError(
            f"encoder is {kind!r}, which lda does not train; give lite0, timm:NAME, onnx:FILE or a trained module"
        )
    return Adapted(nets.pretrained(kind, shape), shape, frozen=True)
