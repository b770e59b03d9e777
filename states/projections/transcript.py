"""The messages of a conversation, computed from its log.

The transcript is never stored: it follows from the log, entry by entry. The results of tools stand directly behind the
message that called them, in call order, whatever order they came in.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from ..effects import (
    CompactHistory,
    DeliverToUser,
    PersistMessage,
    PersistToolResults,
    SettledCall,
    WithholdContent,
)
from ..events import (
    AgentMessage,
    Event,
    HistoryCompacted,
    LlmFailed,
    LlmResponse,
    MemoryRecalled,
    MessageWithdrawn,
    Opened,
    RetryRequested,
    ToolApproval,
    ToolComplete,
    ToolReconciled,
    UserMessage,
    WakeUp,
)
from ..log import LogEntry
from ..step import Step
from ..values.acts import Speech, with_indexes
from ..values.failures import REFUSED_CONTENT, UNEXPLAINED
from ..values.images import Image
from ..values.mail import imitates_mail
from ..values.messages import Heard, Made, Message, Said, ToolCall
from ..values.part import make_part
from ..values.round import RoundCall
from ..values.turn import TurnEnded
from ..values.withheld import Suspect, Withheld
from .acceptance import Acceptance, Suspicion
from .condensed import Condensed
from .given_messages import given_messages
from .heard_texts import HeardTexts
from .stopped_calls import why_stopped

# The events that `_note_event` notes, and the effects that `_added_by` adds. They are looked up for each step, because
# an instance check of pydantic's models that fails costs many times as much.
_NOTED = frozenset(
    (WakeUp, UserMessage, AgentMessage, MessageWithdrawn, ToolApproval, HistoryCompacted, RetryRequested, LlmFailed)
)

_NEW: frozenset[Suspect] = frozenset({"new_images", "additions", "answers", "words"})
"""The suspects that came in since the newest answer."""

_TRIED: frozenset[Suspect] = frozenset({"additions", "answers", "earlier"})
"""The suspects that are innocent if the request is refused without them, too."""

_SUMMARY = -1
"""Stands for the summary where messages are named by their places."""


@dataclass(slots=True, weakref_slot=True)
class Transcript:
    """The messages of a log so far. Call `add` with every entry, in order."""

    messages: list[Message] = field(default_factory=list)
    condensed: Condensed | None = None
    taken: dict[str, int] = field(default_factory=dict)
    """The turn that took each message of a user, by the id of the message."""
    is_verbatim: bool = True
    """Whether a model reads every message exactly as it was said, without tags around it, escapes or notes."""
    holds_mail: bool = False
    """Whether a message of another agent is among the messages."""
    _calls: dict[str, ToolCall] = field(default_factory=dict)
    _ranks: dict[str, int] = field(default_factory=dict)
    """The place of each call among the calls of the newest round."""
    _heard: HeardTexts = field(default_factory=HeardTexts)
    _waiting: dict[int, UserMessage | AgentMessage | WakeUp] = field(default_factory=dict)
    """Of these, the messages that have not entered the transcript yet."""
    _places: dict[Said, int] = field(default_factory=dict)
    """The places of the messages whose text may still be delivered."""
    _results: dict[int, str] = field(default_factory=dict)
    """By step, the call whose result the step brought, within the turn under way."""
    _undelivered: set[Heard] = field(default_factory=set)
    """The speeches of the turn under way that were not delivered yet."""
    _round: int = 0
    """The place at which the results of the newest round begin."""
    _condensing: tuple[int, int | None] = (0, None)
    _kept: list[int] = field(default_factory=list)
    """The places of the messages that the summary does not replace, among those that were there when it was made."""
    _condensed_at: int = 0
    """How many messages were there when the summary was made."""
    _retries: set[int] = field(default_factory=set)
    """The turns that try the turn before them again."""
    _acceptance: Acceptance = field(default_factory=Acceptance)

    # --- reading

    def call(self, call_id: str) -> ToolCall:
        """A call of the newest round, with its arguments as a person may have changed them.

        Raises KeyError if there is none. `Pure.`
        """
        return self._calls[call_id]

    def unedited(self, call: RoundCall) -> ToolCall | None:
        """A call of the newest round that no person has changed, so that it was the same at every step; None for any
        other. `Pure.`"""
        answer = self.messages[self._round - 1] if self._round else None
        if answer is None or answer.seq != call.seq:
            return None
        made = answer.tool_calls[self._ranks[call.call_id]]
        return made if self._calls[call.call_id] is made else None

    def words(self, said: Said) -> str:
        """The text that `said` refers to. Raises LookupError if there is no such text. `Pure.`"""
        return self._heard.words(said)

    def images(self, said: Said) -> tuple[Image, ...]:
        """The images that belong to the text of a result. `Pure.`"""
        return self._heard.images(said)

    def origin(self, said: Said) -> str:
        """The agent that said this, or an empty text if it was no agent. `Pure.`"""
        return self._heard.origin(said)

    @property
    def current(self) -> list[Message]:
        """The messages that no summary replaces, oldest first."""
        if self.condensed is None:
            return self.messages
        return [*map(self.messages.__getitem__, self._kept), *self.messages[self._condensed_at :]]

    def found(self, memory: Heard | None) -> MemoryRecalled | None:
        """What the search to which `memory` refers has found. `Pure.`"""
        return self._heard.found(memory)

    def held(self, model: str, turn: int, shown: Sequence[Message]) -> tuple[Suspect, ...]:
        """What a request of this turn to this model, which shows these messages, holds of what it may be refused for,
        in the order of `Suspect`. `Pure.`"""
        suspicion = self._acceptance.suspicion(model, turn, self.first_try(turn))
        summary = () if self.condensed is None else (self.condensed.message,)
        held = tuple(suspicion.held((*summary, *shown), self.messages))
        return (*held, "instructions") if suspicion.is_repeated else held

    def is_refused_again(self, turn: int) -> bool:
        """Whether a turn before this one was refused, and no model has answered since. `Pure.`"""
        refused = self._acceptance.refused
        return refused is not None and refused < turn

    def is_accepted(self, message: Message) -> bool:
        """Whether a model has answered a request with this message. `Pure.`"""
        return message.seq < self._acceptance.newest

    def is_withheld(self, said: Said, model: str) -> bool:
        """Whether this is a message whose text is withheld from this model. `Pure.`"""
        place = self._places.get(said)
        hidden = () if place is None else self.messages[place].withheld
        return any(one.what == "text" and one.concerns(model) for one in hidden)

    def first_try(self, turn: int) -> int:
        """The turn that brought the message which this turn answers. It is another turn if that one failed and was
        tried again. `Pure.`"""
        while turn in self._retries:
            turn -= 1
        return turn

    def newest_try(self, turn: int) -> int:
        """The turn that now answers, or fails to answer, the message of this turn. `Pure.`"""
        while turn + 1 in self._retries:
            turn += 1
        return turn

    # --- building

    def view(self) -> Transcript:
        """Return a transcript that shares its lists and dictionaries with this one. `copy.copy` does the same at ten
        times the cost, and this is made for each model request. `Pure.`"""
        return Transcript(*_values(self))

    def copy(self) -> Transcript:
        """Return a transcript with the same content, which grows on its own. `Pure.`"""
        copied: Iterator[Any] = (value.copy() if isinstance(value, _GROWING) else value for value in _values(self))
        return Transcript(*copied)

    def add(self, entry: LogEntry) -> tuple[Message, ...]:
        """Add the next entry, and return the messages that it brought, each of which now has its place."""
        event = entry.event
        self._heard.note(entry.seq, event)
        if type(event) in _NOTED:
            self._note_event(entry)
        brought: list[Message] = []
        if type(event) is Opened:
            brought += given_messages(event.messages, entry.seq)
            self.messages += brought
        delivered = self._add_effects(entry, brought)
        if delivered:
            self._note_deliveries(delivered)
        if self.is_verbatim and any(map(imitates_mail, brought)):
            self.is_verbatim = False
        if entry.ended is not None:
            self._end_turn(entry.ended)
        return tuple(brought)

    def _add_effects(self, entry: LogEntry, brought: list[Message]) -> list[Said]:
        """Add what the effects bring, also to the messages brought, and return the texts that they deliver."""
        delivered: list[Said] = []
        for effect in entry.effects:
            if type(effect) is PersistMessage:
                brought.append(self._add_message(entry, effect.said))
            elif type(effect) is PersistToolResults:
                brought += [self._add_result(entry, result) for result in effect.results]
            elif type(effect) is DeliverToUser:
                delivered.append(effect.said)
            elif type(effect) is CompactHistory:
                self._condensing = (effect.up_to, effect.turn)
            elif type(effect) is WithholdContent:
                self._withhold(effect, _own_turn(entry))
        return delivered

    def _note_event(self, entry: LogEntry) -> None:
        match entry.event:
            case UserMessage() | AgentMessage() as waiting:
                self._waiting[entry.seq] = waiting
            case WakeUp() as waiting:
                # One that waits already stands for this one, too.
                if not any(isinstance(one, WakeUp) for one in self._waiting.values()):
                    self._waiting[entry.seq] = waiting
            case MessageWithdrawn(message_id=withdrawn):
                self._waiting = {seq: one for seq, one in self._waiting.items() if one.event_id != withdrawn}
            case ToolApproval(allowed=True, raw_arguments=str(edited), call_id=call_id):
                self._calls[call_id] = self._calls[call_id].replace(raw_arguments=edited)
            case HistoryCompacted(summary=summary):
                self.condense(Condensed(summary, *self._condensing, entry.seq))
            case _:
                self._note_try(entry)

    def _note_try(self, entry: LogEntry) -> None:
        match entry.event:
            case RetryRequested():
                self._retries.add(entry.turn)
            case LlmFailed(kind=kind) if kind in REFUSED_CONTENT or kind in UNEXPLAINED:
                self._acceptance.refuse(_own_turn(entry))
                if entry.ended is not None and kind in UNEXPLAINED:
                    self._show_again([one for one in self._acceptance.tried if one[1].kind in UNEXPLAINED])
            case _:
                pass

    def condense(self, condensed: Condensed) -> None:
        """Let a summary stand in place of the messages that it covers."""
        self.condensed = condensed
        self._kept = [place for place, one in enumerate(self.messages) if not condensed.covers(one)]
        self._condensed_at = len(self.messages)

    def _add_message(self, entry: LogEntry, said: Said) -> Message:
        if self._waiting and isinstance(said, Heard) and said.seq in self._waiting:
            message = self._message_from(entry, self._waiting.pop(said.seq))
        else:
            message = self._assistant(entry, said)
        self._places[said] = len(self.messages)
        self.messages.append(message)
        if calls := message.tool_calls:
            self._calls = {call.call_id: call for call in calls}
            self._ranks = {call_id: rank for rank, call_id in enumerate(self._calls)}
            self._round = len(self.messages)
        return message

    def _message_from(self, entry: LogEntry, waiting: UserMessage | AgentMessage | WakeUp) -> Message:
        message_id, turn = waiting.event_id, entry.turn
        fields = {"role": "user", "text": waiting.text, "message_id": message_id, "turn": turn, "seq": entry.seq}
        if isinstance(waiting, UserMessage):
            self.taken[message_id] = turn
            fields["images"] = waiting.images
            fields["withheld"] = self._withheld_images(waiting.images)
        else:
            self.is_verbatim = False
            self.holds_mail = True
            fields["origin"] = waiting.origin
            fields["audience"] = waiting.audience
        return make_part(Message, fields)

    def _assistant(self, entry: LogEntry, said: Said) -> Message:
        event = entry.event
        fields: dict[str, Any] = {"role": "assistant", "turn": _own_turn(entry), "seq": entry.seq}
        if type(event) is not LlmResponse or type(said) is Made:
            fields["text"] = self.words(said)
        else:
            fields["text"] = event.content
            fields["thinking"] = event.thinking
            fields["opaque"] = event.opaque
            fields["provider"] = event.provider
            fields["tool_calls"] = event.tool_calls
            fields["model"] = event.model
            self._acceptance.accept(event.model, entry.seq)
        return make_part(Message, fields)

    def _add_result(self, entry: LogEntry, result: SettledCall) -> Message:
        call_id, said, is_error = result.call_id, result.said, result.error
        place = bisect_left(self.messages, self._ranks[call_id], self._round, key=self._rank)
        message = make_part(
            Message,
            {
                "role": "tool",
                "text": self.words(said),
                "images": (images := self.images(said)),
                "withheld": self._withheld_images(images),
                "tool_call_id": call_id,
                "error": is_error,
                "stopped": why_stopped(entry, result) if is_error else None,
                "edited_arguments": self._edited_arguments(call_id),
                "turn": _own_turn(entry),
                "seq": entry.seq,
            },
        )
        self.messages.insert(place, message)
        if not is_error and isinstance(said, Heard) and (said.seq, said.index) == (entry.seq, 0):
            self._results[entry.seq] = call_id
            self._undelivered.update(_speeches_in(entry))
        return message

    def _edited_arguments(self, call_id: str) -> str:
        """The arguments of a call of the newest round, if a person has changed them; else empty."""
        written, call = self.messages[self._round - 1].tool_calls[self._ranks[call_id]], self._calls[call_id]
        is_edited = written is not call and written.arguments != call.arguments
        return call.raw_arguments if is_edited else ""

    def _rank(self, result: Message) -> int:
        return self._ranks[result.tool_call_id or ""]

    # --- what models are not shown of it

    def _withhold(self, effect: WithholdContent, turn: int) -> None:
        """Mark what is withheld from now on. If it is what people said, what was withheld before it did not help, and
        is shown again, except for images of what they said."""
        acceptance = self._acceptance
        suspicion = acceptance.suspicion(effect.model, turn, self.first_try(turn))
        self.is_verbatim = False
        if effect.suspect == "sight":
            acceptance.sightless[effect.model] = effect.kind
        elif effect.suspect == "words":
            self._show_again([one for one in acceptance.tried if not self._is_said(one, suspicion)])
        for place, message in self._candidates(suspicion.newest if effect.suspect in _NEW else 0):
            for what in suspicion.matters(effect.suspect, message):
                mark = suspicion.mark(effect.suspect, effect.kind, what)
                self._put_withheld(place, (*self._withheld_at(place), mark))
                if effect.suspect in _TRIED or effect.kind in UNEXPLAINED:
                    acceptance.tried.append((place, mark))

    def _candidates(self, since: int) -> Iterator[tuple[int, Message]]:
        """The messages since this step with their places, the newest first, then the summary."""
        for place in range(len(self.messages) - 1, -1, -1):
            message = self.messages[place]
            if message.seq < since:
                break
            yield place, message
        if self.condensed is not None:
            yield _SUMMARY, self.condensed.message

    def _show_again(self, tried: Sequence[tuple[int, Withheld]]) -> None:
        """Take back that this was withheld: the model refused the request without it, too."""
        for place, mark in tried:
            self._put_withheld(place, tuple(one for one in self._withheld_at(place) if one != mark))
        self._acceptance.tried.clear()

    def _is_said(self, tried: tuple[int, Withheld], suspicion: Suspicion) -> bool:
        return tried[0] != _SUMMARY and suspicion.is_said(self.messages[tried[0]])

    def _withheld_at(self, place: int) -> tuple[Withheld, ...]:
        if place != _SUMMARY:
            return self.messages[place].withheld
        return () if self.condensed is None else self.condensed.withheld

    def _put_withheld(self, place: int, withheld: tuple[Withheld, ...]) -> None:
        if place != _SUMMARY:
            self.messages[place] = self.messages[place].replace(withheld=withheld)
        elif self.condensed is not None:
            self.condensed = replace(self.condensed, withheld=withheld)

    def _withheld_images(self, images: tuple[Image, ...]) -> tuple[Withheld, ...]:
        """What is withheld of a message that enters with these images."""
        return self._acceptance.withheld_from_the_sightless() if images and self._acceptance.sightless else ()

    # --- what the user received of it

    def _note_deliveries(self, delivered: Sequence[Said]) -> None:
        """Note on the messages that hold these texts that the texts were delivered."""
        places = list(map(self._places.get, delivered))
        if None in places:
            self._note_speeches([said for said in delivered if isinstance(said, Heard) and said not in self._places])
        for said, place in zip(delivered, places, strict=True):
            if place is not None:
                self._note_delivery(said, place)

    def _note_speeches(self, delivered: Sequence[Heard]) -> None:
        """Note on the results that brought these speeches that the speeches were delivered."""
        by_result = {said: self._results[said.seq] for said in delivered}
        places = self._places_of_results(set(by_result.values()))
        for said in delivered:
            self._note_delivery(said, places[by_result[said]])
        self._undelivered.difference_update(by_result)

    def _note_delivery(self, said: Said, place: int) -> None:
        message = self.messages[place]
        self.messages[place] = message.replace(deliveries=(*message.deliveries, self.words(said)))

    def _places_of_results(self, call_ids: Collection[str]) -> dict[str, int]:
        """The places of the results of these calls. One walk from the end finds all of them, so it takes as long as
        their turn."""
        found: dict[str, int] = {}
        for place in range(len(self.messages) - 1, -1, -1):
            if len(found) == len(call_ids):
                break
            call_id = self.messages[place].tool_call_id
            if call_id is not None and call_id in call_ids:
                found[call_id] = place
        return found

    def _end_turn(self, ended: TurnEnded) -> None:
        """Mark the results whose speech was never delivered. After a turn that did not complete, messages for the user
        can still be delivered: the next turn may pass them on."""
        if self._undelivered:
            lost = {self._results[speech.seq] for speech in self._undelivered}
            for place in self._places_of_results(lost).values():
                self.messages[place] = self.messages[place].replace(undelivered=True)
                self.is_verbatim = False
            self._undelivered.clear()
        self._results.clear()
        if ended.status != "failed":
            turn, keeps_mail, messages = ended.turn, ended.status != "completed", self.messages
            self._places = {
                said: at
                for said, at in self._places.items()
                if messages[at].turn > turn or (keeps_mail and messages[at].audience == "user")
            }


_GROWING = (list, dict, set, HeardTexts, Acceptance)
"""The types of the fields that grow in place."""

_values = attrgetter(*(each.name for each in fields(Transcript)))
"""Returns the values of all fields of a transcript, in order."""


def _speeches_in(entry: LogEntry) -> Iterator[Heard]:
    """References to the speeches in the result that this step brought."""
    event = entry.event
    if isinstance(event, ToolComplete | ToolReconciled) and event.result is not None:
        for act, index in with_indexes(event.result.acts):
            if isinstance(act, Speech):
                yield Heard(seq=entry.seq, index=index)


def _own_turn(entry: LogEntry) -> int:
    """The turn to which the event of this step belongs. Where a turn ends, the next one may begin in the same step."""
    return entry.turn if entry.ended is None else entry.ended.turn


def transcript(log: Iterable[LogEntry | tuple[Event, Step]]) -> tuple[Message, ...]:
    """The messages of a log, which is given as entries or as (event, step) pairs, oldest first. `Pure.`"""
    said = Transcript()
    for entry in log:
        said.add(entry if isinstance(entry, LogEntry) else LogEntry.of(*entry))
    return tuple(said.messages)
