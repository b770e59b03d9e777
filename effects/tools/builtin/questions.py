"""The built-in tool by which a model asks the user."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ....states.values.questions import ChoiceQuestionSet, UserQuestion
from ..declaration import tool
from ..question import Question


@tool(exclusive=True, acts=("question",), crash="pure")
async def ask_user_question(
    questions: Annotated[ChoiceQuestionSet, Field(strict=True, description="What to ask, 1-4 questions")],
) -> Question:
    """Put questions to the user and wait for the answers.

    Ask when several approaches are valid and the user's preference decides between them, or when you cannot go on
    without a piece of information. Put 1-4 questions in one call, each with 2-4 short options that differ clearly; the
    user can always answer in their own words, so offer no "Other". Not available to sub-agents.
    """
    return Question(tuple(UserQuestion.model_validate(question.model_dump()) for question in questions))
