"""The act by which a tool asks the user."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from ...states.values.acts import ActKind
from ...states.values.questions import QuestionSet


@dataclass(frozen=True, config=ConfigDict(hide_input_in_errors=True))
class Question:
    """Ask the user and wait. The answers become the result of the call.

    Raises `pydantic.ValidationError` for questions that do not follow the rules for questions.
    """

    kind: ClassVar[ActKind] = "question"

    questions: QuestionSet
