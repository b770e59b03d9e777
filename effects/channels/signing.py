"""Signs webhooks, so that receivers can recognise forged requests.

The scheme is that of Standard Webhooks 1.0.0 (https://www.standardwebhooks.com): HMAC-SHA256 over the id, the time of
the attempt and the body, with a secret that both sides know. There are libraries for receivers in most languages.
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
