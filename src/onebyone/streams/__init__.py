"""Streams: the order in which samples arrive."""

from onebyone.streams.plan import Order, StreamOptions
from onebyone.streams.registry import in_full, register, stream_named, streams
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
    "gaussian",
    "iid",
    "in_full",
    "register",
    "returning",
    "stream_named",
    "streams",
]
