"""A turn as JSON, for clients that are not written in Python."""

from __future__ import annotations

from typing import Any

from .turn import Turn
from .updates.data import question_data
from .updates.message_view import call_data


def describe_turn(turn: Turn) -> dict[str, Any]:
    """Return a turn as a JSON object. One that waits for a person also has the `call_id` that an answer names, with its
    `questions`, or with the `call` to approve or to resolve. `Pure.`"""
    described: dict[str, Any] = {
        "turn": turn.number,
        "status": turn.status,
        "is_complete": turn.status == "completed",
        "reply": turn.reply,
        "final_content": turn.final_content,
        "user_response": turn.user_response,
        "deliveries": list(turn.deliveries),
        "silent": turn.silent,
        "truncated": turn.truncated,
        "failure": turn.failure,
        "limit": turn.limit,
        "usage": turn.usage.model_dump(mode="json"),
    }
    if turn.call_id is not None:
        described["call_id"] = turn.call_id
    if turn.questions:
        described["questions"] = [question_data(one) for one in turn.questions]
    if turn.call is not None:
        described["call"] = call_data(turn.call)
    return described
