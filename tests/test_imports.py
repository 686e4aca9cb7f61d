"""`import onebyone` needs torch and numpy only, and no package imports from a later one."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import onebyone

PACKAGE = Path(onebyone.__file__).parent

# The packages in the order of DESIGN.md; those of one row do not import each other.
ORDER = [
    ["errors", "seeding", "sources", "text"],
    ["options", "files", "registry", "river", "client"],
    ["data", "tensors"],
    ["streams", "memory", "nets"],
    ["methods"],
    ["statistics"],
    ["engine", "formats"],
    ["evaluation", "estimator", "executors", "testing"],
    ["runs", "serve"],
    ["distributed", "paper"],
    ["cli"],
    ["__main__"],
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}

SCRIPT = """
import sys

for name in (
    "typer click rich safetensors matplotlib yaml platformdirs PIL sklearn scipy pandas jinja2 pooch requests "
    "tqdm filelock loky".split()
):
    sys.modules[name] = None  # importing it fails as if it were not installed
import torch
torch.set_num_threads(1)
before = torch.get_rng_state()
import onebyone

assert torch.equal(torch.get_rng_state(), before)
digits = onebyone.load("digits")
for name in onebyone.methods():
    learner = onebyone.create(name, digits.spec)
    learner.observe(digits.train_x[:10], digits.train_y[:10])
    assert set(learner.predict(digits.test_x).tolist()) <= set(range(10)), name
own = onebyone.from_arrays(digits.train_x.numpy(), digits.train_y.numpy())
learner = onebyone.create("ccp", own.spec)
for index in onebyone.class_incremental(own.train_y, own.num_classes, batch_size=100):
    learner.observe(own.train_x[index], own.train_y[index])
assert (learner.predict(own.test_x) == own.test_y).float().mean() > 0.1
print(len(onebyone.methods()), "methods")
"""


def test_import_needs_torch_and_numpy_only() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.stdout == f"{len(onebyone.methods())} methods\n", done.stderr


RUNS = """
import sys

for name in "jinja2 matplotlib pandas typer rich".split():
    sys.modules[name] = None
import onebyone.runs
from onebyone.runs import grid, results, sweep, table, tune

assert onebyone.read_results is onebyone.runs.read_results
assert not [name for name in sys.modules if name.startswith(("onebyone.paper", "onebyone.cli"))]
"""


def test_runs_need_no_packages_of_the_report_or_the_command_line() -> None:
    subprocess.run([sys.executable, "-c", RUNS], check=True)


HELP = """
import contextlib, sys

for name in "torch numpy rich sklearn".split():
    sys.modules[name] = None  # importing it fails
import onebyone_command

for words in (["--help"], ["--version"], ["lern"], ["learn", "--help"], ["info", "--help"], ["merge", "--help"]):
    sys.argv = ["onebyone", *words]
    with contextlib.suppress(SystemExit):
        onebyone_command.main()
"""


def test_help_needs_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    assert done.stderr == "onebyone: No such command 'lern'. Did you mean 'learn'?\n"
    assert done.stdout.count("Usage: onebyone") == 4


COMPILER = """
import sys

import numpy as np
import torch
from onebyone import OnlineClassifier, nets

for x in (np.random.default_rng(0).normal(0, 1, (30, 10)), np.zeros((30, 8, 8), np.uint8)):
    OnlineClassifier(memory=200).partial_fit(x, [0, 1, 2] * 10).save(sys.argv[1])
    OnlineClassifier.load(sys.argv[1]).predict(x)
with torch.device("meta"):
    nets.Preprocess(224, [0.5], [0.5])
    if sys.argv[2] == "lite0":
        assert nets.create("lite0", (3, 32, 32)).width == 1280
print([name for name in ("torch._dynamo", "sympy", "matplotlib") if name in sys.modules])
"""


@pytest.mark.parametrize("encoder", ["none", pytest.param("lite0", marks=pytest.mark.slow)])
def test_a_classifier_is_created_and_loaded_without_the_compiler(encoder: str, tmp_path: Path) -> None:
    """Most operations on the device ``meta`` import torch._dynamo or sympy, which takes up to a second."""
    words = [sys.executable, "-c", COMPILER, str(tmp_path / "model"), encoder]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_names_of_the_package_are_those_of_its_modules() -> None:
    assert set(onebyone.__all__) < set(dir(onebyone))
    for name in dir(onebyone):
        getattr(onebyone, name)
    import_module("onebyone.methods.er")  # the package ``methods`` does not replace the function
    assert next(iter(onebyone.methods())) == "finetune"
    assert not hasattr(onebyone, "other")


def imported(tree: ast.AST) -> set[str]:
    """The packages that a file imports from, at its top or anywhere inside."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom(module="onebyone"):
                # Another name is exported by onebyone itself, which imports everything up to the methods.
                names |= {f"onebyone.{a.name if a.name in RANK else 'methods'}" for a in node.names}
            case ast.ImportFrom():
                assert node.level == 0, "imports are written in full"
                names.add(str(node.module))
    return {name.split(".")[1] if "." in name else "methods" for name in names if name.split(".")[0] == "onebyone"}


FILES = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_no_package_imports_from_a_later_one(file: Path) -> None:
    room = file.parts[0].removesuffix(".py")
    assert room in RANK, f"say in ORDER where {room} stands"
    others = imported(ast.parse((PACKAGE / file).read_text())) - {room}
    assert all(RANK[other] < RANK[room] for other in others), others


@pytest.mark.parametrize("file", FILES, ids=str)
def test_only_the_command_line_imports_the_paper(file: Path) -> None:
    if file.parts[0] not in ("paper", "cli"):
        assert "paper" not in imported(ast.parse((PACKAGE / file).read_text()))


def test_the_check_of_imports_finds_every_form() -> None:
    """The check itself, on every way of writing an import."""
    text = """
import onebyone.cli.app, torch
from onebyone import nets, create
from onebyone.data.dataset import Spec
def late():
    from onebyone.engine import Eager
"""
    assert imported(ast.parse(text)) == {"cli", "nets", "methods", "data", "engine"}


def test_only_the_classifier_uses_its_private_attributes() -> None:
    private = re.compile(r"(?<!\bself)\._(state|fitted|adopt|accept|autosaver)\b")
    files = set(PACKAGE.rglob("*.py")) - {PACKAGE / "estimator" / "classifier.py"}
    assert not {f"{file.name}: {found[0]}" for file in files for found in private.finditer(file.read_text())}
