"""One request to a server over HTTP, and the body of its answer as it comes.

Each request has a connection of its own, which is closed with its answer, however that ends: a model has no place where
it would be told to close what it keeps, and may be asked in several event loops. What takes time to set up is kept:
the certificates that are trusted.

A server that redirects is not followed. A key would go to an address that nobody has given, and what was sent would not
go with it.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from ssl import SSLContext
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from ....states.errors import ConfigurationError
from ....states.values.value import MAX_QUOTED, FailureKind, shortened
from ..keys import without_keys
from ..port import LlmFailure
from .compression import unpacked
from .events import lines_in
from .failures import MalformedChunk
from .refusals import Refusal, RefusedRequest

if TYPE_CHECKING:
    import httpx

CONNECTING = 10.0
"""Seconds in which a server must take a connection."""

LARGEST_REFUSAL = 100_000
"""Bytes of the body of a refusal that are read. Its beginning says what is wrong; what comes later is the request,
quoted."""

REFUSING = 5.0
"""Seconds in which the body of a refusal must come. What has come by then is read."""

_PATH = "chat/completions"

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header: a token of RFC 9110."""


class Connection:
    """Sends requests to the server at `base_url`, the address that its documentation gives for OpenAI's clients, such
    as `http://localhost:8000/v1`. `key` goes along as a bearer token; a user and a password may stand in the address
    instead. `headers` win over both. `silence` is how many seconds the server may send nothing.

    `secrets` are the values that no message may show. Raises `ConfigurationError` for what is no address, for a key
    beside a user in the address, and for a key or headers that HTTP cannot carry.
    """

    def __init__(self, base_url: str, key: str | None, headers: Mapping[str, str], silence: float) -> None:
        parts, token, given = _checked_address(base_url), _checked_key(key), _checked_headers(headers)
        user = parts.netloc.rpartition("@")[0]
        if user and token:
            raise ConfigurationError("A model has a key or a user in its base_url, and not both.")
        self._url = _url_of(parts)
        self._silence = silence
        self._headers = {"accept-encoding": "identity", **_authorization_of(user, token), **given}
        self.secrets: list[str] = [*filter(None, (token, *map(unquote, user.split(":", 1)))), *given.values()]

    async def ready(self) -> None:
        """Load what requests need, once, in a thread, as it takes a tenth of a second."""
        if not _certificates.cache_info().currsize:
            await asyncio.to_thread(_certificates)

    @asynccontextmanager
    async def lines_of_answer(self, body: Mapping[str, Any]) -> AsyncIterator[AsyncIterator[str]]:
        """Send this body, and yield the lines of the answer. Behind the context the connection is closed.

        Raises `RefusedRequest`, `LlmFailure` for a redirect, and what httpx raises; `kind_of_connection` knows that.
        """
        import httpx

        timeout = httpx.Timeout(self._silence, connect=min(CONNECTING, self._silence))
        async with (
            httpx.AsyncClient(verify=_certificates(), timeout=timeout, headers=self._headers) as client,
            client.stream("POST", self._url, json=body) as response,
        ):
            await self._check(response)
            yield lines_in(_body_of(response))

    async def _check(self, response: httpx.Response) -> None:
        """Raise what a response stands for that is no answer."""
        if response.is_redirect:
            raise LlmFailure("invalid_request", self._redirection(response.headers.get("location", "")))
        if not response.is_success:
            text = await _beginning_of(response)
            raise RefusedRequest(Refusal.of_response(response.status_code, text, response.headers), text)

    def _redirection(self, location: str) -> str:
        """The sentence of a redirect. What may hold secrets of an address is left out of it."""
        to = _parts_of(urljoin(self._url, location)) if location else None
        if to is None:
            return "The model's server redirects, and does not say where to."
        address = without_keys(_without_user(to)._replace(query="").geturl(), self.secrets)
        return f"The model's server redirects to {shortened(address, MAX_QUOTED)}: give that address as its base_url."


@cache
def _certificates() -> SSLContext:
    """The certificates that are trusted: those of the system's variables, else those that httpx brings along."""
    import httpx

    return httpx.create_ssl_context()


def _body_of(response: httpx.Response) -> AsyncIterator[bytes]:
    return unpacked(response.aiter_raw(), response.headers.get("content-encoding", ""))


async def _beginning_of(response: httpx.Response) -> str:
    """The first of the body of a refusal; what has come of it where the rest does not come."""
    import httpx

    read = bytearray()
    try:
        async with asyncio.timeout(REFUSING):
            async for part in _body_of(response):
                read += part
                if len(read) >= LARGEST_REFUSAL:
                    break
    except (httpx.HTTPError, TimeoutError, MalformedChunk):
        pass
    return _decoded(bytes(read[:LARGEST_REFUSAL]), response.charset_encoding)


def _decoded(body: bytes, charset: str | None) -> str:
    """The text of a body. A server may name a character set that is none."""
    try:
        return body.decode(charset or "utf-8", "replace")
    except (LookupError, ValueError):
        return body.decode("utf-8", "replace")


def kind_of_connection(error: Exception) -> FailureKind:
    """The kind of an error of the connection; `internal` for one of this program."""
    import httpx

    match error:
        case httpx.TimeoutException():
            return "timeout"
        case MalformedChunk():
            return "malformed_response"
        case httpx.TransportError() | httpx.StreamError() | OSError():
            return "network"
        case _:
            return "internal"


def _checked_address(base_url: Any) -> SplitResult:
    """The parts of an address. Raises `ConfigurationError`, whose sentence does not show what may hold a password."""
    parts = _parts_of(base_url)
    if parts is None:
        given = (
            "" if isinstance(base_url, str) and "@" in base_url else f", not {shortened(repr(base_url), MAX_QUOTED)}"
        )
        raise ConfigurationError(f"The base_url of a model is an address such as http://localhost:8000/v1{given}.")
    return parts


def _parts_of(base_url: Any) -> SplitResult | None:
    """The parts of an address; None if it is none."""
    if not isinstance(base_url, str) or not base_url.isprintable():
        return None
    try:
        parts = urlsplit(base_url.strip())
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_address and " " not in parts.netloc else None


def _url_of(parts: SplitResult) -> str:
    """The address of the chat completions beneath this one, without a user."""
    path = parts.path.rstrip("/")
    path = path if path.endswith(_PATH) else f"{path}/{_PATH}"
    return _without_user(parts)._replace(path=path).geturl()


def _without_user(parts: SplitResult) -> SplitResult:
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="")


def _authorization_of(user: str, key: str) -> dict[str, str]:
    """The header by which a server knows who asks: for a key, or for a user and a password of an address."""
    if key:
        return {"authorization": f"Bearer {key}"}
    name, _, password = user.partition(":")
    encoded = b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode("ascii")
    return {"authorization": f"Basic {encoded}"} if user else {}


def _checked_key(key: Any) -> str:
    if not (key is None or _is_printable(key.strip() if isinstance(key, str) else key)):
        raise ConfigurationError("The key of a model is no line of printable ASCII.")
    return (key or "").strip()


def _checked_headers(headers: Mapping[Any, Any]) -> dict[str, str]:
    """The headers by their names in lower case, as HTTP compares them."""
    for name, value in headers.items():
        if not (isinstance(name, str) and _NAME.fullmatch(name) and _is_printable(value)):
            raise ConfigurationError(
                f"The header {shortened(repr(name), MAX_QUOTED)} of a model is no line of printable ASCII."
            )
    return {name.lower(): value for name, value in headers.items()}


def _is_printable(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isprintable()
