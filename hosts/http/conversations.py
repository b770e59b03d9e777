"""Conversations over HTTP: how they are created, found, shown, changed, copied and deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, BeforeValidator, Field

from ...engine.conversation import Conversation
from ...engine.engine import Engine
from ...engine.json_forms import DescribedBy
from ...engine.requests import NEW_ID
from ...persistence.summaries import place_of
from ...states.header import ChosenHeader, Header
from ...states.policy import Policy
from ...states.roles import Role
from ...states.values.acts import Metadata, Title
from .dependencies import CONVERSATION, ConversationId, CurrentCaller, CurrentEngine, TheConversation
from .permissions import Caller
from .problems import problems
from .schemas import (
    BODY_REFUSALS,
    LARGEST_NUMBER,
    Answer,
    Body,
    GivenPolicy,
    Preset,
    Repeatable,
    RequestId,
    Shown,
    StateJson,
)

if TYPE_CHECKING:
    from ...persistence.summaries import Summary

_ChosenId = Annotated[
    str,
    Field(
        pattern=f"^{NEW_ID}$",
        description="An id that the client chooses: the conversation is created once, however often this is sent.",
    ),
]
_ToolNames = Annotated[list[str], Field(description="The tools that the conversation may use; null stands for all.")]
_GivenMetadata = Annotated[
    Metadata,
    BeforeValidator(lambda given: {} if given is None else given, json_schema_input_type=dict[str, Any] | None),
    Field(description="What the application notes about the conversation."),
]


class NewConversation(ChosenHeader, Body):
    """A conversation to create. Its rules are given as a `preset` or as a `policy`, or are those of the engine.
    `messages`, in OpenAI's chat format, were said elsewhere before."""

    id: _ChosenId | None = None
    system: str = ""
    model: str | None = None
    tools: _ToolNames | None = None
    preset: Preset | None = None
    policy: GivenPolicy | None = None
    messages: list[dict[str, Any]] | None = None
    output: Annotated[
        dict[str, Any] | None, Field(description="The JSON schema that all answers must have; its title is its name")
    ] = None
    metadata: _GivenMetadata = Field(default_factory=dict)


class Changes(Body):
    """What changes in a conversation; what is left out stays. The changes are made one after the other: `profile`,
    `system`, `tools`, `metadata`, `title`. If one is refused, those before it are made; all may be sent again under the
    same `request_id`, and those that were made are not made twice."""

    profile: str = ""
    system: str = ""
    tools: _ToolNames | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    title: Title = ""
    request_id: Annotated[RequestId, Field(max_length=180)] | None = None


class ForkPoint(Repeatable):
    """The step up to which a copy is made: a rest, or the end of a turn. null stands for the newest one."""

    at: Annotated[int, Field(ge=1, le=LARGEST_NUMBER)] | None = None


class ShownConversation(Header, Answer):
    """A conversation as it is now. `title` is the one that was given, and `seq` the number of its newest step, which
    came at the moment `updated_at`. `system` and `policy` are null for a user who may not read them; `text` is what
    becomes of the texts of the model, as the policy says."""

    id: str
    system: str | None
    profile: str
    tools: list[str] | None
    policy: Annotated[dict[str, Any] | None, DescribedBy(lambda: Policy | None)]
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
            **_with_shown_ids(conversation.header.header_fields, shown),
            id=shown(conversation.id),
            system=conversation.system if reads_rules else None,
            profile=conversation.profile,
            tools=None if tools is None else list(tools),
            policy=conversation.policy.model_dump(mode="json") if reads_rules else None,
            text=conversation.policy.text,
            state=view.data,
            seq=conversation.state.book.seq,
            updated_at=await conversation.updated_at(),
        )


class ListedConversation(Header, Answer):
    """A conversation in a list. `title` is the one that was given, or the first message; `state` is the type of its
    state, and `seq` the number of its newest step."""

    id: str
    title: str = ""
    state: str
    busy: bool
    updated_at: AwareDatetime
    wakes_at: AwareDatetime | None
    seq: int

    @classmethod
    def of(cls, summary: Summary, shown: Shown) -> Self:
        """Return a conversation of a list, as a caller is shown it."""
        listed = summary.model_dump(exclude={"origin"})
        return cls(**_with_shown_ids(listed, shown) | {"id": shown(summary.id)})


def _with_shown_ids(header: Mapping[str, Any], shown: Shown) -> dict[str, Any]:
    """Return a header in which the ids of conversations stand as the caller calls them."""
    return {**header, **{name: shown(header[name]) for name in ("parent", "works_for")}}


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


_LARGEST_PAGE = 200
"""How many conversations a page of the list holds at most."""

router: APIRouter = APIRouter(tags=["conversations"])


@router.post(
    "/conversations",
    status_code=201,
    operation_id="createConversation",
    responses={
        200: {"model": ShownConversation, "description": "The conversation was created before under this id."},
        **problems(*BODY_REFUSALS, 404, 409),
    },
)
async def create_conversation(
    body: NewConversation, engine: CurrentEngine, caller: CurrentCaller, response: Response
) -> ShownConversation:
    """Create a conversation.

    Sent again with the same `id` it returns the conversation as it is now, with the status 200; with the same `id` and
    anything else it is refused.
    """
    known = None if body.id is None else await caller.find(engine, body.id)
    if known is not None:
        response.status_code = 200
    conversation = await caller.create(
        engine,
        conversation_id=body.id and (caller.new_id(body.id) if known is None else known.id),
        preset=body.preset,
        policy=body.policy,
        system=body.system,
        model=body.model,
        tools=body.tools,
        messages=body.messages,
        output=body.output,
        **body.chosen_fields,
    )
    return await ShownConversation.of(conversation, caller)


@router.get("/conversations", operation_id="listConversations", responses=problems(404, 422))
async def list_conversations(
    engine: CurrentEngine,
    caller: CurrentCaller,
    owner: str | None = None,
    state: str | None = None,
    role: Role | None = None,
    parent: str | None = None,
    works_for: str | None = None,
    limit: Annotated[int, Query(ge=1, le=_LARGEST_PAGE)] = 50,
    before: str | None = None,
) -> ConversationPage:
    """List conversations, the one that changed last first."""
    summaries = await engine.list(
        owner=caller.chosen_owner(owner),
        state=state,
        role=role,
        parent=None if parent is None else await caller.stored_id(engine, parent),
        works_for=None if works_for is None else await caller.stored_id(engine, works_for),
        limit=limit,
        before=None if before is None else await _place_before(engine, caller, before),
    )
    following = None
    if len(summaries) == limit:
        following = summaries[-1].replace(id=caller.shown_id(summaries[-1].id)).cursor
    listed = [ListedConversation.of(one, caller.shown) for one in summaries]
    return ConversationPage(conversations=listed, next=following)


async def _place_before(engine: Engine, caller: Caller, before: str) -> str:
    """Return where a page begins. Raises `UnknownConversation` for the id of a conversation that the caller may not
    see; a cursor is a moment, and tells of no conversation whether it is there."""
    if not before.startswith("@"):
        return (await caller.open(engine, before)).id
    place = place_of(before)
    if place is None:
        return before  # which the engine refuses
    return replace(place, conversation_id=await caller.stored_id(engine, place.conversation_id)).cursor


@router.get(CONVERSATION, operation_id="getConversation", responses=problems(404))
async def get_conversation(conversation: TheConversation, caller: CurrentCaller) -> ShownConversation:
    """Return a conversation as it is now."""
    return await ShownConversation.of(conversation, caller)


@router.patch(CONVERSATION, operation_id="changeConversation", responses=problems(*BODY_REFUSALS, 404, 409))
async def change_conversation(body: Changes, conversation: TheConversation, caller: CurrentCaller) -> ShownConversation:
    """Change the title, the metadata, the tools, the system prompt or the profile of a conversation."""
    given = body.model_fields_set
    for field in ("system", "metadata"):
        if field in given:
            caller.require(field)  # before anything else is changed
    changes: dict[str, Callable[..., Awaitable[None]]] = {
        "profile": caller.transfer_to,
        "system": caller.set_system,
        "tools": caller.set_tools,
        "metadata": caller.set_metadata,
        "title": Conversation.set_title,
    }
    for field, change in changes.items():
        if field in given:  # each is a request of its own, under an id of its own
            request_id = None if body.request_id is None else f"{body.request_id}/{field}"
            await change(conversation, getattr(body, field), request_id=request_id)
    return await ShownConversation.of(conversation, caller)


@router.delete(
    CONVERSATION, status_code=204, response_model=None, operation_id="deleteConversation", responses=problems(404)
)
async def delete_conversation(conversation_id: ConversationId, engine: CurrentEngine, caller: CurrentCaller) -> None:
    """Remove a conversation, its sub-agents and all that was said in them for good."""
    stored = conversation_id  # it is deleted although its log may be damaged, unless that tells whose it is
    if caller.owner is not None:
        stored = (await caller.open(engine, conversation_id)).id
    await engine.delete(stored)


@router.get(f"{CONVERSATION}/children", operation_id="listChildren", responses=problems(404))
async def list_children(conversation: TheConversation, caller: CurrentCaller) -> Children:
    """List the sub-agents that the conversation has started, the first one first."""
    return Children(conversations=[ListedConversation.of(one, caller.shown) for one in await conversation.children()])


@router.post(
    f"{CONVERSATION}/fork",
    status_code=201,
    operation_id="forkConversation",
    responses=problems(*BODY_REFUSALS, 404, 409),
)
async def fork_conversation(
    conversation: TheConversation, caller: CurrentCaller, body: ForkPoint | None = None
) -> Copy:
    """Copy a conversation up to a step. The conversation itself is not changed."""
    given = body or ForkPoint()
    copy: Conversation = await caller.fork(conversation, given.at, given.request_id)
    origin = await copy.origin()
    assert origin is not None, "a copy has an origin"
    return Copy(conversation=await ShownConversation.of(copy, caller), landed_on=origin.seq)
