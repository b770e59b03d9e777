"""The reports by which a conversation learns that an earlier process has left it in the middle.

The state says which effects were not answered; nothing is guessed. The machine decides what follows from the reports:
it asks again for what may be asked for again, and runs a tool again or not, by its crash contract.

A call was recorded with the declarations of its tool as they were then, by a process that may have had others. So
before a conversation goes on, its open calls are compared with what the tools declare here, and the stricter holds: a
contract under which less is done without a person, and an approval where either asks for one. That is an event too, so
a log replays without the tools.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from typing import TYPE_CHECKING

from ..effects.context import EffectContext, EffectLinks
from ..effects.tools.registry import ToolRegistry
from ..effects.tools.tool import AnyTool
from ..states.effects import TOOL_RUNS, AwaitedEffect, OutgoingEffect
from ..states.events import CallRestricted, Report, Resumed, ToolInterrupted, ToolReconciled
from ..states.states import AwaitingPerson, AwaitingSubAgents, AwaitingUserResponse, Cancelling, InRound, State, pending
from ..states.step import LogEntry
from ..states.values.round import Round, RoundCall

if TYPE_CHECKING:
    from ..persistence.records import StoredEntry
    from .projections.projection import ReadEntries

FIRST_BLOCK = 8
"""How many steps are read at first to find those that asked for what is in flight: they are nearly always the newest.
Each further block is four times as long."""

REPEATING = (Resumed, ToolInterrupted, ToolReconciled)
"""The events by which an effect that an earlier step asked for is asked for again."""


class PresentDeclarations:
    """What the tools of one engine declare. `is_complete` says that the engine runs no others.

    Then nobody can say what became of a call that was running and whose tool is no longer there; only for a pure one
    that does not matter. A call that has not begun tells the model that there is no such tool.
    """

    def __init__(self, tools: ToolRegistry, *, is_complete: bool) -> None:
        self._tools = tools
        self._is_complete = is_complete

    async def restrictions(
        self, state: State, context: EffectContext, at: datetime, *, taken_over: bool
    ) -> tuple[CallRestricted, ...]:
        """Return a report for each open call of this state that is declared more strictly now. `context` shows the
        conversation in this state. Unless it is `taken_over`, another engine may run the calls that have begun."""
        if not isinstance(state, InRound | AwaitingPerson | AwaitingSubAgents):
            return ()
        round_ = state.round
        running = {one.call_id for one in round_.running} if taken_over and self._is_complete else set[str]()
        found: list[CallRestricted] = []
        for call in round_.calls:
            if call.call_id not in round_.settled:
                tool, _ = self._tools.find_in(context.context, context.turn, call.name)
                if tool is not None:
                    found.append(await _declared(call, tool, context, at))
                else:
                    found.append(self._declared_without_tool(call, at, runs=call.call_id in running))
        return tuple(report for report in found if state.concerned_by(report))

    def _declared_without_tool(self, call: RoundCall, at: datetime, *, runs: bool) -> CallRestricted:
        """Return the call as what is known without its tool has it. The server of the tool may come back before the
        call begins, so who must approve its calls counts already."""
        approver = self._tools.approver_at_source(call.name)
        return CallRestricted(
            at=at,
            call_id=call.call_id,
            crash="at_most_once" if runs and call.crash != "pure" else call.crash,
            approval=approver is not None,
            approval_by=approver or "user",
        )


async def _declared(call: RoundCall, tool: AnyTool, context: EffectContext, at: datetime) -> CallRestricted:
    """Return the call as its tool declares it now. Its arguments are read from the log only if a function decides by
    them whether a person must approve it."""
    approval = tool.approval is True or call.approval
    if not approval and callable(tool.approval):
        approval = tool.needs_approval((await context.call(call)).raw_arguments, context.policy)
    by = tool.approval_by if approval else "user"
    return CallRestricted(at=at, call_id=call.call_id, crash=tool.crash, approval=approval, approval_by=by)


def reports(state: State, at: datetime, left: frozenset[int], *, holds_call: bool = False) -> tuple[Report, ...]:
    """Return the reports about what is in flight in this state and was `left`, in order; none if nothing was.
    `holds_call` says that the call which waits for a person does so here. `Pure.`

    Calls that must not run twice come first. Nothing is tried again for them, so a process that ends before it has
    reported the rest does not count as a failed attempt, and a person is asked about them however often that happens.
    A call that was waiting for the answer of a person is lost with its process, and nothing else is in flight then but
    the deadline, which ends with the question.
    """
    if isinstance(state, AwaitingUserResponse) and state.suspends:
        return () if holds_call else (ToolInterrupted(at=at, call_id=state.call.call_id),)
    in_flight = {effect_id: kind for effect_id, kind in state.in_flight().items() if effect_id in left}
    if not isinstance(state, InRound):
        return _resumed(in_flight.keys(), at)
    running = [effect_id for effect_id, kind in in_flight.items() if kind in TOOL_RUNS]
    interrupted = {
        effect_id: ToolInterrupted(at=at, call_id=state.round.call(effect_id).call_id) for effect_id in running
    }
    first = frozenset() if isinstance(state, Cancelling) else _never_again(state.round) & interrupted.keys()
    rest = [report for effect_id, report in interrupted.items() if effect_id not in first]
    doubts = [report for effect_id, report in interrupted.items() if effect_id in first]
    return (*doubts, *_resumed(in_flight.keys() - first, at), *rest)


def _resumed(open_: Set[int], at: datetime) -> tuple[Report, ...]:
    return (Resumed(at=at, open=tuple(sorted(open_))),) if open_ else ()


def _never_again(round_: Round) -> frozenset[int]:
    """Return the effects whose calls must not run twice."""
    return frozenset(one.effect_id for one in round_.running if round_.must_not_run_twice(round_.named(one.call_id)))


# --- the steps that asked for what is in flight


def known_effects(state: State) -> frozenset[int]:
    """Return the effects that were asked for and may be carried out, or asked for again: those in flight, and those as
    which the calls that run were first started. `Pure.`"""
    running = state.round.running if isinstance(state, InRound | AwaitingUserResponse) else ()
    return pending(state) | {one.first_id for one in running}


async def links_of(state: State, read_entries: ReadEntries) -> EffectLinks:
    """Return the links of the steps that first asked for the effects which this state waits for. They are read from the
    end of the log, no further than to the oldest of them. Raises `StoreError`."""
    wanted, found = set(known_effects(state)), dict[int, bytes]()
    last, block = state.book.seq, FIRST_BLOCK
    while wanted and last > 0:
        for entry in reversed(await read_entries(max(last - block, 0), last)):
            wanted -= _note_asked(entry, wanted, found)
        last, block = last - block, block * 4
    return EffectLinks(sorted(found.items()))


def _note_asked(entry: StoredEntry, wanted: Set[int], found: dict[int, bytes]) -> set[int]:
    """Note the link of a step for the effects that it asks for. Returns the effects for which no earlier step did."""
    asked = asked_for(entry)
    found.update((effect_id, entry.chain) for effect_id in wanted & asked)
    if not asked or isinstance(entry.event, REPEATING):
        return set()
    return {effect_id for effect_id in wanted if effect_id >= min(asked)}


def asked_for(entry: LogEntry) -> set[int]:
    """Return the ids of the effects that a step asks for, for the first time or again. `Pure.`"""
    return {effect.effect_id for effect in entry.effects if isinstance(effect, AwaitedEffect | OutgoingEffect)}
