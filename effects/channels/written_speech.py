"""Speech that a model is still writing: what channels are told of it, and how it is spoken before it is delivered.

What a tool is to say comes as tokens while the model writes the call. A voice that waits for the delivery begins to
speak when the model has written all of it. One that speaks each sentence when it is complete begins seconds earlier,
at the risk that the sentence is never delivered: the response may fail, a person may refuse the call or stop the turn.

So a listening channel is told three things: each piece, that a response is complete, and that what was written is
settled: whatever has not been delivered by then is not said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from ...states.events import Event, LlmResponse, LlmStopped, Resumed
from ...states.states import Cancelling, InTurn, State, pending
from ...states.step import Step
from ...states.values.round import Round
from ..logs import performer_logger
from .port import Delivery, SpeechListener, SpeechPiece, SpeechSettled, WhyUnsaid

logger: Final = performer_logger("turnwise.channels")


@dataclass(slots=True)
class _TurnWritten:
    """A turn in which speech was written: the `request` that a model answers with speech now, None between two such
    responses, and whether a complete one may yet be delivered."""

    number: int
    request: int | None = None
    has_complete: bool = False


class WrittenSpeeches:
    """Tells `listeners` of the speech that models are writing for the conversations of this process. Every error of a
    listener is logged."""

    def __init__(self, listeners: Iterable[SpeechListener]) -> None:
        self._listeners = tuple(listeners)
        self._turns: dict[str, _TurnWritten] = {}

    def write(self, piece: SpeechPiece) -> None:
        """A model has written this piece."""
        turn = self._turns.get(piece.conversation_id)
        if turn is None or turn.number != piece.turn:
            turn = self._turns[piece.conversation_id] = _TurnWritten(piece.turn)
        turn.request = piece.request
        self._tell(lambda listener: listener.speech_written(piece))

    def stepped(self, conversation_id: str, event: Event, step: Step) -> None:
        """See what a step means for the speech that was written before it."""
        turn = self._turns.get(conversation_id)
        if turn is None:
            return
        why: WhyUnsaid = "unsaid"
        if (request := turn.request) is not None:
            if isinstance(event, LlmResponse) and event.effect_id == request:
                turn.has_complete = True
                last = SpeechPiece("", conversation_id, turn.number, request, is_last=True)
                self._tell(lambda listener: listener.speech_written(last))
            elif request not in pending(step.state) or isinstance(event, Resumed):
                why = "cancelled" if isinstance(event, LlmStopped) else "failed"
            else:
                return
            turn.request = None
        if step.ended is not None or not turn.has_complete or not _may_deliver(step.state):
            self._settle(conversation_id, step, why)
        elif why != "unsaid":  # what an earlier response says waits for the end of the turn
            self._settle(conversation_id, step, why, request)

    def drop(self, conversation_id: str) -> None:
        """Nothing more of this conversation is delivered here."""
        if (turn := self._turns.pop(conversation_id, None)) is not None:
            settled = SpeechSettled(conversation_id, turn.number, 0, "failed")
            self._tell(lambda listener: listener.speech_settled(settled))

    def _settle(self, conversation_id: str, step: Step, why: WhyUnsaid, request: int | None = None) -> None:
        """Settle what was written in the turn, or in answer to this request alone."""
        turn = self._turns[conversation_id].number
        if request is None:
            del self._turns[conversation_id]
        ended, state = step.ended, step.state
        if ended is not None and ended.turn == turn:
            deliveries = len(ended.deliveries)
            why = "cancelled" if ended.status == "cancelled" else why
        else:
            deliveries = len(state.turn.deliveries) if isinstance(state, InTurn) else 0
            why = "cancelled" if isinstance(state, Cancelling) else why
        settled = SpeechSettled(conversation_id, turn, deliveries, why, request)
        self._tell(lambda listener: listener.speech_settled(settled))

    def _tell(self, call: Callable[[SpeechListener], None]) -> None:
        for listener in self._listeners:
            try:
                call(listener)
            except BaseException:  # nothing here waits, so it is the channel's own, and must not end the event loop
                logger.warning("A channel failed at a speech that is being written.", exc_info=True)


def _may_deliver(state: State) -> bool:
    """Whether something that was said by tool in this turn may yet be delivered: it waits for the end of the turn, or a
    call that speaks has no result. `Pure.`"""
    if not isinstance(state, InTurn):
        return False
    if any(not one.now for one in state.turn.said):
        return True
    round_: Round | None = getattr(state, "round", None)
    calls = () if round_ is None else (one for one in round_.calls if one.call_id not in round_.settled)
    return any("speech" in one.acts for one in calls)


# --- by sentences


_CLOSING = "\u201d\u2019\u300d\u300f\uff09"
_END_OF_SENTENCE = re.compile(
    rf"""(?<!\b\w)(?<!\b\d\d) [.!?\u2026] ["'\u201d\u2019\xbb)\]*_`]{{0,4}} (?=\s)
    | [\u3002\uff01\uff1f] [{_CLOSING}]{{0,4}} (?=[^{_CLOSING}])
    | \n""",
    re.VERBOSE,
)
"""Behind an initial or the number of an item no sentence ends. What stands behind the end is looked at, so that a text
is divided alike in whatever pieces it comes."""

_LONGEST_END = 6

_FENCE = re.compile(r"[^\S\n]*(`{3,}|~{3,})")
"""The beginning of a block of code. Blank lines before it belong to none, as in a text of which they come first."""


class Sentences:
    """Divides a text that comes in pieces into sentences, each as soon as it is complete. A block of code is one."""

    def __init__(self) -> None:
        self._rest = ""
        self._searched = 0

    def add(self, piece: str) -> Iterator[str]:
        """Yield the sentences that this piece completes."""
        self._rest += piece
        while (end := self._end()) is not None:
            sentence, self._rest, self._searched = self._rest[:end], self._rest[end:], 0
            if sentence.strip():
                yield sentence
        line = self._rest.rfind("\n")  # a line stays only within a block of code, whose end is a whole one
        self._searched = line if line >= 0 else max(0, len(self._rest) - _LONGEST_END)

    def end(self) -> Iterator[str]:
        """Yield what has come behind the last sentence: nothing follows it."""
        rest, self._rest, self._searched = self._rest, "", 0
        if rest.strip():
            yield rest

    def _end(self) -> int | None:
        fence = _FENCE.match(self._rest)
        if fence is None:
            found = _END_OF_SENTENCE.search(self._rest, self._searched)
            return None if found is None else found.end()
        closing = re.compile(rf"\n[ \t]*{fence[1]}{fence[1][0]}*[ \t\r]*\n")
        found = closing.search(self._rest, max(fence.end(), self._searched))
        return None if found is None else found.end()


def sentences_of(text: str) -> list[str]:
    """The sentences of a whole text. `Pure.`"""
    sentences = Sentences()
    return [*sentences.add(text), *sentences.end()]


class EarlySentence(Protocol):
    """A sentence that was handed to a voice before it was delivered."""

    @property
    def text(self) -> str:
        """Its words."""
        ...


S = TypeVar("S", bound=EarlySentence)


@dataclass(eq=False)
class _Written(Generic[S]):
    """What one response says: its sentences that were not delivered yet, and how it was settled, if it was."""

    request: int
    reader: Sentences = field(default_factory=Sentences)
    sentences: list[S] = field(default_factory=list)
    settled: SpeechSettled | None = None


class WrittenTurn(Generic[S]):
    """The sentences of one turn that were handed to a voice before they were delivered, as far as they are
    not delivered.

    The end of a turn may be known before its deliveries arrive. So what is not said is known when both have come.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._written: list[_Written[S]] = []
        self._arrived = 0

    def write(self, piece: SpeechPiece, begin: Callable[[str], S]) -> None:
        """Begin the sentences that this piece completes."""
        newest = self._written[-1] if self._written else None
        if newest is None or newest.request != piece.request or newest.settled is not None:
            newest = _Written(piece.request)
            self._written.append(newest)
        complete = newest.reader.end() if piece.is_last else newest.reader.add(piece.text)
        newest.sentences += map(begin, complete)

    def deliver(self, delivery: Delivery) -> tuple[list[S], str]:
        """Return the sentences with which this delivery begins that were begun already, and the rest of its text."""
        self._arrived = max(self._arrived, delivery.ordinal)
        wanted = sentences_of(delivery.text)
        written, start, count = None, 0, 0
        for one in self._written:
            for place in range(len(one.sentences)):
                length = _common(one.sentences[place:], wanted)
                if length > count:
                    written, start, count = one, place, length
        if written is None:
            return [], delivery.text
        taken = written.sentences[start : start + count]
        del written.sentences[start : start + count]
        return taken, "".join(wanted[count:]).strip()

    def settle(self, settled: SpeechSettled) -> None:
        """What was written up to now, in answer to the request that is named if one is, is not said, unless it is among
        the deliveries."""
        for one in self._written:
            if settled.request in (None, one.request):
                one.settled = one.settled or settled

    def unsaid(self) -> Iterator[tuple[list[S], WhyUnsaid]]:
        """Yield the sentences that are not delivered any more, response by response, and why."""
        over = [one for one in self._written if one.settled is not None and self._arrived >= one.settled.deliveries]
        self._written = [one for one in self._written if one not in over]
        for one in over:
            assert one.settled is not None
            if one.sentences:
                yield one.sentences, one.settled.why


def _common(begun: Sequence[EarlySentence], wanted: Sequence[str]) -> int:
    """How many sentences are the same at the beginning, whatever spaces stand between their words. `Pure.`"""
    count = 0
    for one, sentence in zip(begun, wanted, strict=False):
        if one.text.split() != sentence.split():
            break
        count += 1
    return count


class RetractedSpeech(NamedTuple):
    """Words that were spoken while the model wrote them, and that are not said after all: `heard`, the sentences that
    were spoken, the last one perhaps not to its end.

    `why` says what has become of their response: it `failed` and may be written again, the turn was `cancelled`, or
    they stayed `unsaid`: the call was refused or not valid, its tool failed, or a later speech took its place.
    """

    conversation_id: str
    turn: int
    heard: str
    why: WhyUnsaid
