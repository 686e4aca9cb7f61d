"""What a client did wrong, or has to wait for."""

from __future__ import annotations


class Refused(Exception):
    """A request that is answered with an error.

    Parameters
    ----------
    status
        Status code of HTTP.
    sentence
        What was wrong, what was expected, what to do.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def busy() -> Refused:
    return Refused(503, "too many requests are waiting; try again in a second")
