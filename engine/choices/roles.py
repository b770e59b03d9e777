"""The role that an application chooses for a new conversation, and the conversation that this one works for."""

from __future__ import annotations

from typing import Any, Protocol

from ...states.context import Context
from ...states.errors import ConfigurationError, InvalidInput, Refused
from ...states.policy import Policy
from ...states.roles import Role, background_policy
from ...states.states import Closed, State
from ..requests import checked_id

SUB_AGENT = "A sub-agent is started by a turn of another agent, by a tool such as spawn_agents, and not by `create`."
UNKNOWN = 'The role of a new conversation is "foreground" or "background".'
WORKS_ALONE = 'Only a background agent works for another conversation: create it with role="background".'
NO_CONVERSATION = "The conversation that a background agent works for is given as a conversation, or by its id."
CLOSED = "The conversation that the background agent is to work for is closed."
OTHER_OWNER = "A background agent has the owner of the conversation that it works for."


class WithId(Protocol):
    """A conversation, as far as its id is concerned: a handle, a blocking handle or a summary."""

    @property
    def id(self) -> str:
        """The id of the conversation."""
        ...


GivenConversation = str | WithId
"""A conversation as an application gives it."""


def checked_role(role: Any, works_for: GivenConversation | None) -> Role:
    """Return the role of a conversation that an application creates. Raises `ConfigurationError`."""
    if role == "sub_agent":
        raise ConfigurationError(SUB_AGENT)
    if role not in ("foreground", "background"):
        raise ConfigurationError(UNKNOWN)
    if role == "foreground" and works_for is not None:
        raise ConfigurationError(WORKS_ALONE)
    chosen: Role = role
    return chosen


def id_of(works_for: GivenConversation) -> str:
    """Return the id of the conversation that is meant. Raises `InvalidInput`."""
    meant = works_for if isinstance(works_for, str) else getattr(works_for, "id", None)
    if not isinstance(meant, str):
        raise InvalidInput(NO_CONVERSATION)
    return checked_id(meant)


def owner_for(owner: str | None, state: State, context: Context) -> str | None:
    """Return the owner of a background agent that works for a conversation in this state: that of the conversation.

    Raises `InvalidInput` if another owner is given, and `Refused` with `closed` if the conversation is closed.
    """
    if isinstance(state, Closed):
        raise Refused("closed", sentence=CLOSED)
    if owner not in (None, context.owner):
        raise InvalidInput(OTHER_OWNER)
    return context.owner


def default_policy(role: Role, policy: Policy) -> Policy:
    """Return the rules of a conversation that chooses none, in an engine with this policy. `Pure.`"""
    return background_policy(policy) if role == "background" else policy
