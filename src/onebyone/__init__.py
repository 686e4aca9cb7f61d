"""Learn a classifier online, one class at a time."""

from onebyone.data import Dataset, Spec, datasets, load
from onebyone.errors import UsageError
from onebyone.methods import Learner, create, methods

__version__ = "0.1.0"

__all__ = ["Dataset", "Learner", "Spec", "UsageError", "create", "datasets", "load", "methods"]
