"""Refuses operations of a step that read values."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from onebyone.testing.errors import BrokenContract

aten = torch.ops.aten


def reads_a_value(operation: object) -> BrokenContract:
    return BrokenContract(
        f"observe reads a value, or a shape that depends on one ({operation}); no item(), int(), float(), if or "
        "assert on a tensor, no x[mask], nonzero or unique: use where, a mask, or a weight of zero"
    )


class NoValueReads(TorchDispatchMode):
    """Refuses operations that read a value, or whose shape depends on one."""

    refused = (
        aten._local_scalar_dense,
        aten.item,
        aten.is_nonzero,
        aten.equal,
        aten.nonzero,
        aten.nonzero_numpy,
        aten.masked_select,
        aten._unique,
        aten._unique2,
        aten.unique_dim,
        aten.unique_consecutive,
    )
    indexing = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket
        if packet in self.refused or (
            packet in self.indexing and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        ):
            raise reads_a_value(func)
        return func(*args, **(kwargs or {}))
