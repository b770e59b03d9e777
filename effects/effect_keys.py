"""The idempotency keys of effects: how the world outside recognises an effect that it is asked for again.

A key must be the same whenever one effect is carried out, and another for everything else. The id of a conversation and
the number of an effect are not enough for that. A conversation may be deleted and created again under its id, two
databases may have a conversation of the same id, and a backup that was restored counts on from where it was made. So
the key holds a part of the link of the step that first asked for the effect. Each link depends on all that the log
holds up to there: the random origin of the conversation, the ids of its requests, and the moments of its events.
Whoever drives the conversation reads the same link from the log.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

CHARACTERS = 12
"""How many hexadecimal digits of a link stand in a key. Chosen so that two histories of one conversation never share
them by chance, and that the ids of nested sub-agents, which are keys, stay short."""

_KEY = re.compile(rf"(?s)(.+)/([0-9]{{1,18}})/[0-9a-f]{{{CHARACTERS}}}", re.ASCII)
_OLD_KEY = re.compile(r"(?s)(.+)/([0-9]{1,18})", re.ASCII)


def key_of(conversation_id: str, effect_id: int, link: bytes = b"") -> str:
    """Return the key of an effect that the step with this link first asked for. Without a link it is the key of a
    conversation that began before keys had one. `Pure.`"""
    key = f"{conversation_id}/{effect_id}"
    return f"{key}/{mark_of(link)}" if link else key


def mark_of(link: bytes) -> str:
    """Return the part of a link that stands in keys. `Pure.`"""
    return link.hex()[:CHARACTERS]


def effect_of_key(key: str) -> tuple[str, int]:
    """Return the conversation and the effect that a key names; ("", 0) for other texts. `Pure.`"""
    found = _KEY.fullmatch(key) or _OLD_KEY.fullmatch(key)
    return ("", 0) if found is None else (found[1], int(found[2]))


class EffectLinks:
    """The links of the steps that first asked for the effects of a conversation, as far back as they are needed: to the
    oldest effect in flight."""

    __slots__ = ("_first_ids", "_links")

    def __init__(self, noted: Iterable[tuple[int, bytes]] = ()) -> None:
        """`noted` are the first new effect id and the link of steps, in their order."""
        known = tuple(noted)
        self._first_ids = [first_id for first_id, _ in known]
        self._links = [link for _, link in known]

    def __len__(self) -> int:
        return len(self._links)

    def note(self, first_id: int, link: bytes) -> None:
        """The step with this link is stored, and asks for the first time for effects from this id on."""
        self._first_ids.append(first_id)
        self._links.append(link)

    def of(self, effect_id: int) -> bytes:
        """Return the link of the step that first asked for this effect; empty if that is not known."""
        place = bisect_right(self._first_ids, effect_id)
        return self._links[place - 1] if place else b""

    def since(self, effect_id: int) -> EffectLinks:
        """Return the links from that of this effect on."""
        start = max(bisect_right(self._first_ids, effect_id) - 1, 0)
        return EffectLinks(zip(self._first_ids[start:], self._links[start:], strict=True))
