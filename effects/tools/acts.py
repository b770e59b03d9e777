"""What a tool may ask of the conversation, instead of returning a text.

The machine knows no tool by name: a tool that returns an act does what only the machine can do, such as waiting for a
person. A tool may return only acts of the kinds that it declares, and must be exclusive.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from ...states.acts import ActKind
from ...states.questions import QuestionSet


@dataclass(frozen=True, config=ConfigDict(hide_input_in_errors=True))
class Question:
    """Ask a person and wait; the answers become the result of the call.

    Raises `pydantic.ValidationError` for questions that cannot be asked (case P16).
    """

    kind: ClassVar[ActKind] = "question"

    questions: QuestionSet
