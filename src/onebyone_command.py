"""The installed command ``onebyone``. It is outside the package, whose import takes seconds and imports torch first."""

import signal
import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it without a traceback, also during the imports."""
    # During the imports, an exception can reach torch's own initialisation, which then aborts the process. So the
    # signal ends the process directly. If it is ignored, as in the background of a shell, it stays ignored.
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from onebyone.cli import main as run

    signal.signal(signal.SIGINT, handler)
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(130)
