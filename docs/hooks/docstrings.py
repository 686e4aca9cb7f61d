"""Docstrings as Markdown: the examples in them become blocks of code, and Sphinx roles become plain names.

An example after sections such as Parameters gets the heading Examples, or it would belong to the last section.
Parameters that are described together become an entry each, or all of them would be shown with the type of the first.
"""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)  # to the next empty line
SECTION = re.compile(r"^-{3,}$", re.MULTILINE)  # the line below a heading
GROUP = re.compile(r"^(\w+(?:, \w+)+)\n((?: {4}.*(?:\n|\Z))+)", re.MULTILINE)  # names, and their description
HEADING = "Examples\n--------\n"
ROLE = re.compile(r":(?:class|func|meth|mod):(`[^`]+`)")


def apart(found: re.Match[str]) -> str:
    """Names with one description as names with a description each."""
    return "".join(f"{name}\n{found[2].rstrip()}\n" for name in found[1].split(", "))


class Markdown(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            text = ROLE.sub(r"\1", obj.docstring.value)
            text = GROUP.sub(apart, text)
            if SECTION.search(text) and HEADING not in text:
                text = EXAMPLE.sub(lambda found: HEADING + found[0], text, count=1)
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
