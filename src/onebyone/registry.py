"""Things by name: methods, data sets, streams and encoders, of this package and of others."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from onebyone.errors import UsageError, unknown
from onebyone.sources import code_hash, local_sources

E = TypeVar("E")


class Origin(NamedTuple):
    """The class or function that an entry was made from."""

    file: str | None
    module: str
    name: str
    code: str  # a hash of its source as it was when it was registered; empty for this package, and without a file


class Registry(Generic[E]):
    """Entries of one kind by name.

    Installed packages offer more of them by entry points: the name of the entry point is that of the entry, its group
    is ``onebyone.`` and the plural of the kind, and its value is the module that registers it. They are imported when a
    name is not found, or when all entries are asked for.

    >>> colours = Registry[int]("colour", "colours")
    >>> colours.add("red", 1, source=int)
    >>> colours.get("rad")
    Traceback (most recent call last):
        ...
    onebyone.errors.UsageError: unknown colour 'rad'; did you mean 'red'? Known: red
    """

    def __init__(
        self, kind: str, plural: str, *, also: Iterable[str] = (), modules: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind
        self.modules = dict(modules or {})  # of this package: those that register a name, imported when it is asked for
        self.group = f"onebyone.{plural}"
        self.also = tuple(also)  # further names that an error message offers
        self.entries: dict[str, E] = {}
        self.origins: dict[str, Origin] = {}
        self.plugins_loaded = False

    def add(self, name: str, entry: E, source: Any) -> None:
        """Make an entry known by ``name``. ``source`` is the class or function it was made from.

        Importing or defining the same source again replaces it. A name that another source has taken raises a
        ``UsageError``, as does one that could not be part of a folder's name.
        """
        if not re.fullmatch(r"[\w.+-]+", name):
            raise UsageError(
                f"{name!r} cannot be the name of a {self.kind}; use letters, digits and . + - _ (it names folders)"
            )
        file = getattr(sys.modules.get(source.__module__), "__file__", None)
        ours = source.__module__.partition(".")[0] == "onebyone"
        code = code_hash(Path(file)) if file and not ours and Path(file).is_file() else ""
        origin = Origin(file, source.__module__, source.__qualname__, code)
        if name in self.entries:
            there = self.origins[name]
            if (there.file, there.name) != (file, origin.name):  # a file may be imported under two names
                raise UsageError(
                    f"a {self.kind} named {name!r} is there already ({there.module}.{there.name}); choose another name"
                )
        self.entries[name], self.origins[name] = entry, origin

    def get(self, name: str) -> E:
        """The entry of this name; an unknown one raises a ``UsageError`` that offers the nearest."""
        if name not in self.entries and name in self.modules:
            import_module(self.modules[name])
        if name not in self.entries:
            self.load_plugins()
        if name not in self.entries:
            raise unknown(self.kind, name, [*self.entries, *self.modules, *self.also])
        return self.entries[name]

    def code(self, name: str) -> str:
        """The hash of the source of an entry; empty if it is of this package, or if there is no such entry."""
        return self.origins[name].code if name in self.entries else ""

    def find(self, text: str) -> E:
        """An entry by its name, or as ``SOURCE:NAME``, where SOURCE is imported first.

        Only for texts of the person who runs it, as it runs the code of the source.
        """
        source, _, name = text.rpartition(":")
        if source:
            import_source(source)
        return self.get(name)

    def all(self) -> dict[str, E]:
        """Every entry by name, in order of registration; those of installed packages last."""
        for module in self.modules.values():
            import_module(module)
        self.load_plugins()
        return dict(self.entries)

    def load_plugins(self) -> None:
        """Import what installed packages offer, once. A broken one is warned of; the others are still imported."""
        if self.plugins_loaded:
            return
        self.plugins_loaded = True
        for plugin in entry_points(group=self.group):
            try:
                plugin.load()
                if plugin.name not in self.entries:
                    raise UsageError(f"it registers no {self.kind} named {plugin.name!r}")
            except Exception as error:  # whatever its code does
                package = plugin.dist.name if plugin.dist else plugin.value
                reason = str(error).split("\n")[0] or type(error).__name__
                warnings.warn(f"the {self.kind} {plugin.name!r} of {package} cannot be used ({reason})", stacklevel=4)


def summary(source: Any) -> str:
    """The first line of a docstring."""
    return (source.__doc__ or "").strip().split("\n")[0]


def import_source(source: str) -> None:
    """Import code that registers something: a module by its name, or a file by its path, which ends in .py.

    What is not there raises a ``UsageError``. Errors of the code itself are passed on.
    """
    if not source.endswith(".py"):
        absent = UsageError(f"there is no module {source!r}; install it, or give the path of a file.py")
        if not all(part.isidentifier() for part in source.split(".")):
            raise absent
        try:
            import_module(source)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{source}.".startswith(f"{error.name}."):
                raise  # it is there; what it imports is not
            raise absent from None
        return
    # The path is the module's name as well, so that a class's ``__module__`` says what to import in another process.
    path = str(Path(source).resolve())
    if path in sys.modules:
        return
    spec = spec_from_file_location(path, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise UsageError(f"there is no file {source}; give the path of the file that registers it")
    check_neighbours(Path(path), source)
    sys.modules[path] = module_from_spec(spec)
    folder = str(Path(path).parent)
    if added := folder not in sys.path:
        sys.path.append(folder)  # modules beside the file, as with `python FILE.py`; what is installed comes first
    try:
        spec.loader.exec_module(sys.modules[path])
    except BaseException:
        del sys.modules[path]
        if added:
            sys.path.remove(folder)
        raise


def check_neighbours(file: Path, source: str) -> None:
    """Raise a ``UsageError`` if a module that the file imports from beside it would be another one, imported before."""
    if (file.parent / "__init__.py").is_file():
        return  # a package, whose modules have other names
    for name in local_sources(file):
        path, parts = file.parent / name, Path(name).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        known = getattr(sys.modules.get(module), "__file__", None)
        if (
            path != file
            and known
            and parts[0] not in sys.stdlib_module_names
            and Path(known).resolve() != path.resolve()
        ):
            raise UsageError(f"{source} imports {module}, and {known} has the same name; rename one of the two modules")
