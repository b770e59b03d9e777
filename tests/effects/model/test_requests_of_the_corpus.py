"""Conversations that earlier versions wrote get the same requests, to the byte, as when they were written.

A provider caches the beginning of a request, and the log keeps the digest of each. In tests/fixtures/requests,
corpus.json holds one digest for each conversation of the corpus: that of all its requests, as the version built them
that had no descriptions of tools in the system message, with the same tools offered in each. Two of them are newer: in
these a result says which arguments a person has changed, or quotes arguments that are no JSON object.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from turnwise.effects.model.request import assemble_context, build_request
from turnwise.effects.model.system_message import ExplainedTools
from turnwise.effects.model.written_messages import request_digest
from turnwise.persistence.opening import open_store
from turnwise.states import Context, LogEntry, RequestLlm
from turnwise.states.transcript import Transcript

TESTS = Path(__file__).parents[2]
KNOWN: dict[str, dict[str, str]] = json.loads((TESTS / "fixtures" / "requests" / "corpus.json").read_text("utf-8"))
NO_PARAMETERS = {"type": "object", "properties": {}}
OFFERED = [
    {"type": "function", "function": {"name": name, "description": f"Call {name}.", "parameters": NO_PARAMETERS}}
    for name in ("look", "respond_to_user", "talk")
]


def digests(entries: Sequence[LogEntry]) -> Iterator[str]:
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


async def digests_of(database: Path) -> dict[str, str]:
    """Return one digest for each conversation of a database in which a model was asked. Those are left out whose rules
    say that messages were spoken: that rule was not carried out before."""
    store = await open_store(database, read_only=True)
    found = {}
    for summary in await store.list():
        entries = await store.entries(summary.id)
        is_spoken = any(
            getattr(entry.event, "policy", None) and entry.event.policy.transcription_note for entry in entries
        )
        requests = list(digests(entries))
        if requests and not is_spoken:
            found[summary.id] = blake2b("".join(requests).encode(), digest_size=16).hexdigest()
    await store.close()
    return found


@pytest.mark.parametrize("name", KNOWN)
async def test_requests_are_the_same_to_the_byte(name: str, tmp_path: Path) -> None:
    """J5: whatever is added to the system message is added only where a rule asks for it."""
    (packed,) = (TESTS / "corpus").glob(f"*/{name}.xz")
    database = tmp_path / name
    database.write_bytes(lzma.decompress(packed.read_bytes()))

    assert await digests_of(database) == KNOWN[name]
