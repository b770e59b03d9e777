"""A step in the making.

Handlers write on a draft: which results came, which effects are wanted, whether the turn ended. It lives for one call
of `transition` and never leaves it, so the machine stays pure while its handlers stay short: the state and the event
that a draft begins with are only read.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Generic, Literal, TypeVar

from .effects import DeliverToUser, Effect, PersistMessage, PersistToolResults, SettledCall, StartTimer
from .events import Event, Report
from .state import Book, InTurn, State, Timer
from .values.failures import FailureKind
from .values.inbox import Waiting, first_batch
from .values.messages import Heard, Made, Said, Usage
from .values.round import Round, RoundCall
from .values.turn import Delivered, Failure, TurnEnded, TurnRecord, TurnStatus

S_co = TypeVar("S_co", bound=State, covariant=True)
T = TypeVar("T", bound=InTurn)


class StepBuilder(Generic[S_co]):
    """What one transition out of a state of type `S` has decided so far."""

    __slots__ = (
        "_acting",
        "_next_effect",
        "_persisting",
        "_round",
        "_turn",
        "closing",
        "ended",
        "ending",
        "failure",
        "inbox",
        "resumes",
        "seq",
        "state",
        "turns",
        "window_used",
        "withdrawn",
    )

    def __init__(self, state: S_co, event: Event) -> None:
        book, fields = state.book, state.__dict__
        self.state = state
        self.seq = book.seq + 1
        self.turns = book.turn
        self.window_used = book.window_used
        self.closing: bool = fields.get("closing", False)
        self.ending: TurnEnded | None = None
        self.ended: TurnEnded | None = None
        self.failure: Failure | None = None
        self.inbox: tuple[Waiting, ...] = fields.get("inbox", ())
        resumes: int = fields.get("resumes", 0)
        self.resumes = resumes if resumes and isinstance(event, Report) else 0
        self.withdrawn: tuple[str, ...] = ()
        turn = fields.get("turn")
        self._turn: TurnRecord | None = turn if type(turn) is TurnRecord else None
        self._round: Round | None = fields.get("round")
        self._next_effect = book.next_effect
        self._persisting: list[Effect] = []
        self._acting: list[Effect] = []

    # --- the turn

    @property
    def in_turn(self) -> bool:
        """Whether a turn is under way."""
        return self._turn is not None

    @property
    def turn(self) -> TurnRecord:
        """The turn under way."""
        assert self._turn is not None, "a row outside a turn led to a handler that needs one"
        return self._turn

    def open_turn(self, at: datetime, profile: str) -> None:
        """Begin the next turn, with fresh counters."""
        self.turns += 1
        self._turn = TurnRecord(number=self.turns, since=at, profile=profile)

    def change_turn(self, **changes: object) -> None:
        """Go on with these fields of the turn's record changed."""
        self._turn = self.turn.replace(**changes)

    def count_anew(self, at: datetime) -> None:
        """A person spoke: the limits of the turn are counted from here."""
        self.change_turn(since=at, requests=0, tool_calls=0, spent=Usage())

    def spend(self, usage: Usage) -> None:
        """Something done for the turn cost this."""
        if usage.is_anything:
            self.change_turn(spent=self.turn.spent + usage, usage=self.turn.usage + usage)

    def tell(self, nudge: Made) -> None:
        """The next request is told this in passing."""
        self.change_turn(nudge=nudge)

    def fail(self, kind: FailureKind, sentence: str) -> None:
        """The turn cannot go on, and this is why."""
        self.failure = Failure(kind=kind, sentence=sentence)

    def conclude(
        self,
        status: TurnStatus,
        final_content: Said | None = None,
        *,
        failure: Failure | None = None,
    ) -> None:
        """The turn comes to its end with this; what is delivered of it is still to be settled."""
        self.ending = TurnEnded(
            turn=self.turn.number,
            status=status,
            final_content=final_content,
            truncated=self.turn.cut_off and status in ("completed", "incomplete"),
            failure=failure,
        )

    def show(self, said: Said) -> None:
        """This is shown of the turn that was left, in place of what it ended with."""
        assert self.ended is not None, "only a turn that was left is shown"
        self.ended = self.ended.replace(final_content=said)

    def deliver(self, said: Said, *, relayed: bool = False) -> None:
        """The user receives this."""
        deliveries, effect_id = self.turn.deliveries, self.next_id()
        self.act(
            DeliverToUser(
                effect_id=effect_id,
                said=said,
                turn=self.turn.number,
                ordinal=len(deliveries) + 1,
                relayed=relayed,
            )
        )
        self.change_turn(deliveries=(*deliveries, Delivered(effect_id=effect_id, said=said, relayed=relayed)))

    # --- the round

    @property
    def round(self) -> Round | None:
        """The round under way, or None between rounds."""
        return self._round

    @property
    def open_round(self) -> Round:
        """The round under way, where there must be one."""
        assert self._round is not None, "a row outside a round led to a handler that needs one"
        return self._round

    def set_round(self, round_: Round | None) -> None:
        """Go on with this round, or with none."""
        self._round = round_

    # --- what is said

    def heard(self, index: int = 0) -> Heard:
        """The `index`-th text of the event being handled."""
        return Heard(seq=self.seq, index=index)

    def say(self, said: Said) -> None:
        """A message enters the transcript."""
        self._persisting.append(PersistMessage(said=said))

    def let_in(self, waiting: Iterable[Waiting]) -> None:
        """These messages leave the inbox and enter the transcript, in the order in which they came."""
        entering = tuple(waiting)
        for message in entering:
            self.say(Heard(seq=message.seq))
        self.inbox = tuple(message for message in self.inbox if message not in entering)

    def withdraw_all(self) -> None:
        """What waits will never be answered."""
        self.withdrawn = tuple(message.event_id for message in self.inbox)
        self.inbox = ()

    def take_batch(self) -> tuple[Waiting, ...]:
        """The messages that begin the next turn leave the inbox and enter the transcript."""
        batch = first_batch(self.inbox)
        self.let_in(batch)
        return batch

    def settle(self, call_id: str, said: Said, *, error: bool = False) -> None:
        """A call gets its result, and the round is done with it. Results of one step enter together."""
        result = SettledCall(call_id=call_id, said=said, error=error)
        last = self._persisting[-1] if self._persisting else None
        if type(last) is PersistToolResults:
            self._persisting[-1] = PersistToolResults(results=(*last.results, result))
        else:
            self._persisting.append(PersistToolResults(results=(result,)))
        self._round = self.open_round.settle(call_id, failed=error)

    def refuse_calls(self, calls: Iterable[RoundCall], text: str) -> None:
        """These calls get this text as an error result."""
        for call in calls:
            self.settle(call.call_id, Made(text=text), error=True)

    def settle_unrun(self, text: str) -> None:
        """Every call that has not started gets this text as an error result."""
        self.refuse_calls(self.open_round.queued, text)

    # --- what is done

    def next_id(self) -> int:
        """An id for an awaited effect."""
        effect_id = self._next_effect
        self._next_effect += 1
        return effect_id

    def act(self, effect: Effect) -> None:
        """Something is to be done after the commit."""
        self._acting.append(effect)

    def arm(self, due: datetime, wakes: Literal["retry_due", "deadline_reached"]) -> Timer:
        """Start a timer."""
        timer = Timer(effect_id=self.next_id(), due=due)
        self.act(StartTimer(effect_id=timer.effect_id, due=timer.due, wakes=wakes))
        return timer

    # --- the outcome

    @property
    def book(self) -> Book:
        """The book of the state to rest in. Read it last: an effect added afterwards would not be counted."""
        return self.state.book.replace(
            seq=self.seq, turn=self.turns, next_effect=self._next_effect, window_used=self.window_used
        )

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Everything wanted: first what enters the transcript, then what is done."""
        return (*self._persisting, *self._acting)

    def within_turn(self, kind: type[T], **fields: object) -> T:
        """A state of this kind, within the turn under way."""
        common = {"book": self.book, "turn": self.turn, "inbox": self.inbox, "resumes": self.resumes}
        return kind(**common, **fields)  # type: ignore[arg-type]

    def same(self, **changes: object) -> S_co:
        """The state as it was, one step later, with these fields changed."""
        return self.state.replace(book=self.book, **changes)
