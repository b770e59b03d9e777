"""The log of a conversation: its steps, the requests to models, the replay, and what is still to be delivered."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from ..dependencies import CurrentCaller, CurrentEngine, TheConversation
from ..problems import problems
from ..schemas.body import LARGEST_NUMBER
from ..schemas.log import AskedModelRequest, LogPage, OutboxAnswer, ReplayAnswer, WaitingDelivery
from .paths import CONVERSATION

LARGEST_PAGE = 1000
"""How many steps a page of the log holds at most."""

router = APIRouter(tags=["log"], prefix=CONVERSATION, responses=problems(404))


@router.get("/log", operation_id="getLog", responses=problems(422))
async def get_log(
    conversation: TheConversation,
    caller: CurrentCaller,
    after: Annotated[int, Query(ge=0, le=LARGEST_NUMBER)] = 0,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 200,
) -> LogPage:
    """Return the steps that follow the step `after`, in order."""
    caller.require("log")
    steps = await conversation.steps(after, limit)
    following = steps[-1].seq if len(steps) == limit else None
    return LogPage(steps=[caller.shown(step.data) for step in steps], next=following)


@router.get("/log/{seq}/request", operation_id="getModelRequest", responses=problems(422))
async def get_model_request(
    conversation: TheConversation, caller: CurrentCaller, seq: Annotated[int, Path(ge=1, le=LARGEST_NUMBER)]
) -> AskedModelRequest:
    """Return the request that the step sent to a model. A step whose `requests` are empty sent none: 422."""
    caller.require("requests")
    return AskedModelRequest.of(await conversation.model_request(seq))


@router.get("/replay", operation_id="replayConversation")
async def replay_conversation(conversation: TheConversation, caller: CurrentCaller) -> ReplayAnswer:
    """Replay the log, and compare every step with what was stored."""
    caller.require("log")
    return ReplayAnswer.of(await conversation.replay(), caller.shown)


@router.get("/outbox", operation_id="getOutbox")
async def get_outbox(conversation: TheConversation, caller: CurrentCaller, engine: CurrentEngine) -> OutboxAnswer:
    """Return the deliveries that are not acknowledged, and the channels of the engine."""
    caller.require("log")
    deliveries = [WaitingDelivery.of(one, caller.shown) for one in await conversation.outbox()]
    return OutboxAnswer(deliveries=deliveries, channels=list(engine.channel_names))
