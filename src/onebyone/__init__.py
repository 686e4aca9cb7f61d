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

from typing import TYPE_CHECKING, Any

from onebyone.data import Dataset, Spec, datasets, from_arrays, from_folder, load
from onebyone.errors import UsageError
from onebyone.methods import Learner, create, methods
from onebyone.streams import blurry, class_incremental, gaussian, iid, returning

if TYPE_CHECKING:
    from onebyone.estimator import OnlineClassifier as OnlineClassifier
    from onebyone.runs.results import read_results as read_results

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


def __getattr__(name: str) -> Any:
    if name == "OnlineClassifier":  # imported when it is asked for: nothing else here needs scikit-learn
        try:
            from onebyone.estimator import OnlineClassifier
        except ImportError as error:
            raise ImportError(f"OnlineClassifier needs more ({error}); pip install 'onebyone[estimator]'") from error
        return OnlineClassifier
    if name == "distributed":
        from importlib import import_module

        return import_module("onebyone.distributed")
    if name == "read_results":  # learning from arrays does not need runs
        from onebyone.runs.results import read_results

        return read_results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
