"""Signs what is posted to others, so that they can tell it from what strangers post.

The scheme is that of Standard Webhooks 1.0.0 (https://www.standardwebhooks.com): HMAC-SHA256 over the id, the time of
the attempt and the body, with a secret that both sides know. For those who receive it there are libraries in most
languages.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import quote

from ...states.errors import ConfigurationError

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64
"""How many bytes a secret has, by the standard."""


class WebhookSecret:
    """A secret to sign with, given as the standard writes it: `whsec_` and base64 of 24 to 64 random bytes.

    To make one: `"whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()`; one for each receiver. It is in no
    `repr` and in no error. Raises `ConfigurationError` for any other text.
    """

    def __init__(self, text: str) -> None:
        try:
            self._key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except (AttributeError, TypeError, ValueError):
            raise ConfigurationError(_WANTED) from None
        if not text.startswith(PREFIX) or not SHORTEST <= len(self._key) <= LONGEST:
            raise ConfigurationError(_WANTED)

    def headers(self, key: str, timestamp: int, body: bytes) -> Mapping[str, str]:
        """The headers that sign this body: `key` is its id, and `timestamp` the time of the attempt in Unix seconds.
        `Pure.`"""
        # What stands between the dots of the signed text has none, or one text could be read as another.
        id_ = quote(key, safe="/").replace(".", "%2E")
        signed = hmac.digest(self._key, f"{id_}.{timestamp}.".encode() + body, sha256)
        return {
            "webhook-id": id_,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
        }


_WANTED = f"The secret of a webhook is {PREFIX} and base64 of {SHORTEST} to {LONGEST} bytes."
