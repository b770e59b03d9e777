"""Writes the messages of a conversation as they are sent to a model, and goes on where it has stopped.

Each request holds the whole history, and a history grows only at its end. Writing all of it for every request would
cost more the longer the conversation and its turn are: a turn of an agent that works by itself has a hundred
requests. So the messages are written once and kept, and a request adds those that are new. Its cost is then that of
its new messages, and of one copy of the list.

A message that was written can still change: the next one may be merged with the last, the sealed thinking of a turn
is left out when the turn has ended, and a note is added to a speech that was not delivered. So the place at which the
newest turn begins is remembered. What stands behind it can be taken back and written again, which costs what the turn
costs. A request also takes back what it holds besides the history, such as a reminder to the model.

Three things are minded on the way: ids of calls that every provider accepts, an order of the messages that every
provider accepts, and a digest, which is stored in the log beside the answer and tells whether a later request is the
one that was answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import compress, count
from operator import is_not, ne
from typing import NamedTuple

from ...states.openai_writing import MessageWithResults, WireMessage, legal_name, pair_results, text_parts, write
from ...states.policy import DEFAULT_SETTINGS
from ...states.values.messages import Message, ToolCall
from .families import (
    add_provider_fields,
    family_named,
    is_of_family,
    is_sent_in_its_turn_only,
    maker_of,
    needs_separator,
    needs_user_first,
    own_id,
)
from .port import NO_VOLUME, ModelRequest, Volume, volume_of

Read = Callable[[Message], Message]
"""Returns a message in the words that a model reads."""


class _Place(NamedTuple):
    """How much was written at some moment, so that what was written since can be taken back.

    `messages` counts those of the history, `sent` those that are sent, `called` the tools that they call, and
    `digested` the sent messages that `digest` covers. `last` is the last one that is sent, kept because the next one
    may be merged with it; `unanswered` are the ids of calls without a result, and `volume` is how much the history
    that was written holds.
    """

    messages: int
    sent: int
    last: WireMessage | None
    call_ids: tuple[int, int]
    called: int
    unanswered: frozenset[str]
    digested: int
    digest: _RequestDigest
    volume: Volume


class WrittenRequest(NamedTuple):
    """The messages of a request as they are sent, the names of the tools that they call, each once, their digest, and
    how much they hold."""

    messages: tuple[WireMessage, ...]
    called: tuple[str, ...]
    digest: _RequestDigest
    volume: Volume


class WrittenMessages:
    """The messages of a history as they are sent to `model` behind this system message.

    `read` returns a message in the words that the model reads; None stands for a history without a message that needs
    other words. `family` is that of the model, by default that of its name: what the model of a message wrote for its
    family goes back to it, as `provider_fields` says.
    """

    def __init__(
        self, model: str, system: Sequence[WireMessage] = (), read: Read | None = None, family: str = ""
    ) -> None:
        self._model = model
        self._family = family or family_named(model)
        maker = maker_of(self._family)
        self._takes_own_ids = maker is None or maker.takes_own_ids
        self._read = read
        self._order = _MessageOrder(model)
        self._system = tuple(system)
        self._turn = self._first_turn = 0
        """The turn under way, and the one that it tries again, or the same."""
        self._clear()

    def _clear(self) -> None:
        self._messages: list[Message] = []
        self._sent: list[WireMessage] = list(self._system)
        self._called: dict[str, None] = {}
        self._call_ids = _CallIds()
        self._unanswered: set[str] = set()
        """The ids of the calls of finished turns that were written without a result."""
        self._digest = _RequestDigest(self._model)
        self._digested = 0
        """How many of the messages that are sent the digest covers. The last one is left out while it may change."""
        self._volume = NO_VOLUME
        """How much the messages hold that are sent, without the system message."""
        self._turn_start: _Place | None = None
        self._has_sealed = False

    def replace_system(self, system: Sequence[WireMessage]) -> None:
        """Put another system message in front of the messages, which stay as they are. Their digest is computed anew.
        Both system messages are one message, or none."""
        self._sent[: len(self._system)] = self._system = tuple(system)
        self._digest, self._digested = _RequestDigest(self._model), 0
        if self._turn_start is not None:
            self._turn_start = self._turn_start._replace(digest=_RequestDigest(self._model), digested=0)

    # --- the history

    def follow(self, messages: list[Message], turn: int, first_turn: int | None = None) -> None:
        """Write what is new in this history, of which `turn` is the turn under way and `first_turn` the one that it
        tries again; None stands for a turn that tries none again. What was written of messages that have changed since
        is written again."""
        self._take_back_changes(messages)
        if turn != self._turn:
            self._begin_turn(turn, turn if first_turn is None else first_turn)
        if not (self._write_finished_turns(messages) and self._write(messages[len(self._messages) :])):
            self._clear()
            self._turn_start = self._place()
            self._write(messages)

    def _begin_turn(self, turn: int, first: int) -> None:
        """Prepare for the messages of another turn, in which what belongs to earlier turns is not sent; `first` is the
        turn that it tries again."""
        if turn < self._turn:
            self._clear()
        elif self._turn_start is not None and (self._has_sealed or first < turn):
            self._take_back(self._turn_start)
        self._turn, self._first_turn = turn, first
        self._turn_start, self._has_sealed = None, False

    def _take_back_changes(self, messages: list[Message]) -> None:
        """Take back what was written of messages that are not the same in this history. Lists are compared by the
        identity of their items first, so this costs next to nothing where nothing has changed."""
        beginning = messages[: len(self._messages)]
        if beginning == self._messages:
            self._messages = beginning  # equal messages that were read again from the log are the same ones next time
            return
        changed = self._first_change(messages)
        if changed is None and len(messages) >= len(self._messages):
            return
        start = self._turn_start
        if start is None or (len(messages) if changed is None else changed) < start.messages:
            self._clear()
        else:
            self._take_back(start)

    def _first_change(self, messages: list[Message]) -> int | None:
        """Return the place of the first message that differs in what is sent of it, and take over those before it that
        differ only in what was delivered, which is not sent. None if no message differs."""
        for place in compress(count(), map(is_not, self._messages, messages)):
            before, now = self._messages[place], messages[place]
            if before.replace(deliveries=()) == now.replace(deliveries=()):
                self._messages[place] = now
            else:
                return place
        return None

    def _write_finished_turns(self, messages: list[Message]) -> bool:
        """Write what is new of the turns before the one under way, and note where that one begins. Returns what
        `_write` returns."""
        if self._turn_start is not None:
            return True
        new = messages[len(self._messages) :]
        finished = 0
        while finished < len(new) and new[finished].turn < self._first_turn:
            finished += 1
        if not self._write(new[:finished]):
            return False
        if finished < len(new):
            self._turn_start = self._place()
        return True

    def _write(self, messages: Sequence[Message]) -> bool:
        """Write these further messages of the history, except from the first one whose results may still come. Returns
        whether that can be done: not if one of them is the result of a call that was written without one."""
        if self._unanswered and self._answer_earlier_calls(messages):
            return False
        entries, end = self._settled(messages)
        for entry in entries:
            self._add(entry)
        self._messages += messages[:end]
        return True

    def _settled(self, messages: Sequence[Message]) -> tuple[list[MessageWithResults], int]:
        """The messages with their results, except from the first one whose results may still come, and how many of the
        messages these are. No result of theirs stands behind these.

        For example, `b` runs and has no result yet. Of `user, calls a, result a, calls b` the first three are settled.
        Of `user, calls a, calls b, result a` only the first is, because the result of `a` stands behind the call of
        `b`.
        """
        entries = pair_results(messages)
        first = self._first_open(entries)
        if first is None:
            return entries, len(messages)
        places = [place for place, one in enumerate(messages) if one.role != "tool"]
        while True:
            end = places[first]
            settled = pair_results(messages[:end])
            first = next(compress(count(), map(ne, settled, entries)), None)
            if first is None:
                return settled, end

    def _first_open(self, entries: Sequence[MessageWithResults]) -> int | None:
        """Return the place of the first message whose results may still come: one of the turn under way."""
        for place, entry in enumerate(entries):
            if None in entry.results and entry.message.turn >= self._turn:
                return place
        return None

    def _answer_earlier_calls(self, messages: Sequence[Message]) -> bool:
        """Whether one of these is the result of a call that was written without one."""
        made: set[str] = set()
        for message in messages:
            made.update(call.call_id for call in message.tool_calls)
            if message.role == "tool" and message.tool_call_id in self._unanswered and message.tool_call_id not in made:
                return True
        return False

    # --- one message

    def _add(self, entry: MessageWithResults) -> None:
        """Write a message with the results of its calls, and with what goes back to its family of models. Nothing goes
        back of a message whose text is withheld from this model: as it is read, it has nothing of that kind."""
        read = entry if self._read is None else _as_read(entry, self._read)
        message, calls = read.message, read.message.tool_calls
        is_own = message.role == "assistant" and is_of_family(message, self._model, self._family)
        if is_own and self._turn_start is not None and is_sent_in_its_turn_only(message):
            self._has_sealed = True
        for sent in write(read, self._ids_of(message, is_own)):
            if is_own:
                add_provider_fields(sent, message, self._turn, self._first_turn)
                is_own = False
            self._append(sent)
        for call in calls:
            self._called[legal_name(call.name)] = None
        if self._unanswered or None in entry.results:
            self._note_unanswered(entry)

    def _append(self, message: WireMessage) -> None:
        """Append a message to those that are sent, and count what it adds. It may be merged with the last one."""
        place = max(len(self._sent) - 1, len(self._system))
        before = volume_of(self._sent[place:])
        self._order.append(message, self._sent, first=len(self._system))
        self._volume = self._volume.changed(before, volume_of(self._sent[place:]))

    def _ids_of(self, message: Message, is_own: bool) -> Callable[[ToolCall], str]:
        """What assigns the ids of the calls of this message: to its own family those that its provider gave."""
        if is_own and message.provider is not None and self._takes_own_ids:
            return lambda call: self._call_ids.assign(call.call_id, own_id(message, call))
        return lambda call: self._call_ids.assign(call.call_id)

    def _note_unanswered(self, entry: MessageWithResults) -> None:
        calls = entry.message.tool_calls
        self._unanswered.difference_update(call.call_id for call in calls)
        pairs = zip(calls, entry.results, strict=True)
        self._unanswered.update(call.call_id for call, result in pairs if result is None)

    # --- a request

    def request(self, messages: list[Message], closing: Sequence[Message]) -> WrittenRequest:
        """The messages of the request with the history that `follow` was called with, and with the `closing` messages
        behind it, which no other request has."""
        rest = messages[len(self._messages) :]
        if not rest and not closing:
            return self._written_request()
        place = self._place()
        for entry in pair_results([*rest, *closing]):
            self._add(entry)
        request = self._written_request()
        self._take_back(place)
        return request

    def _written_request(self) -> WrittenRequest:
        final = len(self._sent)
        if final > self._digested and may_be_merged(self._sent[-1]):
            final -= 1
        self._digest.add(self._sent[self._digested : final])
        self._digested = final
        digest = self._digest.copy()
        digest.add(self._sent[final:])
        volume = self._volume.changed(NO_VOLUME, volume_of(self._system))
        return WrittenRequest(tuple(self._sent), tuple(self._called), digest, volume)

    # --- taking back

    def _place(self) -> _Place:
        return _Place(
            messages=len(self._messages),
            sent=len(self._sent),
            last=self._sent[-1] if len(self._sent) > len(self._system) else None,
            call_ids=self._call_ids.place,
            called=len(self._called),
            unanswered=frozenset(self._unanswered),
            digested=self._digested,
            digest=self._digest.copy(),
            volume=self._volume,
        )

    def _take_back(self, place: _Place) -> None:
        """Forget what was written since this place."""
        del self._messages[place.messages :]
        del self._sent[place.sent :]
        if place.last is not None:
            self._sent[-1] = place.last  # the next one may have been merged with it
        self._call_ids.take_back(place.call_ids)
        while len(self._called) > place.called:
            self._called.popitem()
        self._unanswered = set(place.unanswered)
        self._digested, self._digest = place.digested, place.digest.copy()
        self._volume = place.volume


def _as_read(entry: MessageWithResults, read: Read) -> MessageWithResults:
    results = [None if result is None else read(result) for result in entry.results]
    return MessageWithResults(read(entry.message), results)


Content = str | list[WireMessage] | None
"""The content of a message: a text, or texts and images as parts."""

BETWEEN = "Noted."
"""The text of the assistant's message that is inserted between a result and a user's message where a model requires
it."""

BEGINNING = "Begin the conversation."
"""The text of the user's message that is inserted in front of the assistant's greeting where a model requires one."""


class _MessageOrder:
    """The order of messages that the model of this name requires.

    Some providers require user and assistant to alternate, and refuse two messages of one role in a row. litellm
    merges such messages for a few providers only (Anthropic, Bedrock, Gemini, Cohere), so it is done here for all.
    Models of Mistral also require a message of the assistant between the result of a tool and the user's next
    message; after a cancelled turn there is none. Several providers, and the templates of many open models, require
    that a user speaks first; a history from elsewhere may begin with the assistant's greeting.
    """

    def __init__(self, model: str) -> None:
        self._needs_separator = needs_separator(model)
        self._needs_user_first = needs_user_first(model)

    def append(self, message: WireMessage, sent: list[WireMessage], first: int) -> None:
        """Append the message to those that are sent, of which the first one of the dialogue has the place `first`.

        A message of the same role as the last one is merged with it. If the model requires it, a message of the
        assistant is put between a result and a user's message, and a user's message in front of the assistant's first.
        """
        if len(sent) == first:
            if message["role"] == "assistant" and self._needs_user_first:
                sent.append({"role": "user", "content": BEGINNING})
        elif sent[-1]["role"] == message["role"] and may_be_merged(sent[-1]) and may_be_merged(message):
            sent[-1] = merged(sent[-1], message)
            return
        elif self._needs_separator:
            sent += separator(sent[-1]["role"], message["role"])
        sent.append(message)


def arrange_behind(previous_role: str, message: WireMessage, model: str) -> tuple[WireMessage, ...]:
    """The message as it follows one of another role at the end of a request: behind a message of the assistant if the
    model of this name requires one there. `Pure.`"""
    between = separator(previous_role, message["role"]) if needs_separator(model) else ()
    return (*between, message)


def may_be_merged(message: WireMessage) -> bool:
    """Whether a message of the same role behind this one becomes one with it. Not if one of them holds sealed thinking:
    merging would move it, and litellm merges these messages itself. `Pure.`"""
    return message["role"] != "tool" and "thinking_blocks" not in message


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


def _is_legal_id(call_id: str) -> bool:
    """Whether every provider accepts this id. `Pure.`"""
    return _LEGAL_ID.fullmatch(call_id) is not None


class _CallIds:
    """Assigns ids. An id that is legal and not yet used is kept; so is one that goes back to the models that gave it.

    The id that replaces another one depends only on the calls before it. So the beginning of a growing history stays
    the same, which keeps the provider's cache of it valid.
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
        elif _is_legal_id(wanted) and wanted not in self._used:
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


canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode
"""Writes JSON so that equal values have equal texts. What is written comes from JSON, so nothing in it contains itself.
`Pure.`"""


def request_digest(request: ModelRequest) -> str:
    """The digest of the request, 32 hex digits.

    Equal requests, and only these, have equal digests. `Pure.`
    """
    digest = _RequestDigest(request.model)
    digest.add(request.messages)
    return digest.finish(request)


class _RequestDigest:
    """A digest that is computed while the messages are written, from their canonical JSON."""

    __slots__ = ("_hash", "_separator")

    def __init__(self, model: str) -> None:
        self._hash = blake2b(f"[{canonical_json(model)},[".encode(), digest_size=16)
        self._separator = ""

    def copy(self) -> _RequestDigest:
        """The digest of the same messages, to which others can be added. `Pure.`"""
        copied = object.__new__(_RequestDigest)
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
        return complete.hexdigest()
