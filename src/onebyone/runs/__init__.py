"""From a configuration to a result folder."""

from onebyone.runs.config import RunConfig
from onebyone.runs.run import Listener, run

__all__ = ["Listener", "RunConfig", "run"]
