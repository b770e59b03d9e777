"""The history of a conversation over HTTP: what was said, what it cost, and the log with every step.

The first endpoints show what a user sees: the transcript, the turns that have ended, the usage. Those of the log show
what is behind it: the steps, the requests to models, the replay, and the deliveries that are not acknowledged.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Self

from fastapi import APIRouter, Path, Query
from pydantic import AwareDatetime

from ...states.values.messages import Usage
from ...states.values.value import Record, Value, writer_of
from .dependencies import CONVERSATION, CurrentCaller, CurrentEngine, TheConversation
from .problems import problems
from .schemas import LARGEST_NUMBER, Answer, MessageJson, Shown, StepJson, TurnJson

if TYPE_CHECKING:
    from ...engine.inspection import RequestView
    from ...persistence.maintenance.replay import Divergence, ReplayReport, StepOutcome
    from ...persistence.records import Undelivered


class TranscriptAnswer(Answer):
    """What was said, oldest first, as a snapshot of the updates has it."""

    messages: list[MessageJson]


class MessagesAnswer(Answer):
    """What was said, oldest first, as messages in OpenAI's chat format."""

    messages: list[dict[str, Any]]


class TurnsAnswer(Answer):
    """The turns that have ended, oldest first."""

    turns: list[TurnJson]


router: APIRouter = APIRouter(tags=["history"], prefix=CONVERSATION, responses=problems(404))


@router.get("/transcript", operation_id="getTranscript")
async def get_transcript(conversation: TheConversation, caller: CurrentCaller) -> TranscriptAnswer:
    """Return what was said, oldest first, as a snapshot of the updates has it."""
    async with aclosing(conversation.updates()) as updates:
        snapshot = caller.seen(await anext(updates))
    return TranscriptAnswer(messages=caller.shown(snapshot.data["transcript"]))


@router.get("/messages", operation_id="getMessages")
async def get_messages(conversation: TheConversation, caller: CurrentCaller) -> MessagesAnswer:
    """Return what was said in OpenAI's chat format, with the system prompt. A new conversation can begin with it.

    Messages of the system are left out for a user who may not read them.
    """
    return MessagesAnswer(messages=caller.readable(await conversation.messages()))


@router.get("/turns", operation_id="listTurns")
async def list_turns(conversation: TheConversation) -> TurnsAnswer:
    """List the turns that have ended, oldest first."""
    return TurnsAnswer(turns=[turn.data for turn in await conversation.turns()])


@router.get("/usage", operation_id="getUsage")
async def get_usage(conversation: TheConversation) -> Usage:
    """Return what the conversation has cost so far."""
    return await conversation.usage()


class LogPage(Answer):
    """Steps of the log, in order. `next` is the `after` of the next page, or null."""

    steps: list[StepJson]
    next: int | None


class AskedModelRequest(Answer):
    """The request that a step sends to a model, written again from the log by the code that wrote it then.

    `is_exact` says whether its digest is the one that was stored with the answer; null as long as there is no answer.
    With `has_fresh_context`, it also had a note with the time and the place at its end, which is never stored.
    """

    seq: int
    effect_id: int
    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    tool_choice: Any
    settings: dict[str, Any]
    is_exact: bool | None
    has_fresh_context: bool

    @classmethod
    def of(cls, view: RequestView) -> Self:
        """Return a request as clients read it."""
        return cls(**view.data)


class ShownOutcome(Answer):
    """What an event led to: the effects, the end of a turn or null, and the state. The `state` is null where only its
    digest is known. All are JSON as an export has it."""

    effects: list[dict[str, Any]]
    turn_ended: dict[str, Any] | None
    state: dict[str, Any] | None

    @classmethod
    def of(cls, outcome: StepOutcome) -> Self | None:
        """Return an outcome as clients read it, or None if there was none."""
        if outcome.digest is None:
            return None
        return cls(
            effects=[_json(effect) for effect in outcome.effects],
            turn_ended=None if outcome.ended is None else _json(outcome.ended),
            state=None if outcome.state is None else _json(outcome.state),
        )


class ShownDivergence(Answer):
    """The first step that does not come out as it was stored, and the `reason` in one sentence: what was stored
    (`expected`), and what its event leads to now (`actual`). Each is null where there is nothing."""

    seq: int
    reason: str
    event: dict[str, Any] | None
    expected: ShownOutcome | None
    actual: ShownOutcome | None

    @classmethod
    def of(cls, divergence: Divergence) -> Self:
        """Return a divergence as clients read it."""
        return cls(
            seq=divergence.seq,
            reason=divergence.reason,
            event=None if divergence.event is None else _json(divergence.event),
            expected=ShownOutcome.of(divergence.expected),
            actual=ShownOutcome.of(divergence.actual),
        )


class ReplayAnswer(Answer):
    """How many steps came out as they were stored, and the first that did not, or null."""

    events: int
    divergence: ShownDivergence | None

    @classmethod
    def of(cls, report: ReplayReport, shown: Shown) -> Self:
        """Return the result of a replay, as a caller reads it."""
        if report.divergence is None:
            return cls(events=report.events, divergence=None)
        found = ShownDivergence.of(report.divergence)
        return cls(events=report.events, divergence=ShownDivergence(**shown(found.model_dump())))


class WaitingDelivery(Answer):
    """A delivery that is not acknowledged by its `target`, the name of a channel or the id of an agent. The effect
    stands in the step `seq`. `next_attempt` is null if the next attempt is due at once."""

    target: str
    effect_id: int
    seq: int
    attempts: int
    next_attempt: AwareDatetime | None

    @classmethod
    def of(cls, delivery: Undelivered, shown: Shown) -> Self:
        """Return a delivery as a caller reads it."""
        return cls(**shown(delivery.data))


class OutboxAnswer(Answer):
    """The deliveries that are not acknowledged, in the order in which they were asked for; and the names of the
    `channels` of the engine. Without channels, what is said is read by clients only."""

    deliveries: list[WaitingDelivery]
    channels: list[str]


def _json(value: Value | Record) -> dict[str, Any]:
    shown: dict[str, Any] = writer_of(type(value)).to_python(value, mode="json", exclude_defaults=True)
    return shown


_LARGEST_PAGE = 1000
"""How many steps a page of the log holds at most."""

log_router: APIRouter = APIRouter(tags=["log"], prefix=CONVERSATION, responses=problems(404))


@log_router.get("/log", operation_id="getLog", responses=problems(422))
async def get_log(
    conversation: TheConversation,
    caller: CurrentCaller,
    after: Annotated[int, Query(ge=0, le=LARGEST_NUMBER)] = 0,
    limit: Annotated[int, Query(ge=1, le=_LARGEST_PAGE)] = 200,
) -> LogPage:
    """Return the steps that follow the step `after`, in order."""
    caller.require("log")
    steps = await conversation.steps(after, limit)
    following = steps[-1].seq if len(steps) == limit else None
    return LogPage(steps=[caller.shown(step.data) for step in steps], next=following)


@log_router.get("/log/{seq}/request", operation_id="getModelRequest", responses=problems(422))
async def get_model_request(
    conversation: TheConversation, caller: CurrentCaller, seq: Annotated[int, Path(ge=1, le=LARGEST_NUMBER)]
) -> AskedModelRequest:
    """Return the request that the step sent to a model. A step whose `requests` are empty sent none: 422."""
    caller.require("requests")
    return AskedModelRequest.of(await conversation.model_request(seq))


@log_router.get("/replay", operation_id="replayConversation")
async def replay_conversation(conversation: TheConversation, caller: CurrentCaller) -> ReplayAnswer:
    """Replay the log, and compare every step with what was stored."""
    caller.require("log")
    return ReplayAnswer.of(await conversation.replay(), caller.shown)


@log_router.get("/outbox", operation_id="getOutbox")
async def get_outbox(conversation: TheConversation, caller: CurrentCaller, engine: CurrentEngine) -> OutboxAnswer:
    """Return the deliveries that are not acknowledged, and the channels of the engine."""
    caller.require("log")
    deliveries = [WaitingDelivery.of(one, caller.shown) for one in await conversation.outbox()]
    return OutboxAnswer(deliveries=deliveries, channels=list(engine.channel_names))
