"""What a conversation can ask of the world, as plain data.

*Persisting* effects are carried out inside the commit of their step: they say what enters the transcript. *Acting*
effects are started after the commit, in order. An awaited effect has an id, and exactly one answer names it.
`<conversation id>/<effect id>` is the key under which the world may recognise a repeated effect.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .messages import Said
from .round import RoundCall
from .value import Instant, Tagged, Text, Value


class Effect(Tagged):
    """Something the machine wants done."""


class PersistMessage(Effect):
    """A message enters the transcript: a person's or the model's as heard, or one the machine words for the model."""

    type: Literal["persist_message"] = "persist_message"
    said: Said


class SettledCall(Value):
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

    `tool_choice="none"`: tools stay listed, since some providers refuse a history with calls otherwise, but none
    may be called.
    """

    type: Literal["request_llm"] = "request_llm"
    effect_id: int
    model: Text
    tool_choice: Literal["auto", "none"] = "auto"


class ExecuteTool(Effect):
    """Run a tool. Its arguments stand in the transcript, under the call's id."""

    type: Literal["execute_tool"] = "execute_tool"
    effect_id: int
    call: RoundCall


class StartTimer(Effect):
    """Answer with `wakes` when `due` is reached."""

    type: Literal["start_timer"] = "start_timer"
    effect_id: int
    due: Instant
    wakes: Literal["retry_due", "deadline_reached"]


class Abort(Effect):
    """Stop the effect `effect_id`: a tool answers `ToolAborted`; a model request or a timer is no longer awaited."""

    type: Literal["abort"] = "abort"
    effect_id: int


AnyEffect = Annotated[
    PersistMessage | PersistToolResults | RequestLlm | ExecuteTool | StartTimer | Abort, Field(discriminator="type")
]
"""Every effect, for reading one back by its `type`."""
