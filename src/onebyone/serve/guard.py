"""What every request passes: who may ask, how long it took, and headers that protect the page."""

from __future__ import annotations

import hmac
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onebyone.serve.metrics import Metrics

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Checks each request before the application sees it.

    Parameters
    ----------
    app
        The application.
    token
        What clients send as ``Authorization: Bearer TOKEN``. None: nobody needs one.
    public
        Paths that need no token: the files of the page, and the health of the server.
    hosts
        Names that requests may use for this server. None: any. Without a token they must be known, because a web site
        can make its own name point to this machine.
    metrics
        Where requests are counted.
    """

    def __init__(
        self, app: ASGIApp, token: str | None, public: Collection[str], hosts: Collection[str] | None, metrics: Metrics
    ) -> None:
        self.app, self.token, self.public, self.hosts, self.metrics = app, token, public, hosts, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=message["headers"])
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope["path"], Headers(scope=scope))
        try:
            if refusal is None:
                await self.app(scope, receive, sent)
            else:
                status, sentence = refusal
                headers = {"www-authenticate": "Bearer"} if status == 401 else None
                await JSONResponse({"error": sentence}, status, headers)(scope, receive, sent)
        finally:
            known = getattr(scope.get("route"), "path", "other") if refusal is None else "refused"
            self.metrics.finished(known, status, time.perf_counter() - started)

    def _refusal(self, path: str, headers: Headers) -> tuple[int, str] | None:
        """Status and sentence if the request is refused."""
        host = headers.get("host", "")
        if self.hosts is not None and host_name(host) not in self.hosts:
            return 421, f"this server is not {host[:100]!r}; use the address that it was started with"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return 403, "requests from pages of other sites are not allowed"
        if self.token is not None and path not in self.public:
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
                return 401, "a token is needed; send the header Authorization: Bearer TOKEN"
        return None


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
