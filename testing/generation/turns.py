"""Generated parts of states that concern turns: the counters, a turn under way, its inbox, its ending."""

from __future__ import annotations

from typing import Any

from ...states.states import Book, Timer
from ...states.values.messages import Heard, Made
from ...states.values.round import fingerprint
from ...states.values.turn import Delivered, Failure, Owed, Spoken, TurnEnded, TurnRecord, Waiting
from .chance import Chance
from .values import FAILURE_KINDS, INSTANTS, USAGES
from .vocabulary import TOOLS

Fields = dict[str, Any]

TIMER = 19
"""The id of the effect that runs the timer of a generated state."""

NEXT_EFFECT = 20
"""The id that the next effect of a generated state gets."""

_SEEN = tuple(fingerprint(call) for call in TOOLS)


def book(chance: Chance) -> Book:
    """The counters of a conversation that has had some turns."""
    used = chance.pick((0, 1, 90, 100, 5_000))
    return Book(
        seq=5 + chance.below(40),
        turn=1 + chance.below(9),
        next_effect=NEXT_EFFECT,
        window_used=used,
        wake=chance.pick((None, *INSTANTS)),
        profile=chance.pick(("", "", "one", "two", "unknown")),
        owed=(Owed(said=Heard(seq=1), since=chance.pick(INSTANTS), origin="agent"),) if chance.rarely(4) else (),
    )


def timer(chance: Chance) -> Timer:
    """A timer that runs."""
    return Timer(effect_id=TIMER, due=chance.pick(INSTANTS))


def inbox(chance: Chance, book: Book) -> tuple[Waiting, ...]:
    """Messages that wait, most often none."""
    size = chance.pick((0, 0, 0, 1, 2, 3))
    return tuple(_waiting(chance, n, book.seq - size + 1 + n) for n in range(size))


def _waiting(chance: Chance, number: int, seq: int) -> Waiting:
    event_id = f"request-{number}"
    match chance.below(7):
        case 0 | 1:
            return Waiting(event_id=event_id, seq=seq)
        case 2:
            return Waiting(event_id=event_id, seq=seq, steer=True)
        case 3:
            return Waiting(event_id=event_id, seq=seq, audience="user", origin="agent")
        case 4:
            return Waiting(event_id=event_id, seq=seq, audience="agent", silent=True, origin="agent")
        case 5:
            return Waiting(event_id=event_id, seq=seq, audience="agent", scheduled=True)
        case _:
            return Waiting(event_id=event_id, seq=seq, audience="user", silent=True)


def turn(chance: Chance, book: Book) -> TurnRecord:
    """A turn under way: what it has used up, what was tried in it, what was said."""
    spent = chance.pick(USAGES)
    return TurnRecord(
        number=book.turn,
        since=chance.pick(INSTANTS),
        model=chance.pick((0, 0, 1, 2)),
        requests=chance.pick((1, 2, 3, 8, 9, 50)),
        tool_calls=chance.below(5),
        spent=spent,
        usage=spent + chance.pick(USAGES),
        profile=chance.pick(("", "one", "two")),
        memory=chance.pick((None, None, Heard(seq=2))),
        **_attempts(chance),
        **_said(chance),
    )


def _attempts(chance: Chance) -> Fields:
    names = ("plain", "only_thought", "worked", "fell_back", "condensed", "asked_to_speak")
    return {
        **dict(zip(names, chance.flags(len(names)), strict=True)),
        "nudge": chance.pick((None, Made(text="Go on"))),
        "nudges": chance.below(3),
        "empties": chance.below(3),
        "plain_retries": chance.below(3),
        "rejections": chance.below(3),
        "rejection": chance.pick((None, Heard(seq=3))),
        "earlier_calls": chance.pick(((), (_SEEN,), ((), _SEEN[:1]))),
    }


def _said(chance: Chance) -> Fields:
    flags = chance.flags(7)
    said = tuple(Spoken(said=Heard(seq=3, index=n + 1), place=(2, 0, n), now=now) for n, now in enumerate(flags[:2]))
    delivered = tuple(Delivered(effect_id=1, said=one.said) for one in said if one.now)
    return {
        "said": said if flags[2] else (),
        "deliveries": delivered if flags[2] else (),
        "relay": (Heard(seq=1),) if flags[3] and flags[4] else (),
        "overdue": (Heard(seq=1),) if flags[3] and flags[4] and flags[5] else (),
        "internal": flags[5],
        "speaks": flags[6],
        "final": chance.pick((None, Heard(seq=4))),
        "claim": chance.pick((None, None, Heard(seq=3, index=1))),
    }


def ending(chance: Chance, book: Book) -> TurnEnded:
    """How a turn ended that is summarized."""
    failure = Failure(kind=chance.pick(FAILURE_KINDS), sentence=chance.text()) if chance.rarely() else None
    return TurnEnded(
        turn=book.turn,
        status="completed",
        final_content=chance.pick((Heard(seq=4), Made(text="Done"), None)),
        truncated=chance.often(),
        failure=failure,
        limit=chance.pick((None, None, "requests", "cost")),
    )
