"""What a turn waits for, as an interrupt, and what resumes it.

A call can wait more than once: for approval, and later for answers to questions of its tool. So the id of an interrupt
is that of the call together with the step at which the wait began.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

from ag_ui.core import Interrupt, ResumeEntry

from .....engine.conversation import Conversation
from .....engine.turns import Turn, WaitsForAnswer, WaitsForApproval, WaitsForResolution
from .....states.errors import InvalidInput
from .....states.values.questions import UserQuestion
from ...permissions import Caller
from ..turns.acts import Act, Awaited, DecideCall, DeclineQuestions, awaited_by
from ..turns.choosing import began_waiting, earlier_request, stored
from ..turns.payloads import ApprovalPayload, VerdictPayload, act_of_payload
from ..turns.prompts import prompt_of
from ..turns.requested_turn import ActTurn, RequestedTurn
from .refusal import RunRefused


def interrupt_id(call_id: str, seq: int) -> str:
    """Return the id of the interrupt of a call that began to wait at the step `seq`. `Pure.`"""
    return f"{call_id}.{seq}"


def interrupt_of(turn: Turn, seq: int) -> Interrupt | None:
    """Return what a turn waits for since the step `seq`, None if it waits for nobody. `Pure.`"""
    match turn:
        case WaitsForAnswer(questions=questions):
            reason, schema = "input_required", _answers_schema(questions)
        case WaitsForApproval():
            reason, schema = "tool_call", ApprovalPayload.model_json_schema()
        case WaitsForResolution():
            reason, schema = "turnwise:in_doubt", VerdictPayload.model_json_schema()
        case _:
            return None
    return Interrupt(
        id=interrupt_id(turn.call_id, seq),
        reason=reason,
        message=prompt_of(turn),
        tool_call_id=turn.call_id,
        response_schema=schema,
        metadata={"turnwise": turn.data},
    )


def _answers_schema(questions: tuple[UserQuestion, ...]) -> dict[str, Any]:
    properties = {question.question: _answer_schema(question) for question in questions}
    answers = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "object", "properties": {"answers": answers}, "required": ["answers"]}


def _answer_schema(question: UserQuestion) -> dict[str, Any]:
    """Any text is an answer; the options are examples of one."""
    text: dict[str, Any] = {"type": "string", "minLength": 1}
    if question.options:
        text["examples"] = [option.label for option in question.options]
    return {"type": "array", "items": text, "minItems": 1} if question.multi_select else text


# --- resuming


async def resumed_turn(caller: Caller, conversation: Conversation, entries: list[ResumeEntry]) -> RequestedTurn:
    """Hand the answer to an interrupt to its conversation, and return the turn that goes on. The same answer may come
    again. Raises `RunRefused` if this interrupt is not open, `InvalidInput` and `Refused`."""
    if len(entries) != 1:
        raise RunRefused("unknown_interrupt", "One interrupt is open at a time: resume that one.")
    (entry,) = entries
    request_id = _request_id(entry)
    earlier = await earlier_request(conversation, request_id)
    awaited = await _open(conversation, entry.interrupt_id) if earlier is None else earlier.awaited
    if awaited is None:
        raise RunRefused("unknown_interrupt", "This interrupt is not open: it was answered, or never raised.")
    return await stored(ActTurn(caller, conversation, request_id, _act(entry, awaited)))


def _request_id(entry: ResumeEntry) -> str:
    """The id under which an answer is stored: the same for the same answer to the same interrupt."""
    content = json.dumps([entry.interrupt_id, entry.status, entry.payload], sort_keys=True)
    return f"resume-{blake2b(content.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"


async def _open(conversation: Conversation, given_id: str) -> Awaited | None:
    """Return what the conversation waits for, None if that is not the interrupt with this id."""
    awaited = awaited_by(conversation.state)
    seq = await began_waiting(conversation)
    is_open = awaited is not None and seq is not None and given_id == interrupt_id(awaited.call_id, seq)
    return awaited if is_open else None


def _act(entry: ResumeEntry, awaited: Awaited) -> Act:
    """Return what the user does."""
    if entry.status == "cancelled":
        return _abandoned(awaited)
    return act_of_payload(entry.payload, awaited)


def _abandoned(awaited: Awaited) -> Act:
    """Return what it means to resolve nothing: a question is declined, and a call that nobody allows does not run."""
    match awaited.wanted:
        case "answers":
            return DeclineQuestions(call_id=awaited.call_id)
        case "approval":
            return DecideCall(call_id=awaited.call_id, allowed=False)
        case "resolution":
            raise InvalidInput("Whether the call ran must be said: resolve the interrupt, or cancel the turn.")
