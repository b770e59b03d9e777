"""How a user behaves: one action after the other, or several at once, at good moments and at bad ones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ....states.errors import EngineClosed, StoreError, UnknownConversation
from ....states.states import Failed, Idle
from .simulated_user import SimulatedUser
from .user_actions import ACTIONS, CLOSING, RESPONSES, Action, cancel, close, respond, retry, send, waits_for_person


async def use(user: SimulatedUser, actions: int, menu: Mapping[Action, int] = ACTIONS) -> None:
    """Take so many actions. Those of the `menu` are possible at any time."""
    for _ in range(actions):
        await asyncio.sleep(user.chance.seconds())
        task = user.begin(act(user, _choose(user, menu)))
        if user.chance.probably(0.4):
            await asyncio.wait([task], timeout=user.chance.seconds())
        if user.chance.probably(0.04):
            task.cancel()


async def end_wait(user: SimulatedUser) -> None:
    """Do what the conversation waits for a person to do, or cancel it."""
    response = RESPONSES.get(type(user.stored), cancel)
    await act(user, response if user.chance.probably(0.8) else cancel)


async def act(user: SimulatedUser, action: Action) -> None:
    """Take an action, unless there is no engine, its process has died, or the conversation was deleted."""
    process = user.host.process
    try:
        handle = await user.handle()
    except EngineClosed:
        return
    except StoreError:
        if process.is_dead:
            return
        raise
    except UnknownConversation:
        if user.recorder.is_deleted():
            return
        raise
    await action(user, handle)


def _choose(user: SimulatedUser, menu: Mapping[Action, int]) -> Action:
    """What moves the conversation on, or else what users may do at any time."""
    state = user.stored
    if user.chance.probably(0.6):
        if waits_for_person(state):
            return respond
        if isinstance(state, Failed) and user.chance.probably(0.5):
            return retry
        if isinstance(state, Idle | Failed):
            return send
    return close if user.chance.probably(CLOSING) else user.chance.weighted(menu)
