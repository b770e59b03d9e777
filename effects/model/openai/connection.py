"""One request to a server over HTTP, and the body of its answer as it comes.

Each request has a connection of its own, which is closed with its answer, however that ends: a model has no place where
it would be told to close what it keeps, and may be asked in several event loops. What takes time to set up is kept:
the certificates that are trusted.

A server that redirects is not followed. A key would go to an address that nobody has given, and what was sent would not
go with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from ssl import SSLContext
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from ....states.errors import ConfigurationError
from ....states.values.value import MAX_QUOTED, FailureKind, shortened
from ..port import LlmFailure
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


class Connection:
    """Sends requests to the server at `base_url`, the address that its documentation gives for OpenAI's clients, such
    as `http://localhost:8000/v1`. `silence` is how many seconds it may send nothing.

    Raises `ConfigurationError` for what is no address, and for headers that HTTP cannot carry.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], silence: float) -> None:
        self._url = _checked_url(base_url)
        self._headers = _checked_headers(headers)
        self._silence = silence

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
            await _check(response)
            yield lines_in(response.aiter_bytes())


@cache
def _certificates() -> SSLContext:
    """The certificates that are trusted: those of the system's variables, else those that httpx brings along."""
    import httpx

    return httpx.create_ssl_context()


async def _check(response: httpx.Response) -> None:
    """Raise what a response stands for that is no answer."""
    if response.is_redirect:
        to = shortened(response.headers.get("location", ""), MAX_QUOTED)
        raise LlmFailure("invalid_request", f"The model's server redirects to {to}: give that address as its base_url.")
    if not response.is_success:
        text = await _beginning_of(response)
        raise RefusedRequest(Refusal.of_response(response.status_code, text, response.headers), text)


async def _beginning_of(response: httpx.Response) -> str:
    """The first of the body of a refusal; what has come of it where the rest does not come."""
    import httpx

    read = bytearray()
    try:
        async with asyncio.timeout(REFUSING):
            async for part in response.aiter_bytes():
                read += part
                if len(read) >= LARGEST_REFUSAL:
                    break
    except (httpx.HTTPError, TimeoutError):
        pass
    return bytes(read[:LARGEST_REFUSAL]).decode(response.charset_encoding or "utf-8", "replace")


def kind_of_connection(error: Exception) -> FailureKind:
    """The kind of an error of the connection; `internal` for one of this program."""
    import httpx

    match error:
        case httpx.TimeoutException():
            return "timeout"
        case httpx.DecodingError() | MalformedChunk():
            return "malformed_response"
        case httpx.TransportError() | httpx.StreamError() | OSError():
            return "network"
        case _:
            return "internal"


def _checked_url(base_url: Any) -> str:
    """The address of the chat completions beneath this one. Raises `ConfigurationError`."""
    parts = _parts_of(base_url)
    if parts is None:
        given = shortened(repr(base_url), MAX_QUOTED)
        raise ConfigurationError(
            f"The base_url of a model is an address such as http://localhost:8000/v1, not {given}."
        )
    path = parts.path.rstrip("/")
    path = path if path.endswith(_PATH) else f"{path}/{_PATH}"
    return parts._replace(path=path, fragment="").geturl()


def _parts_of(base_url: Any) -> SplitResult | None:
    """The parts of an address; None if it is none."""
    if not isinstance(base_url, str):
        return None
    try:
        parts = urlsplit(base_url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_address else None


def _checked_headers(headers: Mapping[Any, Any]) -> dict[str, str]:
    for name, value in headers.items():
        if not (_is_printable(name) and _is_printable(value)):
            raise ConfigurationError(
                f"The header {shortened(repr(name), MAX_QUOTED)} of a model is no line of printable ASCII."
            )
    return dict(headers)


def _is_printable(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isprintable()
