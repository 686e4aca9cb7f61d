"""What may be kept."""

from onebyone.memory.memory import Memory, Rows
from onebyone.memory.moments import Moments
from onebyone.memory.policies import BalancedReservoir, Reservoir, create
from onebyone.memory.sample import KeptSample

__all__ = ["BalancedReservoir", "KeptSample", "Memory", "Moments", "Reservoir", "Rows", "create"]
