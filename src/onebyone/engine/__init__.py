"""How steps are run."""

from onebyone.engine.device import choose_device
from onebyone.engine.eager import Eager

__all__ = ["Eager", "choose_device"]
