"""Finds private keys: PEM blocks, keys of PuTTY and of age. Public keys and certificates are no secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..rule import SecretSpan

_MARKER = re.compile(r"-{2,5} ?(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z0-9 ]{0,10}-{2,5}", re.IGNORECASE)

_BODY = re.compile(
    r"(?:[A-Za-z0-9+/=\s\\]|(?:Proc-Type|DEK-Info|Version|Comment): ?[^\n\\\ue000]{0,200})*+", re.IGNORECASE
)
"""What may stand behind the first marker of a key that was cut off."""

_PUTTY = re.compile(r"PuTTY-User-Key-File-\d")
_PUTTY_END = re.compile(r"Private-MAC: ?[0-9a-f]+")
_AGE = re.compile(r"AGE-SECRET-KEY-1[A-Z0-9]{20,}+", re.IGNORECASE)


def find_private_keys(text: str) -> Iterator[SecretSpan]:
    """Yield the private keys in a text, each with the lines that mark where it begins and ends."""
    lowered = text.casefold()
    if "private key" in lowered:
        yield from _find_blocks(text)
    for begin in _PUTTY.finditer(text):
        end = _PUTTY_END.search(text, begin.end())
        yield SecretSpan(begin.start(), len(text) if end is None else end.end(), "PRIVATE_KEY")
        break  # one that follows is found when this one is gone
    if "age-secret-key-" in lowered:
        yield from (SecretSpan(*match.span(), "PRIVATE_KEY") for match in _AGE.finditer(text))


def _find_blocks(text: str) -> Iterator[SecretSpan]:
    begin: re.Match[str] | None = None
    for marker in _MARKER.finditer(text):
        if begin is not None:
            end = marker.end() if marker[1].upper() == "END" else _end_of_body(text, begin)
            yield SecretSpan(begin.start(), end, "PRIVATE_KEY")
        begin = marker if marker[1].upper() == "BEGIN" else None
    if begin is not None:
        yield SecretSpan(begin.start(), _end_of_body(text, begin), "PRIVATE_KEY")


def _end_of_body(text: str, begin: re.Match[str]) -> int:
    body = _BODY.match(text, begin.end())
    assert body is not None, "it may be empty"
    return begin.end() + len(body[0].rstrip())
