"""What users do to agents, besides what they do to any conversation."""

from __future__ import annotations

from contextlib import suppress

from ....states.errors import EngineClosed, Refused, TurnwiseError, UnknownConversation
from ..engine_host import EngineHost
from ..users.simulated_user import Handle, SimulatedUser
from ..users.user_actions import ACTIONS, Action, forge
from .tree import Tree
from .vocabulary import some_schedule

AGENT_ACTIONS: dict[Action, int] = {action: weight for action, weight in ACTIONS.items() if action is not forge}
"""What users do at any time. Nobody forges answers: of a forged outcome of a sub-agent nothing could be said."""


async def reschedule(user: SimulatedUser, handle: Handle) -> None:
    """Let an agent wake up at other moments, or no longer."""
    schedule = some_schedule(user.chance)
    await user.ask(handle, f"set_schedule {schedule}", lambda it, id_: it.set_schedule(**schedule, request_id=id_))


BACKGROUND_ACTIONS: dict[Action, int] = {**AGENT_ACTIONS, reschedule: 3}
"""What users do at any time to an agent in the background."""


async def unschedule(host: EngineHost, agent_id: str) -> None:
    """Let an agent wake up no longer, unless it is closed or deleted."""
    with suppress(Refused, UnknownConversation):
        await (await host.handle(agent_id)).set_schedule()


async def disturb(user: SimulatedUser, tree: Tree) -> None:
    """Cancel, close, write to or delete an agent that a model started, or, seldom, one in the background."""
    chance = user.chance
    agents = tree.children or tree.roots[1:]
    if chance.probably(0.1):
        agents = tree.roots[1:]
    agent_id = chance.pick(agents)
    what = chance.weighted({"cancel": 4, "close": 2, "send": 2, "delete": 1})
    user.recorder.trace.record(user.name, f"{what} {agent_id}")
    try:
        conversation = await user.host.handle(agent_id)
        match what:
            case "cancel":
                await conversation.cancel(request_id=user.new_id())
            case "close":
                await conversation.close(request_id=user.new_id())
            case "send":
                await conversation.send("Hurry up.", message_id=user.new_id(), wait=False)
            case _:
                await user.host.engine.delete(agent_id)
    except (TurnwiseError, EngineClosed) as error:
        user.recorder.trace.record(user.name, f"{what} {agent_id}: {type(error).__name__}")
