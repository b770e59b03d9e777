"""Tools that come with turnwise. A host takes those it wants, by name.

To the machine they are tools like a host's own: what they do, they do by the act that they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from ....states.values.questions import QuestionSet
from ..acts import Question
from ..tool import AnyTool, tool
from .speaking import mark_work_complete, respond_to_user, speak_to_user, talk


@tool(exclusive=True, acts=("question",), crash="pure")
async def ask_user_question(
    questions: Annotated[QuestionSet, Field(description="What to ask, 1-4 questions")],
) -> Question:
    """Put questions to the user and wait for the answers.

    Ask when several approaches are valid and the user's preference decides between them, or when you cannot go on
    without a piece of information. Put 1-4 questions in one call, each with 2-4 short options that differ clearly; the
    user can always answer in their own words, so offer no "Other". Not available to sub-agents.
    """
    return Question(questions)


BUILT_IN: Mapping[str, AnyTool] = MappingProxyType({
    built_in.name: built_in
    for built_in in (ask_user_question, respond_to_user, speak_to_user, mark_work_complete, talk)
})  # fmt: skip
"""The built-in tools by name."""


def bare_name(name: str) -> str:
    """The name without the server in front of it: `x:respond_to_user` is `respond_to_user` (case S16). `Pure.`"""
    return name.rpartition(":")[2]


def names_of(name: str) -> tuple[str, ...]:
    """All names of the built-in tool that `name` means, the one that it is called by first; none if it means none.
    `Pure.`"""
    meant = BUILT_IN.get(bare_name(name))
    if meant is None:
        return ()
    others = (one.name for one in BUILT_IN.values() if one.function is meant.function and one is not meant)
    return (meant.name, *others)
