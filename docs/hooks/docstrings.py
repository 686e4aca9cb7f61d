"""Docstrings as Markdown: the examples in them become blocks of code, and Sphinx roles become plain names.

An example after sections such as Parameters gets the heading Examples, or it would belong to the last section.
"""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)  # to the next empty line
SECTION = re.compile(r"^-{3,}$", re.MULTILINE)  # the line below a heading
HEADING = "Examples\n--------\n"
ROLE = re.compile(r":(?:class|func|meth|mod):(`[^`]+`)")


class Markdown(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            text = ROLE.sub(r"\1", obj.docstring.value)
            if SECTION.search(text) and HEADING not in text:
                text = EXAMPLE.sub(lambda found: HEADING + found[0], text, count=1)
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
