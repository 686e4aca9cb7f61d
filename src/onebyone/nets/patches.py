"""Features without a gradient: filters taken from the first samples of a stream, or random directions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LARGEST = 32  # pixels of the shorter side; larger images are shrunk to it
MOST_PATCHES = 8_000  # that filters are made from
CACHE = 8_000_000  # bytes of answers that a processor holds until they are averaged
ROUNDS = 10  # in which patches are gathered around filters
FLOOR = 0.01  # of the mean variance of patches: flatter patches than that are mostly noise
REGULARISATION = 0.1  # of the whitening; normalised patches have variance 1


class Patches(nn.Module):
    """How strongly typical patches of the first images occur in an image, in each of its quadrants.

    A patch is normalised to zero mean and unit variance; filters are what whitened patches gather around. What a filter
    answers beyond a threshold, on either side, is averaged over each quadrant of the image and over the image and its
    mirror image: 8 features a filter. The mirror image is seen by mirrored filters, which is the same and needs no
    second image.

    >>> images = torch.rand(20, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> patches = Patches((3, 32, 32), filters=5)
    >>> patches.fit(images, torch.Generator().manual_seed(0))
    >>> patches(images).shape
    torch.Size([20, 40])
    """

    filters: Tensor
    offsets: Tensor
    floor: Tensor
    pooling: Tensor

    def __init__(self, shape: tuple[int, ...], filters: int, patch: int = 8, stride: int = 1, threshold: float = 1.0):
        super().__init__()
        channels, *sides = shape
        shrink = max(1.0, min(sides) / LARGEST)
        self.size = (round(sides[0] / shrink), round(sides[1] / shrink))
        self.patch = min(patch, (min(self.size) + 1) // 2)
        self.stride = stride
        self.threshold = threshold
        self.register_buffer("filters", torch.zeros(filters, channels, self.patch, self.patch, dtype=torch.float16))
        self.register_buffer("offsets", torch.zeros(filters))
        self.register_buffer("floor", torch.zeros(()))
        places = [(side - self.patch) // stride + 1 for side in self.size]
        each = torch.eye(places[0] * places[1]).reshape(-1, *places)
        quadrants = F.adaptive_avg_pool2d(each, (min(2, places[0]), min(2, places[1])))  # what each place adds to each
        both = torch.stack([quadrants, quadrants.flip(2)]) / 2  # a mirrored image has its places mirrored
        self.register_buffer("pooling", both.flatten(2).mT.contiguous(), persistent=False)
        self.count = filters
        self.width = 2 * filters * self.pooling.shape[1]

    def fit(self, x: Tensor, generator: torch.Generator) -> None:
        """Take the filters from images [n, c, h, w], as numbers."""
        x = self.shrunk(x)
        patches = F.unfold(x, self.patch).mT.flatten(0, 1).double()
        patches = patches[torch.randperm(len(patches), generator=generator, device=x.device)[:MOST_PATCHES]]
        patches = patches - patches.mean(1, keepdim=True)
        variance = patches.square().mean(1, keepdim=True)
        floor = (FLOOR * variance.mean()).clamp(min=1e-12)
        patches = patches / (variance + floor).sqrt()
        mean = patches.mean(0)
        values, vectors = torch.linalg.eigh((patches - mean).T @ (patches - mean) / len(patches))
        whitening = vectors / (values.clamp(min=0) + REGULARISATION).sqrt() @ vectors.T
        white = (patches - mean) @ whitening
        filters = clusters(white, len(self.filters)) * white.norm(dim=1).mean() @ whitening
        self.filters.copy_(filters.reshape(self.filters.shape))
        self.offsets.copy_(self.filters.double().flatten(1) @ mean)
        self.floor.copy_(floor)

    def forward(self, x: Tensor) -> Tensor:
        """[n, c, h, w] images, as numbers -> [n, d] features."""
        answers = 8 * len(self.filters) * self.pooling.shape[2]  # bytes for one image
        chunk = max(1, CACHE // answers) if x.device.type == "cpu" else max(1, len(x))
        return torch.cat([self.pooled(part) for part in x.split(chunk)])

    def pooled(self, x: Tensor) -> Tensor:
        x = self.shrunk(x).contiguous(memory_format=torch.channels_last)
        square = x.square().mean(1, keepdim=True)
        mean, square = (F.avg_pool2d(v, self.patch, self.stride) for v in (x.mean(1, keepdim=True), square))
        contrast = ((square - mean.square()).clamp(min=0) + self.floor).rsqrt().flatten(1)[..., None]
        filters = self.filters.to(x.dtype)
        filters = filters - filters.mean((1, 2, 3), keepdim=True)  # blind to the mean of a patch, but for rounding
        filters = torch.cat([filters, filters.flip(3)]).contiguous(memory_format=torch.channels_last)
        answers = F.conv2d(x, filters, stride=self.stride).permute(0, 2, 3, 1).flatten(1, 2)  # [n, places, 2 x filters]
        answers = torch.addcmul(-self.offsets.repeat(2), answers, contrast)

        def pool(answers: Tensor) -> Tensor:
            plain, mirrored = answers.tensor_split(2, 2)
            return self.pooling[0] @ plain + self.pooling[1] @ mirrored

        # Weights of a region sum to one, so a threshold is as well taken from the average: less to compute.
        above = pool(answers.clamp(min=self.threshold)) - self.threshold
        below = -self.threshold - pool(answers.clamp_(max=-self.threshold))
        return torch.cat([above, below], 2).flatten(1)

    def shrunk(self, x: Tensor) -> Tensor:
        """Images of the size that is looked at, around zero: squares of numbers far from it would lose their digits."""
        x = x if x.shape[2:] == self.size else F.adaptive_avg_pool2d(x, self.size)
        return x - x.mean((1, 2, 3), keepdim=True)


def clusters(points: Tensor, count: int) -> Tensor:
    """[count, d] unit vectors that the directions of points [n, d] gather around, a direction and its opposite alike.

    Patches as they come would be filters too, but much alike, and of one class if the stream begins with one.

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
        sums += 1e-9 * centres  # one that nothing is nearest to stays where it is
        centres = sums / sums.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return centres


class Directions(nn.Module):
    """Vectors along random directions, beyond a random threshold on either side: 2 features a direction.

    The first samples say where zero is and what one is, feature by feature.

    >>> vectors = torch.rand(20, 6, generator=torch.Generator().manual_seed(0))
    >>> directions = Directions((6,), filters=5)
    >>> directions.fit(vectors, torch.Generator().manual_seed(0))
    >>> directions(vectors).shape
    torch.Size([20, 10])
    """

    filters: Tensor
    thresholds: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, shape: tuple[int, ...], filters: int) -> None:
        super().__init__()
        (size,) = shape
        self.register_buffer("filters", torch.zeros(size, filters, dtype=torch.float16))
        self.register_buffer("thresholds", torch.zeros(2, filters))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("deviation", torch.ones(size))
        self.count = filters
        self.width = 2 * filters

    def fit(self, x: Tensor, generator: torch.Generator) -> None:
        """Draw the directions, and standardise by vectors [n, features]."""
        deviation, mean = torch.std_mean(x.double(), 0, correction=0)
        self.mean.copy_(mean)
        self.deviation.copy_(deviation.where(deviation > 0, 1.0))  # a feature that does not vary has no unit
        draw = torch.randn(self.filters.shape, generator=generator, device=x.device)
        self.filters.copy_(draw / len(draw) ** 0.5)  # so that answers have about unit variance
        self.thresholds.uniform_(-1, 1, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """[n, features] -> [n, d] features."""
        answers = (x - self.mean) / self.deviation @ self.filters.to(x.dtype)
        above, below = self.thresholds
        return torch.cat([(answers - above).relu(), (-answers - below).relu()], 1)
