"""Turns as tasks. The id of a task names its conversation, the history that the conversation has under that id, and the
number of the turn: a reply to a task of a conversation that was deleted and created again is not taken for another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from a2a.types.a2a_pb2 import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct, Value

from .....engine.turns import Turn, TurnStatus
from ..turns.prompts import prompt_of

REPLY = "reply"
"""The id of the artifact that has what was said."""

_STATES: Mapping[TurnStatus, Any] = {
    "completed": TaskState.TASK_STATE_COMPLETED,
    "incomplete": TaskState.TASK_STATE_COMPLETED,
    "failed": TaskState.TASK_STATE_FAILED,
    "cancelled": TaskState.TASK_STATE_CANCELED,
    "awaiting_user": TaskState.TASK_STATE_INPUT_REQUIRED,
    "awaiting_approval": TaskState.TASK_STATE_INPUT_REQUIRED,
    "in_doubt": TaskState.TASK_STATE_INPUT_REQUIRED,
    "running": TaskState.TASK_STATE_WORKING,
    "queued": TaskState.TASK_STATE_SUBMITTED,
}


@dataclass(frozen=True)
class TaskContext:
    """The context of tasks: the id of a conversation, as its caller knows it, and the mark of its history."""

    id: str
    mark: str

    def task_id(self, number: int) -> str:
        """Return the id of a turn as a task. `Pure.`"""
        return f"{self.id}.{self.mark}.{number}"


def turn_named(given_id: str) -> tuple[str, str, int] | None:
    """Return the conversation, the mark of its history, and the number of the turn that a task id names; None if it
    names none. `Pure.`"""
    rest, _, number = given_id.rpartition(".")
    conversation_id, _, mark = rest.rpartition(".")
    is_number = number.isascii() and number.isdigit()
    return (conversation_id, mark, int(number)) if conversation_id and is_number else None


def working(context: TaskContext, number: int) -> Task:
    """Return the task of a turn that is under way."""
    return Task(
        id=context.task_id(number),
        context_id=context.id,
        status=TaskStatus(state=TaskState.TASK_STATE_WORKING),
    )


def task_of(context: TaskContext, turn: Turn, text: str) -> Task:
    """Return a turn as a task, with the text that was said in it."""
    artifacts = [Artifact(artifact_id=REPLY, parts=[Part(text=text)])] if text else []
    return Task(
        id=context.task_id(turn.number),
        context_id=context.id,
        status=status_of(context, turn),
        artifacts=artifacts,
        metadata=_struct({"turnwise": turn.data}),
    )


def status_of(context: TaskContext, turn: Turn) -> TaskStatus:
    """Return the state of a turn: what it asks a person is a message, as text and as data."""
    named = context.task_id(turn.number)
    parts = []
    if (prompt := prompt_of(turn)) is not None:
        parts = [Part(text=prompt), Part(data=ParseDict(turn.data, Value()))]
    elif turn.failure is not None:
        parts = [Part(text=turn.failure)]
    message = Message(
        message_id=f"{named}-{turn.status}-{turn.call_id or ''}",
        context_id=context.id,
        task_id=named,
        role=Role.ROLE_AGENT,
        parts=parts,
    )
    return TaskStatus(state=_STATES[turn.status], message=message if parts else None)


def status_event(context: TaskContext, turn: Turn) -> TaskStatusUpdateEvent:
    """Return the event that tells how a turn has stopped."""
    return TaskStatusUpdateEvent(
        task_id=context.task_id(turn.number),
        context_id=context.id,
        status=status_of(context, turn),
        metadata=_struct({"turnwise": turn.data}),
    )


def text_event(context: TaskContext, number: int, text: str, *, first: bool) -> TaskArtifactUpdateEvent:
    """Return the event that adds a text to what was said."""
    return TaskArtifactUpdateEvent(
        task_id=context.task_id(number),
        context_id=context.id,
        artifact=Artifact(artifact_id=REPLY, parts=[Part(text=text)]),
        append=not first,
    )


def _struct(data: dict[str, Any]) -> Struct:
    return ParseDict(data, Struct())
