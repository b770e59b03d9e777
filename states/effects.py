"""What a conversation can ask of the world, as plain data.

*Persisting* effects are carried out inside the commit of their step: they say what enters the transcript. *Acting*
effects are started after the commit, in order. An awaited effect has an id, and exactly one answer names it; one that
goes out to users and other agents has an id too, though nobody waits for it. `<conversation id>/<effect id>` is the key
under which the world may recognise a repeated effect.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .values.acts import Audience
from .values.messages import Heard, Said
from .values.round import RoundCall
from .values.turn import TurnStatus
from .values.value import Instant, Part, Seconds, TaggedPart, Text


class Effect(TaggedPart):
    """Something the machine wants done."""


class PersistMessage(Effect):
    """A message enters the transcript: a person's or the model's as heard, or a reply that the machine words."""

    type: Literal["persist_message"] = "persist_message"
    said: Said


class SettledCall(Part):
    """A call and the text that is its result."""

    call_id: str
    said: Said
    error: bool = False


class PersistToolResults(Effect):
    """Results enter the transcript, each directly behind the message that asked for it, in call order."""

    type: Literal["persist_tool_results"] = "persist_tool_results"
    results: tuple[SettledCall, ...]


class RequestLlm(Effect):
    """Ask the model. What it is sent is built when the request is made, from the committed transcript.

    `memory` is the answer that holds what was recalled. `nudge` is told to the model in passing, and is no part of the
    dialogue: what it is reminded of, why the check of its newest claim failed, or both. A `plain` request holds the
    system prompt and what the user said, nothing more (case J20). `tool_choice="none"`: tools stay listed, since some
    providers refuse a history with calls otherwise, but none may be called. `at` is the moment that fresh context
    tells.
    """

    type: Literal["request_llm"] = "request_llm"
    effect_id: int
    model: Text
    profile: Text = ""
    memory: Heard | None = None
    nudge: Said | None = None
    plain: bool = False
    tool_choice: Literal["auto", "none"] = "auto"
    at: Instant


class ExecuteTool(Effect):
    """Run a tool. Its arguments stand in the transcript, under the call's id."""

    type: Literal["execute_tool"] = "execute_tool"
    effect_id: int
    call: RoundCall


class ReconcileTool(Effect):
    """Ask a tool whether the call that was started as the effect `started_as` did run before the process died."""

    type: Literal["reconcile_tool"] = "reconcile_tool"
    effect_id: int
    call: RoundCall
    started_as: int


class SelectProfile(Effect):
    """Choose one of the policy's profiles for this turn."""

    type: Literal["select_profile"] = "select_profile"
    effect_id: int


class RecallMemory(Effect):
    """Look for what belongs to this turn: `search` in older conversations, `recent` seconds back in all of them."""

    type: Literal["recall_memory"] = "recall_memory"
    effect_id: int
    profile: Text = ""
    search: bool = False
    recent: Seconds | None = None


class VerifyWork(Effect):
    """Check the claim that the work is complete against what was asked. `deliverable` is what the user has received
    when the turn ends with this claim; of an agent without a user also its result (case S11)."""

    type: Literal["verify_work"] = "verify_work"
    effect_id: int
    claim: Heard
    deliverable: tuple[Said, ...] = ()


class SummarizeTurn(Effect):
    """Write a summary of the turn, for display."""

    type: Literal["summarize_turn"] = "summarize_turn"
    effect_id: int


class CompactHistory(Effect):
    """Condense what entered the transcript up to the step `up_to`, but not what people said since the turn `turn`."""

    type: Literal["compact_history"] = "compact_history"
    effect_id: int
    up_to: int
    turn: int | None = None


class SpawnSubAgent(Effect):
    """Start a sub-agent with this task."""

    type: Literal["spawn_sub_agent"] = "spawn_sub_agent"
    effect_id: int
    task: Heard


class StartTimer(Effect):
    """Answer with `wakes` when `due` is reached."""

    type: Literal["start_timer"] = "start_timer"
    effect_id: int
    due: Instant
    wakes: Literal["retry_due", "deadline_reached"]


class Abort(Effect):
    """Stop the effect `effect_id`: a tool answers `ToolAborted`; anything else is no longer awaited."""

    type: Literal["abort"] = "abort"
    effect_id: int


class CancelSubAgent(Effect):
    """Stop the sub-agent that the effect `effect_id` started."""

    type: Literal["cancel_sub_agent"] = "cancel_sub_agent"
    effect_id: int


class DeliverToUser(Effect):
    """Hand a text over to the user, through every channel; the `ordinal`-th of its turn, counted from 1.

    `relayed` tells that it is another agent's message, passed on as it was.
    """

    type: Literal["deliver_to_user"] = "deliver_to_user"
    effect_id: int
    said: Said
    turn: int
    ordinal: int
    relayed: bool = False


class SendToAgent(Effect):
    """Put a message into another agent's inbox."""

    type: Literal["send_to_agent"] = "send_to_agent"
    effect_id: int
    target: Text
    said: Heard
    audience: Audience = "agent"
    silent: bool = False


class NotifyParent(Effect):
    """Tell the conversation whose turn started this sub-agent how it ended, and what it said last, if anything."""

    type: Literal["notify_parent"] = "notify_parent"
    effect_id: int
    status: TurnStatus
    said: Said | None = None


AnyEffect = Annotated[
    PersistMessage
    | PersistToolResults
    | RequestLlm
    | ExecuteTool
    | ReconcileTool
    | SelectProfile
    | RecallMemory
    | VerifyWork
    | SummarizeTurn
    | CompactHistory
    | SpawnSubAgent
    | StartTimer
    | Abort
    | CancelSubAgent
    | DeliverToUser
    | SendToAgent
    | NotifyParent,
    Field(discriminator="type"),
]
"""Every effect, for reading one back by its `type`."""

AWAITED = (
    RequestLlm,
    ExecuteTool,
    ReconcileTool,
    SelectProfile,
    RecallMemory,
    VerifyWork,
    SummarizeTurn,
    CompactHistory,
    SpawnSubAgent,
    StartTimer,
)
"""The effects that have an answer, which names them by `effect_id`."""

OUTGOING = (DeliverToUser, SendToAgent, NotifyParent)
"""The effects that nobody awaits, which must arrive all the same."""
