"""Triton kernels for training small convolutions with BatchNorm on a GPU. All are deterministic: no atomic additions.

Images are channels-last: a tensor [n, height, width, channels] is read as rows (n, height, width) of channels. Weights
are [outputs, side, side, inputs]. Rows are divided into ``parts`` of equal size, which BatchNorm normalises separately.
A tile of rows never contains rows of two parts. Sums are float32, whatever the type of the images.
"""

from __future__ import annotations

from typing import Any

jit: Any
try:
    import triton.language as tl
    from triton import jit
except ImportError:  # nothing here is called then
    AVAILABLE = False

    def jit(function: Any) -> Any:
        return function
else:
    AVAILABLE = True


@jit
def source(row, tap, IN, OUT, SIDE: tl.constexpr, STRIDE: tl.constexpr):
    """The row of an image of side IN that a tap reads for a row of the result of side OUT, and whether it exists."""
    image, place = row // (OUT * OUT), row % (OUT * OUT)
    y = place // OUT * STRIDE + tap // SIDE - SIDE // 2
    x = place % OUT * STRIDE + tap % SIDE - SIDE // 2
    return (image * IN + y) * IN + x, (y >= 0) & (y < IN) & (x >= 0) & (x < IN)


@jit
def target(row, tap, IN, OUT, SIDE: tl.constexpr, STRIDE: tl.constexpr):
    """The reverse: the row of the result that reads this row of the image by this tap, and whether it exists."""
    image, place = row // (IN * IN), row % (IN * IN)
    y = place // IN + SIDE // 2 - tap // SIDE
    x = place % IN + SIDE // 2 - tap % SIDE
    exists = (y >= 0) & (x >= 0) & (y % STRIDE == 0) & (x % STRIDE == 0)
    y, x = y // STRIDE, x // STRIDE
    return (image * OUT + y) * OUT + x, exists & (y < OUT) & (x < OUT)


@jit
def convolve(
    x, weight, result, tile_mean, tile_spread, rows_per_part, tiles_per_part, IN, OUT,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, SIDE: tl.constexpr, STRIDE: tl.constexpr,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Convolution, and of each tile of rows the mean and the sum of squared differences from it, by channel."""
    tile = tl.program_id(0)
    local = tile % tiles_per_part * ROWS + tl.arange(0, ROWS)
    row = tile // tiles_per_part * rows_per_part + local
    inside = local < rows_per_part
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    CHUNKS: tl.constexpr = (INPUTS + DEPTH - 1) // DEPTH
    for step in range(SIDE * SIDE * CHUNKS):
        tap = step // CHUNKS
        depth = step % CHUNKS * DEPTH + tl.arange(0, DEPTH)
        origin, exists = source(row, tap, IN, OUT, SIDE, STRIDE)
        a = tl.load(
            x + origin[:, None] * INPUTS + depth[None, :], (exists & inside)[:, None] & (depth < INPUTS)[None, :], 0.0
        )
        b = tl.load(
            weight + channel[None, :] * (SIDE * SIDE * INPUTS) + tap * INPUTS + depth[:, None],
            (depth < INPUTS)[:, None] & (channel < OUTPUTS)[None, :],
            0.0,
        )
        total = tl.dot(a, b.to(a.dtype), total, input_precision=PRECISION)
    rounded = total.to(result.dtype.element_ty)
    written = inside[:, None] & (channel < OUTPUTS)[None, :]
    tl.store(result + row[:, None] * OUTPUTS + channel[None, :], rounded, written)
    count = tl.minimum(rows_per_part - tile % tiles_per_part * ROWS, ROWS)
    values = rounded.to(tl.float32)  # zero outside
    mean = tl.sum(values, 0) / count
    difference = tl.where(inside[:, None], values - mean[None, :], 0.0)
    tl.store(tile_mean + tile * OUTPUTS + channel, mean, channel < OUTPUTS)
    tl.store(tile_spread + tile * OUTPUTS + channel, tl.sum(difference * difference, 0), channel < OUTPUTS)


@jit
def input_gradient(
    gradient, weight, result, rows, IN, OUT,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, SIDE: tl.constexpr, STRIDE: tl.constexpr,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of a convolution for its input."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros((ROWS, CHANNELS), tl.float32)
    CHUNKS: tl.constexpr = (OUTPUTS + DEPTH - 1) // DEPTH
    for step in range(SIDE * SIDE * CHUNKS):
        tap = step // CHUNKS
        depth = step % CHUNKS * DEPTH + tl.arange(0, DEPTH)
        origin, exists = target(row, tap, IN, OUT, SIDE, STRIDE)
        a = tl.load(
            gradient + origin[:, None] * OUTPUTS + depth[None, :],
            (exists & inside)[:, None] & (depth < OUTPUTS)[None, :],
            0.0,
        )
        b = tl.load(
            weight + depth[:, None] * (SIDE * SIDE * INPUTS) + tap * INPUTS + channel[None, :],
            (depth < OUTPUTS)[:, None] & (channel < INPUTS)[None, :],
            0.0,
        )
        total = tl.dot(a, b.to(a.dtype), total, input_precision=PRECISION)
    written = inside[:, None] & (channel < INPUTS)[None, :]
    tl.store(result + row[:, None] * INPUTS + channel[None, :], total.to(result.dtype.element_ty), written)


@jit
def weight_gradient(
    x, gradient, result, rows, rows_per_split, IN, OUT,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, SIDE: tl.constexpr, STRIDE: tl.constexpr,
    ROWS: tl.constexpr, A: tl.constexpr, B: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of a convolution for its weights, of some rows: to be summed over the splits."""
    split, tap = tl.program_id(0) // (SIDE * SIDE), tl.program_id(0) % (SIDE * SIDE)
    TILES: tl.constexpr = (INPUTS + B - 1) // B
    output = tl.program_id(1) // TILES * A + tl.arange(0, A)
    input = tl.program_id(1) % TILES * B + tl.arange(0, B)
    total = tl.zeros((A, B), tl.float32)
    end = tl.minimum(rows, (split + 1) * rows_per_split)
    for first in range(split * rows_per_split, end, ROWS):
        row = first + tl.arange(0, ROWS)
        origin, exists = source(row, tap, IN, OUT, SIDE, STRIDE)
        a = tl.load(
            gradient + row[None, :] * OUTPUTS + output[:, None], (row < end)[None, :] & (output < OUTPUTS)[:, None], 0.0
        )
        b = tl.load(
            x + origin[:, None] * INPUTS + input[None, :],
            ((row < end) & exists)[:, None] & (input < INPUTS)[None, :],
            0.0,
        )
        total = tl.dot(a, b.to(a.dtype), total, input_precision=PRECISION)
    place = (split * OUTPUTS + output[:, None]) * (SIDE * SIDE * INPUTS) + tap * INPUTS + input[None, :]
    tl.store(result + place, total, (output < OUTPUTS)[:, None] & (input < INPUTS)[None, :])


@jit
def moments(
    tile_mean, tile_spread, part, channel, rows_per_part, tiles_per_part, tile_rows,
    FILTERS: tl.constexpr, CHANNELS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Mean and variance of a part, by channel, from those of its tiles."""
    mean = tl.zeros((CHANNELS,), tl.float32)
    for first in range(0, tiles_per_part, TILES):
        tile = first + tl.arange(0, TILES)
        known = (tile < tiles_per_part)[:, None] & (channel < FILTERS)[None, :]
        count = tl.minimum(rows_per_part - tile * tile_rows, tile_rows)
        place = (part * tiles_per_part + tile)[:, None] * FILTERS + channel[None, :]
        mean += tl.sum(tl.load(tile_mean + place, known, 0.0) * count[:, None], 0)
    mean = mean / rows_per_part
    spread = tl.zeros((CHANNELS,), tl.float32)
    for first in range(0, tiles_per_part, TILES):
        tile = first + tl.arange(0, TILES)
        known = (tile < tiles_per_part)[:, None] & (channel < FILTERS)[None, :]
        count = tl.minimum(rows_per_part - tile * tile_rows, tile_rows)
        place = (part * tiles_per_part + tile)[:, None] * FILTERS + channel[None, :]
        difference = tl.load(tile_mean + place, known, 0.0) - mean[None, :]
        within = tl.load(tile_spread + place, known, 0.0)
        spread += tl.sum(tl.where(known, within + difference * difference * count[:, None], 0.0), 0)
    return mean, spread / rows_per_part


@jit
def normalize(
    x, tile_mean, tile_spread, scale, shift, running_mean, running_variance, momentum, epsilon, residual, result,
    saved_mean, saved_inverse, parts, rows_per_part, tiles_per_part, tile_rows, row_tiles,
    FILTERS: tl.constexpr, RESIDUAL: tl.constexpr, RELU: tl.constexpr,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """BatchNorm of each part, then the residual is added, then ReLU. The first program updates running statistics."""
    part, tile = tl.program_id(0) // row_tiles, tl.program_id(0) % row_tiles
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < FILTERS
    mean, variance = moments(
        tile_mean, tile_spread, part, channel, rows_per_part, tiles_per_part, tile_rows, FILTERS, CHANNELS, TILES
    )
    inverse = 1.0 / tl.sqrt(variance + epsilon)
    factor = inverse * tl.load(scale + channel, known, 0.0)
    offset = tl.load(shift + channel, known, 0.0)
    local = tile * ROWS + tl.arange(0, ROWS)
    place = (part * rows_per_part + local)[:, None] * FILTERS + channel[None, :]
    inside = (local < rows_per_part)[:, None] & known[None, :]
    value = (tl.load(x + place, inside, 0.0).to(tl.float32) - mean[None, :]) * factor[None, :] + offset[None, :]
    if RESIDUAL:
        value += tl.load(residual + place, inside, 0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(result + place, value.to(result.dtype.element_ty), inside)
    if tile == 0:
        tl.store(saved_mean + part * FILTERS + channel, mean, known)
        tl.store(saved_inverse + part * FILTERS + channel, inverse, known)
    if tl.program_id(0) == 0:
        average = tl.load(running_mean + channel, known, 0.0)
        spread = tl.load(running_variance + channel, known, 0.0)
        for other in range(parts):  # one after another, as if each part had been a batch
            mean, variance = moments(
                tile_mean, tile_spread, other, channel, rows_per_part, tiles_per_part, tile_rows,
                FILTERS, CHANNELS, TILES,
            )  # fmt: skip
            average += momentum * (mean - average)
            spread += momentum * (variance * (rows_per_part / (rows_per_part - 1.0)) - spread)
        tl.store(running_mean + channel, average, known)
        tl.store(running_variance + channel, spread, known)


@jit
def gradient_sums(
    gradient, output, x, saved_mean, saved_inverse, tile_sum, tile_product, rows_per_part, row_tiles,
    FILTERS: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Of each tile of rows: the sum of the gradient, and of its product with the normalised values, by channel."""
    part, tile = tl.program_id(0) // row_tiles, tl.program_id(0) % row_tiles
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < FILTERS
    mean = tl.load(saved_mean + part * FILTERS + channel, known, 0.0)
    inverse = tl.load(saved_inverse + part * FILTERS + channel, known, 0.0)
    local = tile * ROWS + tl.arange(0, ROWS)
    place = (part * rows_per_part + local)[:, None] * FILTERS + channel[None, :]
    inside = (local < rows_per_part)[:, None] & known[None, :]
    given = tl.load(gradient + place, inside, 0.0).to(tl.float32)
    if RELU:
        given = tl.where(tl.load(output + place, inside, 0.0) > 0, given, 0.0)
    value = (tl.load(x + place, inside, 0.0).to(tl.float32) - mean[None, :]) * inverse[None, :]
    tl.store(tile_sum + tl.program_id(0) * FILTERS + channel, tl.sum(given, 0), known)
    tl.store(tile_product + tl.program_id(0) * FILTERS + channel, tl.sum(given * value, 0), known)


@jit
def total_of(sums, part, channel, row_tiles, FILTERS: tl.constexpr, CHANNELS: tl.constexpr, TILES: tl.constexpr):
    """The sum over the tiles of a part, by channel."""
    total = tl.zeros((CHANNELS,), tl.float32)
    for first in range(0, row_tiles, TILES):
        tile = first + tl.arange(0, TILES)
        place = (part * row_tiles + tile)[:, None] * FILTERS + channel[None, :]
        total += tl.sum(tl.load(sums + place, (tile < row_tiles)[:, None] & (channel < FILTERS)[None, :], 0.0), 0)
    return total


@jit
def normalize_gradient(
    gradient, output, x, saved_mean, saved_inverse, scale, tile_sum, tile_product, result, residual_gradient,
    scale_gradient, shift_gradient, parts, rows_per_part, row_tiles,
    FILTERS: tl.constexpr, RESIDUAL: tl.constexpr, RELU: tl.constexpr,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """The gradients of ``normalize``, from the sums of ``gradient_sums``."""
    part, tile = tl.program_id(0) // row_tiles, tl.program_id(0) % row_tiles
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    known = channel < FILTERS
    mean = tl.load(saved_mean + part * FILTERS + channel, known, 0.0)
    inverse = tl.load(saved_inverse + part * FILTERS + channel, known, 0.0)
    factor = inverse * tl.load(scale + channel, known, 0.0)
    shared = total_of(tile_sum, part, channel, row_tiles, FILTERS, CHANNELS, TILES) / rows_per_part
    slope = total_of(tile_product, part, channel, row_tiles, FILTERS, CHANNELS, TILES) / rows_per_part
    local = tile * ROWS + tl.arange(0, ROWS)
    place = (part * rows_per_part + local)[:, None] * FILTERS + channel[None, :]
    inside = (local < rows_per_part)[:, None] & known[None, :]
    given = tl.load(gradient + place, inside, 0.0).to(tl.float32)
    if RELU:
        given = tl.where(tl.load(output + place, inside, 0.0) > 0, given, 0.0)
    if RESIDUAL:
        tl.store(residual_gradient + place, given.to(residual_gradient.dtype.element_ty), inside)
    value = (tl.load(x + place, inside, 0.0).to(tl.float32) - mean[None, :]) * inverse[None, :]
    change = (given - shared[None, :] - value * slope[None, :]) * factor[None, :]
    tl.store(result + place, change.to(result.dtype.element_ty), inside)
    if tl.program_id(0) == 0:
        sums, products = tl.zeros((CHANNELS,), tl.float32), tl.zeros((CHANNELS,), tl.float32)
        for other in range(parts):
            sums += total_of(tile_sum, other, channel, row_tiles, FILTERS, CHANNELS, TILES)
            products += total_of(tile_product, other, channel, row_tiles, FILTERS, CHANNELS, TILES)
        tl.store(shift_gradient + channel, sums, known)
        tl.store(scale_gradient + channel, products, known)
