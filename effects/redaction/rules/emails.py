"""Finds e-mail addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..rule import SecretSpan

_ADDRESS = re.compile(
    r"""(?<![\w.+/-])(?P<local>\w[\w.+'-]{0,63}+)(?:@|%40)
    (?P<domain>(?:\w[\w-]{0,62}+\.){1,8}[^\W\d_][\w-]{1,62}+)(?![@/:]\w)
    |(?<!\w)(?:(?:[\w+-]{1,32}+[ ]dot[ ]){1,3}[\w+-]{1,32}+[ ]at[ ][\w-]{1,32}+
        |[\w.+-]{1,64}+[ ]at[ ](?:gmail|googlemail|outlook|hotmail|yahoo|icloud|proton(?:mail)?|gmx|aol)\b)
        (?:[ ](?:dot|\.)[ ][\w-]{2,32}+){1,3}
    |(?<!\w)[\w.+-]{1,64}+\s?[(\[]\s?at\s?[)\]]\s?[\w-]{1,63}+(?:\s?[(\[]\s?dot\s?[)\]]\s?[\w-]{2,63}+){1,4}""",
    re.VERBOSE | re.IGNORECASE,
)
"""An address, also one whose `@` is written as in a URL, or one that is spelled out: `anna (at) example (dot) org`.
One that is read out, "anna dot berg at example dot org", must have a dot before "at", or be at a known provider: people
also meet at places. No address is followed by a path, as in `git@github.com:acme/shop.git`."""

_IDEOGRAPHS = re.compile(r"[⺀-퟿豈-﫿]+")
"""Scripts that are written without spaces: what stands before or after an address may be the sentence."""

_FILES = re.compile(
    r"\.(?:avif|bmp|css|gif|html?|ico|jpe?g|js|json|md|mp[34]|pdf|png|py|svg|tiff?|ts|txt|webp|zip)$", re.I
)
"""The ends of file names such as `logo@2x.png`."""


def find_emails(text: str) -> Iterator[SecretSpan]:
    """Yield the e-mail addresses in a text."""
    if not any(sign in text for sign in ("@", "%40", "at)", "at]", "at )", "AT)", "AT]", " dot ")):
        return
    for match in _ADDRESS.finditer(text):
        start, end = match.span()
        if match["local"] is not None:
            if _FILES.search(match["domain"]):
                continue
            start, end = _without_sentence(match)
        yield SecretSpan(start, end, "EMAIL")


def _without_sentence(match: re.Match[str]) -> tuple[int, int]:
    """Return where the address stands, without the ideographs that it is written together with."""
    start, end = match.span()
    before = list(_IDEOGRAPHS.finditer(match["local"]))
    if before and before[-1].end() < len(match["local"]):
        start += before[-1].end()
    ending = match["domain"].rpartition(".")[2]
    after = _IDEOGRAPHS.search(ending)
    if after is not None and after.start() > 0:
        end -= len(ending) - after.start()
    return start, end
