"""What a waiting turn asks of a person, and what the person does about it: the same for every protocol.

A client that can show nothing but text shows the question as text (`prompt_of`), and the person replies in plain text.
A protocol whose replies can hold any JSON hands the reply over as data. Both are read to the same acts: the events that
`Caller.submit` hands to the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import Field, ValidationError

from ....effects.printable import with_hidden_shown
from ....effects.tools.tool import shown_arguments
from ....engine.requests import make
from ....engine.turns import Turn, WaitsForAnswer, WaitsForApproval, WaitsForResolution
from ....states.errors import InvalidInput, Refused, faults_of
from ....states.events import DoubtResolved, Request, Resolution, ToolApproval, UserQuestionResponse
from ....states.states import AnyState, AwaitingApproval, InDoubt
from ....states.values.questions import UserQuestion
from ..permissions import Act
from ..schemas import Body

A = TypeVar("A", bound=Request)

Wanted: TypeAlias = Literal["answers", "approval", "resolution"]
"""What a turn waits for: answers to questions, the approval of a call, or word of whether a call ran."""


@dataclass(frozen=True)
class Awaited:
    """What a turn waits for, and the call that it is about."""

    wanted: Wanted
    call_id: str
    questions: tuple[UserQuestion, ...] = ()


def awaited_by(state: AnyState) -> Awaited | None:
    """Return what a conversation in this state waits for, None if it waits for nobody. `Pure.`"""
    if (asked := state.open_question) is not None:
        return Awaited("answers", asked.call_id, asked.questions)
    if isinstance(state, AwaitingApproval):
        return Awaited("approval", state.call.call_id)
    if isinstance(state, InDoubt):
        return Awaited("resolution", state.call.call_id)
    return None


class Stamp(NamedTuple):
    """The id and the moment of the request that is made of what a client sends."""

    event_id: str
    at: datetime

    def on(self, kind: type[A], **fields: object) -> A:
        """Return the request of this kind. Raises `InvalidInput`, which names the first invalid field. `Pure.`"""
        return make(kind, event_id=self.event_id, at=self.at, **fields)


_DECISIONS: Mapping[str, bool] = {"yes": True, "allow": True, "approve": True, "no": False, "deny": False}
_VERDICTS: Mapping[str, Resolution] = {"ran": "ran", "did not run": "did_not_run", "again": "again"}


def act_of(text: str, awaited: Awaited, stamp: Stamp) -> Act:
    """Return what a person does who replies with this text to what is awaited.

    To one question the whole text is the answer, to several each line is one. An option is chosen by its label or its
    number; anything else is an answer in the person's own words. Raises `Refused` for a text that decides nothing:
    `missing_answer` if there are fewer lines than questions, `awaiting_approval` and `in_doubt` if it is neither of the
    words that are asked for. `Pure.`
    """
    match awaited.wanted:
        case "answers":
            return stamp.on(UserQuestionResponse, call_id=awaited.call_id, answers=_answers(text, awaited.questions))
        case "approval":
            return stamp.on(ToolApproval, call_id=awaited.call_id, allowed=_decision(text))
        case "resolution":
            return stamp.on(DoubtResolved, call_id=awaited.call_id, verdict=_verdict(text))


def _answers(text: str, questions: tuple[UserQuestion, ...]) -> dict[str, str | list[str]]:
    lines = [text.strip()] if len(questions) == 1 else [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) != len(questions):
        sentence = f"{len(questions)} questions wait for an answer: answer each on a line of its own."
        raise Refused("missing_answer", questions[min(len(lines), len(questions) - 1)].question, sentence=sentence)
    return {question.question: _answer(line, question) for question, line in zip(questions, lines, strict=True)}


def _answer(text: str, question: UserQuestion) -> str | list[str]:
    if not question.multi_select:
        return _label(text, question) or text
    whole = _label(text, question)
    pieces = [piece.strip() for piece in re.split(r"[,;\n]", text) if piece.strip()]
    labels = [_label(piece, question) for piece in pieces]
    if whole is not None or not all(labels):
        return [whole or text]
    return list(dict.fromkeys(filter(None, labels)))


def _label(text: str, question: UserQuestion) -> str | None:
    """Return the label of the option that the text names, None if it names none."""
    labels = [option.label for option in question.options]
    named = [label for label in labels if label.casefold() == text.casefold()]
    if named:
        return text if text in labels else named[0]
    if re.fullmatch(r"[1-9]", text) and int(text) <= len(labels):
        return labels[int(text) - 1]
    return None


def _decision(text: str) -> bool:
    decision = _DECISIONS.get(_word(text))
    if decision is None:
        raise Refused("awaiting_approval", sentence='A tool waits for approval: answer "yes" or "no".')
    return decision


def _verdict(text: str) -> Resolution:
    verdict = _VERDICTS.get(_word(text).replace("_", " "))
    if verdict is None:
        raise Refused("in_doubt", sentence='A tool was interrupted: answer "ran", "did not run" or "again".')
    return verdict


def _word(text: str) -> str:
    return text.strip().rstrip(".!").casefold()


def prompt_of(turn: Turn) -> str | None:
    """Return what the turn asks of a person, None if it asks nothing. The prompt about a call names the call by its
    id, so that a late reply is not taken for another call. `Pure.`"""
    match turn:
        case WaitsForAnswer(questions=questions):
            return "\n\n".join(map(_question_text, questions))
        case WaitsForApproval(call=call):
            tool, arguments = with_hidden_shown(call.name), shown_arguments(call)
            if call.approval_by == "operator":
                return f"An operator decides whether the tool {tool} may run with {arguments}. [{call.call_id}]"
            return f'May the tool {tool} run with {arguments}? Answer "yes" or "no". [{call.call_id}]'
        case WaitsForResolution(call=call):
            tool, arguments = with_hidden_shown(call.name), shown_arguments(call)
            return (
                f"The tool {tool} was interrupted while it ran with {arguments}, and it is unknown whether it"
                f' finished. Answer "ran", "did not run" or "again". [{call.call_id}]'
            )
        case _:
            return None


def _question_text(question: UserQuestion) -> str:
    """Return a question with its options, each on a line with its number. `Pure.`"""
    return "\n".join(_lines(question))


def _lines(question: UserQuestion) -> Iterator[str]:
    yield question.question + (" (Several may be chosen.)" if question.multi_select else "")
    for number, option in enumerate(question.options, start=1):
        yield f"{number}. {option.label}" + (f": {option.description}" if option.description else "")


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


def act_of_payload(payload: Any, awaited: Awaited, stamp: Stamp) -> Act:
    """Return what a person does who replies this to what is awaited. A text is read as in a chat. Raises `InvalidInput`
    and, as `act_of` does, `Refused`. `Pure.`"""
    if isinstance(payload, str):
        return act_of(payload, awaited, stamp)
    call_id = awaited.call_id
    match awaited.wanted:
        case "answers":
            given = _read(AnswersPayload, payload)
            return stamp.on(UserQuestionResponse, call_id=call_id, **dict(given))
        case "approval":
            decision = _read(ApprovalPayload, payload)
            note, arguments = decision.note or "", decision.edited_args
            return stamp.on(ToolApproval, call_id=call_id, allowed=decision.approved, note=note, arguments=arguments)
        case "resolution":
            return stamp.on(DoubtResolved, call_id=call_id, verdict=_read(VerdictPayload, payload).verdict)


def _read(kind: type[P], payload: Any) -> P:
    try:
        return kind.model_validate(payload)
    except ValidationError as error:
        fault = faults_of(error)[0]
        where = ".".join(("payload", *map(str, fault["loc"])))
        raise InvalidInput(f"{where}: {fault['msg']}.") from None
