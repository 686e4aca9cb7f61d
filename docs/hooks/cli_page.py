"""The page of the command line is generated from the commands: ``<!-- commands -->`` is replaced by all of them.

Options are lists, not tables: a list can be read on a phone.
"""

import re
from typing import Any

import typer

from onebyone.cli.app import app

PAGE = "reference/cli.md"
SHARED = ("as_json", "quiet")  # every command has them; the page names them once


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return markdown.replace("<!-- commands -->", commands()) if page.file.src_uri == PAGE else markdown


def commands() -> str:
    """Every command, in the order of ``onebyone --help``, with its arguments and options."""
    group: Any = typer.main.get_command(app)
    return "\n\n".join(described(name, group.get_command(None, name)) for name in group.list_commands(None))


def described(name: str, command: Any) -> str:
    """A command: what it does, how it is called, and a list of its arguments and options."""
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    options = [item for item in command.params if item.param_type_name == "option" and item.name not in SHARED]
    required = [f"{item.opts[0]} {value_of(item)}" for item in options if item.required]
    words = [item.metavar if item.required else f"[{item.metavar}]" for item in arguments]
    rest = ["[OPTIONS]"] if len(options) > len(required) else []
    usage = " ".join(["onebyone", name, *words, *required, *rest])
    items = [listed(item) for item in (*arguments, *options)]
    summary, _, more = command.help.partition("\n\n")
    parts = [f"## {name} {{ #{name} }}", summary, f"```sh\n{usage}\n```", prose(more), "\n".join(items)]
    return "\n\n".join(part for part in parts if part)


def prose(text: str) -> str:
    r"""The rest of a help text. A paragraph after ``\b`` keeps its lines, so it becomes a block of code."""
    found = []
    for paragraph in filter(None, re.split(r"\n\s*\n", text.strip())):
        lines = paragraph.split("\n")
        if lines[0].strip() == "\b":
            found.append("\n".join(["```yaml", *(line.removeprefix("  ") for line in lines[1:]), "```"]))
        else:
            found.append(" ".join(line.strip() for line in lines))
    return "\n\n".join(found)


def listed(item: Any) -> str:
    """An argument or option in one line: how it is written, what it is for, and its default."""
    names = [item.metavar] if item.param_type_name == "argument" else [*item.opts, *item.secondary_opts]
    value = "" if item.param_type_name == "argument" or item.is_flag else f" {value_of(item)}"
    return f"- `{', '.join(names)}{value}` – {item.help}{default_of(item)}"


def value_of(item: Any) -> str:
    """The name of an option's value."""
    return str(item.metavar or item.name.upper().replace("_", "-"))


def default_of(item: Any) -> str:
    """The default in words: what the code says to show, or the value itself."""
    if item.required:
        return " Required."
    if isinstance(item.show_default, str):
        return f" Default: {item.show_default}."
    if item.default is None or item.default is False or not item.show_default:
        return ""
    return f" Default: `{item.default}`."
