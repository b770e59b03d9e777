"""Refuses requests that a foreign web page makes a browser send.

A server on the loopback interface is reached by every page that the user's browser shows. Two headers tell such a
request apart, and a page cannot forge them: `Host` names the site whose address was resolved to this machine (DNS
rebinding), and `Origin` the site whose script sends the request.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ..problems import HttpCode, HttpError
from .refusal import refuse

DEFAULT_PORTS = {"http": ":80", "https": ":443"}

_HOST = re.compile(r"(?:\[([^\]]*)\]|([^:]*))(?::[0-9]*)?", re.ASCII)
"""A `Host` header (RFC 9110, section 7.2): the address in brackets, or the name, and perhaps a port."""


class HostGuard:
    """Middleware that refuses requests to other hosts than `hosts`, and from other origins than `origins` and the
    server's own. None as `hosts` stands for all hosts."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None, origins: Collection[str]) -> None:
        self._app = app
        self._hosts = None if hosts is None else {_without_dot(host) for host in hosts}
        self._origins = {origin.lower() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        code = self._fault(scope) if scope["type"] in ("http", "websocket") else None
        if code is None:
            await self._app(scope, receive, send)
        else:
            await refuse(HttpError(code), scope, receive, send)

    def _fault(self, scope: Scope) -> HttpCode | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts is not None and host_name(host) not in self._hosts:
            return "forbidden_host"
        origins = {origin.lower() for origin in headers.getlist("origin")}
        return None if origins <= {*self._origins, own_origin(scope["scheme"], host)} else "forbidden_origin"


def host_name(host: str) -> str:
    """Return the name in a `Host` header, without the port and the brackets of an IPv6 address; an empty text if the
    header is malformed. `Pure.`"""
    found = _HOST.fullmatch(host)
    return "" if found is None else _without_dot(found[1] or found[2] or "")


def _without_dot(name: str) -> str:
    return name.lower().removesuffix(".")


def own_origin(scheme: str, host: str) -> str:
    """Return the origin of the pages that are served under this host. `Pure.`"""
    scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
    return f"{scheme}://{host.lower().removesuffix(DEFAULT_PORTS.get(scheme, ''))}"
