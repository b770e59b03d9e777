"""Conversations: how one is created, changed and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AwareDatetime, Field

from ....engine.conversation import Conversation
from ....engine.requests import NEW_ID
from ....states.policy import Policy
from ....states.roles import Role
from .body import LARGEST_NUMBER, Answer, Body, Repeatable, RequestId, Shown
from .described import DescribedBy
from .rules import GivenPolicy, Preset
from .states import StateJson

if TYPE_CHECKING:
    from ....persistence.summaries import Summary
    from ..permissions import Caller

Title = Annotated[str, Field(max_length=1000)]
ChosenId = Annotated[
    str,
    Field(
        pattern=f"^{NEW_ID}$",
        description="An id that the client chooses: the conversation is created once, however often this is sent.",
    ),
]
ToolNames = Annotated[list[str], Field(description="The tools that the conversation may use; null stands for all.")]
Metadata = Annotated[dict[str, Any], Field(description="What the application notes about the conversation.")]


class NewConversation(Body):
    """A conversation to create. Its rules are given as a `preset` or as a `policy`, or are those of the engine.
    `messages`, in OpenAI's chat format, were said elsewhere before."""

    id: ChosenId | None = None
    system: str = ""
    model: str | None = None
    tools: ToolNames | None = None
    preset: Preset | None = None
    policy: GivenPolicy | None = None
    messages: list[dict[str, Any]] | None = None
    owner: str | None = None
    title: Title | None = None
    metadata: Metadata | None = None
    role: Role = "foreground"
    works_for: str | None = None


class Changes(Body):
    """What changes in a conversation; what is left out stays. The changes are made one after the other: `profile`,
    `tools`, `metadata`, `title`. If one is refused, those before it are made; all may be sent again under the same
    `request_id`, and those that were made are not made twice."""

    profile: str = ""
    tools: ToolNames | None = None
    metadata: Metadata = Field(default_factory=dict)
    title: Title = ""
    request_id: Annotated[RequestId, Field(max_length=180)] | None = None


class ForkPoint(Repeatable):
    """The step up to which a copy is made: a rest, or the end of a turn. null stands for the newest one."""

    at: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] | None = None


class ShownConversation(Answer):
    """A conversation as it is now. `title` is the one that was given, and `seq` the number of its newest step, which
    came at the moment `updated_at`. `system` and `policy` are null for a user who may not read them; `text` is what
    becomes of the texts of the model, as the policy says."""

    id: str
    title: str | None
    owner: str | None
    metadata: dict[str, Any]
    role: Role
    parent: str | None
    works_for: str | None
    system: str | None
    profile: str
    tools: list[str] | None
    policy: Annotated[dict[str, Any] | None, DescribedBy(Policy | None)]
    text: Literal["auto", "reply", "fallback", "thought"]
    state: StateJson
    seq: int
    updated_at: AwareDatetime

    @classmethod
    async def of(cls, conversation: Conversation, caller: Caller) -> Self:
        """Return what a caller is shown of a conversation."""
        view, shown = await conversation.view(), caller.shown
        tools, reads_rules = conversation.tools, caller.may("log")
        return cls(
            id=shown(conversation.id),
            title=conversation.title,
            owner=conversation.owner,
            metadata=dict(conversation.metadata),
            role=conversation.role,
            parent=shown(conversation.parent),
            works_for=shown(conversation.works_for),
            system=conversation.system if reads_rules else None,
            profile=conversation.profile,
            tools=None if tools is None else list(tools),
            policy=conversation.policy.model_dump(mode="json") if reads_rules else None,
            text=conversation.policy.text,
            state=view.data,
            seq=conversation.state.book.seq,
            updated_at=await conversation.updated_at(),
        )


class ListedConversation(Answer):
    """A conversation in a list. `title` is the one that was given, or the first message; `state` is the type of its
    state, and `seq` the number of its newest step."""

    id: str
    title: str
    owner: str | None
    metadata: dict[str, Any]
    role: Role
    parent: str | None
    works_for: str | None
    state: str
    busy: bool
    updated_at: AwareDatetime
    wakes_at: AwareDatetime | None
    seq: int

    @classmethod
    def of(cls, summary: Summary, shown: Shown) -> Self:
        """Return a conversation of a list, as a caller is shown it."""
        listed = cls.model_validate(summary, from_attributes=True)
        ids = {name: shown(getattr(listed, name)) for name in ("id", "parent", "works_for")}
        return listed.model_copy(update=ids)


class ConversationPage(Answer):
    """A page of conversations, the one that changed last first. `next` is the `before` of the next page, or null;
    it holds although the last of these is deleted."""

    conversations: list[ListedConversation]
    next: str | None


class Children(Answer):
    """The sub-agents that a conversation has started, the first one first."""

    conversations: list[ListedConversation]


class Copy(Answer):
    """A copy of a conversation, and the newest step that both have in common."""

    conversation: ShownConversation
    landed_on: int
