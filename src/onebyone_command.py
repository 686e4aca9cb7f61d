"""The installed command ``onebyone``. It is outside the package, so that settings are made before any import."""

import os
import signal
import sys

BRIEF = ("predict", "info", "merge")  # commands whose computations are short


def main() -> None:
    """Run the command line. Ctrl-C ends it without a traceback, also during the imports."""
    # During the imports, the signal ends the process directly. If it is ignored, as in the background of a shell, it
    # stays ignored.
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] and sys.argv[1] in BRIEF:
        # Idle threads of OpenMP sleep, before torch starts it. They would spin, and take more time than the work.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from onebyone.cli import main as run

    signal.signal(signal.SIGINT, handler)
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(130)
