"""Posts what is said to another program over HTTP: the gateway of a phone, a chat service, an application elsewhere.

The channel posts once. The dispatcher of deliveries repeats a post until it has arrived, also after a crash. So the
receiver must remember each `webhook-id` that it has accepted, answer a repeated one with 2xx, and do nothing else.
"""

from __future__ import annotations

import json
import re
import ssl
from functools import cached_property
from urllib.parse import urlsplit

from ...states.errors import ConfigurationError
from ..clock import Clock, SystemClock
from .attempt import ATTEMPT_TIMEOUT
from .port import Delivery, NotTaken
from .signing import WebhookSecret

TYPE = "delivery"
"""The `type` in the body of each post."""

_IS_ONE_WORD = re.compile(r"[^\s\x00-\x1f\x7f]{1,65536}")
"""Text without blanks and control characters, and not longer than httpx accepts. `urlsplit` would drop some of them."""


class WebhookChannel:
    """Posts each delivery to `url` as JSON, signed as Standard Webhooks requires (see `signing`).

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
    return json.dumps({"type": TYPE, "data": data}, ensure_ascii=False, separators=(",", ":")).encode()


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url if _IS_ONE_WORD.fullmatch(url) else "")
        if parts.scheme.lower() in ("http", "https") and parts.hostname and parts.port != 0:
            return url
    except (AttributeError, TypeError, ValueError):
        pass
    raise ConfigurationError("A webhook needs a URL that begins with https:// or http://.")
