"""Features of images without training: filters that are the same for every stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onebyone.nets.leaves import dead_leaves
from onebyone.tensors import one_thread

LARGEST = 32  # pixels of the shorter side, by default; larger images are scaled down to it
COMPONENTS = 64  # coefficients per patch
COLOUR = 16  # variance of brightness over variance of colour in natural images
PICTURES = 200  # dead leaves images that filters are fitted to
MOST_PATCHES = 8_000  # taken from these
CACHE = 8_000_000  # bytes of filter responses that fit into a processor's cache until they are averaged
ROUNDS = 10  # of k-means
FLOOR = 0.01  # of the variance of an image: flatter patches than that are mostly noise
SCENES = 64  # dead leaves images that estimate mean and standard deviation of each feature
CODES = 8  # units per standard deviation: features are rounded to units when they are summed, up to 127 of them
REGULARISATION = 0.1  # of the whitening; normalised patches have variance 1
_fitting: ContextVar[bool] = ContextVar("fitting", default=True)


class Patches(nn.Module):
    """How strongly typical patches of natural images occur in each quadrant of an image.

    A patch is normalised to zero mean and unit variance, and described by the low frequencies of its cosine
    transform, which are close to the principal components of natural images. Filters are cluster centres of
    whitened patches of dead leaves images, so they do not depend on the stream. The part of a filter's response
    beyond a threshold, positive and negative, is averaged over each quadrant of the image; quadrants overlap. If a
    ``mirrored`` image is of the same class, the average is over the image and its mirror image. The square roots are 8
    features per filter, in units of an eighth of their standard deviation over dead leaves images. Mirrored filters
    are applied instead of mirroring the image, which gives the same: a cosine of an odd frequency changes its sign.
    Patches begin in every pixel, or if ``stride`` is not 1, in those that :func:`lattices` returns.

    >>> patches = Patches((3, 32, 32), filters=5)
    >>> patches.fit(seed=0)
    >>> patches(torch.rand(20, 3, 32, 32, generator=torch.Generator().manual_seed(0))).shape
    torch.Size([20, 40])
    """

    filters: Tensor
    centre: Tensor
    unit: Tensor
    components: Tensor
    signs: Tensor
    pooling: Tensor

    def __init__(
        self,
        shape: tuple[int, ...],
        filters: int,
        patch: int = 8,
        stride: int = 1,
        threshold: float = 1.0,
        mirrored: bool = True,
        largest: int = LARGEST,
    ) -> None:
        super().__init__()
        self.channels, *sides = shape
        shrink = max(1.0, min(sides) / largest)
        self.size = (round(sides[0] / shrink), round(sides[1] / shrink))
        self.patch = min(patch, (min(self.size) + 1) // 2)
        self.stride = stride
        self.threshold = threshold
        components, mirror = cosines(self.channels, self.patch, torch.get_default_dtype())
        self.register_buffer("components", components.clone(), persistent=False)
        # [views, components]: of the waves, in the image and in its mirror image
        self.register_buffer("signs", torch.stack([mirror.abs(), mirror][: 1 + mirrored]), persistent=False)
        self.register_buffer("filters", torch.zeros(filters, len(components), dtype=torch.float16))
        rows, columns = (side - self.patch + 1 for side in self.size)
        self.lattices = lattices(stride, rows, columns)
        high, wide = halves(rows), halves(columns)
        views = torch.stack([wide, wide.flip(1)][: 1 + mirrored])  # positions are mirrored too
        grid = torch.einsum("ai,vbj->vabij", high, views).flatten(1, 2)
        weights = torch.cat([grid[(..., *lattice)].flatten(2) for lattice in self.lattices], 2)
        pooling = weights / weights.sum(2, keepdim=True) / len(views)
        self.register_buffer("pooling", pooling, persistent=False)  # [views, quadrants, positions]
        self.count = filters
        self.width = 2 * filters * self.pooling.shape[1]
        self.register_buffer("centre", torch.zeros(self.width, dtype=torch.float16))
        self.register_buffer("unit", torch.ones(self.width, dtype=torch.float16))

    def fit(self, seed: int) -> None:
        """Compute the filters, and centre and unit of each feature, which make images of this kind comparable.

        Patches with the same settings and seed are fitted once per process. On the device ``meta`` there are no values.
        """
        if self.filters.is_meta or not _fitting.get():
            return
        settings = self.patch, self.stride, self.threshold, len(self.signs) > 1
        buffers = fitted((self.channels, *self.size), self.count, *settings, seed, torch.get_default_dtype())
        for name, value in buffers.items():
            getattr(self, name).copy_(value)

    def compute(self, generator: torch.Generator) -> None:
        described = self.typical(generator)
        deviation = (described.square().mean(0) + REGULARISATION).sqrt()
        white = described / deviation
        self.filters.copy_(clusters(white, self.count) * white.norm(dim=1).mean() / deviation)
        high, wide = self.size
        scenes = dead_leaves(SCENES, self.channels, max(self.size), generator)[:, :, :high, :wide]
        deviation, centre = torch.std_mean(self(scenes).double(), 0)
        self.centre.copy_(centre)
        self.unit.copy_(deviation.clamp(min=deviation.median() / 4).clamp(min=1e-2) / CODES)

    def columns(self, count: int) -> Tensor:
        """The features that are left with this number of filters; they are ordered by quadrant, sign and filter."""
        return torch.arange(self.width).reshape(-1, self.count)[:, :count].flatten()

    def typical(self, generator: torch.Generator) -> Tensor:
        """[m, components] patches of dead leaves images; flat ones only if there are too few others."""
        described = self.described(dead_leaves(PICTURES, self.channels, 4 * self.patch, generator))
        described = described.flatten(0, 1).double()
        described = described[torch.randperm(len(described), generator=generator)]
        return described[(described.norm(dim=1) < 1e-3).argsort(stable=True)[:MOST_PATCHES]]

    def forward(self, x: Tensor) -> Tensor:
        """[n, c, h, w] images, as numbers -> [n, d] features."""
        if x.device.type != "cpu" or torch.compiler.is_compiling():  # an exported program has no loop over chunks
            return self.pooled(x)
        answers = 4 * len(self.filters) * len(self.pooling) * self.pooling.shape[2]  # bytes for one image
        chunk = max(1, CACHE // answers)
        return torch.cat([self.pooled(part) for part in x.split(chunk)])

    def pooled(self, x: Tensor) -> Tensor:
        filters = self.filters.to(self.components)
        filters = torch.cat([filters * signs for signs in self.signs])[:, :, None, None]
        x = x if x.shape[2:] == self.size else F.adaptive_avg_pool2d(x, self.size)
        # A product of matrices, but convolutions of this kind are faster on some processors.
        described = self.described(x)[:, :, None].permute(0, 3, 1, 2)
        answers = F.conv2d(described, filters)[..., 0].mT  # [n, positions, views x filters]

        def pool(answers: Tensor) -> Tensor:
            views = answers.tensor_split(len(self.pooling), 2)
            return torch.stack([weights @ view for weights, view in zip(self.pooling, views, strict=True)]).sum(0)

        answers = F.softshrink(answers, self.threshold)
        above, below = pool(answers.clamp(min=0)), -pool(answers.clamp_(max=0))
        features = torch.cat([above, below], 2).flatten(1).sqrt()  # whose distribution is less skewed
        return (features - self.centre) / self.unit

    def described(self, x: Tensor) -> Tensor:
        """[n, c, h, w] -> [n, positions, components]: every patch of the lattices, normalised."""
        x = x - x.mean((1, 2, 3), keepdim=True)  # squares of numbers far from zero would lose precision
        floor = (FLOOR * x.square().mean((1, 2, 3))).clamp(min=1e-12)[:, None, None]
        mean, square = (self.window_mean(v.mean(1)) for v in (x, x.square()))
        scale = ((square - mean.square()).clamp(min=0) + floor).rsqrt()
        x = x.contiguous(memory_format=torch.channels_last)
        parts = []
        for rows, columns in self.lattices:
            waves = F.conv2d(x[:, :, rows.start :, columns.start :], self.components, stride=(rows.step, columns.step))
            parts.append((waves * scale[:, None, rows, columns]).permute(0, 2, 3, 1).flatten(1, 2))
        return torch.cat(parts, 1)

    def window_mean(self, x: Tensor) -> Tensor:
        """[n, h, w] -> [n, rows, columns]: the mean of every patch; average pooling is slower with one channel."""
        return x.unfold(1, self.patch, 1).mean(-1).unfold(2, self.patch, 1).mean(-1)


def lattices(stride: int, rows: int, columns: int) -> list[tuple[slice, slice]]:
    """Rows and columns of the first pixels of patches. Together they must be their own mirror image.

    For a stride of 2, these are the squares of one colour of a chessboard, which describe an image better than every
    second row. An even number of columns has no such pattern with that symmetry. Other strides are of rows; both halves
    of an image have patches, however large the stride is.
    """
    if stride == 2 and columns % 2 and min(rows, columns) > 1:
        return [(slice(0, None, 2), slice(0, None, 2)), (slice(1, None, 2), slice(1, None, 2))]
    return [(slice(0, None, max(1, min(stride, rows - 1))), slice(0, None, 1))]


@lru_cache(maxsize=16)
def fitted(
    shape: tuple[int, ...],
    filters: int,
    patch: int,
    stride: int,
    threshold: float,
    mirrored: bool,
    seed: int,
    dtype: torch.dtype,
) -> dict[str, Tensor]:
    """The persistent buffers of fitted :class:`Patches`. Learners are created again when room for classes grows.

    ``dtype`` is the present default type of torch, in which they are computed.
    """
    patches = Patches(shape, filters, patch, stride, threshold, mirrored)
    with one_thread():  # for tensors as small as these, several threads are slower
        patches.compute(torch.Generator().manual_seed(seed))
    return patches.state_dict()


@contextmanager
def unfitted() -> Iterator[None]:
    """In the block, filters of patches are not computed, because they will be loaded."""
    before = _fitting.set(False)
    try:
        yield
    finally:
        _fitting.reset(before)


@cache
def cosines(channels: int, side: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """[k, c, side, side] the cosine waves with the largest variance in natural images, and [k] their mirror signs.

    They are the basis of the cosine transform along channels, rows and columns. In natural images the variance of a
    wave falls with the square of its frequency, and faster along channels. The mean of a patch is left out.

    >>> waves, mirror = cosines(1, 2)
    >>> (2 * waves.flatten(1)).round().tolist(), mirror.tolist()
    ([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0], [1.0, -1.0, -1.0, 1.0]], [-1.0, 1.0, -1.0])
    """

    arange = partial(torch.arange, device="cpu")  # not on the caller's default device: the result is cached

    def waves(size: int) -> Tensor:
        wave = torch.cos(torch.pi / size * arange(size)[:, None] * (arange(size, dtype=dtype) + 0.5))
        return F.normalize(wave)

    every = torch.einsum("ai,bj,ck->abcijk", waves(channels), waves(side), waves(side))
    colour, row, column = torch.meshgrid(arange(channels), *[arange(side)] * 2, indexing="ij")
    rarity = (row.square() + column.square()) * torch.where(colour == 0, 1, COLOUR)
    order = rarity.flatten().argsort(stable=True)[1 if channels * side > 1 else 0 :][:COMPONENTS]
    return every.flatten(0, 2)[order].contiguous(), 1.0 - 2 * (column.flatten()[order] % 2)


def halves(positions: int) -> Tensor:
    """[2, positions] weights that average either half of a line; of 1 position there is one half.

    Weights fall from one to zero along the middle half of the line. So features change little if an object moves.

    >>> halves(4).tolist(), halves(1).tolist()
    ([[0.5, 0.375, 0.125, 0.0], [0.0, 0.125, 0.375, 0.5]], [[1.0]])
    """
    place = (torch.arange(positions, device="cpu") + 0.5) / positions
    first = (1.5 - 2 * place).clamp(0, 1)
    rows = torch.stack([first, first.flip(0)][: min(2, positions)])
    return rows / rows.sum(1, keepdim=True)


def clusters(points: Tensor, count: int) -> Tensor:
    """[count, d] unit vectors: cluster centres of the directions of points [n, d]; opposite directions count as equal.

    Patches drawn at random would be filters too, but many of them similar.

    >>> clusters(torch.tensor([[2.0, 0.0], [0.0, 1.0], [-3.0, 0.0]]), 2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    points = points / points.norm(dim=1, keepdim=True).clamp(min=1e-12)
    centres = points[torch.arange(count, device=points.device) % len(points)]
    for _ in range(ROUNDS):
        nearness = points @ centres.T
        nearest = nearness.abs().argmax(1, keepdim=True)
        sign = nearness.gather(1, nearest).sign()
        sums = torch.zeros_like(nearness).scatter_(1, nearest, sign).T @ points
        sums += 1e-9 * centres  # a centre without points stays where it is
        centres = sums / sums.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return centres
