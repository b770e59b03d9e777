"""The requests of a handle that concern the conversation itself: its rules, its compaction and its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...states.errors import ConfigurationError, Refused
from ...states.events import (
    CloseRequested,
    CompactionRequested,
    DetailsChanged,
    Event,
    PolicyChanged,
    ProfileTransferred,
    ToolsChanged,
)
from ...states.policy import Policy
from ...states.step import Step
from ...states.values.acts import marks_of
from ..choices.choices import GivenTools
from ..recent_requests import MODELS, PROFILES
from ..requests import checked, checked_metadata, checked_policy
from .compaction import asked_for, failure_of, goes_on
from .schedule_requests import ScheduleRequests

MAX_ATTEMPTS = 10
"""How often a change of tools is requested for the next turn, if each time another turn begins before it is handled."""


class ConversationRequests(ScheduleRequests):
    """The requests of a conversation that change it, or end it."""

    async def set_policy(self, policy: Policy, *, request_id: str | None = None) -> None:
        """Change the policy from the next turn on. Without `models` or `profiles` of its own it leaves the
        conversation those that it has.

        Raises `ConfigurationError` for a model or a tool that the engine does not have and for a rule that it cannot
        carry out, `InvalidInput`, and `Refused` with `busy` during a turn.
        """
        try:
            rules = self._host.choices.rules_after(self._loop.projection.context, policy)
        except ConfigurationError:
            meant = checked_policy(policy)
            named = meant.model_fields_set
            filled = _filled(models="models" not in named, profiles="profiles" not in named)
            if await self._was_handled(PolicyChanged, request_id, filled, policy=meant):
                return
            raise
        filled = _filled(models=rules.filled_models, profiles=rules.filled_profiles)
        await self._request(
            PolicyChanged,
            request_id,
            filled,
            policy=rules.policy,
            chose_models=rules.chose_models,
            chose_profiles=rules.chose_profiles,
        )

    async def set_tools(
        self, tools: GivenTools | None, *, narrows: bool = False, request_id: str | None = None
    ) -> None:
        """Let the conversation use these tools of the engine, and no others, from its next turn on; a turn under way
        keeps its own. None stands for all that the engine has. A tool is given by its name, or as it was given to
        `Engine.open`. With `narrows` they must be among those that the conversation has when the change arrives: so a
        host lets a user take tools away and not bring others in.

        Raises `ConfigurationError` for a tool that the engine does not have, and if the rules of the conversation need
        another one, and `Refused` with `wrong_state` for tools beyond those of the conversation, if it `narrows`.
        """
        given = list(tools) if isinstance(tools, Iterator) else tools
        filled = {"from_turn"}
        try:
            names = self._host.choices.tools_after(self._loop.projection.context, given)
        except ConfigurationError:
            meant = self._host.choices.names_meant(given)
            if await self._was_handled(ToolsChanged, request_id, filled, tools=meant, from_turn=1, narrows=narrows):
                return
            raise
        for _ in range(MAX_ATTEMPTS):
            from_turn = self._loop.state.book.turn + 1
            try:
                await self._request(ToolsChanged, request_id, filled, tools=names, from_turn=from_turn, narrows=narrows)
                return
            except Refused as refused:
                if refused.code != "wrong_state" or from_turn == self._loop.state.book.turn + 1:
                    raise
        raise Refused("busy")

    async def set_title(self, title: str, *, request_id: str | None = None) -> None:
        """Give the conversation a title for lists, of at most 1,000 characters. With a blank one, a list shows the
        first message, as if no title was given. Raises `InvalidInput`."""
        await self._request(DetailsChanged, request_id, title=title)

    async def set_metadata(self, metadata: Mapping[str, Any], *, request_id: str | None = None) -> None:
        """Replace what the application notes about the conversation: JSON under names of its own, which tools see as
        `ToolContext.metadata` and `Engine.list` can select by. The marks of a host stay. Raises `InvalidInput`."""
        await self._request(DetailsChanged, request_id, metadata=checked_metadata(metadata, self._marks))

    async def transfer_to(self, profile: str, *, request_id: str | None = None) -> None:
        """Let the conversation go on under another profile of its policy: from its next model request on, also if a
        turn is under way, and in all later turns, for which no profile is chosen any more. It keeps its user and all
        that was said. A policy without this profile ends it. Raises `Refused` with `unknown_profile`."""
        await self._request(ProfileTransferred, request_id, profile=profile)

    async def compact(self, *, request_id: str | None = None, wait: bool = True) -> None:
        """Have everything so far condensed into a summary, which replaces it in requests to models; the log and the
        transcript keep everything. Returns when that is done, or was stopped by `cancel` or `close`; with `wait=False`
        as soon as the request is stored. Raises `CompactionFailed` if it could not be done, and `Refused`: `busy` and
        the like during a turn."""
        handled = await self._request(CompactionRequested, request_id)
        if not wait:
            return
        (asked,) = asked_for(await self._read_entries(handled.seq - 1, handled.seq))
        feed = self._loop.feed
        with self._loop.follower.waiting():
            while goes_on(self._loop.state, asked) and not feed.closed:
                await feed.changed()
        if goes_on(self._loop.state, asked):
            await self._loop.catch_up()  # raises why nothing moves any more
        if (failure := failure_of(asked, await self._read_entries(handled.seq))) is not None:
            raise failure

    async def close(self, *, request_id: str | None = None, wait: bool = True) -> None:
        """End the conversation for good, and cancel what runs. It can still be read. With `wait=False` the method
        returns as soon as the request is stored, while a turn may still be stopping."""
        handled = await self._request(CloseRequested, request_id)
        if wait:
            await self._stopped(handled)

    async def dispatch(self, event: Event) -> Step:
        """Submit an event, and return the step that it led to; an ignored one if it is a request that was handled
        before. Raises `InvalidInput` and `Refused`."""
        taken = checked(event)
        if isinstance(taken, DetailsChanged) and taken.metadata is not None:
            taken = taken.replace(metadata=checked_metadata(taken.metadata, self._marks))
        return (await self._ask(taken)).step

    @property
    def _marks(self) -> dict[str, Any]:
        """What a host has noted about its conversation."""
        return marks_of(self._loop.projection.context.metadata)


def _filled(*, models: bool, profiles: bool) -> set[str]:
    """What was filled in for the caller of `set_policy`."""
    return {"chose_models", "chose_profiles", *[MODELS] * models, *[PROFILES] * profiles}
