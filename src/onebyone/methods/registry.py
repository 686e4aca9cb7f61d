"""Methods by name: those of this package, and those that others register."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

import torch

from onebyone.data import Spec
from onebyone.errors import UsageError, unknown
from onebyone.methods.base import Learner
from onebyone.options import Checked

GROUP = "onebyone.methods"  # of the entry points by which installed packages offer methods

AnyLearner = Learner[Any]
L = TypeVar("L", bound=AnyLearner)


@dataclass(frozen=True)
class Entry:
    learner: type[AnyLearner]
    options: type[Checked]
    section: str  # of the paper
    summary: str

    @property
    def origin(self) -> tuple[str | None, str]:
        """The file and the name of the class: the same for one that is imported twice."""
        return getattr(sys.modules.get(self.learner.__module__), "__file__", None), self.learner.__qualname__


_METHODS: dict[str, Entry] = {}


def register(name: str, options: type[Checked], *, section: str = "not in the paper") -> Callable[[type[L]], type[L]]:
    """Make a learner with these options known by ``name``; ``section`` says where the paper has it, if it does.

    The first line of its docstring is what ``onebyone methods`` prints.
    """
    if not re.fullmatch(r"[\w.+-]+", name):
        raise UsageError(f"{name!r} cannot be the name of a method; use letters, digits and . + - _ (it names folders)")

    def add(learner: type[L]) -> type[L]:
        entry = Entry(learner, options, section, (learner.__doc__ or "").strip().split("\n")[0])
        known = _METHODS.get(name, entry)
        if known.origin != entry.origin:
            taken = f"{known.learner.__module__}.{known.learner.__qualname__}"
            raise UsageError(f"a method named {name!r} is there already ({taken}); choose another name")
        _METHODS[name] = entry
        return learner

    return add


def method(name: str) -> Entry:
    """What is registered under this name, here or by an installed package.

    >>> method("ccp").section
    'section 2.2, equation 3'
    """
    if name not in _METHODS:
        _load_plugins()
    if name not in _METHODS:
        raise unknown("method", name, _METHODS)
    return _METHODS[name]


def find(text: str) -> Entry:
    """A method by name, or as ``PLACE:NAME``: what to import first, and the name it registers.

    Only for texts of the person who runs it, since it runs the code at that place.

    >>> find("onebyone.methods.er:er").learner.__name__
    'ER'
    """
    place, _, name = text.rpartition(":")
    if place:
        load(place)
    return method(name)


def load(place: str) -> None:
    """Import what registers methods: a module by name, or a file by its path, which ends in .py."""
    if not place.endswith(".py"):
        absent = UsageError(f"there is no module {place!r}; install it, or give the path of a file.py")
        if not all(part.isidentifier() for part in place.split(".")):
            raise absent
        try:
            import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise  # it is there; what it imports is not
            raise absent from None
        return
    # The path is the module's name as well, so that a learner's ``__module__`` says what to load in another process.
    path = str(Path(place).resolve())
    if path in sys.modules:
        return
    spec = spec_from_file_location(path, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise UsageError(f"there is no file {place}; the method is to be registered in it")
    sys.modules[path] = module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[path])
    except BaseException:
        del sys.modules[path]
        raise


@cache
def _load_plugins() -> None:
    """Import what installed packages offer, once. One that is broken is named, and the others go on."""
    for plugin in entry_points(group=GROUP):
        try:
            plugin.load()
            if plugin.name not in _METHODS:
                raise UsageError(f"it registers no method named {plugin.name!r}")
        except Exception as error:  # whatever its code does
            package = plugin.dist.name if plugin.dist else plugin.value
            reason = str(error).split("\n")[0] or type(error).__name__
            warnings.warn(f"the method {plugin.name!r} of {package} cannot be used ({reason})", stacklevel=3)


def methods() -> dict[str, Entry]:
    """Every method by name: as in the paper's tables, then others of this package, then those of installed packages.

    >>> list(methods())[8:13]
    ['supbyol', 'ccp', 'replay', 'patch-lda', 'hybrid']
    """
    _load_plugins()
    return dict(_METHODS)


def create(name: str, spec: Spec, *, seed: int = 0, device: torch.device | str = "cpu", **options: Any) -> AnyLearner:
    """A learner by the name of its method, for data of this kind; ``options`` are the method's own.

    >>> learner = create("er", Spec(shape=(1, 8, 8), num_classes=10), memory_per_class=5)
    >>> x, y = torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([3, 3])
    >>> loss = learner.observe(x, y)
    >>> learner.predict(x)
    tensor([3, 3])
    """
    entry = method(name)
    known = [item.name for item in fields(entry.options)]
    for option in options:
        if option not in known:
            raise unknown(f"option of {name}", option, known)
    return entry.learner(entry.options(**options), spec, seed, device)
