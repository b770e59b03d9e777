"""Checks the arguments that a person gives a call, before the machine takes the approval.

The machine knows no tools, and a log replays without them. So what a tool refuses is refused here, to the person who
wrote it, while the call still waits. A step that is stored, by this engine or another one, is never checked again.
"""

from __future__ import annotations

from ...effects.logs import performer_logger
from ...effects.tools.normalization import InvalidArguments
from ...effects.tools.registry import ToolRegistry
from ...effects.tools.tool import AnyTool
from ...states.context import Context
from ...states.errors import InvalidInput
from ...states.events import Event, ToolApproval
from ...states.policy import Policy
from ...states.states import AwaitingApproval, State
from ...states.values.value import shortened

_LOGGER = performer_logger("turnwise.tools")


class ApprovedArguments:
    """Checks approvals against the tools of one engine. A tool that the engine does not have, or that the conversation
    may not use, checks nothing: its call tells the model so."""

    def __init__(self, tools: ToolRegistry) -> None:
        self._tools = tools

    def check(self, event: Event, state: State, context: Context) -> None:
        """Raise `InvalidInput` if the event allows the call that waits in this state, with arguments that its tool
        refuses. The event is one that the machine takes."""
        if not isinstance(event, ToolApproval) or not isinstance(state, AwaitingApproval):
            return
        if not event.allowed or (text := event.raw_arguments) is None:
            return
        tool, _ = self._tools.find_in(context, state.book.turn, state.call.name)
        if tool is not None and (fault := _fault_of(tool, text, context.policy)) is not None:
            sentence = f"The arguments do not fit {tool.name}: {fault.rstrip('.')}."
            raise InvalidInput(shortened(sentence), "arguments")


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
