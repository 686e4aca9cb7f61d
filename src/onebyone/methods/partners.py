"""One partner for each incoming sample, from the memory and the batch together."""

from __future__ import annotations

import torch
from torch import Tensor

from onebyone.memory import Memory, Rows


def draw_partners(memory: Memory, incoming: Rows, allowed: Tensor, generator: torch.Generator) -> Rows:
    """One row for each of n incoming samples, at random among its ``allowed`` [n, capacity + n] candidates.

    Candidates are the rows of the memory, then the samples of the batch; a sample is never its own partner. Where
    there is no candidate the row weighs nothing.
    """
    count = len(incoming.y)
    own = torch.eye(count, dtype=torch.bool, device=allowed.device)
    usable = allowed & torch.cat([memory.filled.expand(count, -1), ~own], 1)
    keys = torch.rand(usable.shape, generator=generator, device=usable.device).masked_fill(~usable, -1.0)
    best = keys.max(1)
    stored = memory.rows(best.indices.clamp(max=memory.capacity))
    mate = (best.indices - memory.capacity).clamp(min=0)
    from_memory = best.indices < memory.capacity
    x = stored.x.where(from_memory.reshape(-1, *[1] * (stored.x.dim() - 1)), incoming.x[mate])
    y = stored.y.where(from_memory, incoming.y[mate])
    return Rows(x, y, (best.values >= 0).float())
