"""The command line: parses, calls the library, prints."""

from __future__ import annotations

import sys

from onebyone.errors import UsageError


def main() -> None:
    """Run the command line; what the user can mend is one sentence and exit code 2."""
    try:
        from onebyone.cli.app import app
    except ModuleNotFoundError as missing:
        sys.exit(f"onebyone: the command line needs {missing.name}; install it with: pip install 'onebyone[cli]'")
    from onebyone.experiments.run import Interrupted

    try:
        app()
    except UsageError as error:
        print(f"onebyone: {error}", file=sys.stderr)
        sys.exit(2)
    except Interrupted as stop:
        print(f"onebyone: {stop}", file=sys.stderr)
        sys.exit(130)
