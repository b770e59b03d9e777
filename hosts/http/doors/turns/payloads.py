"""What a person replies as data, in protocols whose replies can hold any JSON."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError

from .....states.errors import InvalidInput, faults_of
from .....states.events import Resolution
from ...schemas.body import Body
from .acts import Act, AnswerQuestions, Awaited, DecideCall, ResolveCall
from .text_replies import act_of

P = TypeVar("P", bound=Body)


class AnswersPayload(Body):
    """Answers by the text of their question, with notes."""

    answers: dict[str, str | list[str]]
    annotations: dict[str, dict[str, str]] = Field(default_factory=dict)


class ApprovalPayload(Body):
    """Whether the call may run, perhaps with other arguments, or why it may not."""

    approved: bool
    edited_args: Annotated[dict[str, Any] | None, Field(alias="editedArgs")] = None
    note: str | None = None


class VerdictPayload(Body):
    """Whether a call ran that was interrupted."""

    verdict: Resolution


def act_of_payload(payload: Any, awaited: Awaited) -> Act:
    """Return what a person does who replies this to what is awaited. A text is read as in a chat. Raises `InvalidInput`
    and, as `act_of` does, `Refused`. `Pure.`"""
    if isinstance(payload, str):
        return act_of(payload, awaited)
    call_id = awaited.call_id
    match awaited.wanted:
        case "answers":
            given = _read(AnswersPayload, payload)
            return AnswerQuestions(call_id=call_id, answers=given.answers, annotations=given.annotations)
        case "approval":
            decision = _read(ApprovalPayload, payload)
            return DecideCall(
                call_id=call_id, allowed=decision.approved, note=decision.note, arguments=decision.edited_args
            )
        case "resolution":
            return ResolveCall(call_id=call_id, verdict=_read(VerdictPayload, payload).verdict)


def _read(kind: type[P], payload: Any) -> P:
    try:
        return kind.model_validate(payload)
    except ValidationError as error:
        fault = faults_of(error)[0]
        where = ".".join(("payload", *map(str, fault["loc"])))
        raise InvalidInput(f"{where}: {fault['msg']}.") from None
