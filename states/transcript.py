"""The messages of a conversation, computed from its log.

The transcript is never stored: it follows from the log, entry by entry. The results of tools stand directly behind the
message that called them, in call order, whatever order they came in. Once the history was compacted, a summary stands
in place of the messages before it.

What models have accepted follows from the log as well. A model that answers has accepted the whole request. So what
entered the transcript before its answer is not what the next request is refused for, unless another model refuses it,
or the provider has changed its mind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import count, dropwhile, groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, get_args

from .branches import ROOT, Branches, Stretches
from .effects import (
    ClearResults,
    CompactHistory,
    DeliverToUser,
    NoteHeard,
    PersistMessage,
    PersistToolResults,
    SettledCall,
    SwitchBranch,
    WithholdContent,
)
from .events import (
    AgentMessage,
    DeadlineReached,
    Event,
    HistoryCompacted,
    LlmFailed,
    LlmResponse,
    LlmStopped,
    MemoryRecalled,
    MessageEdited,
    MessageWithdrawn,
    Opened,
    RetryRequested,
    ToolAborted,
    ToolApproval,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    UserMessage,
    WakeUp,
)
from .heard import heard_parts
from .policy import DEFAULT_SETTINGS, MIN_RESULT, ModelSettings
from .step import LogEntry, Step
from .values.acts import Speech, with_indexes
from .values.files import FileReference, file_of_part
from .values.messages import (
    Heard,
    HistoryMessage,
    Joined,
    Made,
    Matter,
    Message,
    Outcomes,
    Said,
    Stopped,
    Suspect,
    ToolCall,
    Withheld,
    imitates_mail,
)
from .values.output import OutputSchema
from .values.round import RoundCall
from .values.turn import BranchPoint, TurnEnded
from .values.value import REFUSED_CONTENT, UNEXPLAINED, FailureKind

T = TypeVar("T")


def transcript(log: Iterable[LogEntry | tuple[Event, Step]]) -> tuple[Message, ...]:
    """The messages of a log, which is given as entries or as (event, step) pairs, oldest first. `Pure.`"""
    said = Transcript()
    for entry in log:
        said.add(entry if isinstance(entry, LogEntry) else LogEntry.of(*entry))
    return tuple(said.messages)


@dataclass(slots=True)
class TypedAnswers:
    """The forms of typed answers, by step: those that messages of people want, and what tells the form of each answer
    that was given."""

    wanted: dict[int, OutputSchema] = field(default_factory=dict)
    given: dict[int, str] = field(default_factory=dict)

    def copy(self) -> TypedAnswers:
        """Return the same forms, which grow on their own. `Pure.`"""
        return TypedAnswers(self.wanted.copy(), self.given.copy())


@dataclass(slots=True)
class SentSettings:
    """The parameters of model requests with which messages were sent: by the turn that answers them, and by the id of
    the message, for turns of other branches that take it again."""

    by_turn: dict[int, ModelSettings] = field(default_factory=dict)
    by_message: dict[str, ModelSettings] = field(default_factory=dict)

    def add(self, settings: ModelSettings, turn: int) -> None:
        """Note that a message with these settings entered this turn. What they say decides over earlier messages."""
        self.by_turn[turn] = settings.over(self.by_turn.get(turn, DEFAULT_SETTINGS))

    def copy(self) -> SentSettings:
        """Return the same settings, which grow on their own. `Pure.`"""
        return SentSettings(self.by_turn.copy(), self.by_message.copy())


@dataclass(slots=True)
class HeardTexts:
    """The texts to which references may refer. Call `note` with the event of every step.

    The events themselves are not kept: they take several times the memory, and time of the garbage collector.
    """

    _texts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The texts that each step brought."""
    _files: dict[int, tuple[FileReference, ...]] | None = None
    """The files of each result that has any, by step, once one has."""
    _origins: dict[int, str] = field(default_factory=dict)
    """The agent that wrote each message which is not a person's, by step."""
    _found: dict[int, MemoryRecalled] = field(default_factory=dict)
    """What each search in older conversations has found, by step."""
    _outputs: TypedAnswers | None = None
    """The forms of typed answers, once there are any."""

    def note(self, seq: int, event: Event) -> None:
        """Note what the event of this step brought."""
        if not (texts := event.texts):
            return
        self._texts[seq] = texts
        if type(event) is ToolComplete or type(event) is ToolReconciled:
            if event.result is not None and event.result.files:
                self._files = self._files or {}
                self._files[seq] = event.result.files
        elif type(event) is AgentMessage or type(event) is WakeUp:
            self._origins[seq] = event.origin
        elif type(event) is MemoryRecalled:
            self._found[seq] = event
        elif (type(event) is UserMessage or type(event) is MessageEdited) and event.output is not None:
            self._typed().wanted[seq] = event.output
        elif type(event) is LlmResponse and event.output is not None:
            self._typed().given[seq] = event.output.form

    def _typed(self) -> TypedAnswers:
        if self._outputs is None:
            self._outputs = TypedAnswers()
        return self._outputs

    def copy(self) -> HeardTexts:
        """Return the same texts, which grow on their own. `Pure.`"""
        files = None if self._files is None else self._files.copy()
        outputs = None if self._outputs is None else self._outputs.copy()
        return HeardTexts(self._texts.copy(), files, self._origins.copy(), self._found.copy(), outputs)

    def output(self, seq: int) -> OutputSchema | None:
        """The form that the message of this step wants of its answer. `Pure.`"""
        return None if self._outputs is None else self._outputs.wanted.get(seq)

    def form(self, said: Heard) -> str:
        """What tells the form of this typed answer. `Pure.`"""
        return "" if self._outputs is None else self._outputs.given.get(said.seq, "")

    def words(self, said: Said) -> str:
        """The text that `said` refers to. Raises LookupError if there is no such text. `Pure.`"""
        if isinstance(said, Heard):  # first, because most references are of this type
            return self._texts[said.seq][said.index]
        match said:
            case Made(text=text):
                return text
            case Joined() | Outcomes():
                return said.text_of(map(self.words, said.parts))

    def files(self, said: Said) -> tuple[FileReference, ...]:
        """The files that belong to the text of a result. `Pure.`"""
        if not self._files:
            return ()
        match said:
            case Heard(seq=seq, index=0):
                return self._files.get(seq, ())
            case Joined(parts=parts) | Outcomes(parts=parts):
                return tuple(file for part in parts for file in self.files(part))
            case _:
                return ()

    def origin(self, said: Said) -> str:
        """The agent that said this, or an empty text if it was no agent. `Pure.`"""
        return self._origins.get(said.seq, "") if isinstance(said, Heard) else ""

    def found(self, memory: Heard | None) -> MemoryRecalled | None:
        """What the search to which `memory` refers has found. `Pure.`"""
        return None if memory is None else self._found.get(memory.seq)


@dataclass(slots=True)
class Acceptance:
    """Which steps each model has accepted. `newest` is the step of the newest answer: what entered in it or behind it,
    no model has accepted yet."""

    newest: int = 0
    by_model: dict[str, int] = field(default_factory=dict)
    """By model, the step of its newest answer."""
    unable: dict[tuple[str, Matter], FailureKind] = field(default_factory=dict)
    """The models that take no files of a kind, with the kind of failure that told."""
    refused: int | None = None
    """The first turn that was refused for its content since the newest answer."""
    tried: list[tuple[int, Withheld]] = field(default_factory=list)
    """What was withheld since the newest answer, by the place of its message; -1 stands for the summary. As long as no
    model has answered without it, it may be innocent."""

    def accept(self, model: str, seq: int) -> None:
        """Note that this model has answered, at this step."""
        self.by_model[model] = self.newest = seq
        if self.refused is not None or self.tried:
            self.refused = None
            self.tried.clear()

    def refuse(self, turn: int) -> None:
        """Note that a request of this turn was refused for its content."""
        if self.refused is None:
            self.refused = turn

    def copy(self) -> Acceptance:
        """Return the same acceptance, which grows on its own. `Pure.`"""
        return Acceptance(self.newest, self.by_model.copy(), self.unable.copy(), self.refused, self.tried.copy())

    def withheld_from_the_unable(self, files: Sequence[FileReference]) -> tuple[Withheld, ...]:
        """What is withheld of a message that enters with these files now. `Pure.`"""
        kinds = {file.kind for file in files}
        return tuple(
            Withheld(what=what, kind=kind, model=model) for (model, what), kind in self.unable.items() if what in kinds
        )

    def suspicion(self, model: str, turn: int, first_try: int) -> Suspicion:
        """What is suspicious when this model refuses a request of this turn, which answers what was said since the turn
        `first_try`. `Pure.`"""
        accepted = self.by_model.get(model, 0)
        is_repeated = self.refused is not None and self.refused < turn
        return Suspicion(model, first_try, self.newest, accepted, is_repeated)


# The events that `_note_event` notes, and the effects that `_added_by` adds. They are looked up for each step, because
# an instance check of pydantic's models that fails costs many times as much.
_NOTED = frozenset(
    (
        WakeUp,
        UserMessage,
        MessageEdited,
        AgentMessage,
        MessageWithdrawn,
        ToolApproval,
        HistoryCompacted,
        RetryRequested,
        LlmFailed,
    )
)

_NEW: frozenset[Suspect] = frozenset({"new_files", "additions", "answers", "words"})
"""The suspects that came in since the newest answer."""

_TRIED: frozenset[Suspect] = frozenset({"additions", "answers", "earlier"})
"""The suspects that are innocent if the request is refused without them, too."""

_SUMMARY = -1
"""Stands for the summary where messages are named by their places."""

_UNDIVIDED = Stretches()
"""One stretch: what a conversation has that never went to another branch."""


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
    longest_result: int = 0
    """The most characters of a result so far, of those whose tools do not say how much of them a request shows."""
    hides_results: bool = False
    """Whether a result was cleared, or is longer than its tool says. Once one was, this stays so, so the tool by which
    the rest is read stays among those that are offered."""
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
    _first_tries: dict[int, int] = field(default_factory=dict)
    """Of each turn that tries the turn before it again, the first turn of its tries."""
    _settings: SentSettings | None = None
    """The parameters of model requests with which messages were sent, once one was sent with any."""
    _acceptance: Acceptance = field(default_factory=Acceptance)
    branches: Branches | None = None
    """The tree of turns, once the conversation has gone to another branch."""
    _stretches: Stretches = _UNDIVIDED
    _summaries: tuple[tuple[int, int, Condensed], ...] = ()
    """Every summary so far, with the stretch and the turn in which it was made."""
    _clearings: tuple[tuple[int, int, int], ...] = ()
    """Up to which place results were cleared each time, with the stretch and the turn in which they were."""
    _again: dict[int, Message] | None = None
    """The messages of hidden turns that are answered again and have not entered yet, by the step that brought them."""
    _interrupted: NoteHeard | None = None
    """What the user has heard of the turn under way."""
    cut_answers: dict[int, str] | None = None
    """What the user has heard of the answers that they interrupted, by the step of the answer, on all branches."""
    cut_turn: int | None = None
    """The turn of which the newest step cut what an earlier one has brought; None if it cut nothing."""
    _ended: int = 0
    """The newest turn that has ended."""

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

    def kept_words(self, said: Said) -> str:
        """The text that `said` refers to, as it stands in the newest step: an answer that the user has interrupted is
        cut to what they heard. `Pure.`"""
        cut = self.cut_answers.get(said.seq) if self.cut_answers and isinstance(said, Heard) else None
        return self.words(said) if cut is None else cut

    def files(self, said: Said) -> tuple[FileReference, ...]:
        """The files that belong to the text of a result. `Pure.`"""
        return self._heard.files(said)

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

    def output(self, seq: int) -> OutputSchema | None:
        """The form that the message of this step wants of its answer; None if it wants none. `Pure.`"""
        return self._heard.output(seq)

    def form(self, said: Heard) -> str:
        """What tells the form of this typed answer from others. `Pure.`"""
        return self._heard.form(said)

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
        return self._first_tries.get(turn, turn)

    def settings(self, turn: int) -> ModelSettings:
        """The parameters of model requests with which the messages were sent that this turn answers; of several the
        later one decides. `Pure.`"""
        if self._settings is None:
            return DEFAULT_SETTINGS
        return self._settings.by_turn.get(self.first_try(turn), DEFAULT_SETTINGS)

    def newest_try(self, turn: int) -> int:
        """The turn that now answers, or fails to answer, the message of this turn. `Pure.`"""
        while turn + 1 in self._first_tries:
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
        self.cut_turn = None
        if type(event) in _NOTED:
            self._note_event(entry)
        brought: list[Message] = []
        if type(event) is Opened:
            brought += given_messages(event.messages, entry.seq)
            self.messages += brought
            self.longest_result = max((len(one.text) for one in brought if one.role == "tool"), default=0)
        delivered = self._add_effects(entry, brought)
        if self.is_verbatim and any(map(imitates_mail, brought)):
            self.is_verbatim = False
        if delivered:
            self._note_deliveries(delivered)
        if entry.ended is not None:
            self._ended = entry.ended.turn
        if entry.ended is not None and delivered is not None:
            self._end_turn(entry.ended)
        if self._interrupted is not None and self._interrupted.turn <= self._ended:
            self._cut_unheard(self._interrupted, brought)
            self._interrupted = None
        return tuple(brought)

    def _add_effects(self, entry: LogEntry, brought: list[Message]) -> list[Said] | None:
        """Add what the effects bring, also to the messages brought, and return the texts that they deliver; None if
        that was noted already, before the step went to another branch."""
        delivered: list[Said] = []
        switches = False
        for effect in entry.effects:
            if type(effect) is PersistMessage:
                brought.append(self._add_message(entry, effect.said))
            elif type(effect) is PersistToolResults:
                brought += [self._add_result(entry, result) for result in effect.results]
            elif type(effect) is DeliverToUser:
                delivered.append(effect.said)
            elif type(effect) is CompactHistory:
                self._condensing = (effect.up_to, effect.turn)
            elif type(effect) is WithholdContent or type(effect) is ClearResults or type(effect) is NoteHeard:
                self._mark(effect, _own_turn(entry))
            elif type(effect) is SwitchBranch:
                self._leave_branch(entry, brought)
                self._switch_branch(effect, entry.seq)
                switches = True
        return None if switches else delivered

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
                condensed = Condensed(summary, *self._condensing, entry.seq)
                self.condense(condensed)
                self._summaries = (*self._summaries, (self._stretch, _own_turn(entry), condensed))
            case _:
                self._note_try(entry)

    def _note_try(self, entry: LogEntry) -> None:
        match entry.event:
            case RetryRequested():
                self._first_tries[entry.turn] = self.first_try(entry.turn - 1)
            case LlmFailed(kind=kind) if kind in REFUSED_CONTENT or kind in UNEXPLAINED:
                self._acceptance.refuse(_own_turn(entry))
                if entry.ended is not None and kind in UNEXPLAINED:
                    self._show_again([one for one in self._acceptance.tried if one[1].kind in UNEXPLAINED])
            case _:
                pass

    def condense(self, condensed: Condensed) -> None:
        """Let a summary stand in place of the messages that it covers."""
        self.condensed = condensed
        self._condense(condensed, len(self.messages))

    def _condense(self, condensed: Condensed, count: int) -> None:
        """The summary was made when there were so many messages."""
        self._kept = [place for place, one in enumerate(self.messages[:count]) if not condensed.covers(one)]
        self._condensed_at = count

    def _add_message(self, entry: LogEntry, said: Said) -> Message:
        if self._waiting and isinstance(said, Heard) and said.seq in self._waiting:
            message = self._message_from(entry, self._waiting.pop(said.seq))
        elif self._again and isinstance(said, Heard) and said.seq in self._again:
            message = self._said_again(entry, self._again.pop(said.seq))
        else:
            message = self._assistant(entry, said)
        self._places[said] = len(self.messages)
        if type(entry.event) is LlmResponse and entry.event.output is not None and isinstance(said, Heard):
            for index in (entry.event.output_index, entry.event.output_index + 1):
                self._places[Heard(seq=entry.seq, index=index)] = len(self.messages)
        self.messages.append(message)
        if calls := message.tool_calls:
            self._calls = {call.call_id: call for call in calls}
            self._ranks = {call_id: rank for rank, call_id in enumerate(self._calls)}
            self._round = len(self.messages)
        return message

    def _message_from(self, entry: LogEntry, waiting: UserMessage | AgentMessage | WakeUp) -> Message:
        message_id, turn = waiting.event_id, entry.turn
        fields: dict[str, Any] = {
            "role": "user",
            "text": waiting.text,
            "message_id": message_id,
            "turn": turn,
            "seq": entry.seq,
        }
        if isinstance(waiting, UserMessage):
            self.taken[message_id] = turn
            if waiting.files:
                fields["files"] = waiting.files
                fields["withheld"] = self._withheld_files(waiting.files)
            if waiting.settings is not None:
                self._settings = self._settings or SentSettings()
                self._settings.by_message[message_id] = waiting.settings
                self._settings.add(waiting.settings, self.first_try(turn))
        else:
            self.is_verbatim = False
            self.holds_mail = True
            fields["origin"] = waiting.origin
            fields["audience"] = waiting.audience
        return Message(**fields)

    def _said_again(self, entry: LogEntry, hidden: Message) -> Message:
        """The message of a hidden turn as it enters another one."""
        if hidden.audience is None:
            self.taken[hidden.message_id] = entry.turn
            sent = self._settings
            if sent is not None and (settings := sent.by_message.get(hidden.message_id)) is not None:
                sent.add(settings, self.first_try(entry.turn))
        else:
            self.is_verbatim = False
            self.holds_mail = True
        withheld = self._withheld_files(hidden.files)
        return hidden.replace(turn=entry.turn, seq=entry.seq, deliveries=(), withheld=withheld)

    def _assistant(self, entry: LogEntry, said: Said) -> Message:
        event = entry.event
        fields: dict[str, Any] = {"role": "assistant", "turn": _own_turn(entry), "seq": entry.seq}
        if type(event) is LlmStopped:
            fields["text"] = event.content
            fields["thinking"] = event.thinking
            fields["model"] = event.model
            fields["stopped"] = "cancelled"
            fields["spoken"] = event.spoken
            self.is_verbatim = False
            self._acceptance.accept(event.model, entry.seq)
        elif type(event) is not LlmResponse or type(said) is Made:
            fields["text"] = self.words(said)
        else:
            fields["text"] = event.content
            fields["thinking"] = event.thinking
            fields["opaque"] = event.opaque
            fields["provider"] = event.provider
            fields["citations"] = event.citations
            fields["logprobs"] = event.logprobs
            fields["tool_calls"] = event.tool_calls
            fields["model"] = event.model
            if event.output is not None and event.output.is_valid:
                fields["shown"] = event.output.reply or ("" if event.content.strip() else event.output_json)
            self._acceptance.accept(event.model, entry.seq)
        return Message(**fields)

    def _add_result(self, entry: LogEntry, result: SettledCall) -> Message:
        call_id, said, is_error = result.call_id, result.said, result.error
        max_result = self._note_size(text := self.words(said), self._calls[call_id].max_result)
        place = bisect_left(self.messages, self._ranks[call_id], self._round, key=self._rank)
        message = Message(
            role="tool",
            text=text,
            files=(files := self.files(said)),
            withheld=self._withheld_files(files),
            max_result=max_result,
            tool_call_id=call_id,
            error=is_error,
            stopped=_why_stopped(entry, result) if is_error else None,
            edited_arguments=self._edited_arguments(call_id),
            turn=_own_turn(entry),
            seq=entry.seq,
        )
        self.messages.insert(place, message)
        if not is_error and isinstance(said, Heard) and (said.seq, said.index) == (entry.seq, 0):
            self._results[entry.seq] = call_id
            self._undelivered.update(_speeches_in(entry))
        return message

    def _note_size(self, text: str, own: int | None) -> int | None:
        """Note how long this result is, and return how much of it a request shows; None if its tool does not say so."""
        if own is None:
            self.longest_result = max(self.longest_result, len(text))
        elif len(text) > own:
            self.hides_results, self.is_verbatim = True, False
        return own

    def _edited_arguments(self, call_id: str) -> str:
        """The arguments of a call of the newest round, if a person has changed them; else empty."""
        written, call = self.messages[self._round - 1].tool_calls[self._ranks[call_id]], self._calls[call_id]
        is_edited = written is not call and written.arguments != call.arguments
        return call.raw_arguments if is_edited else ""

    def _rank(self, result: Message) -> int:
        return self._ranks[result.tool_call_id or ""]

    # --- its branches

    @property
    def _stretch(self) -> int:
        """The stretch of the tree under way."""
        return ROOT if self.branches is None else self.branches.stretch

    def _leave_branch(self, entry: LogEntry, brought: list[Message]) -> None:
        """Note what this step delivers, and the end of its turn, and cut what was not heard: all of that belongs to the
        branch that it leaves."""
        self._note_deliveries([one.said for one in entry.effects if isinstance(one, DeliverToUser)])
        if entry.ended is not None:
            self._end_turn(entry.ended)
        if self._interrupted is not None:
            self._cut_unheard(self._interrupted, brought)
            self._interrupted = None

    def _switch_branch(self, switch: SwitchBranch, seq: int) -> None:
        """Show another branch from this step on, up to a point in it. What agents wrote there is nothing new; but what
        they have written here and no model has read yet goes along. What models have accepted or refused of the
        messages holds there, too.

        It takes as long as there are messages.
        """
        left, places = self.messages, self._places
        stretches = self._stretches.keep(left, places)
        self.branches = (self.branches or Branches()).after(switch)
        self._stretches, self.messages, self._places = stretches.show(self.branches.path, self.branches.stretch)
        self._keep_again(switch.to, left)
        self._show_summary()
        self._show_cleared()
        self._take_along(left, places, {one.event_id for one in switch.to.again}, turn=switch.turns, seq=seq)
        self._results.clear()
        self._undelivered.clear()
        self._round = 0
        tried = self._acceptance.tried
        tried[:] = [
            one for one in tried if one[0] == _SUMMARY or self.messages[one[0] : one[0] + 1] == left[one[0] :][:1]
        ]
        self.holds_mail = any(one.audience is not None for one in self.messages)
        summary = () if self.condensed is None else (self.condensed.message,)
        self.is_verbatim = not self.holds_mail and all(map(_is_read_as_said, (*self.messages, *summary)))

    def _keep_again(self, to: BranchPoint, left: list[Message]) -> None:
        """Keep the messages that enter again. One that is not there, as in a log that somebody has made up, says
        nothing."""
        wanted = {one.event_id: one.seq for one in to.again}
        if not wanted:
            return
        again = {one.seq: Message(role="user", message_id=one.event_id) for one in to.again}
        again.update((wanted[one.message_id], one) for one in left if one.message_id in wanted)
        self._again = again if self._again is None else self._again | again

    def _take_along(
        self, left: list[Message], places: Mapping[Said, int], again: Collection[str], *, turn: int, seq: int
    ) -> None:
        """Let the messages of agents at the end, which no model has read, enter at the end of this branch, too: in this
        step, and behind this turn, the newest one. So they stand behind whatever is said or condensed there."""
        shown = {one.message_id for one in self.messages if one.message_id}
        known = shown.union(again)
        said = {place: text for text, place in places.items()}
        for place, message in enumerate(left[_unread_from(left) :], _unread_from(left)):
            if message.message_id not in known and not self.is_accepted(message):
                if place in said:
                    self._places[said[place]] = len(self.messages)
                self.messages.append(message.replace(turn=turn, seq=seq))

    def _show_summary(self) -> None:
        """Let the newest summary of this branch stand in place of what it covers."""
        condensed = self.condensed
        self._summaries = tuple(
            (stretch, turn, condensed if condensed is not None and one.seq == condensed.seq else one)
            for stretch, turn, one in self._summaries
        )
        shown = self._of_branch(self._summaries)
        self.condensed = shown[-1] if shown else None
        if self.condensed is not None:
            self._condense(self.condensed, sum(one.seq < self.condensed.seq for one in self.messages))

    def _show_cleared(self) -> None:
        """Let those results be cleared that were on this branch. The messages in front of a clearing have the same
        places on every branch that it is on."""
        if not self._clearings:
            return
        last = max(self._of_branch(self._clearings), default=-1)
        for place, message in enumerate(self.messages):
            is_cleared = place <= last and may_be_cleared(message)
            if message.cleared != is_cleared:
                self.messages[place] = message.replace(cleared=is_cleared)

    def _of_branch(self, made: Iterable[tuple[int, int, T]]) -> list[T]:
        """What was made in a stretch and a turn that are on the branch to which the conversation has just gone."""
        assert self.branches is not None, "the conversation has just gone to another branch"
        ends = {part.stretch: part.turn for part in self.branches.path}
        return [one for stretch, turn, one in made if turn <= ends.get(stretch, -1)]

    # --- what models are not shown of it

    def _mark(self, effect: WithholdContent | ClearResults | NoteHeard, turn: int) -> None:
        if isinstance(effect, NoteHeard):
            self._interrupted = effect
        elif isinstance(effect, ClearResults):
            self._clear_results(effect.rounds, turn)
        else:
            self._withhold(effect, turn)

    def _clear_results(self, rounds: int, turn: int) -> None:
        """Mark the results that are cleared from now on, on the branch under way."""
        places = list(old_results(self.messages, rounds))
        if not places:
            return
        for place in places:
            self.messages[place] = self.messages[place].replace(cleared=True)
        self._clearings = (*self._clearings, (self._stretch, turn, places[0]))
        self.hides_results, self.is_verbatim = True, False

    def _withhold(self, effect: WithholdContent, turn: int) -> None:
        """Mark what is withheld from now on. If it is what people said, what was withheld before it did not help, and
        is shown again, except for files of what they said."""
        acceptance = self._acceptance
        suspicion = acceptance.suspicion(effect.model, turn, self.first_try(turn))
        self.is_verbatim = False
        if effect.suspect in _ABILITIES:
            acceptance.unable |= {(effect.model, what): effect.kind for what in _ABILITIES[effect.suspect]}
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

    def _withheld_files(self, files: tuple[FileReference, ...]) -> tuple[Withheld, ...]:
        """What is withheld of a message that enters with these files."""
        return self._acceptance.withheld_from_the_unable(files) if files and self._acceptance.unable else ()

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
        """Note on the results that brought these speeches that the speeches were delivered. A message for the user that
        is passed on although another branch holds it stands nowhere here."""
        by_result = {said: self._results[said.seq] for said in delivered if said.seq in self._results}
        places = self._places_of_results(set(by_result.values()))
        for said, result in by_result.items():
            self._note_delivery(said, places[result])
        self._undelivered.difference_update(by_result)

    def _note_delivery(self, said: Said, place: int) -> None:
        message = self.messages[place]
        self.messages[place] = message.replace(deliveries=(*message.deliveries, self.words(said)))

    # --- what the user has heard of it

    def _cut_unheard(self, noted: NoteHeard, brought: list[Message]) -> None:
        """Cut what was said in this turn to what the user has heard. What is no beginning of it stays, with a note."""
        said = [one for place in self._places_of_turn(noted.turn) for one in _said_in(place, self.messages[place])]
        if not said:
            return
        self.is_verbatim = False
        heard = self.words(noted.said)
        told = [one for one in said if one.was_received]
        for texts in (told, said):
            parts = heard_parts([one.text for one in texts], heard)
            if parts is not None:
                cuts = {one: part for one, part in zip(texts, parts, strict=True) if part != one.text}
                break
        else:
            cuts = {}
            self._replace((told or said)[-1].place, brought, heard=heard)
        for place, group in groupby(cuts, key=lambda one: one.place):
            message = self.messages[place]
            self._replace(place, brought, **_cut(message, {one.part: cuts[one] for one in group}))

    def _replace(self, place: int, brought: list[Message], **changes: Any) -> None:
        before = self.messages[place]
        self.messages[place] = after = before.replace(**changes)
        if not any(one is before for one in brought):
            self.cut_turn = after.turn
        if after.text != before.text:
            self.cut_answers = {**(self.cut_answers or {}), after.seq: after.text}
        brought[:] = [after if one is before else one for one in brought]

    def _places_of_turn(self, turn: int) -> Iterator[int]:
        """The places of the messages of this turn, in order."""
        place = len(self.messages)
        while place and self.messages[place - 1].turn >= turn:
            place -= 1
        for one in range(place, len(self.messages)):
            if self.messages[one].turn == turn:
                yield one

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


class _SaidText(NamedTuple):
    """A text that may have been said to the user: that of the message at this place, or, with a `part`, one of its
    deliveries. `was_received` says that it was delivered, or was streamed when it was stopped."""

    place: int
    part: int | None
    text: str
    was_received: bool


def _said_in(place: int, message: Message) -> Iterator[_SaidText]:
    if message.role == "assistant" and message.text.strip():
        was_received = bool(message.deliveries) or message.stopped is not None
        yield _SaidText(place, None, message.text, was_received)
    elif message.role == "tool":
        for index, text in enumerate(message.deliveries):
            yield _SaidText(place, index, text, True)


def _cut(message: Message, parts: Mapping[int | None, str]) -> dict[str, Any]:
    """The fields of this message that change when these of its texts are cut. What its provider has sealed belongs to
    the whole text."""
    if None in parts:
        part = parts[None]
        sealed = {} if message.tool_calls else {"opaque": (), "provider": None}
        whole = {"shown": "", "citations": (), "logprobs": None, **sealed}
        return {"text": part, "heard": part, "deliveries": (part,) if part and message.deliveries else (), **whole}
    deliveries = tuple(parts.get(index, text) for index, text in enumerate(message.deliveries))
    heard = tuple(filter(None, deliveries))
    return {"deliveries": heard, "heard": "\n\n".join(heard)}


_GROWING = (list, dict, set, HeardTexts, SentSettings, Acceptance)
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


def _unread_from(messages: Sequence[Message]) -> int:
    """The place from which on there are only messages of agents. `Pure.`"""
    place = len(messages)
    while place and messages[place - 1].audience is not None:
        place -= 1
    return place


def _is_read_as_said(message: Message) -> bool:
    """Whether a model reads this message, which no agent wrote, as it was said. `Pure.`"""
    is_marked = message.withheld or message.undelivered or message.cleared or message.max_result is not None
    return not (is_marked or imitates_mail(message))


SHORTEST_CLEARED = 2 * MIN_RESULT
"""The fewest characters of a result that is cleared: several times those of the line that stands in its place."""


def old_results(messages: Sequence[Message], rounds: int) -> Iterator[int]:
    """Yield the places of the results, newest first, that are cleared so that only those of the newest `rounds` rounds
    of calls are shown. Those that are cleared already, and short ones without files, are none of them. `Pure.`"""
    newer = 0
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.tool_calls:
            newer += 1
        elif newer >= rounds and not message.cleared and may_be_cleared(message):
            yield place


def may_be_cleared(message: Message) -> bool:
    """Whether this is a result that is worth clearing. `Pure.`"""
    return message.role == "tool" and (len(message.text) > SHORTEST_CLEARED or bool(message.files))


def _own_turn(entry: LogEntry) -> int:
    """The turn to which the event of this step belongs. Where a turn ends, the next one may begin in the same step."""
    return entry.turn if entry.ended is None else entry.ended.turn


def _why_stopped(entry: LogEntry, result: SettledCall) -> Stopped | None:
    """Why this error is no fault of the tool: a person stopped the turn or did not allow the call. None if it is a
    fault.

    A text of the tool itself is always the tool's. Otherwise the result that the event brings is the first one of its
    step. `Pure.`
    """
    if isinstance(result.said, Heard):
        return None
    if entry.ended is not None and entry.ended.status == "cancelled":
        return "cancelled"
    first = next(effect for effect in entry.effects if isinstance(effect, PersistToolResults)).results[0]
    if result != first or isinstance(result.said, Joined | Outcomes):
        return None
    match entry.event:
        case ToolApproval(allowed=False) | DeadlineReached():
            return "denied"
        case ToolAborted() | ToolInterrupted() | ToolReconciled(verdict="did_not_run" | "unknown"):
            return "cancelled"
        case _:
            return None


_NOTHING: tuple[Matter, ...] = ()
_TEXT: tuple[Matter, ...] = ("text",)
_FILES: tuple[Matter, ...] = ("image", "document", "audio", "video")
_ALL: tuple[Matter, ...] = ("text", *_FILES)

_Matters = Mapping[Suspect, tuple[Matter, ...]]

_ABILITIES: _Matters = {"hearing": ("audio", "video"), "reading": ("document",), "sight": ("image",)}
"""What a model does not take that lacks an ability."""

_OLD: _Matters = {**_ABILITIES, "files": _FILES}
_NEW_CONTENT: _Matters = {**_OLD, "new_files": _FILES}
_SAID: _Matters = {**_NEW_CONTENT, "additions": _FILES, "words": _ALL}
_ADDED: _Matters = {**_NEW_CONTENT, "additions": _ALL}
"""What of a message each suspect is: of an accepted one, of one that was not, of what people said in the turn, and of
what came in otherwise."""

_FROM_ITS_MODEL: frozenset[Suspect] = frozenset({*_ABILITIES, "files", "earlier"})
"""What is withheld only from the model that refused it: others have accepted it, or take what this one does not."""


@dataclass(frozen=True)
class Suspicion:
    """Sorts messages by whether they may be what `model` has refused in a turn that answers what people said since
    `turn`. What came in before the step `accepted` this model has accepted, and what came in before the step `newest`
    any model. `is_repeated` says that an earlier turn was refused, too, and nothing was accepted since."""

    model: str
    turn: int
    newest: int
    accepted: int
    is_repeated: bool

    def held(self, shown: Sequence[Message], all_messages: Sequence[Message]) -> Iterator[Suspect]:
        """Yield what a request that shows these messages, out of all, has of each suspect. `Pure.`"""
        for suspect in get_args(Suspect):
            if suspect in _ABILITIES and any(self._has_taken(suspect, message) for message in all_messages):
                continue
            if any(self.matters(suspect, message) for message in shown):
                yield suspect

    def matters(self, suspect: Suspect, message: Message) -> tuple[Matter, ...]:
        """What of this message the model sees and is under this suspicion. `Pure.`"""
        hidden = {one.what for one in message.withheld if one.concerns(self.model)}
        has: set[Matter] = {file.kind for file in message.files}
        if message.text.strip() or message.tool_calls:
            has.add("text")
        return tuple(one for one in self._suspected(suspect, message) if one in has and one not in hidden)

    def mark(self, suspect: Suspect, kind: FailureKind, what: Matter) -> Withheld:
        """How it is noted that this is withheld because of a failure of this kind. `Pure.`"""
        is_of_model = suspect in _FROM_ITS_MODEL or kind == "unsupported_content"
        return Withheld(what=what, kind=kind, model=self.model if is_of_model else "")

    def _suspected(self, suspect: Suspect, message: Message) -> tuple[Matter, ...]:
        if message.seq < self.newest:
            is_earlier = suspect == "earlier" and (self.is_repeated or message.seq >= self.accepted)
            return _ALL if is_earlier else _OLD.get(suspect, _NOTHING)
        if message.role == "assistant":
            is_suspect = suspect == "answers" and (self.is_repeated or message.turn >= self.turn)
            return _TEXT if is_suspect else _NOTHING
        return (_SAID if self.is_said(message) else _ADDED).get(suspect, _NOTHING)

    def is_said(self, message: Message) -> bool:
        """Whether a person has said this in the turn. `Pure.`"""
        return message.role == "user" and message.audience is None and message.turn >= self.turn

    def _has_taken(self, suspect: Suspect, message: Message) -> bool:
        return message.seq < self.accepted and bool(self.matters(suspect, message))


@dataclass(frozen=True)
class Condensed:
    """The summary that replaces the messages up to the step `up_to`, except for what people said since the turn
    `turn`. It was made at the step `seq`, and may be `withheld` from models like a message."""

    summary: str
    up_to: int
    turn: int | None
    seq: int = 0
    withheld: tuple[Withheld, ...] = ()

    def covers(self, message: Message) -> bool:
        """Whether the summary replaces this message. `Pure.`"""
        began_this_turn = message.role == "user" and self.turn is not None and message.turn >= self.turn
        return message.seq <= self.up_to and not began_this_turn

    @property
    def message(self) -> Message:
        """The summary as a message that entered when it was made. `Pure.`"""
        return Message(role="user", text=self.summary, audience="agent", seq=self.seq, withheld=self.withheld)


def given_messages(messages: Iterable[HistoryMessage], seq: int) -> list[Message]:
    """Return the messages of a history that was given in the step `seq`, with results in call order. System messages at
    its beginning are left out, because their text is the system prompt of the conversation.

    It reads whatever a log may hold: what a message does not say in OpenAI's chat format is passed over. `Pure.`
    """
    read = [_read_given(one) for one in dropwhile(lambda one: one.is_system, messages)]
    ranks: dict[str, int] = {}
    ordered: list[Message] = []
    for is_result, group in groupby(read, key=lambda message: message.role == "tool"):
        several = list(group)
        ordered += sorted(several, key=lambda one: ranks.get(one.tool_call_id or "", 0)) if is_result else several
        ranks = {call.call_id: rank for rank, call in enumerate(several[-1].tool_calls)}
    return [message.replace(seq=seq) for message in ordered]


def _read_given(message: HistoryMessage) -> Message:
    """Read one message: its texts, its files, and the order in which they stand."""
    given, role = message.given, message.role
    parts = [part for part in map(_content_of, _parts_of(given.get("content"))) if part is not None]
    files = tuple(part for part in parts if isinstance(part, FileReference))
    text = "\n\n".join(part for part in parts if isinstance(part, str))
    refusal, call_id = given.get("refusal"), given.get("tool_call_id")
    if not text.strip() and isinstance(refusal, str):
        text = refusal
    kinds, places = [isinstance(part, FileReference) for part in parts], count()
    text_stands_behind_file = kinds != sorted(kinds)
    placed = tuple(part if isinstance(part, str) else next(places) for part in parts)
    return Message(
        role="system" if role == "developer" else role,
        text=text,
        files=files,
        parts=placed if text_stands_behind_file else (),
        tool_calls=tuple(map(_call, message.calls)),
        tool_call_id=call_id if isinstance(call_id, str) and role == "tool" else None,
    )


def _content_of(part: Any) -> str | FileReference | None:
    """The text or the file of a part, or None if it has none that a model can be shown."""
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return text if text.strip() else None
        case dict():
            return file_of_part(part)
        case _:
            return None


def _parts_of(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _call(call: dict[str, Any]) -> ToolCall:
    function = call["function"]
    made = {"name": function["name"], "raw_arguments": function["arguments"]}
    return ToolCall(call_id=call["id"], provider_id=call["id"], **made)
