"""Starting the server: address, token, threads."""

from __future__ import annotations

import asyncio
import ctypes
import ipaddress
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from onebyone.errors import UsageError
from onebyone.serve.app import create_app
from onebyone.serve.journal import POLICIES, Fsync
from onebyone.serve.service import Service

MMAP_THRESHOLD, LARGE = -3, 2**20  # a parameter of mallopt, and bytes of a large block
CONNECTIONS = 256
IDLE_SECONDS = 10.0  # that a connection may stay open without a request
SHORTEST_TOKEN = 16  # characters


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def return_freed_memory() -> None:
    """Let the C library return large blocks to the system at once.

    Otherwise the matrices of each solution, which are freed in another order than they were allocated, leave holes, and
    the process grows by hundreds of megabytes.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL("libc.so.6").mallopt(MMAP_THRESHOLD, LARGE)


def read_token(path: Path) -> str:
    """The token in a file."""
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token file {path} cannot be read ({error}); write a token to it") from None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or any(each.isspace() for each in token):
        raise UsageError(
            f"the token in {path} must have at least {SHORTEST_TOKEN} letters and digits without spaces; write one "
            'with: python -c "import secrets; print(secrets.token_urlsafe())"'
        )
    return token


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens on the address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(CONNECTIONS)  # requests wait from now on, instead of being refused
        except BaseException:
            bound.close()
            raise
    except (OSError, OverflowError) as error:
        raise UsageError(f"host {host}, port {port} cannot be used ({error}); choose another port") from None
    return bound


class IdleTimeoutProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Closes connections that send no request, or only a part of its head, which uvicorn would wait for forever.

    Otherwise anyone could take all connections, without a token.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.loop.call_later(IDLE_SECONDS, self._close_unless_used, None)

    def _close_unless_used(self, last: Any) -> None:
        """Close the connection if there was no request after ``last``, and that one is answered."""
        answered = self.cycle is None or self.cycle.response_complete
        if answered and self.cycle is last:
            self.transport.close()
        elif not self.transport.is_closing():
            self.loop.call_later(IDLE_SECONDS, self._close_unless_used, self.cycle)


def configured(app: Any) -> uvicorn.Config:
    """The settings of uvicorn."""
    return uvicorn.Config(
        app,
        http=IdleTimeoutProtocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=5,
        ws="none",
        lifespan="on",
    )


def serve(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: Path | None = None,
    fsync: Fsync = "every",
    ready: Callable[[str, Service], None] = lambda address, service: None,
    **given: Any,
) -> None:
    """Serve a state folder until the process is asked to stop.

    Parameters
    ----------
    folder
        The state folder. It is created if it is missing.
    host, port
        The address. Port 0 takes a free one.
    token_file
        A file with the token that clients have to send. Needed if ``host`` can be reached from other machines.
    fsync
        What a power failure may cost: ``"every"``, ``"second"`` or ``"never"``.
    ready
        Called with the address of the page and the service before the first request.
    given
        Settings of a new state folder, see :class:`~onebyone.serve.settings.Settings`.

    Raises
    ------
    UsageError
        If the address, the token or the folder cannot be used.
    """
    if fsync not in POLICIES:
        raise UsageError(f"fsync is {fsync!r}; it must be one of {', '.join(POLICIES)}")
    token = None if token_file is None else read_token(token_file)
    if token is None and not is_loopback(host):
        raise UsageError(f"host {host} can be reached from other machines, so a token is needed; give token_file")
    return_freed_memory()
    torch.set_num_threads(1)  # one core for learning, one for predictions; threads of both would wait for each other
    logging.basicConfig(level=logging.WARNING, format="onebyone: %(message)s")
    with listening(host, port) as bound:
        service = Service(folder, fsync, **given)
        try:
            hosts = None if token else {"localhost", "127.0.0.1", "::1", host}
            app = create_app(service, token=token, hosts=hosts)
            shown = f"[{host}]" if ":" in host else host
            service.prepare()
            ready(f"http://{shown}:{bound.getsockname()[1]}/", service)
            uvicorn.Server(configured(app)).run(sockets=[bound])
        finally:
            service.close()
