"""What a user of the application may do with conversations of their own, beyond talking in them.

An application that mounts the host writes the rules of its conversations: the policy, the system prompt, the tools, the
metadata that its tools trust. A user who could change them, or read them, would be no user any more. So a caller whom
`owner` names may do none of that, unless the application gives the permission by its name, `create_app(allow={"log"})`.

Everything that needs a permission goes through the `Caller`, whatever the protocol of the request is: no endpoint asks
the engine or a conversation for it directly. Without `owner` nobody can be told apart, and everything is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

from ...engine.conversation import Conversation
from ...engine.engine import Engine
from ...engine.requests import chosen_id, owned_id
from ...engine.turns import Turn
from ...engine.updates import HeardUpdate, RewoundUpdate, SnapshotUpdate, Update
from ...persistence.errors import Damaged
from ...persistence.summaries import LONGEST_ID
from ...states.context import are_among
from ...states.errors import NOTHING_WAITS, ConfigurationError, InvalidInput, Refused, UnknownConversation
from ...states.events import DoubtResolved, ToolApproval, UserCancel, UserQuestionResponse
from ...states.policy import Policy
from ...states.roles import Role
from ...states.states import AwaitingPerson, InDoubt
from .problems import HttpError
from .schemas import PRESETS, Preset

Permission: TypeAlias = Literal[
    "policy",
    "preset",
    "system",
    "role",
    "tools",
    "profile",
    "settings",
    "metadata",
    "approvals",
    "log",
    "requests",
]
"""The name of a permission."""

PERMISSIONS: Mapping[Permission, str] = {
    "policy": "give a new conversation a policy of their own",
    "preset": "give a new conversation one of the ready-made policies",
    "system": "write the system prompt of a conversation, or messages of the system in the history of a new one",
    "role": "create agents that work in the background",
    "tools": "give a conversation tools that it does not have",
    "profile": "hand a conversation over to another profile",
    "settings": "choose the parameters with which a model is asked, such as `temperature` and `max_tokens`",
    "metadata": "write the metadata of a conversation",
    "approvals": "decide about calls that their tool leaves to the operator (`approval_by`), also after a crash",
    "log": "read the log, the replay and the outbox, and the system prompt and the policy of a conversation",
    "requests": "read the requests that models were sent",
}
"""What each permission lets a user do."""

_MADE_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:/.*)?")
"""An id that an engine has made, or that of a sub-agent of such a conversation."""

ALL: frozenset[Permission] = frozenset(PERMISSIONS)

Act: TypeAlias = UserQuestionResponse | UserCancel | ToolApproval | DoubtResolved
"""What a person does about a turn that waits for one. A cancel names a call here, whose questions nobody answers."""

_SPEAKERS = (None, "user", "assistant", "tool", "function")
"""The roles of messages that anybody may bring; what has no role is a call of a tool, or no message."""


def permissions_of(allow: Iterable[str]) -> frozenset[Permission]:
    """Return the permissions with these names. Raises `ConfigurationError` for a name that there is not. `Pure.`"""
    if isinstance(allow, str) or not isinstance(allow, Iterable):
        raise ConfigurationError("The permissions of users are given as a set of names.")
    given = tuple(allow)
    for name in given:
        if name not in get_args(Permission):
            raise ConfigurationError(f"There is no permission {name!r}. Known: {', '.join(PERMISSIONS)}.")
    return frozenset(name for name in PERMISSIONS if name in given)


@dataclass(frozen=True)
class Caller:
    """Who asks: whose conversations a request may concern, and what it may do with them. Without an `owner` it may do
    everything with all of them.

    Every method raises `HttpError` with the code `forbidden`, and the permission as its subject, where one is missing.
    """

    owner: str | None
    allowed: frozenset[Permission] = ALL

    def may(self, permission: Permission) -> bool:
        """Return whether the caller has this permission."""
        return self.owner is None or permission in self.allowed

    def require(self, permission: Permission, *, unless: bool = False) -> None:
        """Raise `HttpError` if the caller does not have this permission, `unless` it is not needed."""
        if not unless and not self.may(permission):
            sentence = f"Users of this application may not {PERMISSIONS[permission]}."
            raise HttpError("forbidden", sentence, subject=permission)

    # --- whose conversations they are

    def may_see(self, owner: str | None) -> bool:
        """Return whether this is the caller's own conversation, by its owner."""
        return self.owner is None or self.owner == owner

    def chosen_owner(self, wanted: str | None) -> str | None:
        """Return the owner that a new conversation has, or that a list selects by. Raises `InvalidInput` for another
        owner than the caller."""
        if self.owner is not None and wanted not in (None, self.owner):
            raise InvalidInput("owner: You may name yourself only.")
        return wanted if self.owner is None else self.owner

    async def open(self, engine: Engine, conversation_id: str) -> Conversation:
        """Return the conversation that the caller calls by this id. Raises `UnknownConversation` if there is none that
        the caller may see."""
        conversation = await self.find(engine, conversation_id)
        if conversation is None:
            raise UnknownConversation(conversation_id)
        return conversation

    async def find(self, engine: Engine, conversation_id: str) -> Conversation | None:
        """Return the conversation that the caller calls by this id, None if there is none that the caller may see.

        First comes one whose id a caller with this owner has chosen, and then one that is stored under the id itself:
        the engine or the application has made it, or a version that did not tell owners apart. Of one that cannot be
        read nobody knows the owner: if its id can be guessed, a caller with an owner does not learn that it is there.
        """
        for stored in dict.fromkeys((self.new_id(conversation_id), conversation_id)):
            try:
                conversation = await engine.get(stored)
            except (InvalidInput, UnknownConversation):  # no conversation has this id, or can have it
                continue
            except Damaged:
                if self.owner is None or stored == self.new_id(conversation_id) or _MADE_ID.fullmatch(stored):
                    raise
                continue
            if self.may_see(conversation.owner):
                return conversation
        return None

    async def stored_id(self, engine: Engine, conversation_id: str) -> str:
        """Return the id under which the conversation is stored that the caller calls by this one, which may have been
        deleted."""
        conversation = await self.find(engine, conversation_id)
        if conversation is not None:
            return conversation.id
        return conversation_id if _MADE_ID.fullmatch(conversation_id) else self.new_id(conversation_id)

    def new_id(self, chosen: str) -> str:
        """Return the id under which a new conversation is stored whose id the caller has chosen."""
        return chosen if self.owner is None else owned_id(self.owner, chosen)

    def shown_id(self, stored: str) -> str:
        """Return what the caller calls the conversation that is stored under this id."""
        return stored if self.owner is None else chosen_id(self.owner, stored)

    def shown(self, data: Any) -> Any:
        """Return JSON in which ids of conversations stand as the caller calls them."""
        if self.owner is None:
            return data
        if isinstance(data, str):
            return self.shown_id(data) if len(data) <= LONGEST_ID and "~" in data else data
        if isinstance(data, dict):
            return {name: self.shown(value) for name, value in data.items()}
        return [self.shown(value) for value in data] if isinstance(data, list | tuple) else data

    # --- creating and changing them

    async def create(
        self,
        engine: Engine,
        *,
        preset: Preset | None = None,
        policy: Policy | None = None,
        system: str = "",
        role: Role = "foreground",
        works_for: str | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        metadata: Mapping[str, Any] | None = None,
        owner: str | None = None,
        **others: Any,
    ) -> Conversation:
        """Create a conversation of the caller. `preset` names a policy, and `others` are arguments of `Engine.create`
        that need no permission. Raises what `Engine.create` raises."""
        self.require("preset", unless=preset is None)
        self.require("policy", unless=policy is None)
        is_said = all(one.get("role") in _SPEAKERS for one in messages or ())
        self.require("system", unless=not system and is_said)
        self.require("role", unless=role == "foreground" and works_for is None)
        self.require("metadata", unless=not metadata)
        if preset is not None and policy is not None:
            raise InvalidInput("The rules are given either as a preset or as a policy.")
        return await engine.create(
            policy=policy if preset is None else PRESETS[preset](),
            system=system,
            role=role,
            works_for=None if works_for is None else await self.open(engine, works_for),
            messages=None if messages is None else list(messages),
            metadata=metadata,
            owner=self.chosen_owner(owner),
            **others,
        )

    async def set_tools(
        self, conversation: Conversation, tools: Sequence[str] | None, request_id: str | None = None
    ) -> None:
        """Let a conversation use these tools. Without the permission they are among those that it has, also if these
        change meanwhile. Raises what `Conversation.set_tools` raises."""
        narrows = not self.may("tools")
        if narrows and (request_id is None or await conversation.step_of(request_id) is None):
            self.require("tools", unless=are_among(tools, conversation.tools))
        await conversation.set_tools(tools, narrows=narrows, request_id=request_id)

    async def set_metadata(
        self, conversation: Conversation, metadata: Mapping[str, Any], request_id: str | None = None
    ) -> None:
        """Replace the metadata of a conversation. Raises what `Conversation.set_metadata` raises."""
        self.require("metadata")
        await conversation.set_metadata(metadata, request_id=request_id)

    async def set_system(self, conversation: Conversation, system: str, request_id: str | None = None) -> None:
        """Give a conversation another system prompt. Raises what `Conversation.set_system` raises."""
        self.require("system")
        await conversation.set_system(system, request_id=request_id)

    async def transfer_to(self, conversation: Conversation, profile: str, request_id: str | None = None) -> None:
        """Let a conversation go on under another profile. Raises what `Conversation.transfer_to` raises."""
        self.require("profile")
        await conversation.transfer_to(profile, request_id=request_id)

    async def fork(self, conversation: Conversation, at: int | None, request_id: str | None = None) -> Conversation:
        """Copy a conversation. A caller who may not change all of its rules gets a copy with those that it has now, and
        not with those of an earlier step. Raises what `Conversation.fork` raises."""
        changes: tuple[Permission, ...] = ("policy", "system", "tools", "profile", "metadata")
        return await conversation.fork(at, keeps_rules=not all(map(self.may, changes)), request_id=request_id)

    # --- what a waiting turn is told

    async def submit(self, conversation: Conversation, act: Act) -> Turn:
        """Hand what the caller does about a turn to its conversation, once however often it is handed in under its id,
        and return the turn as of the moment when it is stored. An approval is in the caller's name. Raises what the
        methods of `Conversation` raise, and `HttpError` for a call that is left to the operator."""
        match act:
            case UserCancel():
                return await conversation.decline(act.call_id, request_id=act.event_id, wait=False)
            case ToolApproval():
                await self._check_decision(conversation, act)
                return await conversation.submit(act.replace(by=self.owner), wait=False)
            case DoubtResolved():
                await self._check_decision(conversation, act)
            case UserQuestionResponse():
                pass
        return await conversation.submit(act, wait=False)

    async def _check_decision(self, conversation: Conversation, act: ToolApproval | DoubtResolved) -> None:
        """Raise `HttpError` for a call that is left to the operator, and `Refused` unless this call waits.

        The id of a call is unique, so the decision concerns the call that was checked here and no other one, whatever
        happens meanwhile. A decision that was taken before under its id is not taken again.
        """
        if self.may("approvals") or await conversation.step_of(act.event_id) is not None:
            return
        state = conversation.state
        waiting = state.call.call_id if isinstance(state, AwaitingPerson | InDoubt) else None
        if conversation.approver is None or waiting != act.call_id:
            raise Refused("wrong_state", sentence=NOTHING_WAITS[act.type])
        self.require("approvals", unless=conversation.approver == "user")

    # --- reading

    def may_read(self, role: str) -> bool:
        """Return whether the caller may read messages of this role: those of the system belong to the rules."""
        return role != "system" or self.may("log")

    def readable(self, messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages that the caller may read."""
        return [message for message in messages if self.may_read(message["role"])]

    def seen(self, update: Update) -> Update:
        """Return an update as the caller may read it."""
        if not isinstance(update, SnapshotUpdate | RewoundUpdate | HeardUpdate) or self.may("log"):
            return update
        return replace(update, transcript=tuple(one for one in update.transcript if self.may_read(one.role)))
