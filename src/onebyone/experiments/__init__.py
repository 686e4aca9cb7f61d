"""From a configuration to a result folder."""

from onebyone.experiments.config import RunConfig
from onebyone.experiments.run import Listener, run

__all__ = ["Listener", "RunConfig", "run"]
