"""The fields of a dataclass as a section of its docstring.

They are described once, in the code: by the help of an option, or by the comment behind a field.
"""

import inspect
import re
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

SECTION = re.compile(r"^(?:Parameters|Attributes)\n-{3,}$", re.MULTILINE)  # of its own
REST = re.compile(r"^(?:\w+\n-{3,}|>>> )", re.MULTILINE)  # another section, or an example
COMMENT = re.compile(r"^    (\w+): .*  # (.+)$", re.MULTILINE)  # a field, and the comment behind it
WORD = re.compile(r"[a-z]+ ")


def with_fields(text: str, kind: Any) -> str:
    """The docstring of a class; of a dataclass with a section of its fields, before any other section or example."""
    if not is_dataclass(kind) or not fields(kind) or SECTION.search(text):
        return text
    rest = REST.search(text)
    where = rest.start() if rest else len(text)
    return f"{text[:where].rstrip()}\n\n{section(kind)}\n\n{text[where:]}".strip()


def section(kind: Any) -> str:
    """All fields: Parameters if they are options, otherwise Attributes."""
    title = "Parameters" if any(map(helped, fields(kind))) else "Attributes"
    lines = [title, "-" * len(title)]
    for item, text in zip(fields(kind), described(kind).values(), strict=True):
        default = f", default {item.default!r}" if title == "Parameters" and item.default is not MISSING else ""
        sentence = text[:1].upper() + text[1:] if WORD.match(text) else text
        lines += [f"{item.name} : {item.type}{default}", f"    {sentence}."]
    return "\n".join(lines)


def described(kind: Any) -> dict[str, str]:
    """What the code says about each field; empty if it says nothing."""
    comments: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if is_dataclass(each):
            comments |= dict(COMMENT.findall(inspect.getsource(each)))
    return {item.name: helped(item) or comments.get(item.name, "") for item in fields(kind)}


def helped(item: Field[Any]) -> str:
    return str(item.metadata.get("help", ""))
