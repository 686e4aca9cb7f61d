"""Docstrings as Markdown: the examples in them become blocks of code, and Sphinx roles become plain names.

An example after sections such as Parameters gets the heading Examples, or it would belong to the last section.
Parameters that are described together become an entry each, or all of them would be shown with the type of the first.
What a function returns gets its type from the signature, if the docstring has only a sentence about it, or the sentence
would be shown as a type. The fields of a dataclass become a section (fields.py). A default that is a constant, such as
``AUTO``, is shown as its value, which is what a user writes.
"""

import re
from pathlib import Path
from pkgutil import resolve_name
from runpy import run_path
from textwrap import indent
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)  # to the next empty line
SECTION = re.compile(r"^-{3,}$", re.MULTILINE)  # the line below a heading
GROUP = re.compile(r"^(\w+(?:, \w+)+)\n((?: {4}.*(?:\n|\Z))+)", re.MULTILINE)  # names, and their description
RETURNS = re.compile(r"^(Returns\n-{3,}\n)((?:\S.*(?:\n|\Z))+)(?! )", re.MULTILINE)  # only a sentence
HEADING = "Examples\n--------\n"
ROLE = re.compile(r":(?:class|func|meth|mod):(`[^`]+`)")
CONSTANT = re.compile(r"[A-Z][A-Z_]+")
WITH_FIELDS = run_path(str(Path(__file__).with_name("fields.py")))["with_fields"]


def apart(found: re.Match[str]) -> str:
    """Names with one description as names with a description each."""
    return "".join(f"{name}\n{found[2].rstrip()}\n" for name in found[1].split(", "))


def typed(text: str, returned: str) -> str:
    """A docstring whose section Returns has a type."""
    return RETURNS.sub(lambda found: f"{found[1]}{returned}\n{indent(found[2], '    ')}", text)


def show_constants(function: Object) -> None:
    """Defaults as a user writes them: numbers and text instead of the names of constants."""
    for parameter in function.parameters:
        if CONSTANT.fullmatch(name := str(parameter.default)):
            value = getattr(resolve_name(function.module.path), name)
            if isinstance(value, str | int | float):
                parameter.default = repr(value)


class Markdown(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.is_function:
            show_constants(obj)
        if obj.docstring:
            text = obj.docstring.value
            if obj.is_class and any(str(each.value).startswith("dataclass") for each in obj.decorators):
                text = WITH_FIELDS(text, resolve_name(obj.path))
            if obj.is_function:
                text = typed(text, str(obj.returns))
            text = GROUP.sub(apart, ROLE.sub(r"\1", text))
            if SECTION.search(text) and HEADING not in text:
                text = EXAMPLE.sub(lambda found: HEADING + found[0], text, count=1)
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
