"""Streams: the order in which samples arrive."""

from onebyone.streams.plan import Order, StreamOptions
from onebyone.streams.registry import create, in_full, register, streams
from onebyone.streams.schedules import Common, blurry, class_incremental, gaussian, iid, returning
from onebyone.streams.stream import Stream, Task

__all__ = [
    "Common",
    "Order",
    "Stream",
    "StreamOptions",
    "Task",
    "blurry",
    "class_incremental",
    "create",
    "gaussian",
    "iid",
    "in_full",
    "register",
    "returning",
    "streams",
]
