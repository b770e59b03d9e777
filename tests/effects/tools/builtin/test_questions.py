"""The built-in tool `ask_user_question`."""

import json

from turnwise.effects.tools.context import Question
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states.values.questions import QuestionOption, UserQuestion

from ....support.tools import outcome_of


async def test_it_asks_what_the_model_wrote() -> None:
    """P12: the questions of the call become the questions of the act."""
    ask = ToolRegistry(["ask_user_question"]).find("ask_user_question")
    assert ask is not None
    question = {"question": "Which?", "header": "Day", "options": [{"label": "a"}, {"label": "b"}]}

    act = await outcome_of(ask, json.dumps({"questions": [{**question, "multiSelect": True}]}))

    options = (QuestionOption(label="a"), QuestionOption(label="b"))
    assert act == Question((UserQuestion(question="Which?", header="Day", options=options, multi_select=True),))


def test_its_schema_has_the_required_bounds() -> None:
    """Seed 002: 1-4 questions, 2-4 options, a header of up to 12 characters, and `multiSelect` false by default."""
    (definition,) = ToolRegistry(["ask_user_question"]).definitions()

    questions = definition["function"]["parameters"]["properties"]["questions"]
    fields = questions["items"]["properties"]
    assert (questions["minItems"], questions["maxItems"]) == (1, 4)
    assert (fields["options"]["minItems"], fields["options"]["maxItems"]) == (2, 4)
    assert (fields["header"]["type"], fields["header"]["maxLength"]) == ("string", 12)
    assert fields["multiSelect"] == {"type": "boolean", "default": False}
    assert questions["items"]["required"] == ["question", "options"]
    assert fields["options"]["items"]["required"] == ["label"]
