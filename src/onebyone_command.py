"""The installed command ``onebyone``. It is outside the package, whose import takes seconds and imports torch first."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it without a traceback, also during the imports."""
    try:
        from onebyone.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
