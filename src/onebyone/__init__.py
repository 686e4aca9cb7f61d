"""Learn a classifier online, one class at a time.

>>> import onebyone
>>> data = onebyone.load("digits")
>>> stream = onebyone.class_incremental(data.train_y, data.num_classes, classes_per_task=5)
>>> learner = onebyone.create("er", data.spec, memory_per_class=20)
>>> for index in stream:
...     loss = learner.observe(data.train_x[index], data.train_y[index])
>>> bool((learner.predict(data.test_x) == data.test_y).float().mean() > 0.5)
True
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onebyone.data import Dataset, Spec, datasets, from_arrays, from_folder, load
    from onebyone.errors import UsageError
    from onebyone.estimator import OnlineClassifier as OnlineClassifier
    from onebyone.methods import Learner, create, methods
    from onebyone.runs.results import read_results as read_results
    from onebyone.streams import blurry, class_incremental, gaussian, iid, returning

__version__ = "0.2.0"

__all__ = [
    "Dataset",
    "Learner",
    "Spec",
    "UsageError",
    "blurry",
    "class_incremental",
    "create",
    "datasets",
    "from_arrays",
    "from_folder",
    "gaussian",
    "iid",
    "load",
    "methods",
    "returning",
]

# Names are imported when they are asked for: torch and scikit-learn take a second each.
_MODULES = {
    "data": ("Dataset", "Spec", "datasets", "from_arrays", "from_folder", "load"),
    "errors": ("UsageError",),
    "estimator": ("OnlineClassifier",),
    "methods": ("Learner", "create", "methods"),
    "runs.results": ("read_results",),
    "streams": ("blurry", "class_incremental", "gaussian", "iid", "returning"),
}
_SOURCES = {name: f"onebyone.{module}" for module, names in _MODULES.items() for name in names}
_PACKAGES = ("data", "distributed", "errors", "memory", "nets", "streams")


class _Package(ModuleType):
    """This module. ``methods`` is a function and also the name of a package, which an import would put in its place."""

    @property
    def methods(self) -> Any:
        return import_module("onebyone.methods").methods

    @methods.setter
    def methods(self, package: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"onebyone.{name}")
    if name not in _SOURCES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_SOURCES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_SOURCES, *_PACKAGES})
