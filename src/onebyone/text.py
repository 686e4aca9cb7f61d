"""Names as they can be printed."""

from __future__ import annotations


def escaped(text: str) -> str:
    """A name as it can be printed: line breaks and control characters are escaped.

    >>> escaped("one\\ntwo")
    'one\\\\ntwo'
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
