"""One registry serves methods, data sets, streams and encoders."""

import re
from pathlib import Path
from typing import Any

import pytest

from onebyone import UsageError
from onebyone.data.registry import DATASETS
from onebyone.methods.registry import METHODS
from onebyone.nets.encoder import ENCODERS
from onebyone.registry import Registry
from onebyone.streams.registry import STREAMS

CODE = """
from {module} import {name}


def mine():
    pass


{name}.add("mine", 1, mine)
"""
NAMES = {DATASETS: "DATASETS", METHODS: "METHODS", ENCODERS: "ENCODERS", STREAMS: "STREAMS"}
MODULES = {
    DATASETS: "onebyone.data.registry",
    METHODS: "onebyone.methods.registry",
    ENCODERS: "onebyone.nets.encoder",
    STREAMS: "onebyone.streams.registry",
}


@pytest.fixture(params=NAMES, ids=NAMES.values())
def registry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Registry[Any]:
    found: Registry[Any] = request.param
    monkeypatch.setattr(found, "entries", found.all())
    return found


def test_the_nearest_name_is_offered(registry: Registry[Any]) -> None:
    for name in registry.entries:
        with pytest.raises(UsageError, match=re.escape(f"unknown {registry.kind} '{name}x'; did you mean '{name}'?")):
            registry.get(f"{name}x")


def test_a_name_has_one_owner(registry: Registry[Any]) -> None:
    name = next(iter(registry.entries))
    with pytest.raises(UsageError, match=f"a {registry.kind} named '{name}' is there already"):
        registry.add(name, None, source=test_a_name_has_one_owner)
    registry.add("mine", 1, source=test_a_name_has_one_owner)
    registry.add("mine", 2, source=test_a_name_has_one_owner)  # a cell of a notebook that is run again
    assert registry.get("mine") == 2


def test_a_file_and_an_installed_package(
    registry: Registry[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = CODE.format(module=MODULES[registry], name=NAMES[registry])
    file = tmp_path / "mine.py"
    file.write_text(code)
    assert registry.find(f"{file}:mine") == 1
    del registry.entries["mine"]
    package = f"package_of_{NAMES[registry].lower()}"
    (tmp_path / f"{package}.py").write_text(code)
    info = tmp_path / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.group}]\nmine = {package}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "plugins_loaded", False)
    assert registry.get("mine") == 1
