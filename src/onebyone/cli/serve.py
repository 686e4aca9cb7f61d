"""`onebyone serve`."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, cast

import typer

from onebyone.cli.output import Output, silent
from onebyone.errors import UsageError

if TYPE_CHECKING:
    from onebyone.serve.journal import Fsync
    from onebyone.serve.service import Service


def serve_command(
    state: Annotated[Path, typer.Option(metavar="FOLDER", help="State folder; created if missing.")],
    host: Annotated[str, typer.Option(help="Address to listen on. Others than this machine need --token-file.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the token that clients send.", show_default=False)
    ] = None,
    fsync: Annotated[
        str, typer.Option(help="When a sample is on the disk: every (before it is acknowledged), second or never.")
    ] = "every",
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Pretrained encoder, such as lite0.", show_default=False)
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method; auto by default.", show_default=False)] = None,
    memory: Annotated[str | None, typer.Option(help="Size of the memory; 3MB by default.", show_default=False)] = None,
    size: Annotated[
        int | None, typer.Option(help="Side of images in pixels; 32, or 224 with an encoder.", show_default=False)
    ] = None,
    gray: Annotated[bool | None, typer.Option("--gray/--colour", help="Kind of images.", show_default=False)] = None,
    samples: Annotated[
        str | None, typer.Option(help="Built-in samples of the page: shapes or digits.", show_default=False)
    ] = None,
) -> Output:
    """Serve a classifier over HTTP, with a page to teach it.

    Everything taught is in the state folder before it is acknowledged. The
    same command continues after a crash. Encoder, method, memory, size and
    kind of images are fixed when the folder is created. Ctrl-C stops it.
    """
    try:
        from onebyone.serve.server import serve  # slow to import, and needs starlette and uvicorn
    except ModuleNotFoundError as missing:
        raise UsageError(f"serve needs {missing.name}; install it with: pip install 'onebyone[serve]'") from None

    def ready(address: str, service: Service) -> None:
        if service.dropped:
            print(
                f"onebyone: the last entry of the journal was incomplete ({service.dropped} bytes) and was dropped; "
                "it had not been acknowledged",
                file=sys.stderr,
            )
        if not silent():
            counts = service.model.counts()
            found = f"{sum(counts.values())} samples of {len(counts)} classes" if counts else "nothing learnt yet"
            print(f"{state}: {found}\nteach it at {address}  (API: {address}docs)", flush=True)

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)  # until the server has its own handler
    given = {"encoder": encoder, "method": method, "memory": memory, "size": size, "gray": gray, "samples": samples}
    with suppress(KeyboardInterrupt):  # the server has stopped in order, and raises what stopped it
        serve(state, host=host, port=port, token_file=token_file, fsync=cast("Fsync", fsync), ready=ready, **given)
    return Output({"state": str(state), "stopped": True}, "stopped; everything taught is in the state folder")
