"""Ids and keys that no test can know before they are made, because each history of a conversation has its own."""

from __future__ import annotations

from typing import Any

from turnwise.effects.context import effect_of_key

_SEEN: dict[tuple[str, str], str] = {}


def call_of(conversation: Any, beginning: str) -> str:
    """The id of the call that begins so, such as `call_1_0`, and that waits for a person now or did when this was
    called first; `beginning` itself if there is none."""
    state = conversation.state
    call = getattr(state, "call", None)
    waiting = state.waiting_call_id or (None if call is None else call.call_id)
    if waiting is not None and waiting.startswith(f"{beginning}_"):
        return _SEEN.setdefault((conversation.id, beginning), waiting)
    return _SEEN.get((conversation.id, beginning), beginning)


def unmarked(key: str) -> str:
    """A key without the mark of its history: `<conversation id>/<effect id>`."""
    conversation_id, effect_id = effect_of_key(key)
    assert key.removeprefix(f"{conversation_id}/{effect_id}/").strip("0123456789abcdef") == ""
    return f"{conversation_id}/{effect_id}"
