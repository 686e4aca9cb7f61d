"""How steps are run, and what they cost."""

from onebyone.engine.captured import Captured, engine_for
from onebyone.engine.cost import Cost, measure_cost
from onebyone.engine.device import choose_device, completion, environment, more_queues, reproducible, torch_settings
from onebyone.engine.eager import Eager
from onebyone.engine.pack import NotNow, pack

__all__ = [
    "Captured",
    "Cost",
    "Eager",
    "NotNow",
    "choose_device",
    "completion",
    "engine_for",
    "environment",
    "measure_cost",
    "more_queues",
    "pack",
    "reproducible",
    "torch_settings",
]
