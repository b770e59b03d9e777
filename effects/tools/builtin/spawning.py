"""The built-in tool by which a model has sub-agents do parts of its work."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from ....states.values.acts import SubAgents, SubAgentTask
from ....states.values.value import RequestText, Value
from ..declaration import tool

MAX_TASKS = 100
"""The most tasks of one call. The policy of a conversation usually allows fewer."""


def _check_not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("a task must not be empty")
    return text


TaskText = Annotated[
    RequestText,
    AfterValidator(_check_not_blank),
    Field(description="Everything that the sub-agent has to know: it sees nothing of this conversation"),
]


class Task(Value):
    """A task for one sub-agent, with what differs from the rules for all of them."""

    text: TaskText
    profile: Annotated[str, Field(description="The name of the profile by which it works")] = ""
    tools: Annotated[
        tuple[str, ...] | None, Field(description="The names of those of your tools that it may use; without it, all")
    ] = None
    requests: Annotated[int | None, Field(strict=True, ge=1, description="How often it may ask its model")] = None
    tokens: Annotated[int | None, Field(strict=True, ge=1, description="How many tokens it may use")] = None
    cost: Annotated[float | None, Field(gt=0, allow_inf_nan=False, description="What it may cost, in US dollars")] = (
        None
    )
    seconds: Annotated[float | None, Field(gt=0, allow_inf_nan=False, description="It is stopped after this time")] = (
        None
    )


def _as_object(given: object) -> object:
    """A text stands for a task with nothing but that text, so that one kind of task is checked."""
    return {"text": given} if isinstance(given, str) else given


TextOrTask = Annotated[Task, BeforeValidator(_as_object, json_schema_input_type=TaskText | Task)]


def _task_of(given: Task) -> str | SubAgentTask:
    return given.text if given == Task(text=given.text) else SubAgentTask.model_validate(given.model_dump())


@tool(exclusive=True, acts=("children",), crash="pure")
async def spawn_agents(
    tasks: Annotated[
        list[TextOrTask],
        Field(
            min_length=1,
            max_length=MAX_TASKS,
            description="A task for each sub-agent: a text, or an object with the text and its own limits",
        ),
    ],
) -> SubAgents:
    """Have sub-agents do several tasks side by side, and wait for all their results.

    Use it for parts of the work that do not depend on each other and that would take you many steps, such as looking
    into several questions at once. Each sub-agent works alone, sees only its task and answers with one text. You get
    their results together, in the order of the tasks, each with how it ended.
    """
    return SubAgents(tasks=tuple(map(_task_of, tasks)))
