"""How steps are run."""

from onebyone.engine.captured import Captured, create
from onebyone.engine.device import choose_device, environment, milestone, more_queues, reproducible, torch_settings
from onebyone.engine.eager import Eager
from onebyone.engine.pack import NotNow, pack

__all__ = [
    "Captured",
    "Eager",
    "NotNow",
    "choose_device",
    "create",
    "environment",
    "milestone",
    "more_queues",
    "pack",
    "reproducible",
    "torch_settings",
]
