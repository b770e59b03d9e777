"""Writes the messages of a conversation as they are sent to a model, each of them once.

Each request holds the whole history, and a history grows only at its end. Writing all of it for every request would
cost more the longer the conversation and its turn are: a turn of an agent that works by itself has a hundred
requests. So what was written is kept, and a request adds the messages that are new.

A message that was written can still change: the next one may be merged with the last, the sealed thinking of a turn
is left out when the turn has ended, a note is added to a speech that was not delivered. So the place at which each
request went on is remembered, and what stands behind a place can be taken back and written again. A request takes
back what it holds besides the history, such as a reminder to the model.

Ids of calls and the order of messages are such as every provider accepts. The digest of a request is stored in the log
beside the answer and tells whether a later request is the one that was answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Final, NamedTuple

from ...states.openai_writing import MessageWithResults, WireMessage, legal_name, pair_results, text_parts, write
from ...states.policy import DEFAULT_SETTINGS
from ...states.values.messages import Message, ToolCall
from .families import (
    ITEMS,
    add_provider_fields,
    family_named,
    is_of_family,
    is_sent_for_a_while,
    maker_of,
    needs_separator,
    needs_user_first,
    own_id,
)
from .port import ModelRequest

Read = Callable[[Message], Message]
"""Returns a message in the words that a model reads."""

Note = Callable[[Message], str]
"""Returns what a model is told behind a message, in the user's role; empty if nothing is."""

_MOST_PLACES = 64
"""The places that are remembered: those of the requests of a few turns, within which messages change."""


class _Place(NamedTuple):
    """How much was written at some moment: `messages` of the history, and `sent` ones, of which the `last` is kept
    because the next one may be merged with it. `called` counts the tools that were called, and `digest` covers the
    first `digested` of the sent messages."""

    messages: int
    sent: int
    last: WireMessage | None
    call_ids: tuple[int, int]
    called: int
    digested: int
    digest: RequestDigest


class WrittenMessages:
    """The messages of a history as they are sent to `model` behind this system message, which is one message or none.

    `read` returns a message in the words that the model reads, and `note` what it is told behind the message; None
    stands for a history without a message that needs other words. `family` is that of the model, by default that of its
    name: what the model of a message wrote for its family goes back to it, as `families.py` says.
    """

    def __init__(
        self,
        model: str,
        system: Sequence[WireMessage] = (),
        read: Read | None = None,
        family: str = "",
        note: Note | None = None,
    ) -> None:
        self._model = model
        self._family = family or family_named(model)
        maker = maker_of(self._family)
        self._takes_own_ids = maker is None or maker.takes_own_ids
        self._needs_separator, self._needs_user_first = needs_separator(model), needs_user_first(model)
        self._read = read
        self._note = note
        self._system = len(system)
        self._first_turn = self._kept_since = 0
        """The turn under way, or the one that it tries again, and the first one whose thinking goes back."""
        self._messages: list[Message] = []
        self._sent: list[WireMessage] = [*system]
        self._called: dict[str, None] = {}
        self._call_ids = _CallIds()
        self._digest = RequestDigest(model)
        self._digested = 0
        """How many of the messages that are sent the digest covers. The last one is left out while it may change."""
        self._places: list[_Place] = []
        self._sealed: int | None = None
        """The place in the history before the first message that was written with what is sent for some turns only."""

    def replace_system(self, system: Sequence[WireMessage]) -> None:
        """Put another system message in front of the messages, which stay as they are. Their digest is computed anew.
        Both system messages are one message, or none."""
        self._sent[: self._system] = system
        self._digest, self._digested = RequestDigest(self._model), 0
        self._places = [one._replace(digest=self._digest.copy(), digested=0) for one in self._places]

    def request(
        self, messages: list[Message], first_turn: int, kept_since: int, closing: Sequence[Message]
    ) -> tuple[tuple[WireMessage, ...], tuple[str, ...], RequestDigest, int]:
        """Return the messages of the request with this history, the names of the tools that they call, each once, their
        digest, and how many of the messages stay the same in later requests. `first_turn` is the turn under way, or the
        one that it tries again, and `kept_since` the first one whose thinking goes back. The `closing` messages stand
        behind the history, and no other request has them."""
        self._take_back_changes(messages)
        self._begin_turn(first_turn, kept_since)
        while self._places and _answers_earlier_calls(messages[len(self._messages) :]):
            self._take_back(self._places[-1])
        self._write_new(messages[len(self._messages) :])
        self._digest_what_stays()
        place, stable = self._place(), self._digested
        self._write(closing)
        digest = self._digest.copy()
        digest.add(self._sent[self._digested :])
        sent, called = tuple(self._sent), tuple(self._called)
        if closing:
            self._take_back(place)
        return sent, called, digest, stable

    # --- the history

    def _take_back_changes(self, messages: list[Message]) -> None:
        """Take back what was written of messages that are not the same in this history. Lists are compared by the
        identity of their items first, so this costs next to nothing where nothing has changed."""
        beginning = messages[: len(self._messages)]
        if beginning != self._messages:
            pairs = zip(self._messages, beginning, strict=False)
            changed = (place for place, (one, other) in enumerate(pairs) if one is not other and one != other)
            self._take_back_from(next(changed, len(beginning)))
        else:
            self._messages = beginning  # equal messages that were read again from the log are the same ones next time

    def _begin_turn(self, first_turn: int, kept_since: int) -> None:
        """Take back what is written otherwise from now on: thinking that no longer goes back, or that goes back
        again."""
        if kept_since < self._kept_since:
            self._take_back_from(0)
        elif kept_since > self._kept_since and self._sealed is not None:
            self._take_back_from(self._sealed)
        self._first_turn, self._kept_since = first_turn, kept_since

    def _write_new(self, new: list[Message]) -> None:
        """Write these further messages. The turn under way begins at a place of its own, so that it can be written
        again without those before it."""
        finished = next((place for place, one in enumerate(new) if one.turn >= self._first_turn), len(new))
        if _answers_earlier_calls(new[finished:]):
            finished = 0
        for messages in (new[:finished], new[finished:]):
            if messages:
                self._places.append(self._place())
                self._write(messages)
                self._messages += messages
        del self._places[1:-_MOST_PLACES]

    # --- one message

    def _write(self, messages: Sequence[Message]) -> None:
        for entry in pair_results(messages):
            self._add(entry if self._read is None else _as_read(entry, self._read))

    def _add(self, entry: MessageWithResults) -> None:
        """Write a message with the results of its calls, and with what goes back to its family of models. Nothing goes
        back of a message whose text is withheld from this model: as it is read, it has nothing of that kind."""
        message = entry.message
        is_own = message.role == "assistant" and is_of_family(message, self._model, self._family)
        if self._sealed is None and is_own and message.turn >= self._kept_since and is_sent_for_a_while(message):
            self._sealed = len(self._messages)
        for sent in write(entry, self._ids_of(message, is_own)):
            if is_own:
                add_provider_fields(sent, message, self._kept_since)
                is_own = False
            self._append(sent)
        for call in message.tool_calls:
            self._called[legal_name(call.name)] = None
        if self._note is not None and (note := self._note(message)):
            self._append({"role": "user", "content": note})

    def _ids_of(self, message: Message, is_own: bool) -> Callable[[ToolCall], str]:
        """What assigns the ids of the calls of this message: to its own family those that its provider gave."""
        if is_own and message.provider is not None and self._takes_own_ids:
            return lambda call: self._call_ids.assign(call.call_id, own_id(message, call))
        return lambda call: self._call_ids.assign(call.call_id)

    def _append(self, message: WireMessage) -> None:
        """Append a message in the order that the model requires.

        Some providers require user and assistant to alternate, and refuse two messages of one role in a row. litellm
        merges such messages for a few providers only (Anthropic, Bedrock, Gemini, Cohere), so it is done here for all.
        Models of Mistral also require a message of the assistant between the result of a tool and the user's next
        message; after a cancelled turn there is none. Several providers, and the templates of many open models,
        require that a user speaks first; a history from elsewhere may begin with the assistant's greeting.
        """
        sent = self._sent
        if len(sent) == self._system:
            if message["role"] == "assistant" and self._needs_user_first:
                sent.append({"role": "user", "content": BEGINNING})
        elif sent[-1]["role"] == message["role"] and may_be_merged(sent[-1]) and may_be_merged(message):
            sent[-1] = merged(sent[-1], message)
            return
        elif self._needs_separator:
            sent += separator(sent[-1]["role"], message["role"])
        sent.append(message)

    def _digest_what_stays(self) -> None:
        """Add to the digest what is sent in all later requests, too: all but the last message, if it may be merged."""
        final = len(self._sent)
        if final > self._digested and may_be_merged(self._sent[-1]):
            final -= 1
        self._digest.add(self._sent[self._digested : final])
        self._digested = final

    # --- taking back

    def _place(self) -> _Place:
        return _Place(
            len(self._messages),
            len(self._sent),
            self._sent[-1] if len(self._sent) > self._system else None,
            self._call_ids.place,
            len(self._called),
            self._digested,
            self._digest.copy(),
        )

    def _take_back_from(self, message: int) -> None:
        """Take back what was written from this message of the history on, or from a place before it."""
        while self._places and len(self._messages) > message:
            self._take_back(self._places[-1])

    def _take_back(self, place: _Place) -> None:
        """Forget what was written since this place."""
        del self._messages[place.messages :]
        del self._sent[place.sent :]
        if place.last is not None:
            self._sent[-1] = place.last  # the next one may have been merged with it
        self._call_ids.take_back(place.call_ids)
        while len(self._called) > place.called:
            self._called.popitem()
        self._digested, self._digest = place.digested, place.digest.copy()
        while self._places and self._places[-1].messages >= place.messages:
            self._places.pop()
        if self._sealed is not None and self._sealed >= place.messages:
            self._sealed = None


def _answers_earlier_calls(messages: Sequence[Message]) -> bool:
    """Whether one of these is the result of a call that stands before them."""
    made: set[str | None] = set()
    for message in messages:
        made.update(call.call_id for call in message.tool_calls)
        if message.role == "tool" and message.tool_call_id not in made:
            return True
    return False


def _as_read(entry: MessageWithResults, read: Read) -> MessageWithResults:
    results = [None if result is None else read(result) for result in entry.results]
    return MessageWithResults(read(entry.message), results)


Content = str | list[WireMessage] | None
"""The content of a message: a text, or texts and files as parts."""

BETWEEN = "Noted."
"""The text of the assistant's message that is inserted between a result and a user's message where a model requires
it."""

BEGINNING = "Begin the conversation."
"""The text of the user's message that is inserted in front of the assistant's greeting where a model requires one."""


def arrange_behind(previous_role: str, message: WireMessage, model: str) -> tuple[WireMessage, ...]:
    """The message as it follows one of another role at the end of a request: behind a message of the assistant if the
    model of this name requires one there. `Pure.`"""
    between = separator(previous_role, message["role"]) if needs_separator(model) else ()
    return (*between, message)


def may_be_merged(message: WireMessage) -> bool:
    """Whether a message of the same role behind this one becomes one with it. Not if one of them holds sealed thinking
    or the items of a response: merging would move it, and where it is needed litellm merges these messages itself.
    `Pure.`"""
    return message["role"] != "tool" and "thinking_blocks" not in message and ITEMS not in message


def parts_of(content: Content) -> list[WireMessage]:
    """The content as a list of parts; empty for a blank text. `Pure.`"""
    if isinstance(content, list):
        return content
    return [] if content is None else text_parts(content)


def separator(previous_role: str, role: str) -> tuple[WireMessage, ...]:
    """What stands between messages of these roles where a result and a user's message may not follow each other.
    `Pure.`"""
    return ({"role": "assistant", "content": BETWEEN},) if (previous_role, role) == ("tool", "user") else ()


def merged(first: WireMessage, second: WireMessage) -> WireMessage:
    """Two messages of one role as one. What their provider wrote besides is joined where it is a text or a list.
    `Pure.`"""
    both = {**first, **second, "content": _join(first.get("content"), second.get("content"))}
    for name in first.keys() & second.keys() - {"role", "content"}:
        match first[name], second[name]:
            case str(one), str(other):
                both[name] = f"{one}\n\n{other}"
            case list(one), list(other):
                both[name] = [*one, *other]
            case _:
                pass
    return both


def _join(first: Content, second: Content) -> Content:
    if isinstance(first, list) or isinstance(second, list):
        return [*parts_of(first), *parts_of(second)]
    return "\n\n".join(text for text in (first, second) if text) or None


_LEGAL_ID = re.compile(r"[a-zA-Z0-9]{9}")  # Mistral accepts no others, and every other provider accepts these


class _CallIds:
    """Assigns ids. An id that is legal and not yet used is kept; so is one that goes back to the models that gave it.

    The id that replaces another one depends only on the calls before it, which keeps the provider's cache valid.
    """

    def __init__(self) -> None:
        self._used: dict[str, None] = {}
        """The ids that were assigned, in this order."""
        self._next_number = 1

    def assign(self, wanted: str, own: str = "") -> str:
        """The id for a call whose id is `wanted`. `own` is the id that the model gave to which it is sent, which is
        preferred."""
        if own.strip() and own not in self._used:
            assigned = own
        elif _LEGAL_ID.fullmatch(wanted) and wanted not in self._used:
            assigned = wanted
        else:
            assigned = self._make()
        self._used[assigned] = None
        return assigned

    @property
    def place(self) -> tuple[int, int]:
        """How many ids were assigned, and the number of the next one that is made."""
        return len(self._used), self._next_number

    def take_back(self, place: tuple[int, int]) -> None:
        """Forget the ids that were assigned since this place."""
        count, self._next_number = place
        while len(self._used) > count:
            self._used.popitem()

    def _make(self) -> str:
        while True:
            call_id = f"call{self._next_number:05}"
            self._next_number += 1
            if call_id not in self._used:
                return call_id


canonical_json: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode
"""Writes JSON so that equal values have equal texts. What is written comes from JSON, so nothing in it contains itself.
`Pure.`"""


def request_digest(request: ModelRequest) -> str:
    """The digest of the request, 32 hex digits.

    Equal requests, and only these, have equal digests. `Pure.`
    """
    digest = RequestDigest(request.model)
    digest.add(request.messages)
    return digest.finish(request)


class RequestDigest:
    """A digest that is computed while the messages are written, from their canonical JSON."""

    __slots__ = ("_hash", "_separator")

    def __init__(self, model: str) -> None:
        self._hash = blake2b(f"[{canonical_json(model)},[".encode(), digest_size=16)
        self._separator = ""

    def copy(self) -> RequestDigest:
        """The digest of the same messages, to which others can be added. `Pure.`"""
        copied = object.__new__(RequestDigest)
        copied._hash, copied._separator = self._hash.copy(), self._separator
        return copied

    def add(self, messages: Sequence[WireMessage]) -> None:
        """Add these messages behind the earlier ones."""
        if messages:
            self._hash.update(f"{self._separator}{canonical_json(messages)[1:-1]}".encode())
            self._separator = ","

    def finish(self, request: ModelRequest, tools: str = "") -> str:
        """The digest of the request, whose messages were all added. `tools` is the canonical JSON of its tools, if that
        is already written. `Pure.`"""
        complete = self._hash.copy()
        complete.update(f'],{tools or canonical_json(request.tools)},"{request.tool_choice}"]'.encode())
        if request.settings != DEFAULT_SETTINGS:  # a request without settings has the digest that it always had
            complete.update(canonical_json(request.settings.model_dump(exclude_none=True)).encode())
        if request.output is not None:
            complete.update(canonical_json(asdict(request.output)).encode())
        return complete.hexdigest()
