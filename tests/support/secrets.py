"""Secrets of every kind, and a search for them in whatever bytes a program leaves behind."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).parents[1] / "fixtures" / "redaction"

SECRETS = {
    "email": "anna.virtanen@posti-oy.example",
    "card": "4111 1111 1111 1111",
    "iban": "FI21 1234 5600 0007 85",
    "openai": "sk-proj-Zx81kQmTtB4vR7pLw2Ny9aHc",
    "github": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "google": "AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
    "slack": "xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
    "bearer": "mF_9.B5f-4.1JqM-opaque",
    "basic": base64.b64encode(b"aladdin:opensesame").decode(),
    "jwt": "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQs",
    "pem": "MIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gun",
    "password": "Tr0ub4dor-and-3",
    "url": "ya29Abc-def_456",
    "code": "482913",
    "hex": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "phone": "+358 40 123 4567",
}
"""One secret of each kind."""

WRITTEN = {
    "email": "Write to {}.",
    "card": "My card is {}, please.",
    "iban": "Pay to {} by Friday.",
    "openai": "OPENAI_API_KEY={}",
    "github": "Clone it with {} today.",
    "aws": "aws_access_key_id = {}",
    "google": "The maps key {} is in the page.",
    "slack": "SLACK={}",
    "bearer": "Authorization: Bearer {}",
    "basic": "Authorization: Basic {}",
    "jwt": "The token is {}.",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
    "password": "password={}",
    "url": "See https://api.test/items?page=2&access_token={}&sort=asc",
    "code": "Your verification code is {}.",
    "hex": "The session is {}.",
    "phone": "Call me at {} tonight.",
}
"""How each of them may stand in a text."""

ALL = "\n".join(text.format(SECRETS[kind]) for kind, text in WRITTEN.items())
"""A text with a secret of each kind."""


def load_sample(name: str) -> dict[str, list[dict[str, str]]]:
    """Return the half of the sample with this name: `secrets` and `innocents`."""
    sample: dict[str, list[dict[str, str]]] = json.loads((SAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    return sample


def found_in(data: str | bytes) -> list[str]:
    """Return the kinds of secret that stand in a text or in the bytes of a file, as they are or as JSON writes them."""
    given = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return [kind for kind, secret in SECRETS.items() if secret.encode() in given]


def found_beside(database: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each file of the folder of a database in which a secret stands: the database, its journals, its lock."""
    for path in sorted(database.parent.rglob("*")):
        if path.is_file() and (kinds := found_in(path.read_bytes())):
            yield path.name, kinds


def found_in_record(record: Any) -> list[str]:
    """Return the kinds of secret in everything that a log record holds, its traceback included."""
    return found_in(repr(record.__dict__) + record.getMessage() + str(record.exc_info and record.exc_info[1]))
