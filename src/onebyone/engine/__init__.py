"""How steps are run, and what they cost."""

from onebyone.engine.captured import Captured, create
from onebyone.engine.cost import Cost, measure_cost
from onebyone.engine.device import choose_device, environment, milestone, more_queues, reproducible, torch_settings
from onebyone.engine.eager import Eager
from onebyone.engine.pack import NotNow, pack

__all__ = [
    "Captured",
    "Cost",
    "Eager",
    "NotNow",
    "choose_device",
    "create",
    "environment",
    "measure_cost",
    "milestone",
    "more_queues",
    "pack",
    "reproducible",
    "torch_settings",
]
