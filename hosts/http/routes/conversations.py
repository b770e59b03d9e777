"""Conversations: creating, finding, changing and deleting them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from ....states.errors import InvalidInput
from ....states.policy.roles import Role
from ..dependencies import CurrentCaller, CurrentEngine, TheConversation
from ..problems import problems
from ..schemas.conversations import ConversationPage, NewConversation, ShownConversation
from ..schemas.rules import PRESETS
from .showing import listed, shown

MOST_LISTED = 200
"""The largest page of conversations."""

router = APIRouter(tags=["conversations"])


@router.post("/conversations", status_code=201, operation_id="createConversation", responses=problems(404, 409, 422))
async def create_conversation(body: NewConversation, engine: CurrentEngine, caller: CurrentCaller) -> ShownConversation:
    """Create a conversation."""
    if body.preset is not None and body.policy is not None:
        raise InvalidInput("The rules are given either as a preset or as a policy.")
    if body.works_for is not None:
        await caller.open(engine, body.works_for)
    policy = PRESETS[body.preset]() if body.preset is not None else body.policy
    conversation = await engine.create(
        role=body.role,
        works_for=body.works_for,
        policy=policy,
        system=body.system,
        model=body.model,
        tools=body.tools,
        messages=body.messages,
        owner=caller.chosen_owner(body.owner),
        title=body.title,
        metadata=body.metadata,
    )
    return await shown(conversation)


@router.get("/conversations", operation_id="listConversations", responses=problems(404, 422))
async def list_conversations(
    engine: CurrentEngine,
    caller: CurrentCaller,
    owner: str | None = None,
    state: str | None = None,
    role: Role | None = None,
    parent: str | None = None,
    works_for: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 50,
    before: str | None = None,
) -> ConversationPage:
    """List conversations, the one that changed last first."""
    summaries = await engine.list(
        owner=caller.chosen_owner(owner),
        state=state,
        role=role,
        parent=parent,
        works_for=works_for,
        limit=limit,
        before=before,
    )
    following = summaries[-1].id if len(summaries) == limit else None
    return ConversationPage(conversations=[listed(one) for one in summaries], next=following)


@router.get("/conversations/{conversation_id:conversation_id}", operation_id="getConversation", responses=problems(404))
async def get_conversation(conversation: TheConversation) -> ShownConversation:
    """Show a conversation as it is now."""
    return await shown(conversation)
