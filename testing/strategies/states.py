"""Made-up states, made directly and not by a conversation: most are found by no trace.

Each is consistent in itself: ids of effects differ and were given out before, what runs has no result yet, a claim is
there where one is checked, and a busy state has something to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from hypothesis.strategies import SearchStrategy

from ...states.states import (
    STATES,
    AwaitingApproval,
    AwaitingSubAgents,
    AwaitingUserResponse,
    Book,
    Cancelling,
    Closed,
    Compacting,
    Failed,
    Idle,
    InDoubt,
    LlmRequesting,
    MemoryRecalling,
    ProfileSelecting,
    RetryWaiting,
    State,
    Summarizing,
    Timer,
    ToolExecuting,
    Verifying,
)
from ...states.values.inbox import Waiting
from ...states.values.messages import Heard, Made
from ...states.values.repeats import fingerprint
from ...states.values.round import Child, Round, RoundCall, Running
from ...states.values.turn import Delivered, Failure, Spoken, TurnEnded, TurnRecord
from .calls import _TOOLS, question_set, some_calls
from .chance import Chance, by_chance
from .events import STATUSES
from .values import INSTANTS, KINDS, USAGES

Fields = dict[str, Any]

TIMER = 19
"""The id of the effect that runs the timer of a made-up state; `_ASKED` and `_CHILD` are where others begin."""
_ASKED, _CHILD, _NEXT = 7, 12, 20

_SEEN = tuple(fingerprint(call) for call in _TOOLS)


# --- what states consist of


def book(chance: Chance) -> Book:
    """A book of a conversation that is not quite new."""
    used = chance.pick((0, 1, 90, 100, 5_000))
    return Book(seq=5 + chance.below(40), turn=1 + chance.below(9), next_effect=_NEXT, window_used=used)


def timer(chance: Chance) -> Timer:
    """A timer that runs."""
    return Timer(effect_id=TIMER, due=chance.pick(INSTANTS))


def inbox(chance: Chance, book: Book) -> tuple[Waiting, ...]:
    """Messages that wait: mostly none."""
    size = chance.pick((0, 0, 0, 1, 2, 3))
    return tuple(_waiting(chance, n, book.seq - size + 1 + n) for n in range(size))


def _waiting(chance: Chance, number: int, seq: int) -> Waiting:
    event_id = f"request-{number}"
    match chance.below(6):
        case 0 | 1:
            return Waiting(event_id=event_id, seq=seq)
        case 2:
            return Waiting(event_id=event_id, seq=seq, steer=True)
        case 3:
            return Waiting(event_id=event_id, seq=seq, audience="user")
        case 4:
            return Waiting(event_id=event_id, seq=seq, audience="agent", silent=True)
        case _:
            return Waiting(event_id=event_id, seq=seq, audience="user", silent=True)


def turn(chance: Chance, book: Book) -> TurnRecord:
    """A turn in the middle: what it has used up, what was tried in it, what was said."""
    spent = chance.pick(USAGES)
    return TurnRecord(
        number=book.turn,
        since=chance.pick(INSTANTS),
        model=chance.pick((0, 0, 1, 2)),
        requests=chance.pick((1, 2, 3, 8, 9, 50)),
        tool_calls=chance.below(5),
        spent=spent,
        usage=spent + chance.pick(USAGES),
        profile=chance.pick(("", "profile-0", "profile-1")),
        memory=chance.pick((None, None, Heard(seq=2))),
        **_tried(chance),
        **_done(chance),
    )


def _tried(chance: Chance) -> Fields:
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


def _done(chance: Chance) -> Fields:
    flags = chance.flags(5)
    said = tuple(Spoken(said=Heard(seq=3, index=n + 1), place=(2, 0, n), now=now) for n, now in enumerate(flags[:2]))
    delivered = tuple(Delivered(effect_id=1, said=one.said) for one in said if one.now)
    return {
        "said": said if flags[2] else (),
        "deliveries": delivered if flags[2] else (),
        "relay": (Heard(seq=1),) if flags[3] and flags[4] else (),
        "final": chance.pick((None, Heard(seq=4))),
        "claim": chance.pick((None, None, Heard(seq=3, index=1))),
    }


def ending(chance: Chance, book: Book) -> TurnEnded:
    """How a turn ended that is summarized."""
    failure = Failure(kind=chance.pick(KINDS), sentence=chance.text()) if chance.rarely() else None
    return TurnEnded(
        turn=book.turn,
        status="completed",
        final_content=chance.pick((Heard(seq=4), Made(text="Done"), None)),
        truncated=chance.often(),
        failure=failure,
    )


def round_of(chance: Chance, book: Book, *, running: int, doubtful: int = 0) -> Round:
    """A round in the middle: at least so many calls run and are in doubt, some have ended, some wait."""
    calls = some_calls(chance, (1, 2, 2, 3, 3, 5)) or some_calls(chance, (5,))
    while len(calls) < running + doubtful:
        calls = some_calls(chance, (3, 5))
    asked = tuple(RoundCall.of(call, 2 + chance.below(book.seq - 2)) for call in calls)
    order = chance.shuffled(asked)
    run = _split(chance, order, running, len(order) - doubtful) if running else []
    doubt = _split(chance, order, doubtful, len(order)) if doubtful else []
    settled = _split(chance, order, 0, len(order))
    free = [call for call in order if call.approval and chance.often()]
    return Round(
        calls=asked,
        running=tuple(_running(chance, call, number) for number, call in enumerate(run, start=1)),
        settled=tuple(call.call_id for call in settled),
        allowed=tuple(call.call_id for call in (*run, *doubt, *settled, *free) if call.approval),
        doubtful=tuple(call.call_id for call in doubt),
        claim=chance.pick((None, None, Heard(seq=3, index=1))),
        failed=chance.often(),
    )


def _split(chance: Chance, calls: list[RoundCall], least: int, most: int) -> list[RoundCall]:
    """Take some of these calls away, from the front."""
    count = least + chance.below(most - least + 1)
    taken = calls[:count]
    del calls[:count]
    return taken


def _running(chance: Chance, call: RoundCall, number: int) -> Running:
    asked = call.crash == "reconcile" and chance.often()
    return Running(effect_id=number, call_id=call.call_id, reconciling=_ASKED + number if asked else None)


def children_of(chance: Chance, call: RoundCall) -> tuple[Child, ...]:
    """The sub-agents of this call: one to three, of which the first still works."""
    statuses = ["", *(chance.pick(("", *STATUSES)) for _ in range(chance.below(3)))]
    return tuple(
        Child(
            effect_id=_CHILD + number,
            call_id=call.call_id,
            task=Heard(seq=call.seq + 1, index=number + 1),
            status=status,
            outcome=Heard(seq=call.seq + 2 + number) if status else None,
        )
        for number, status in enumerate(statuses)
    )


def _with_children(chance: Chance, book: Book) -> tuple[Round, RoundCall]:
    """A round whose sub-agents work, and the call that started them."""
    idle = round_of(chance, book, running=0)
    open_round = idle if idle.queued else idle.model_copy(update={"settled": ()})
    call = chance.pick(open_round.queued).model_copy(update={"exclusive": True, "acts": ("children",)})
    calls = tuple(call if one.call_id == call.call_id else one for one in open_round.calls)
    begun = open_round.model_copy(update={"calls": calls})
    return begun.spawn(call.call_id, children_of(chance, call)), call


# --- states


def _in_turn(chance: Chance, **fields: Any) -> Fields:
    known = fields.pop("book", None) or book(chance)
    own = {"book": known, "turn": turn(chance, known), "inbox": inbox(chance, known), "resumes": chance.below(3)}
    return {**own, **fields}


def _one_effect(chance: Chance, **fields: Any) -> Fields:
    return _in_turn(chance, effect_id=1 + chance.below(TIMER), **fields)


def _asked(chance: Chance, known: Book) -> Fields:
    """A wait for a person that holds up a round in which nothing runs."""
    before = round_of(chance, known, running=0)
    return {
        "round": before if before.queued else before.model_copy(update={"settled": ()}),
        "since": chance.pick(INSTANTS),
        "deadline": timer(chance) if chance.often() else None,
    }


def _awaiting_user_response(chance: Chance) -> Fields:
    known = book(chance)
    fields = _asked(chance, known)
    call = fields["round"].queued[0]
    settled = fields["round"].settle(call.call_id)
    return _in_turn(chance, book=known, questions=question_set(chance), call=call, **{**fields, "round": settled})


def _awaiting_approval(chance: Chance) -> Fields:
    known = book(chance)
    fields = _asked(chance, known)
    call = fields["round"].queued[0].model_copy(update={"approval": True})
    allowed = tuple(one for one in fields["round"].allowed if one != call.call_id)
    calls = tuple(call if one.call_id == call.call_id else one for one in fields["round"].calls)
    fields["round"] = fields["round"].model_copy(update={"calls": calls, "allowed": allowed})
    return _in_turn(chance, book=known, call=call, **fields)


def _awaiting_sub_agents(chance: Chance) -> Fields:
    known = book(chance)
    open_round, call = _with_children(chance, known)
    deadline = timer(chance) if chance.often() else None
    return _in_turn(chance, book=known, round=open_round, call=call, deadline=deadline)


def _tool_executing(chance: Chance) -> Fields:
    known = book(chance)
    return _in_turn(chance, book=known, round=round_of(chance, known, running=1))


def _in_doubt(chance: Chance) -> Fields:
    known = book(chance)
    running = chance.below(2)
    open_round = round_of(chance, known, running=running, doubtful=1)
    return _in_turn(chance, book=known, round=open_round, since=chance.pick(INSTANTS))


def _cancelling(chance: Chance) -> Fields:
    known = book(chance)
    match chance.below(3):
        case 0:
            open_round = round_of(chance, known, running=1)
        case 1:
            open_round = round_of(chance, known, running=1, doubtful=1)
        case _:
            open_round, _ = _with_children(chance, known)
    return _in_turn(chance, book=known, round=open_round, deadline=timer(chance), closing=chance.often())


def _verifying(chance: Chance) -> Fields:
    fields = _one_effect(chance)
    return {**fields, "turn": fields["turn"].model_copy(update={"claim": Heard(seq=3, index=1)})}


def _compacting(chance: Chance) -> Fields:
    fields = _one_effect(chance, up_to=1 + chance.below(5), attempt=1 + chance.below(3))
    return {**fields, "turn": fields["turn"] if chance.often() else None}


def _summarizing(chance: Chance) -> Fields:
    known = book(chance)
    return _one_effect(chance, book=known, ending=ending(chance, known))


def _failed(chance: Chance) -> Fields:
    known = book(chance)
    relay = (Heard(seq=1),) if chance.rarely(4) else ()
    why = {"kind": chance.pick(KINDS), "sentence": chance.text()}
    return {"book": known, "turn": known.turn, "relay": relay, "inbox": inbox(chance, known), **why}


_FIELDS: Mapping[type[State], Callable[[Chance], Fields]] = {
    Idle: lambda chance: {"book": book(chance)},
    ProfileSelecting: _one_effect,
    MemoryRecalling: _one_effect,
    LlmRequesting: lambda chance: _one_effect(chance, attempt=1 + chance.below(4)),
    RetryWaiting: lambda chance: _in_turn(chance, timer=timer(chance), attempt=2 + chance.below(3)),
    ToolExecuting: _tool_executing,
    AwaitingUserResponse: _awaiting_user_response,
    AwaitingApproval: _awaiting_approval,
    AwaitingSubAgents: _awaiting_sub_agents,
    Verifying: _verifying,
    Summarizing: _summarizing,
    Compacting: _compacting,
    Cancelling: _cancelling,
    InDoubt: _in_doubt,
    Failed: _failed,
    Closed: lambda chance: {"book": book(chance)},
}


def one_state(chance: Chance, *kinds: type[State]) -> State:
    """A state of one of these types, or of any."""
    kind = chance.pick(kinds or STATES)
    return kind(**_FIELDS[kind](chance))


_by_chance = cache(by_chance(one_state))


def states(*kinds: type[State]) -> SearchStrategy[State]:
    """States of these types, or of any."""
    return _by_chance(*kinds)
