"""How the data arrive."""

from onebyone.streams.stream import Stream, Task, class_incremental, iid

__all__ = ["Stream", "Task", "class_incremental", "iid"]
