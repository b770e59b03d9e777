"""A step in the making.

Handlers write on a draft: which results came, which effects are wanted, whether the turn ended. It lives for one call
of `transition` and never leaves it, so the machine stays pure while its handlers stay short: the state and the event
that a draft begins with are only read.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Generic, Literal, TypeVar

from .effects import Effect, PersistMessage, PersistToolResults, SettledCall, StartTimer
from .inbox import Waiting
from .messages import Heard, Made, Said, Usage
from .round import Round
from .states import Book, Busy, State, Timer
from .turn import Failure, TurnEnded, TurnRecord, TurnStatus

S = TypeVar("S", bound=State)
B = TypeVar("B", bound=Busy)


class Draft(Generic[S]):
    """What one transition out of a state of type `S` has decided so far."""

    __slots__ = (
        "_acting",
        "_next_effect",
        "_persisting",
        "_round",
        "_turn",
        "closing",
        "ended",
        "inbox",
        "seq",
        "state",
        "turns",
        "window_used",
        "withdrawn",
    )

    def __init__(self, state: S) -> None:
        book = state.book
        self.state = state
        self.seq = book.seq + 1
        self.turns = book.turn
        self.window_used = book.window_used
        self.closing: bool = getattr(state, "closing", False)
        self.ended: TurnEnded | None = None
        self.inbox: tuple[Waiting, ...] = getattr(state, "inbox", ())
        self.withdrawn: tuple[str, ...] = ()
        self._turn: TurnRecord | None = state.turn if isinstance(state, Busy) else None
        self._round: Round | None = getattr(state, "round", None)
        self._next_effect = book.next_effect
        self._persisting: list[Effect] = []
        self._acting: list[Effect] = []

    # --- the turn

    @property
    def turn(self) -> TurnRecord:
        """The turn under way."""
        assert self._turn is not None, "a row outside a turn led to a handler that needs one"
        return self._turn

    def open_turn(self, at: datetime) -> None:
        """Begin the next turn, with fresh counters."""
        self.turns += 1
        self._turn = TurnRecord(number=self.turns, since=at)

    def change_turn(self, **changes: object) -> None:
        """Go on with these fields of the turn's record changed."""
        self._turn = self.turn.model_copy(update=changes)

    def count_anew(self, at: datetime) -> None:
        """A person spoke: the limits of the turn are counted from here."""
        self.change_turn(since=at, requests=0, tool_calls=0, spent=Usage())

    def end_turn(
        self,
        status: TurnStatus,
        final_content: Said | None = None,
        *,
        truncated: bool = False,
        failure: Failure | None = None,
    ) -> None:
        """The turn is over, and this is what it came to."""
        self.ended = TurnEnded(
            turn=self.turn.number,
            status=status,
            final_content=final_content,
            truncated=truncated,
            usage=self.turn.usage,
            failure=failure,
        )

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

    def settle(self, call_id: str, said: Said, *, error: bool = False) -> None:
        """A call gets its result, and the round is done with it. Results of one step enter together."""
        result = SettledCall(call_id=call_id, said=said, error=error)
        last = self._persisting[-1] if self._persisting else None
        if isinstance(last, PersistToolResults):
            self._persisting[-1] = PersistToolResults(results=(*last.results, result))
        else:
            self._persisting.append(PersistToolResults(results=(result,)))
        self._round = self.open_round.settle(call_id)

    def settle_unrun(self, text: str) -> None:
        """Every call that has not started gets this text as an error result."""
        for call in self.open_round.queued:
            self.settle(call.call_id, Made(text=text), error=True)

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
        return Book(seq=self.seq, turn=self.turns, next_effect=self._next_effect, window_used=self.window_used)

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Everything wanted: first what enters the transcript, then what is done."""
        return (*self._persisting, *self._acting)

    def within_turn(self, kind: type[B], **fields: object) -> B:
        """A state of this kind, within the turn under way."""
        return kind(book=self.book, turn=self.turn, inbox=self.inbox, **fields)  # type: ignore[arg-type]

    def same(self, **changes: object) -> S:
        """The state as it was, one step later, with these fields changed."""
        return self.state.model_copy(update={"book": self.book, **changes})
