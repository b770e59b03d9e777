"""Makes texts encodable.

A model that stops in the middle of an emoji leaves half a character behind (a lone surrogate). Neither a database nor
a provider accepts such a text, so the half is replaced by U+FFFD, the replacement character.
"""

from __future__ import annotations


def encodable(text: str) -> str:
    """Return the text with each lone surrogate replaced by U+FFFD. `Pure.`"""
    if text.isascii():  # most texts are short names and identifiers
        return str.__str__(text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
