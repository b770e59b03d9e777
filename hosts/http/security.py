"""Keeps strangers out, and keeps one client from using up the server: the guards that a request passes before an
endpoint sees it.

They stand in the order in which a request passes them. Headers that every response has keep browsers from storing or
guessing at what is shown. The guard of host and origin refuses what a foreign web page makes a browser send. Errors
that nobody raised on purpose are answered without a word of what they say. Callers without the token are refused before
their bodies are read: the token comes as a bearer token (RFC 6750), or as the session cookie of a browser that
presented it before. At last the body is read, within limits of size and time.

A request that is refused here gets a problem (RFC 9457), like every other.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...states.errors import ConfigurationError
from .problems import HttpCode, HttpError, ProblemResponse, http_problem

logger: logging.Logger = logging.getLogger("turnwise.http")

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Names that no other site can have: those of the loopback interface."""

_ORIGIN = re.compile(r"https?://[^/\s,*?#@]+", re.IGNORECASE)
_TOKEN = re.compile(r"[!-~]+")
_ADDRESS = re.compile(r"[!-\[\]-~]+")
"""Visible ASCII characters without the backslash, which browsers take for a slash."""


def middleware_of(
    *,
    token: str | None,
    hosts: Sequence[str] | None,
    origins: Sequence[str],
    bound: bool,
    limits: HttpLimits,
    wrong_tokens: WrongTokens,
) -> list[Middleware]:
    """Return the middleware of an application, the outermost first.

    `hosts` are the names under which the server may be addressed; None stands for those of the local machine, or for
    all if `bound`, that is, if callers must say who they are: then another site gains nothing by giving its name to
    this machine, since a browser keeps the session for the name under which it was begun. `origins` are other sites
    whose pages may call the server. Raises `ConfigurationError` for a token or an origin that no request can carry.
    """
    if token is not None and not _TOKEN.fullmatch(token):
        raise ConfigurationError("A token consists of visible ASCII characters, without spaces.")
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigurationError(f"An origin reads like https://example.org, and not {origin!r}.")
    known = LOCAL_HOSTS if hosts is None and not bound else hosts
    cors = Middleware(
        CORSMiddleware,
        allow_origins=[origin.lower() for origin in origins],
        allow_methods=["GET", "HEAD", "POST", "PATCH", "DELETE"],
        allow_headers=["*"],  # clients of other protocols send headers of their own; these origins are trusted anyway
    )
    return [
        Middleware(_ResponseHeaders),
        Middleware(_HostGuard, known, origins),
        *([cors] if origins else []),
        Middleware(_UnexpectedErrors),
        *([] if token is None else [Middleware(_TokenGuard, token, wrong_tokens)]),
        Middleware(_BodyLimit, limits),
    ]


@dataclass(frozen=True)
class HttpLimits:
    """How much a client may send, and how long the server waits for one, so that none uses up the server."""

    body_bytes: int = 5_000_000
    """The largest body of a request, in bytes: a message of the greatest length with its files."""

    body_seconds: float = 30.0
    """How long a client may take to send a body."""

    send_seconds: float = 30.0
    """How long a stream waits for a client that does not read, before it is disconnected."""

    keep_alive_seconds: float = 15.0
    """How often a stream sends a comment, so that proxies do not take the connection for an idle one."""

    wrong_tokens: int = 20
    """How many wrong tokens of one client are answered as such within a minute; further ones get 429."""


_HEADERS = {
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""They are set unless an endpoint sets them itself: the files of the page may be cached, for example."""


class _ResponseHeaders:
    """Middleware that adds `_HEADERS` to responses: nothing of a conversation is cached, guessed at or shown inside
    another site."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the headers to its response."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, sending if scope["type"] == "http" else send)


_DEFAULT_PORTS = {"http": ":80", "https": ":443"}

_HOST = re.compile(r"(?:\[([^\]]*)\]|([^:]*))(?::[0-9]*)?", re.ASCII)
"""A `Host` header (RFC 9110, section 7.2): the address in brackets, or the name, and perhaps a port."""


class _HostGuard:
    """Middleware that refuses requests to other hosts than `hosts`, and from other origins than `origins` and the
    server's own. None as `hosts` stands for all hosts.

    A server on the loopback interface is reached by every page that the user's browser shows. Two headers tell such a
    request apart, and a page cannot forge them: `Host` names the site whose address was resolved to this machine (DNS
    rebinding), and `Origin` the site whose script sends the request.
    """

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
        if self._hosts is not None and _host_name(host) not in self._hosts:
            return "forbidden_host"
        origins = {origin.lower() for origin in headers.getlist("origin")}
        return None if origins <= {*self._origins, _own_origin(scope["scheme"], host)} else "forbidden_origin"


def _host_name(host: str) -> str:
    """Return the name in a `Host` header, without the port and the brackets of an IPv6 address; an empty text if the
    header is malformed. `Pure.`"""
    found = _HOST.fullmatch(host)
    return "" if found is None else _without_dot(found[1] or found[2] or "")


def _without_dot(name: str) -> str:
    return name.lower().removesuffix(".")


def _own_origin(scheme: str, host: str) -> str:
    """Return the origin of the pages that are served under this host. `Pure.`"""
    scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
    return f"{scheme}://{host.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ''))}"


class _UnexpectedErrors:
    """Middleware that answers an unexpected error with the problem `internal_error`, and logs where it arose.

    Starlette would answer it in plain text and raise it again, and the server would then write it to its log with its
    text, which may quote a conversation.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on. An error after the response has begun is raised again, so that the server ends the
        connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = False

        async def noted(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            logger.error("A request failed unexpectedly with %s, raised in %s.", type(error).__name__, origin(error))
            logger.debug("The request was %s %r.", scope["method"], scope["path"], exc_info=error)
            if began:
                raise
            await ProblemResponse(http_problem("internal_error"))(scope, receive, send)


def origin(error: BaseException) -> str:
    """Return the module and the line that raised an error. `Pure.`"""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"


_PUBLIC = ("/", "/health", "/session")
_PUBLIC_FOLDER = "/page/"


class _TokenGuard:
    """Middleware that refuses requests without the token, before their bodies are read.

    Everything needs it but the files of the page, which ask for the token, the health check, and the endpoint that
    begins a session.
    """

    def __init__(self, app: ASGIApp, token: str, wrong: WrongTokens) -> None:
        self._app = app
        self._token = token
        self._wrong = wrong

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        connection = HTTPConnection(scope) if scope["type"] != "lifespan" else None
        if connection is None or _is_public(scope) or _knows_token(connection, self._token):
            await self._app(scope, receive, send)
        elif "authorization" in connection.headers:
            await refuse(self._wrong.refusal(connection), scope, receive, send)
        else:
            await refuse(HttpError("unauthorized"), scope, receive, send)


def _is_public(scope: Scope) -> bool:
    """Return whether a path needs no token. `Pure.`"""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return scope["type"] == "http" and (path in _PUBLIC or path.startswith(_PUBLIC_FOLDER))


def _knows_token(connection: HTTPConnection, token: str) -> bool:
    """Return whether a request presents the token, or a session that was begun with it. A bearer token that is wrong is
    refused, whatever the session is."""
    authorization = connection.headers.get("authorization")
    if authorization is None:
        return _has_session(connection, token)
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and _is_token(given.strip(), token)


_SHORTEST = 20
"""Characters of a token that others can try to guess. Made at random it has 66 bits if these are digits alone, and more
otherwise; OWASP asks for 64 of the id of a session."""

_FEWEST = 6
"""How many different characters such a token has. Of 10,000 that are made of 20 random digits, three have fewer."""


def check_hard_to_guess(token: str) -> None:
    """Raise `ConfigurationError` for a token that others could guess who can reach the server: a short one, or one that
    repeats itself. `Pure.`"""
    repeats = token in (token + token)[1:-1]
    if len(token) < _SHORTEST or len(set(token)) < _FEWEST or repeats:
        raise ConfigurationError(
            f"A token that others must not guess is random and has at least {_SHORTEST} characters: make one by"
            " `openssl rand -hex 32`."
        )


COOKIE = "turnwise_session"
"""The cookie of a browser that has exchanged the token for a session: it cannot send a bearer token with every request,
since an `EventSource` sets no headers.

The cookie holds when it expires and a signature, made with a key that is derived from the token by a slow function:
whoever reads the cookie cannot compute the token. Nothing is stored, so a session outlives a restart of the server, and
ends when the token is changed."""

LIFETIME = 30 * 24 * 3600
"""Seconds until a browser has to send the token again."""


def set_session(response: Response, request: Request, given: str, token: str | None, wrong: WrongTokens) -> None:
    """Let a response begin a session for a caller that has `given` the token. Without a token there are no sessions,
    and nothing is set. Raises `HttpError` for a token that is wrong."""
    if token is None:
        return
    if not _is_token(given, token):
        raise wrong.refusal(request)
    expires = int(time.time()) + LIFETIME
    _set_cookie(response, request, f"{expires}.{_signature(token, expires)}", LIFETIME)


def clear_session(response: Response, request: Request) -> None:
    """Let a response end the session of a browser."""
    _set_cookie(response, request, "", 0)


def _set_cookie(response: Response, request: Request, value: str, seconds: int) -> None:
    response.set_cookie(
        COOKIE,
        value,
        max_age=seconds,
        path=_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def _has_session(connection: HTTPConnection, token: str) -> bool:
    """Return whether a request comes with a cookie that was made for this token and has not expired. A browser sends
    several of the name if several applications of one host have sessions, one below the path of another."""
    given = (
        pair.strip().partition("=") for header in connection.headers.getlist("cookie") for pair in header.split(";")
    )
    return any(_is_valid(value.strip(' "'), token) for name, _, value in given if name.strip() == COOKIE)


def _is_valid(cookie: str, token: str) -> bool:
    expires, _, signature = cookie.partition(".")
    if not (expires.isascii() and expires.isdecimal() and len(expires) < 20 and int(expires) > time.time()):
        return False
    return hmac.compare_digest(signature.encode(errors="replace"), _signature(token, int(expires)).encode())


def _is_token(given: str, token: str) -> bool:
    """Return whether this is the token, in a time that does not tell how much of it is right. `Pure.`"""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())


def _path(request: Request) -> str:
    """Return the path below which the cookie is sent: where the application is mounted."""
    path: str = request.scope.get("root_path", "")
    return quote(path.rstrip("/")) or "/"


def _signature(token: str, expires: int) -> str:
    return hmac.new(_key(token), str(expires).encode(), hashlib.sha256).hexdigest()


@lru_cache(maxsize=16)
def _key(token: str) -> bytes:
    """Return the key for this token. scrypt with these costs takes some 50 ms and 16 MB (RFC 7914)."""
    return hashlib.scrypt(token.encode(), salt=b"turnwise session cookie", n=2**14, r=8, p=1)


BURST = 60.0
"""Seconds from the first wrong token of a client until its count begins anew."""

MOST_CLIENTS = 1024
"""How many clients are counted apart from each other. What comes from more of them at once is counted together."""

_OTHERS = "other addresses"


@dataclass
class _Burst:
    """The wrong tokens of a client since a moment."""

    began: float
    count: int = 0


class WrongTokens:
    """Counts the wrong tokens of each client, and says how the next one is refused.

    Nobody is kept out by what others do: the right token is always taken, also from an address that has sent many wrong
    ones, since a whole office or a proxy may share it. What makes guessing hopeless is the length of the token
    (`check_hard_to_guess`); the limit tells a client that retries for ever to stop, and keeps the log short. A burst is
    logged once, when it begins.
    """

    def __init__(self, most: int, now: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._now = now
        self._bursts: dict[str, _Burst] = {}

    def refusal(self, connection: HTTPConnection) -> HttpError:
        """Count a wrong token, and return how it is refused."""
        now = self._now()
        burst = self._burst(_client_of(connection), now)
        burst.count += 1
        if burst.count <= self._most:
            return HttpError("unauthorized", "This is not the token of the server.")
        seconds = max(1, round(burst.began + BURST - now))
        return HttpError("too_many_attempts", headers={"retry-after": str(seconds)})

    def _burst(self, client: str, now: float) -> _Burst:
        """Return the burst of this client that is under way, or one that begins."""
        self._forget_old(now)
        if client not in self._bursts and len(self._bursts) >= MOST_CLIENTS:
            client = _OTHERS
        if client not in self._bursts:
            logger.warning("A wrong token came from %s.", client)
            self._bursts[client] = _Burst(now)
        return self._bursts[client]

    def _forget_old(self, now: float) -> None:
        """Forget bursts that are over. They stand in the order in which they began, so each is looked at once."""
        while self._bursts:
            oldest = next(iter(self._bursts))
            if now - self._bursts[oldest].began < BURST:
                return
            del self._bursts[oldest]


def _client_of(connection: HTTPConnection) -> str:
    """Return the address by which a client is counted. One client may have all addresses of an IPv6 network of 64 bits
    (RFC 6177)."""
    if connection.client is None:
        return "an unknown address"
    try:
        address = ip_address(connection.client.host)
    except ValueError:
        return repr(connection.client.host[:100])
    if not isinstance(address, IPv6Address):
        return str(address)
    mapped = address.ipv4_mapped
    return f"{IPv6Address(int(address) >> 64 << 64)}/64" if mapped is None else str(mapped)


class _BodyLimit:
    """Middleware that hands the application a body that is complete, and only JSON in UTF-8, or refuses the request.

    A body that is too large is refused as soon as that is known: by its declared length, or else when more has arrived
    than is allowed. So a request holds at most `body_bytes`, for at most `body_seconds`. A file that is uploaded goes
    by, to the endpoint that knows how large it may be.
    """

    def __init__(self, app: ASGIApp, limits: HttpLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or refuse it. A client that disconnects before the end gets nothing."""
        if scope["type"] != "http" or not _has_body(headers := Headers(scope=scope)) or _is_upload(scope):
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(headers, receive, self._limits.body_bytes, self._limits.body_seconds)
            if body:
                _check_text(headers, body)
        except HttpError as error:
            await ProblemResponse(error.problem)(scope, receive, send)
            return
        if body is not None:
            await self._app(scope, _Replayed(body, receive), send)


async def read_body(headers: Headers, receive: Receive, limit: int, seconds: float) -> bytes | None:
    """Return the body of a request, or None if the client has disconnected. Raises `HttpError` for one of more bytes
    than `limit`, as soon as that is known, and for one that takes longer than `seconds`."""
    if _declared_length(headers) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            return await _collect(receive, limit)
    except TimeoutError:
        raise HttpError("timeout") from None


async def _collect(receive: Receive, limit: int) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return bytes(body)


def _too_large(limit: int) -> HttpError:
    return HttpError("too_large", f"The body is larger than {limit:,} bytes.")


_UPLOAD = re.compile(r"/conversations/.+/files$")


def _is_upload(scope: Scope) -> bool:
    """Whether the body of a request is a file, which its endpoint reads within the limits of its conversation."""
    return scope["method"] == "POST" and _UPLOAD.search(scope["path"]) is not None


class _Replayed:
    """What the application receives: the body at once, and then what the server sends."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _declared_length(headers: Headers) -> int:
    """Return the declared length, or 0 for a body that comes in chunks. Raises `HttpError`."""
    declared = headers.get("content-length", "0")
    if not (declared.isascii() and declared.isdecimal() and len(declared) < 20):
        raise HttpError("malformed_request")
    return int(declared)


def _check_text(headers: Headers, body: bytes) -> None:
    """Raise `HttpError` for a body of another type than JSON, or that is no UTF-8. A page of another site can send some
    other types without asking the server first. JSON holds no NUL; what has one is read as UTF-16 or UTF-32."""
    kind, _, subtype = headers.get("content-type", "").partition(";")[0].strip().lower().partition("/")
    if kind != "application" or not (subtype == "json" or subtype.endswith("+json")):
        raise HttpError("unsupported_media_type")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise HttpError("malformed_json") from None
    if "\0" in text:
        raise HttpError("malformed_json")


_POLICY_VIOLATION = 1008
"""The code with which a WebSocket is closed (RFC 6455, section 7.4.1)."""


async def refuse(error: HttpError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with a problem. A WebSocket is closed."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
    else:
        await ProblemResponse(error.problem, error.headers)(scope, receive, send)


def check_login_url(url: object) -> None:
    """Raise `ConfigurationError` for an address that a page may not lead people to: one of another scheme than `http`
    and `https`, such as `javascript:`, and one that is neither a whole address nor a path."""
    if url is None:
        return
    if not isinstance(url, str) or not _ADDRESS.fullmatch(url) or not _leads_to_site(url):
        raise ConfigurationError(f"The login_url reads like https://example.org/login or /login, and not {url!r}.")


def _leads_to_site(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if parts.scheme:
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    return not parts.netloc and bool(parts.path) and not url.startswith("//")
