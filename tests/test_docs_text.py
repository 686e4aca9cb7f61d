"""The text of the documentation: length, commands, columns, docstrings and the page of the command line."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from runpy import run_path
from textwrap import dedent
from typing import Any

import pytest
import yaml

import onebyone
from onebyone.cli.app import COMMANDS
from onebyone.runs import RunConfig
from onebyone.runs.results import Value

Call = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parent.parent
PAGES = sorted(ROOT.glob("docs/**/*.md"))
TEXTS = [*PAGES, *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))]
BLOCK = re.compile(r"^``` ?\{?\.?(?:python|py|sh|yaml|bibtex)\}?\n(.*?)^```", re.MULTILINE | re.DOTALL)
COLUMNS = 88
PUBLIC = [*onebyone.__all__, "OnlineClassifier", "read_results"]
VERBS = ("observe", "scores", "predict")  # of a learner; its other methods are for those who write one
FOR_AUTHORS = ("learners", "memory", "networks")  # pages of parts for those who write a method
NOT_CREATED = (onebyone.Learner, Exception)  # by users
FIELDS = run_path(str(ROOT / "docs" / "hooks" / "fields.py"))


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 700
    first = re.search(r"```sh\n(.*?)```", text, re.DOTALL)  # the set-up, before everything else
    assert first is not None
    assert [line.partition("#")[0].strip() for line in first[1].splitlines()] == ["make demo", "make test"]
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_no_page_installs_from_an_index(path: Path) -> None:
    """There is no package on an index: pages install from a clone or a wheel, and name extras."""
    assert not re.findall(r"pip install +'?\"?onebyone", path.read_text())


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_code_on_a_page_fits(path: Path) -> None:
    blocks = BLOCK.findall(path.read_text())
    assert not [line for line in chain(*(block.splitlines() for block in blocks)) if len(line) > COLUMNS]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_code_of_an_example_fits(path: Path) -> None:
    assert not [line for line in path.read_text().splitlines() if len(line) > COLUMNS]


def test_the_versions_agree() -> None:
    version = onebyone.__version__
    assert f'\nversion = "{version}"\n' in (ROOT / "pyproject.toml").read_text()
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    assert f"version = {{{version}}}" in (ROOT / "docs" / "citing.md").read_text()


def named() -> dict[Any, bool]:
    """What is public or on a reference page for users, and whether its methods are shown."""
    found = {getattr(onebyone, name): True for name in PUBLIC}
    for path in sorted((ROOT / "docs" / "reference").glob("*.md")):
        if path.stem not in FOR_AUTHORS:
            for name, options in re.findall(r"(?m)^::: (\S+)\n(    options: .*)?", path.read_text()):
                found.setdefault(resolve_name(name), "members: false" not in options)
    return found


def documented() -> Iterator[tuple[str, Any]]:
    """Public functions and classes, and the public methods of these classes, inherited ones included."""
    for item, with_methods in named().items():
        yield item.__name__, item
        for name in dir(item) if inspect.isclass(item) and with_methods else ():
            member = inspect.getattr_static(item, name)
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if (
                inspect.isfunction(plain)
                and plain.__module__.startswith("onebyone.")
                and not name.startswith("_")
                and (item is not onebyone.Learner or name in VERBS)
            ):
                yield f"{item.__name__}.{name}", plain


def missing(item: Any) -> list[str]:
    """The sections that a docstring lacks, by the signature and the code of what it describes."""
    text = inspect.getdoc(item) or ""
    needed = []
    function = inspect.isfunction(item)
    created = inspect.isclass(item) and not issubclass(item, NOT_CREATED) and not is_dataclass(item)
    if (function or created) and set(inspect.signature(item).parameters) - {"self", "cls"}:
        needed.append("Parameters")
    if function:
        tree = ast.parse(dedent(inspect.getsource(item)))
        returned = inspect.signature(item).return_annotation
        needed += ["Returns"] if returned not in (None, "None", inspect.Signature.empty) else []
        needed += ["Raises"] if any(isinstance(node, ast.Raise) for node in ast.walk(tree)) else []
    return [name for name in needed if f"{name}\n{'-' * len(name)}\n" not in text] + ([] if text else ["a docstring"])


@pytest.mark.parametrize(
    ("name", "item"), list(documented()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_public_names_document_what_they_take_return_and_raise(name: str, item: Any) -> None:
    assert not inspect.ismodule(item), f"{name} is a module; name the function in it"
    assert not missing(item), name


@pytest.mark.parametrize("kind", [item for item in named() if is_dataclass(item)], ids=lambda kind: kind.__name__)
def test_the_page_of_a_dataclass_describes_every_field(kind: Any) -> None:
    text = inspect.getdoc(kind) or ""
    shown = FIELDS["with_fields"](text, kind)
    assert not [item.name for item in fields(kind) if not re.search(rf"(?m)^(?:\w+, )*{item.name}\b", shown)]
    if shown != text:
        assert all(FIELDS["described"](kind).values()), "write a comment behind each field"


def test_fields_are_described_by_the_help_of_options_and_by_comments() -> None:
    text = FIELDS["with_fields"](inspect.getdoc(RunConfig), RunConfig)
    assert "classes_per_task : int, default 1\n    S: Classes that arrive together.\n" in text
    assert "    Options of the method, as values or text.\n\nRaises\n------\n" in text
    assert "\n>>> " in text.split("Raises\n")[1]
    assert FIELDS["with_fields"]("A mean.", Value).startswith("A mean.\n\nAttributes\n----------\nmean : float\n")


def test_the_classifier_is_one_class_so_its_page_shows_every_method() -> None:
    methods = {name.split(".")[1] for name in dict(documented()) if name.startswith("OnlineClassifier.")}
    assert {"partial_fit", "predict", "merge", "save"} <= methods <= vars(onebyone.OnlineClassifier).keys()


def test_a_missing_section_is_found() -> None:
    def half(x: int) -> int:
        """Half of it."""
        if x % 2:
            raise ValueError(x)
        return x // 2

    assert missing(half) == ["Parameters", "Returns", "Raises"]


def test_the_help_has_the_first_line_of_the_help_of_each_command(onebyone: Call) -> None:
    """It is written down in app.py, so that the help imports no command."""
    for name, (_, summary) in COMMANDS.items():
        assert onebyone(name, "--help")[1].split("\n\n")[1].strip().replace("\n  ", " ") == summary


def test_the_page_of_the_command_line_has_every_command_and_option(onebyone: Call) -> None:
    text = run_path(str(ROOT / "docs" / "hooks" / "cli_page.py"))["commands"]()
    assert re.findall(r"(?m)^## (\S+)", text) == list(COMMANDS)
    for name, part in zip(COMMANDS, re.split(r"(?m)^## ", text)[1:], strict=True):
        options = re.findall(r"(?m)^  (--[a-z-]+)", onebyone(name, "--help")[1])
        assert [option for option in options if f"- `{option}" not in part] == ["--json", "--quiet"], name
    assert "- `--memory-per-class M` – Samples kept per class, or their bytes. Default: `20`.\n" in text
    assert "- `FOLDER` – One sub-folder of images per class. Required.\n" in text
    assert "```sh\nonebyone learn FOLDER --into FILE [OPTIONS]\n```" in text
    assert "```yaml\nmethod: [er, ccp]\n" in text
    assert (ROOT / "docs" / "reference" / "cli.md").read_text().count("<!-- commands -->") == 1
