"""Reads what a person replies in plain text to what a turn asks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .....states.errors import Refused
from .....states.events import Resolution
from .....states.values.questions import UserQuestion
from .acts import Act, AnswerQuestions, Awaited, DecideCall, ResolveCall

_DECISIONS: Mapping[str, bool] = {"yes": True, "allow": True, "approve": True, "no": False, "deny": False}
_VERDICTS: Mapping[str, Resolution] = {"ran": "ran", "did not run": "did_not_run", "again": "again"}


def act_of(text: str, awaited: Awaited) -> Act:
    """Return what a person does who replies with this text to what is awaited.

    To one question the whole text is the answer, to several each line is one. An option is chosen by its label or its
    number; anything else is an answer in the person's own words. Raises `Refused` for a text that decides nothing:
    `missing_answer` if there are fewer lines than questions, `awaiting_approval` and `in_doubt` if it is neither of the
    words that are asked for. `Pure.`
    """
    match awaited.wanted:
        case "answers":
            return AnswerQuestions(call_id=awaited.call_id, answers=_answers(text, awaited.questions))
        case "approval":
            return DecideCall(call_id=awaited.call_id, allowed=_decision(text))
        case "resolution":
            return ResolveCall(call_id=awaited.call_id, verdict=_verdict(text))


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
