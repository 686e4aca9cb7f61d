"""What earlier versions wrote in ``config.yaml``, ``result.json`` and ``settings.json``, in the present form.

Everything that reads these files converts here, and nothing else knows earlier forms. Files of 0.2.0 and later are
read. From 0.3.0 on, each release keeps small files that it wrote in ``tests/files``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from onebyone.methods import methods
from onebyone.runs.config import bare_name
from onebyone.streams import in_full


def default_options(method: str) -> dict[str, Any]:
    """The defaults of a method; none of a method that is on record but not registered now."""
    entry = methods().get(bare_name(method))
    return asdict(entry.options()) if entry else {}


def own_stream(method: str) -> str:
    """The stream of a method where none is asked for."""
    entry = methods().get(bare_name(method))
    return in_full("iid" if entry and entry.learner.stream == "iid" else "class-incremental")


def configuration(found: Mapping[str, Any]) -> dict[str, Any]:
    """A recorded configuration as this version records it.

    An option that was added after the run has its default, with which the method does what it did before. Until 0.2.0,
    the stream was recorded only if it was not the method's own. The protocol was recorded in the rows of records only;
    a run in a folder was for none.

    >>> old = {"method": "er", "dataset": "digits", "options": {"learning_rate": 0.1}}
    >>> configuration(old)["stream"], configuration(old)["options"]["precision"]
    ('class-incremental:imbalance=1.0', 'float32')
    >>> configuration(old)["protocol"]
    'none'
    """
    options = default_options(found["method"]) | dict(found["options"])
    options.pop("memory_per_class", None)  # a field of the run
    return {"stream": own_stream(found["method"]), "protocol": "none"} | dict(found) | {"options": options}
