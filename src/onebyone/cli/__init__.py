"""The command line: parses, calls the library, prints."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Sequence

from onebyone.errors import Interrupted, UsageError

QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"  # as in onebyone.engine.device, whose import would import torch


def main() -> None:
    """Run the command line. An error that the user can fix is one sentence and exit code 2."""
    from onebyone.cli.app import app

    os.environ.setdefault(QUEUES, "32")  # for packs of runs; this process is ours, and CUDA has not started yet
    warnings.showwarning = _print_warning
    # Of Pillow, for each large image: the command names the file and says more. The variable is for workers.
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")
    os.environ.setdefault("PYTHONWARNINGS", "ignore:Image size")
    sentence = ""
    try:
        refuse_empty(sys.argv[1:])
        # In standalone mode the parser would print three lines of usage before the error.
        code = app(sys.argv[1:] or ["--help"], prog_name="onebyone", standalone_mode=False)
    except UsageError as error:
        sentence, code = str(error), 2
    except OSError as error:
        sentence, code = f"{error.filename or 'a file'} cannot be used ({error.strerror or error})", 2
    except RuntimeError as error:
        if "allocate" not in str(error):  # on a CPU, torch has no exception of its own for this
            raise
        sentence, code = "there is not enough memory; lower --memory-per-class, --batch-size or replay_size", 2
    except Interrupted as stop:
        sentence, code = str(stop), 130
    except Exception as error:
        if not hasattr(error, "format_message"):  # errors of the parser, whose class differs between versions of typer
            raise
        sentence, code = error.format_message(), 2
    if sentence:
        print(f"onebyone: {sentence}", file=sys.stderr)
    sys.exit(code)


def refuse_empty(words: Sequence[str]) -> None:
    """Raise an error if an argument is empty: as a path, it would be the current folder.

    >>> refuse_empty(["learn", "photos", "--into", ""])
    Traceback (most recent call last):
        ...
    onebyone.errors.UsageError: --into is empty, perhaps because a variable is not set; give a value, ...
    """
    for before, word in zip(("", *words), words, strict=False):
        if not word or re.fullmatch("--[a-z-]+=", word):
            name = word[:-1] or (before if before.startswith("--") else "an argument")
            raise UsageError(
                f"{name} is empty, perhaps because a variable is not set; give a value, such as . for this folder"
            )


def _print_warning(message: Warning | str, *where: object, **more: object) -> None:
    """A warning as one line, without the line of code it came from."""
    print(f"onebyone: {message}", file=sys.stderr)
