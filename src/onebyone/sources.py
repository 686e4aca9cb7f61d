"""The source code that a method, a data set or a stream of a user consists of."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

INSTALLED = ("site-packages", "dist-packages")  # folders in which unrelated packages lie side by side


def code_hash(file: Path) -> str:
    """A hash of a Python file and of the modules beside it that it imports, directly or through each other.

    It depends on the names of the files and on their contents, but not on the folder.
    """
    total = hashlib.sha256()
    for name, content in sorted(local_sources(file).items()):
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()[:8]


def local_sources(file: Path) -> dict[str, bytes]:
    """The contents of a Python file and of the modules beside it that it imports, by path from their common folder.

    Modules beside it are those of its package, and those in the folder that the file or its package lies in.
    """
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    found: dict[str, bytes] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path.is_relative_to(root) and path.is_file() and (name := path.relative_to(root).as_posix()) not in found:
            found[name] = path.read_bytes()
            waiting += _imported(found[name], path, root)
    return found


def _imported(content: bytes, path: Path, root: Path) -> Iterator[Path]:
    """The files that may hold what a module imports; some of them do not exist."""
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError):  # it cannot be imported either
        return
    package = path.relative_to(root).parts[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            bases, names = [path.parent, root], [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            bases = [path.parents[node.level - 1]] if 0 < node.level <= len(path.parents) else [path.parent, root]
            names = [f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names]
        else:
            continue
        for base in bases:
            for parts in (name.split(".") for name in names):
                if parts[0] == "onebyone" or (base == root and root.name in INSTALLED and parts[0] != package):
                    continue
                for end in range(1, len(parts) + 1):
                    place = base.joinpath(*parts[:end])
                    yield from (place / "__init__.py", place.with_name(f"{place.name}.py"))
