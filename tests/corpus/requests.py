"""The requests that the conversations of the corpus lead to, as digests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from turnwise.effects.model.request import assemble_context, build_request
from turnwise.effects.model.system_message import ExplainedTools
from turnwise.effects.model.written_messages import request_digest
from turnwise.states import Context, LogEntry, RequestLlm
from turnwise.states.transcript import Transcript

NO_PARAMETERS = {"type": "object", "properties": {}}
OFFERED = [
    {"type": "function", "function": {"name": name, "description": f"Call {name}.", "parameters": NO_PARAMETERS}}
    for name in ("look", "respond_to_user", "talk")
]


def digest_of_requests(entries: Sequence[LogEntry]) -> str | None:
    """Return one digest of all requests of a log, with the same tools offered in each; None if no model was asked."""
    found = list(_digests(entries))
    return blake2b("".join(found).encode(), digest_size=16).hexdigest() if found else None


def _digests(entries: Sequence[LogEntry]) -> Iterator[str]:
    """Yield the digest of each request of a log, in order."""
    context, transcript = Context(), Transcript()
    for entry in entries:
        context = context.after(entry.event)
        transcript.add(entry)
        check_what_is_sent(transcript)
        for effect in (one for one in entry.effects if isinstance(one, RequestLlm)):
            speaking = ExplainedTools("respond_to_user", "talk")
            assembled = assemble_context(effect, context, transcript, entry.turn, speaking)
            tools: list[dict[str, Any]] = [] if effect.plain else OFFERED
            yield request_digest(build_request(effect, assembled.system, assembled.messages, tools, entry.turn))


def check_what_is_sent(transcript: Transcript) -> None:
    """The messages of a request are found from the end of the transcript and beside its summary; both must be what a
    walk through all messages finds."""
    turns = [message.turn for message in transcript.messages]
    condensed = transcript.condensed
    assert turns == sorted(turns)
    assert transcript.current == [one for one in transcript.messages if condensed is None or not condensed.covers(one)]
