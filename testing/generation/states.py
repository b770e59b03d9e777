"""Generated states, made directly and not by a conversation: no trace leads to most of them.

Each is consistent in itself: the ids of effects differ and were given out before, what runs has no result yet, a claim
is there where one is checked, and a busy state has something to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...states.context import Context, NextTools
from ...states.policy import models_of
from ...states.states import (
    STATES,
    AwaitingApproval,
    AwaitingSubAgents,
    AwaitingUserResponse,
    Book,
    Cancelling,
    Compacting,
    Failed,
    InDoubt,
    InTurn,
    LlmRequesting,
    RetryWaiting,
    State,
    Summarizing,
    ToolExecuting,
    Verifying,
)
from ...states.values.messages import Heard
from ...states.values.round import Child, ChildQuestion
from .chance import Chance
from .extremes import EXTREME, ROLES, any_policy, models
from .from_types import from_type
from .questions import question_set
from .rounds import round_of, with_a_queue, with_a_waiting_call, with_call, with_children
from .turns import TIMER, Fields, book, ending, inbox, timer, turn
from .values import FAILURE_KINDS, INSTANTS


def a_state(chance: Chance, *kinds: type[State]) -> State:
    """A state of one of these types, or of any.

    The fields that `GENERATORS` does not give are generated from the type.
    """
    kind = chance.pick(kinds or STATES)
    counters = book(chance)
    fields: Fields = {"book": counters}
    if issubclass(kind, InTurn):
        fields |= {"turn": turn(chance, counters), "inbox": inbox(chance, counters), "resumes": chance.below(3)}
        if "effect_id" in kind.model_fields:
            fields["effect_id"] = 1 + chance.below(TIMER)
    if kind in GENERATORS:
        return kind(**fields | GENERATORS[kind](chance, counters))
    return from_type(kind, chance, **fields)


def _asked(chance: Chance, counters: Book) -> Fields:
    """A wait for a person that holds up a round in which nothing runs."""
    return {
        "round": with_a_queue(round_of(chance, counters, running=0)),
        "since": chance.pick(INSTANTS),
        "deadline": timer(chance) if chance.often() else None,
    }


def _awaiting_user_response(chance: Chance, counters: Book) -> Fields:
    fields = _asked(chance, counters)
    call = fields["round"].queued[0]
    if chance.rarely(3):
        open_round = with_a_waiting_call(fields["round"], call)
        call = open_round.named(call.call_id)
    else:
        open_round = fields["round"].settle(call.call_id)
    return {**fields, "round": open_round, "questions": question_set(chance), "call": call}


def _awaiting_approval(chance: Chance, counters: Book) -> Fields:
    fields = _asked(chance, counters)
    call = fields["round"].queued[0].model_copy(update={"approval": True})
    allowed = tuple(one for one in fields["round"].allowed if one != call.call_id)
    return {**fields, "round": with_call(fields["round"], call).model_copy(update={"allowed": allowed}), "call": call}


def _awaiting_sub_agents(chance: Chance, counters: Book) -> Fields:
    open_round, call = with_children(chance, counters)
    asked = tuple(_asked_by(chance, child) for child in open_round.unfinished if chance.rarely(3))
    waits = not all(question.settled for question in asked)
    return {
        "round": open_round,
        "call": call,
        "deadline": timer(chance) if chance.often() else None,
        "asked": asked,
        "waits_since": chance.pick(INSTANTS) if waits else None,
    }


def _asked_by(chance: Chance, child: Child) -> ChildQuestion:
    """What a sub-agent asks, or has asked."""
    return ChildQuestion(
        effect_id=child.effect_id,
        call_id=f"call-{chance.below(3)}",
        questions=question_set(chance),
        seq=5,
        since=chance.pick((None, *INSTANTS)),
        settled=chance.rarely(3),
    )


def _in_doubt(chance: Chance, counters: Book) -> Fields:
    open_round = round_of(chance, counters, running=chance.below(2), doubtful=1)
    return {"round": open_round, "since": chance.pick(INSTANTS)}


def _cancelling(chance: Chance, counters: Book) -> Fields:
    match chance.below(3):
        case 0:
            open_round = round_of(chance, counters, running=1)
        case 1:
            open_round = round_of(chance, counters, running=1, doubtful=1)
        case _:
            open_round, _ = with_children(chance, counters)
    return {"round": open_round, "deadline": timer(chance), "closing": chance.often()}


def _compacting(chance: Chance, counters: Book) -> Fields:
    return {
        "effect_id": 1 + chance.below(TIMER),
        "up_to": 1 + chance.below(5),
        "attempt": 1 + chance.below(3),
        "turn": turn(chance, counters) if chance.often() else None,
        "inbox": inbox(chance, counters),
        "resumes": chance.below(3),
    }


def _failed(chance: Chance, counters: Book) -> Fields:
    return {
        "turn": counters.turn,
        "relay": (Heard(seq=1),) if chance.rarely(4) else (),
        "inbox": inbox(chance, counters),
        "kind": chance.pick(FAILURE_KINDS),
        "sentence": chance.text(),
    }


GENERATORS: Mapping[type[State], Callable[[Chance, Book], Fields]] = {
    LlmRequesting: lambda chance, counters: {"attempt": 1 + chance.below(4)},
    RetryWaiting: lambda chance, counters: {"timer": timer(chance), "attempt": 2 + chance.below(3)},
    ToolExecuting: lambda chance, counters: {"round": round_of(chance, counters, running=1)},
    AwaitingUserResponse: _awaiting_user_response,
    AwaitingApproval: _awaiting_approval,
    AwaitingSubAgents: _awaiting_sub_agents,
    Verifying: lambda chance, counters: {
        "turn": turn(chance, counters).model_copy(update={"claim": Heard(seq=3, index=1)})
    },
    Summarizing: lambda chance, counters: {"ending": ending(chance, counters)},
    Compacting: _compacting,
    Cancelling: _cancelling,
    InDoubt: _in_doubt,
    Failed: _failed,
}
"""What states of each type hold beside what all states of a turn hold."""


def context_for(chance: Chance, state: State) -> Context:
    """A context in which this state can rest: its turn asks one of the models that it may ask."""
    record = state.turn if isinstance(state, InTurn | Compacting) else None
    policy = any_policy(chance)
    if record is not None and record.model >= len(models_of(policy, record.profile)):
        policy = policy.model_copy(update={"models": models(chance, record.model + 1)})
    return Context(
        role=chance.pick(ROLES),
        system=chance.text(),
        policy=policy,
        tools=EXTREME.tools(chance),
        next_tools=_next_tools(chance, state.book.turn),
        revision=EXTREME.revision(chance),
    )


def _next_tools(chance: Chance, turn: int) -> NextTools | None:
    """Tools that were changed before this turn, or in it."""
    from_turn = turn + chance.pick((1, 0))
    return NextTools(tools=EXTREME.tools(chance), from_turn=from_turn) if chance.rarely(3) else None
