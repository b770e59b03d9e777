"""Posts what is said to another program over HTTP: the gateway of a phone, a chat service, an application elsewhere.

The channel posts once. The dispatcher of deliveries repeats a post until it has arrived, also after a crash. So the
receiver must remember each `webhook-id` that it has accepted, answer a repeated one with 2xx, and do nothing else.

Each post is signed, so that receivers can recognise forged requests. The scheme is that of Standard Webhooks 1.0.0
(https://www.standardwebhooks.com): HMAC-SHA256 over the id, the time of the attempt and the body, with a secret that
both sides know. There are libraries for receivers in most languages.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import ssl
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from urllib.parse import quote, urlsplit

from ...states.errors import ConfigurationError
from ..clock import Clock, SystemClock
from .delivery import ATTEMPT_TIMEOUT
from .port import Delivery, NotTaken

_TYPE = "delivery"
"""The `type` in the body of each post."""

_IS_ONE_WORD = re.compile(r"[^\s\x00-\x1f\x7f]{1,65536}")
"""Text without blanks and control characters, and not longer than httpx accepts. `urlsplit` would drop some of them."""


class WebhookChannel:
    """Posts each delivery to `url` as JSON, signed as Standard Webhooks requires (see `WebhookSecret`).

    The body is `{"type": "delivery", "data": {…}}` with the fields of `Delivery`. The header `webhook-id` is made from
    the delivery's key and is the same at each attempt; `webhook-timestamp` is the time of the attempt. An answer of 2xx
    within two seconds means that the receiver has the delivery, whatever its body is; redirects are not followed. A
    name and a password in `url` are sent as Basic authentication; httpx logs the rest of the URL at the level INFO.
    Raises `ConfigurationError` for an invalid URL or secret.
    """

    def __init__(self, url: str, secret: str, *, name: str = "webhook", clock: Clock | None = None) -> None:
        self.name = name
        self._url = _check_url(url)
        self._secret = WebhookSecret(secret)
        self._clock = clock or SystemClock()

    async def deliver(self, delivery: Delivery) -> None:
        """Post it. Raises `NotTaken` for any answer but 2xx, and an error of httpx if there is no answer."""
        # Imported here, because it takes a tenth of a second that programs without webhooks need not spend.
        import httpx

        body = _body(delivery)
        signature = self._secret.headers(delivery.key, int(self._clock.now().timestamp()), body)
        headers = {"content-type": "application/json", **signature}
        # httpx logs each URL, so the password must not be in it.
        given = httpx.URL(self._url)
        login = httpx.BasicAuth(given.username, given.password) if given.userinfo else None
        url = given.copy_with(username=None, password=None)
        # Each delivery has a connection of its own: deliveries are rare, and the channel works in any event loop. Only
        # the status of the answer is read: its body may be endless, broken, or far larger than its compressed form.
        async with (
            httpx.AsyncClient(timeout=ATTEMPT_TIMEOUT, verify=self._certificates) as client,
            client.stream("POST", url, auth=login, content=body, headers=headers) as answer,
        ):
            if not answer.is_success:
                raise NotTaken(f"The channel {self.name} got the answer {answer.status_code}.")

    @cached_property
    def _certificates(self) -> ssl.SSLContext | bool:
        """The certificates to trust. They take long to read, so they are read once, and only for an https URL."""
        import httpx

        return httpx.create_ssl_context() if self._url.lower().startswith("https:") else False


def _body(delivery: Delivery) -> bytes:
    data = {
        "text": delivery.text,
        "conversation_id": delivery.conversation_id,
        "turn": delivery.turn,
        "ordinal": delivery.ordinal,
        "key": delivery.key,
        "origin": delivery.origin,
    }
    return json.dumps({"type": _TYPE, "data": data}, ensure_ascii=False, separators=(",", ":")).encode()


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url if _IS_ONE_WORD.fullmatch(url) else "")
        if parts.scheme.lower() in ("http", "https") and parts.hostname and parts.port != 0:
            return url
    except (AttributeError, TypeError, ValueError):
        pass
    raise ConfigurationError("A webhook needs a URL that begins with https:// or http://.")


PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64
"""How many bytes a secret has, according to the standard."""


class WebhookSecret:
    """A secret to sign with, in the form of the standard: `whsec_` and base64 of 24 to 64 random bytes.

    To make one: `"whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()`; use another for each receiver. It
    appears in no `repr` and in no error. Raises `ConfigurationError` for any other text.
    """

    def __init__(self, text: str) -> None:
        try:
            self._key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except (AttributeError, TypeError, ValueError):
            raise ConfigurationError(_EXPECTED) from None
        if not text.startswith(PREFIX) or not SHORTEST <= len(self._key) <= LONGEST:
            raise ConfigurationError(_EXPECTED)

    def headers(self, key: str, timestamp: int, body: bytes) -> Mapping[str, str]:
        """The headers that sign this body. `key` is its id, and `timestamp` the time of the attempt in Unix seconds.
        `Pure.`"""
        # Dots separate the signed parts. With a dot in an id two different messages could have the same signature.
        id_ = quote(key, safe="/").replace(".", "%2E")
        signature = hmac.digest(self._key, f"{id_}.{timestamp}.".encode() + body, sha256)
        return {
            "webhook-id": id_,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
        }


_EXPECTED = f"The secret of a webhook is {PREFIX} and base64 of {SHORTEST} to {LONGEST} bytes."
