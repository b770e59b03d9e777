"""What the rehearsal model answers before a turn is answered: which profile suits it, and what to search for.

Both requests have an instruction and the user's text. The choice among profiles lists them in the instruction, a line
`- name: description` for each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from .guesses import count_mentions, find_keywords

MAX_KEYWORDS = 8

_PROFILE = re.compile(r"^- ([^:\n]+)(?:: (.*))?$", re.MULTILINE)


def choose_profile(messages: Sequence[dict[str, Any]]) -> str:
    """The answer that names the profile with whose name and description the user's text has the most words in common;
    of several, the first. `Pure.`"""
    said = _content(messages, "user")
    profiles = _PROFILE.findall(_content(messages, "system"))
    names = sorted(profiles, key=lambda profile: -count_mentions(" ".join(profile), said))
    return json.dumps({"profile": names[0][0] if names else ""}, ensure_ascii=False)


def search_terms(messages: Sequence[dict[str, Any]]) -> str:
    """The answer that names the words of the user's text that say what it is about. `Pure.`"""
    keywords = find_keywords(_content(messages, "user"))[:MAX_KEYWORDS]
    return json.dumps({"keywords": keywords, "from": None, "to": None}, ensure_ascii=False)


def _content(messages: Sequence[dict[str, Any]], role: str) -> str:
    """The content of the last message of this role, if it is a text."""
    contents = [message["content"] for message in messages if message["role"] == role]
    return contents[-1] if contents and isinstance(contents[-1], str) else ""
