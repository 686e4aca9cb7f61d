"""How the data arrive."""

from onebyone.streams.registry import create, in_full, streams
from onebyone.streams.schedules import Order, blurry, class_incremental, gaussian, iid, returning
from onebyone.streams.stream import Stream, Task

__all__ = [
    "Order",
    "Stream",
    "Task",
    "blurry",
    "class_incremental",
    "create",
    "gaussian",
    "iid",
    "in_full",
    "returning",
    "streams",
]
