"""What may be kept."""

from onebyone.memory.memory import Memory, Rows
from onebyone.memory.policies import BalancedReservoir, Reservoir, create

__all__ = ["BalancedReservoir", "Memory", "Reservoir", "Rows", "create"]
