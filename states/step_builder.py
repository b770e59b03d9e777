"""A step that is being built.

Guards read the builder, and handlers write to it: results, effects, the end of the turn. A builder lives for one call
of `transition` and never leaves it, so the machine is pure although its handlers are short; the state and the event
that the builder begins with are only read.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from .effects import (
    ClearResults,
    DeliverToUser,
    Effect,
    NoteHeard,
    PersistMessage,
    PersistToolResults,
    SettledCall,
    StartTimer,
    SwitchBranch,
    WithholdContent,
)
from .events import BRANCHING, Event, LlmFailed, LlmStopped, Report, UserCancel, UserMessage
from .states import Book, InTurn, State, Timer
from .values.messages import Heard, Made, Said, Usage
from .values.round import Round, RoundCall
from .values.turn import BranchPoint, Delivered, EndedStatus, Failure, Owed, TurnEnded, TurnRecord, Waiting, first_batch
from .values.value import FailureKind, Instant

S_co = TypeVar("S_co", bound=State, covariant=True)
T = TypeVar("T", bound=InTurn)


UNFINISHED = (LlmFailed, LlmStopped, UserCancel, *BRANCHING)
"""The events that end an answer before it is complete. What it took is counted before anything else is decided."""


class StepBuilder(Generic[S_co]):
    """What one transition out of a state of type `S` has decided so far."""

    __slots__ = (
        "_acting",
        "_first_text",
        "_next_effect",
        "_persisting",
        "branch",
        "clearable",
        "closing",
        "ended",
        "ending",
        "failure",
        "goes_to",
        "inbox",
        "owed",
        "profile",
        "resumes",
        "round",
        "seq",
        "state",
        "turn",
        "turns",
        "wake",
        "window_used",
        "withdrawn",
    )

    window_used: int
    clearable: int

    def __init__(self, state: S_co, event: Event) -> None:
        fields, book = vars(state), state.book
        self.state: S_co = state
        self.seq: int = book.seq + 1
        self.turns: int = book.turn
        self.window_used, self.clearable = book.window_used, book.clearable
        self.branch: int = book.branch
        self.wake: Instant | None = book.wake
        self.profile: str = book.profile
        self.owed: tuple[Owed, ...] = book.owed
        self.closing: bool = fields.get("closing", False)
        self.goes_to: BranchPoint | None = fields.get("goes_to")
        self.ending: TurnEnded | None = None
        self.ended: TurnEnded | None = None
        self.failure: Failure | None = None
        self.inbox: tuple[Waiting, ...] = fields.get("inbox", ())
        resumes: int = fields.get("resumes", 0)
        self.resumes: int = resumes if resumes and isinstance(event, Report) else 0
        self.withdrawn: tuple[str, ...] = ()
        if type(turn := fields.get("turn")) is TurnRecord:
            self.turn: TurnRecord = turn
            """The turn under way. Without one, a read of this raises AttributeError."""
            if type(event) in UNFINISHED:
                self.spend(event.usage)  # type: ignore[attr-defined]
        if (round_ := fields.get("round")) is not None:
            self.round: Round = round_
            """The round under way. Between rounds, a read of this raises AttributeError."""
        self._first_text: Heard | None = None
        self._next_effect = book.next_effect
        self._persisting: list[Effect] = []
        self._acting: list[Effect] = []

    # --- the turn

    def begin_turn(self, at: datetime, profile: str) -> None:
        """Begin the next turn, with fresh counters."""
        self.turns += 1
        self.turn = TurnRecord(number=self.turns, since=at, profile=profile)

    @property
    def in_turn(self) -> bool:
        """Whether a turn is under way."""
        return hasattr(self, "turn")

    @property
    def is_handed_over(self) -> bool:
        """Whether the turn goes on under another profile from its next model request on."""
        return bool(self.profile) and self.profile != self.turn.profile

    def take_over_profile(self) -> None:
        """Let the turn go on under the profile that the conversation was handed to, with its first model."""
        if self.is_handed_over:
            self.change_turn(profile=self.profile, model=0)

    def change_turn(self, /, **changes: object) -> None:
        """Change these fields of the turn's record."""
        self.turn = self.turn.replace(**changes)

    def reset_limits(self, at: datetime) -> None:
        """Count the limits of the turn from here, because a person acted."""
        self.change_turn(since=at, requests=0, tool_calls=0, spent=Usage())

    def spend(self, usage: Usage) -> None:
        """Add the cost of something that was done for the turn."""
        if usage.is_anything:
            spent, in_all = self.turn.spent, self.turn.usage
            total = spent + usage
            # Both are the same until a person acts in the turn, and a sum takes several times as long as a comparison.
            self.change_turn(spent=total, usage=total if in_all == spent else in_all + usage)

    def set_nudge(self, nudge: Made) -> None:
        """Remind the model of this in the next request."""
        self.change_turn(nudge=nudge)

    def fail(self, kind: FailureKind, sentence: str) -> None:
        """Note why the turn cannot continue."""
        self.failure = Failure(kind=kind, sentence=sentence)

    def conclude(
        self,
        status: EndedStatus,
        final_content: Said | None = None,
        *,
        failure: Failure | None = None,
        output: Heard | None = None,
    ) -> None:
        """Note how the turn ends. What is delivered at its end is decided later."""
        turn = self.turn
        self.ending = TurnEnded(
            turn=turn.number,
            status=status,
            final_content=final_content,
            truncated=turn.cut_off and status in ("completed", "incomplete"),
            failure=failure,
            limit=turn.limit,
            output=output,
        )

    def show_summary(self, said: Said) -> None:
        """Display this text for the turn that was left, in place of the text with which it ended."""
        assert self.ended is not None, "only a turn that was left has a summary"
        self.ended = self.ended.replace(final_content=said)

    def deliver(self, said: Said, *, relayed: bool = False) -> None:
        """Deliver this text to the user."""
        turn, effect_id = self.turn, self.next_id()
        deliveries = turn.deliveries
        ordinal = len(deliveries) + 1
        self.add_effect(
            DeliverToUser(effect_id=effect_id, said=said, turn=turn.number, ordinal=ordinal, relayed=relayed)
        )
        self.change_turn(deliveries=(*deliveries, Delivered(effect_id=effect_id, said=said, relayed=relayed)))

    # --- the round

    def begin_round(self, calls: Iterable[RoundCall]) -> None:
        """Begin a round of these calls."""
        self.round = Round(calls=tuple(calls))

    @property
    def in_round(self) -> bool:
        """Whether a round of tool calls is under way."""
        return hasattr(self, "round")

    def end_round(self) -> None:
        """Leave the round: it is done with every call."""
        del self.round

    # --- what is said

    def heard(self, index: int = 0) -> Heard:
        """A reference to the `index`-th text of the event."""
        if index:
            return Heard(seq=self.seq, index=index)
        if self._first_text is None:  # most handlers refer to the first text several times
            self._first_text = Heard(seq=self.seq)
        return self._first_text

    def persist(self, said: Said) -> None:
        """Let a message enter the transcript."""
        self._persisting.append(PersistMessage(said=said))

    def enter_transcript(self, waiting: Iterable[Waiting]) -> None:
        """Move these messages from the inbox to the transcript, in the order in which they came."""
        entering = tuple(waiting)
        if not entering:
            return
        for message in entering:
            self.persist(Heard(seq=message.seq))
        self.inbox = tuple(message for message in self.inbox if message not in entering)

    @property
    def has_wake_up(self) -> bool:
        """Whether a wake-up waits in the inbox."""
        return any(waiting.scheduled for waiting in self.inbox)

    def withdraw_inbox(self) -> None:
        """Empty the inbox: its messages will never be answered."""
        self.withdrawn = tuple(message.event_id for message in self.inbox)
        self.inbox = ()

    def take_batch(self) -> tuple[Waiting, ...]:
        """Move the messages that begin the next turn from the inbox to the transcript, and return them."""
        batch = first_batch(self.inbox)
        self.enter_transcript(batch)
        return batch

    def settle(self, call_id: str, said: Said, *, error: bool = False) -> None:
        """Give a call its result; the round is then done with it. The results of one step enter the transcript
        together."""
        result = SettledCall(call_id=call_id, said=said, error=error)
        last = self._persisting[-1] if self._persisting else None
        if type(last) is PersistToolResults:
            self._persisting[-1] = PersistToolResults(results=(*last.results, result))
        else:
            self._persisting.append(PersistToolResults(results=(result,)))
        self.round = self.round.settle(call_id, failed=error)

    def withhold(self, content: WithholdContent) -> None:
        """Let models be shown a note in place of this."""
        self._persisting.append(content)

    def clear_results(self, rounds: int) -> None:
        """Let models be shown a note in place of the results of tools that are older than so many rounds, so that the
        window has more room."""
        self._persisting.append(ClearResults(rounds=rounds))
        self.window_used, self.clearable = max(0, self.window_used - self.clearable), 0

    def switch_branch(self, to: BranchPoint) -> None:
        """Let the transcript be that of another branch from here on."""
        self._persisting.append(SwitchBranch(to=to, turns=self.turns))
        self.branch, self.window_used, self.clearable = self.seq, to.window_used, to.clearable

    def note_heard(self, event: UserCancel | UserMessage) -> None:
        """Note what the user has heard of the newest turn, if the event tells."""
        if event.heard is not None and self.turns:
            place = len(event.texts) - 1
            self._persisting.append(NoteHeard(turn=self.turns, said=self.heard(place)))

    def refuse_calls(self, calls: Iterable[RoundCall], text: str) -> None:
        """Give these calls this text as an error result."""
        for call in calls:
            self.settle(call.call_id, Made(text=text), error=True)

    def settle_queued(self, text: str) -> None:
        """Give every call that has not started this text as an error result."""
        self.refuse_calls(self.round.queued, text)

    # --- what is done

    def next_id(self) -> int:
        """Take the next effect id."""
        effect_id = self._next_effect
        self._next_effect += 1
        return effect_id

    def add_effect(self, effect: Effect) -> None:
        """Add an effect that is carried out after the commit."""
        self._acting.append(effect)

    def start_timer(self, due: datetime, wakes: Literal["retry_due", "deadline_reached"]) -> Timer:
        """Start a timer."""
        timer = Timer(effect_id=self.next_id(), due=due)
        self.add_effect(StartTimer(effect_id=timer.effect_id, due=timer.due, wakes=wakes))
        return timer

    # --- the outcome

    @property
    def book(self) -> Book:
        """The book of the next state. Read it last: an effect that is added afterwards would not be counted."""
        return Book(
            seq=self.seq,
            turn=self.turns,
            next_effect=self._next_effect,
            window_used=self.window_used,
            clearable=self.clearable,
            branch=self.branch,
            wake=self.wake,
            profile=self.profile,
            owed=self.owed,
        )

    @property
    def effects(self) -> tuple[Effect, ...]:
        """All effects: first those that enter the transcript, then the others."""
        return tuple(self._persisting + self._acting)

    def within_turn(self, kind: type[T], /, **fields: Any) -> T:
        """Create a state of this type, within the turn under way."""
        return kind(book=self.book, turn=self.turn, inbox=self.inbox, resumes=self.resumes, **fields)

    def same(self, /, **changes: object) -> S_co:
        """The state as it was, one step later, with these fields changed."""
        return self.state.replace(book=self.book, **changes)
