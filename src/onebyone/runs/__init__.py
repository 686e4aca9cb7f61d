"""From a configuration to a result folder."""

from onebyone.runs.config import RunConfig
from onebyone.runs.listener import Listener
from onebyone.runs.results import Results, read_results
from onebyone.runs.run import run

__all__ = ["Listener", "Results", "RunConfig", "read_results", "run"]
