"""Docstrings as Markdown: the examples in them become blocks of code, and Sphinx roles become plain names."""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)  # to the next empty line
ROLE = re.compile(r":(?:class|func|meth|mod):(`[^`]+`)")


class Markdown(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            text = ROLE.sub(r"\1", obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
