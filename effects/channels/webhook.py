"""Posts what is said to another program, over HTTP: a phone's gateway, a chat service, an application elsewhere.

It posts once. That it is posted again until it arrives, in order, and after a crash too, is the courier's work; so the
receiver keeps the `webhook-id` of what it has, and answers a repeated one with 2xx and does nothing else.
"""

from __future__ import annotations

import json
import re
import ssl
from functools import cached_property
from urllib.parse import urlsplit

from ...states.errors import ConfigurationError
from ..clock import Clock, SystemClock
from .attempt import ATTEMPT
from .port import Delivery, NotTaken
from .signing import WebhookSecret

TYPE = "delivery"
"""What the body says that it is, in `type`."""

_IS_ONE_WORD = re.compile(r"[^\s\x00-\x1f\x7f]{1,65536}")
"""Text without blanks and control characters, as short as httpx takes it. `urlsplit` would leave some of them out."""


class WebhookChannel:
    """Posts each delivery to `url` as JSON, signed in the manner of Standard Webhooks (`signing`).

    The body is `{"type": "delivery", "data": {…}}` with the fields of `Delivery`. The header `webhook-id` is made of
    the delivery's key and is the same at each attempt; `webhook-timestamp` is the time of this one. An answer of 2xx
    within two seconds says that it is taken, whatever its body holds; redirects are not followed. A name and a password
    in `url` are sent as Basic authentication; the rest of it stands in the log of httpx, at the level INFO. Raises
    `ConfigurationError` for a URL or a secret that is none.
    """

    def __init__(self, url: str, secret: str, *, name: str = "webhook", clock: Clock | None = None) -> None:
        self.name = name
        self._url = _url(url)
        self._secret = WebhookSecret(secret)
        self._clock = clock or SystemClock()

    async def deliver(self, delivery: Delivery) -> None:
        """Post it. Raises `NotTaken` for any other answer than 2xx, and what httpx raises for none."""
        import httpx  # a tenth of a second that only those pay who post

        body = _body(delivery)
        signed = self._secret.headers(delivery.key, int(self._clock.now().timestamp()), body)
        headers = {"content-type": "application/json", **signed}
        # httpx tells its log each URL that it asks, so what opens the door is not left in it.
        given = httpx.URL(self._url)
        login = httpx.BasicAuth(given.username, given.password) if given.userinfo else None
        url = given.copy_with(username=None, password=None)
        # A connection for each: deliveries are rare, and so it does not matter which event loop this runs in. Of the
        # answer only the status is read: its body may have no end, be broken, or grow a thousandfold as it is unpacked.
        async with (
            httpx.AsyncClient(timeout=ATTEMPT, verify=self._certificates) as client,
            client.stream("POST", url, auth=login, content=body, headers=headers) as answer,
        ):
            if not answer.is_success:
                raise NotTaken(f"The channel {self.name} got the answer {answer.status_code}.")

    @cached_property
    def _certificates(self) -> ssl.SSLContext | bool:
        """Whom to trust; it takes long to read, so it is read once, and not where nothing is encrypted."""
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


def _url(url: str) -> str:
    try:
        parts = urlsplit(url if _IS_ONE_WORD.fullmatch(url) else "")
        if parts.scheme.lower() in ("http", "https") and parts.hostname and parts.port != 0:
            return url
    except (AttributeError, TypeError, ValueError):
        pass
    raise ConfigurationError("A webhook needs a URL that begins with https:// or http://.")
