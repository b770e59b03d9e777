"""What a client asks of a conversation that is to go back over HTTP: to edit a message, to answer it again, to return.

Each request returns once it is stored, while a turn may still be stopping; the updates show what follows, first
`rewound`.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from ...engine.branches import Branch
from ...engine.conversation import new_id
from ...engine.json_forms import DescribedBy
from .dependencies import CONVERSATION, TheConversation
from .files import OF_FILES, SentFile, given_files
from .problems import problems
from .requests import REFUSALS, SentMessage, StateAnswer, TurnAnswer, state_of
from .schemas import Answer, Body, Repeatable, RequestId, TurnNumber, named


class Edit(Body):
    """What a user says in place of the message `message_id`, which keeps its files unless others are given. The new
    message has the `request_id` as its id; sent again under it, it is taken once."""

    message_id: RequestId
    text: str
    files: Annotated[list[str | SentFile] | None, Field(description=OF_FILES)] = None
    request_id: RequestId | None = None


class Regeneration(Repeatable):
    """Answer the newest turn again: the one with this number, which its user saw, or any."""

    turn: TurnNumber | None = None


class Rewinding(Repeatable):
    """Go back to the turn with this number, which stays, or to where the message with this id was sent, which is
    hidden."""

    to: TurnNumber | RequestId


class Switching(Repeatable):
    """Return to the branch of this number."""

    branch: TurnNumber


_BRANCH = named("Branch", Branch, "A branch that was left: its newest turn, its turns, and those that are hidden now.")


class Branches(Answer):
    """The branches that were left, oldest first."""

    branches: list[Annotated[Any, DescribedBy(lambda: _BRANCH)]]


router: APIRouter = APIRouter(tags=["branches"], prefix=CONVERSATION)


@router.post("/edit", status_code=202, operation_id="editMessage", responses=REFUSALS)
async def edit_message(body: Edit, conversation: TheConversation) -> SentMessage:
    """Say something in place of a message; what followed it is hidden. A turn under way is stopped first."""
    message_id = new_id() if body.request_id is None else body.request_id
    files = None if body.files is None else await given_files(conversation, body.files)
    turn = await conversation.edit(body.message_id, body.text, files=files, request_id=message_id, wait=False)
    return SentMessage(message_id=message_id, turn=turn.data)


@router.post("/regenerate", status_code=202, operation_id="regenerateTurn", responses=REFUSALS)
async def regenerate_turn(conversation: TheConversation, body: Regeneration | None = None) -> TurnAnswer:
    """Have the messages of the newest turn answered again, in a turn of its own; the turn is hidden."""
    given = body or Regeneration()
    turn = await conversation.regenerate(given.turn, request_id=given.request_id, wait=False)
    return TurnAnswer(turn=turn.data)


@router.post("/rewind", operation_id="rewindConversation", responses=REFUSALS)
async def rewind_conversation(body: Rewinding, conversation: TheConversation) -> StateAnswer:
    """Go back; what follows is hidden, and can return."""
    await conversation.rewind(body.to, request_id=body.request_id, wait=False)
    return await state_of(conversation)


@router.get("/branches", operation_id="listBranches", responses=problems(404))
async def list_branches(conversation: TheConversation) -> Branches:
    """List the branches that were left."""
    return Branches(branches=[branch.data for branch in await conversation.branches()])


@router.post("/switch", operation_id="switchBranch", responses=REFUSALS)
async def switch_branch(body: Switching, conversation: TheConversation) -> StateAnswer:
    """Return to a branch that was left; what is shown now is hidden."""
    await conversation.switch(body.branch, request_id=body.request_id, wait=False)
    return await state_of(conversation)
