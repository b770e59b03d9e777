"""Generated parts of states that concern rounds of calls: calls that run, wait, have ended or are in doubt."""

from __future__ import annotations

from ...states.states import Book
from ...states.values.messages import Heard
from ...states.values.round import Child, Round, RoundCall, Running, Share
from ...states.values.turn import EndedStatus
from .calls import numbered
from .chance import Chance
from .extremes import EXTREME, STATUSES
from .values import INSTANTS

RECONCILING, CHILD = 7, 12
"""Where the ids begin of effects that ask about a call, and of sub-agents; the tools that run come before them."""

FIRST = 0
"""The effect as which a call was first started that has asked a person since."""


def round_of(chance: Chance, book: Book, *, running: int, doubtful: int = 0) -> Round:
    """A round under way: at least so many calls run and are in doubt, some have ended, some wait."""
    size = max(chance.pick((1, 2, 2, 3, 3, 5)), running + doubtful)
    calls = numbered(EXTREME.tool(chance) for _ in range(size))
    asked = tuple(RoundCall.of(call, 2 + chance.below(book.seq - 2)) for call in calls)
    left = chance.shuffled(asked)
    run = _take(chance, left, running, len(left) - doubtful) if running else []
    doubt = _take(chance, left, doubtful, len(left)) if doubtful else []
    settled = _take(chance, left, 0, len(left))
    allowed = [call for call in left if call.approval and chance.often()]
    return Round(
        calls=asked,
        running=tuple(_running(chance, call, number) for number, call in enumerate(run, start=1)),
        settled=tuple(call.call_id for call in settled),
        allowed=tuple(call.call_id for call in (*run, *doubt, *settled, *allowed) if call.approval),
        doubtful=tuple(call.call_id for call in doubt),
        claim=chance.pick((None, None, Heard(seq=3, index=1))),
        failed=chance.often(),
    )


def _take(chance: Chance, calls: list[RoundCall], least: int, most: int) -> list[RoundCall]:
    """Take some of these calls away, from the front."""
    count = chance.number(least, most)
    taken = calls[:count]
    del calls[:count]
    return taken


def _running(chance: Chance, call: RoundCall, number: int) -> Running:
    is_reconciled = call.crash == "reconcile" and chance.often()
    has_asked = call.exclusive and chance.often()
    return Running(
        effect_id=number,
        call_id=call.call_id,
        reconciling=RECONCILING + number if is_reconciled else None,
        started_as=FIRST if has_asked else None,
        asked=has_asked,
    )


def with_children(chance: Chance, book: Book) -> tuple[Round, RoundCall]:
    """A round whose sub-agents work, and the call that started them."""
    idle = with_a_queue(round_of(chance, book, running=0))
    call = chance.pick(idle.queued).model_copy(update={"exclusive": True, "acts": ("children",)})
    begun = with_call(idle, call)
    return begun.spawn(call.call_id, _children(chance, call)), call


def with_a_queue(round_: Round) -> Round:
    """This round, in which at least one call waits; none may run. `Pure.`"""
    return round_ if round_.queued else round_.model_copy(update={"settled": ()})


def with_call(round_: Round, call: RoundCall) -> Round:
    """This round with the call in the place of the one of its id. `Pure.`"""
    calls = tuple(call if one.call_id == call.call_id else one for one in round_.calls)
    return round_.model_copy(update={"calls": calls})


def with_a_waiting_call(round_: Round, call: RoundCall) -> Round:
    """This round, in which the queued call has asked a person, and waits. `Pure.`"""
    return with_call(round_, call.model_copy(update={"exclusive": True})).start(call, 1).suspend(call.call_id)


def _children(chance: Chance, call: RoundCall) -> tuple[Child, ...]:
    """The sub-agents of this call: one to three, of which the first still works."""
    statuses: list[EndedStatus | str] = ["", *(chance.pick(("", *STATUSES)) for _ in range(chance.below(3)))]
    return tuple(
        Child(
            effect_id=CHILD + number,
            call_id=call.call_id,
            task=Heard(seq=call.seq + 1, index=number + 1),
            status=status,
            outcome=Heard(seq=call.seq + 2 + number) if status else None,
            profile=chance.pick(("", "", "one")),
            tools=chance.pick((None, None, ("look",))),
            share=chance.pick((None, Share(requests=20), Share(requests=1, tokens=50, cost=0.5, seconds=9.0))),
            due=chance.pick((None, None, *INSTANTS)),
            seconds=chance.pick((None, 60.0)),
        )
        for number, status in enumerate(statuses)
    )
