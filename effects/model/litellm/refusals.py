"""What a provider said when it refused a request.

A refusal reaches this program wrapped several times: in the client library's exception, in litellm's exception around
it, in the JSON of a proxy, and sometimes as JSON text within a message. Only the innermost text is the provider's own,
and each layer may have lost or renamed a part of it. So everything that was said is read as one text, in which the
codes are found wherever they stand.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

LONGEST_TEXT = 6_000
"""Characters of a refusal that are read. What comes later is the request, quoted."""

DEEPEST_CHAIN = 8
"""Exceptions that are looked at, from the outermost one inwards."""

_ESCAPED = re.compile(r"\\+u([0-9a-f]{4})")
_MARKS = re.compile(r"[\"'`*\\]")
_WORD = re.compile(r"(?:code|type|status|reason)\b\W{0,4}\s?([a-z0-9][\w.\-]*)")
_LONG_WORD = re.compile(r"[a-z][\w.\-]{11,}")
_PAGE = re.compile(r"\s*<(?:!doctype|html|head|body|\?xml)", re.IGNORECASE)


@dataclass(frozen=True)
class Refusal:
    """A refusal: its HTTP status, the text that came with it and its headers, whose names are in lower case.

    The status is the one of the HTTP response. Where that said nothing, because the refusal came in the middle of a
    stream, it is a code in the text, else the status that a client library gave it, else None. `is_whole` says that
    the text is what the provider sent, and not what a library says of it.
    """

    status: int | None = None
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = False

    @classmethod
    def of_body(cls, body: object, status: int | None = None) -> Refusal:
        """The refusal that this decoded JSON, or this text, stands for: an error in the middle of a stream, for
        example. `status` counts if the body tells none. `Pure.`"""
        refusal = cls(status, _plain(body if isinstance(body, str) else json.dumps(body, default=str)))
        codes = [int(word) for word in refusal.words if re.fullmatch("[45][0-9]{2}", word)]
        return replace(refusal, status=min(codes)) if codes else refusal

    @cached_property
    def words(self) -> frozenset[str]:
        """The codes and types in the text, in lower case, numbers among them, and its long words: a code may also stand
        in the middle of a sentence."""
        return frozenset(word.rstrip(".") for word in (*_WORD.findall(self.text), *_LONG_WORD.findall(self.text)))


def refusal_of(error: BaseException) -> Refusal:
    """What the provider said, as far as this error and those inside it tell it. `Pure.`"""
    chain = tuple(chain_of(error))
    response = next((found for one in chain if (found := _answered(one)) is not None), None)
    headers = _headers_in(chain, response)
    if response is None or (status := _status_of(response) or 0) < 400:
        told = " ".join(_told(chain)) if response is None else _text_of(response)
        return replace(Refusal.of_body(told, _innermost_status(chain)), headers=headers)
    return Refusal(status, _plain(_text_of(response)), headers, is_whole=True)


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """The error, then those inside it, as far as they are looked at. `Pure.`"""
    inner: BaseException | None = error
    for _ in range(DEEPEST_CHAIN):
        if inner is None:
            return
        yield inner
        inner = inner.__cause__ or inner.__context__


def _answered(error: BaseException) -> Any:
    """The HTTP response inside an error, if it holds what the provider sent. litellm puts empty ones of its own on its
    errors."""
    response = getattr(error, "response", None)
    return response if response is not None and _text_of(response) else None


def _text_of(response: Any) -> str:
    try:
        return str(response.text)
    except Exception:  # the body of a response that was streamed may not have been read
        return ""


def _status_of(holder: Any) -> int | None:
    status = getattr(holder, "status_code", None)
    return status if isinstance(status, int) and not isinstance(status, bool) else None


def _innermost_status(chain: Iterable[BaseException]) -> int | None:
    """litellm gives errors a status of its own, so the innermost one counts."""
    statuses = [status for error in chain if (status := _status_of(error)) is not None]
    return statuses[-1] if statuses else None


def _told(chain: Iterable[BaseException]) -> Iterator[str]:
    for error in chain:
        body = getattr(error, "body", None)
        if body is not None:
            yield body if isinstance(body, str) else json.dumps(body, default=str)
        yield _words_of(error)


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an exception of a library may lack what its own text is made of
        return ""


def _headers_in(chain: Iterable[BaseException], response: Any) -> dict[str, str]:
    """The headers of all layers; those of the provider's own response win."""
    found: dict[str, str] = {}
    for error in chain:
        for holder in (getattr(error, "response", None), error):
            for name in ("headers", "litellm_response_headers"):
                headers = getattr(holder, name, None)
                found |= {} if not isinstance(headers, Mapping) else _lowered(headers)
    return found | _lowered(getattr(response, "headers", None) or {})


def _lowered(headers: Mapping[Any, Any]) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _plain(text: str) -> str:
    """The text in lower case, on one line, without quotation marks and escapes, so that it reads the same whether it
    was JSON, JSON within JSON, or a Python literal. Nothing is left of a web page but its title."""
    if _PAGE.match(text):
        title = re.search(r"<title>(.*?)</title>", text[:LONGEST_TEXT], re.IGNORECASE | re.DOTALL)
        text = html.unescape(title[1]) if title else ""
    text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text[:LONGEST_TEXT].lower())
    text = re.sub(r"\\+[nrt]", " ", text)
    return " ".join(_MARKS.sub("", text).split())
