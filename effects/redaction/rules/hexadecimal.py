"""Finds long hexadecimal numbers, which are what most systems make keys and session ids of."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..rule import SecretSpan

SHORTEST = 32
"""Digits: 16 bytes, as few as anybody would use for a key. Commit ids that are shortened, colours and addresses of
memory have fewer; a UUID has hyphens."""

_LONG = re.compile(r"(?<![0-9A-Za-z])(?:0[xX])?(?P<digits>[0-9A-Fa-f]{32,}+)(?![0-9A-Za-z])")

_PUBLIC = re.compile(
    r"""\b(?:commit|merge|tree|parent|revision|rev|checksum|digest|etag|integrity|fingerprint
    |sha-?(?:1|224|256|384|512)(?:sum)?|md5(?:sum)?|blake2[bs]?)\b['"]?\s?(?:\([^()\n]{1,80}\)\s?)?[:=@/-]?\s?['"]?$""",
    re.VERBOSE | re.IGNORECASE,
)
"""What says that the number behind it identifies a commit or a file, which anybody may know."""

_LOOKED_BACK = 110


def find_long_hexadecimals(text: str) -> Iterator[SecretSpan]:
    """Yield the hexadecimal numbers of 32 digits and more, unless they are named as a commit or a checksum."""
    for match in _LONG.finditer(text):
        digits = match["digits"]
        is_number = digits.isdigit() or digits.isalpha()
        if not is_number and not _PUBLIC.search(text[max(0, match.start() - _LOOKED_BACK) : match.start()]):
            yield SecretSpan(*match.span(), "HEX")
