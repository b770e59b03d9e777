"""What the tools of an engine declare now, held against the calls that a conversation has open.

A call was recorded with the declarations of its tool as they were then, by a process that may have had others. So
before a conversation goes on, its open calls are compared with what the tools declare here, and the stricter holds: a
contract under which less is done without a person, and an approval where either asks for one. That is an event too, so
a log replays without the tools.

The arguments that a person writes into a call are checked here as well, while the call still waits: the machine knows
no tools. A step that is stored, by this engine or another one, is never checked again.
"""

from __future__ import annotations

from datetime import datetime

from ..effects.context import EffectContext
from ..effects.logs import performer_logger
from ..effects.tools.normalization import InvalidArguments
from ..effects.tools.registry import ToolRegistry
from ..effects.tools.tool import AnyTool
from ..states.context import Context
from ..states.errors import InvalidInput
from ..states.events import CallRestricted, ToolApproval
from ..states.policy import Policy
from ..states.states import AwaitingApproval, AwaitingPerson, AwaitingSubAgents, InRound, State
from ..states.values.round import RoundCall
from ..states.values.value import shortened

_LOGGER = performer_logger("turnwise.tools")


class Declarations:
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

    def check_arguments(self, approval: ToolApproval, state: State, context: Context) -> None:
        """Raise `InvalidInput` if the call that waits in this state is allowed with arguments that its tool refuses.
        The approval is one that the machine takes. A tool that the engine does not have, or that the conversation may
        not use, refuses nothing: its call tells the model so."""
        if not approval.allowed or approval.raw_arguments is None or not isinstance(state, AwaitingApproval):
            return
        tool, _ = self._tools.find_in(context, state.book.turn, state.call.name)
        fault = None if tool is None else _fault_of(tool, approval.raw_arguments, context.policy)
        if tool is not None and fault is not None:
            sentence = f"The arguments do not fit {tool.name}: {fault.rstrip('.')}."
            raise InvalidInput(shortened(sentence), "arguments")


async def _declared(call: RoundCall, tool: AnyTool, context: EffectContext, at: datetime) -> CallRestricted:
    """Return the call as its tool declares it now. Its arguments are read from the log only if a function decides by
    them whether a person must approve it."""
    approval = tool.approval is True or call.approval
    if not approval and callable(tool.approval):
        approval = tool.needs_approval((await context.call(call)).raw_arguments, context.policy)
    by = tool.approval_by if approval else "user"
    return CallRestricted(at=at, call_id=call.call_id, crash=tool.crash, approval=approval, approval_by=by)


def _fault_of(tool: AnyTool, text: str, policy: Policy) -> str | None:
    """Why a call with these arguments, JSON text, could not run; None if it could."""
    try:
        tool.arguments.under(policy).check(text)
    except InvalidArguments as invalid:
        return invalid.reason
    except KeyboardInterrupt:
        raise  # it is meant for the program, and comes while any function runs
    except BaseException as error:  # SystemExit or CancelledError of a validator must not end what handles the request
        _LOGGER.warning("The arguments of %s could not be checked", tool.name, exc_info=error)
        return "the arguments could not be checked"
    return None
