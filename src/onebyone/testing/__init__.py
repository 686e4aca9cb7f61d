"""The contract of a learner as a function: it raises one sentence that says what is wrong with a method."""

from onebyone.testing.contract import check_learner, checks, thorough_checks
from onebyone.testing.errors import BrokenContract

__all__ = ["BrokenContract", "check_learner", "checks", "thorough_checks"]
