"""The built-in tool by which a model has sub-agents do parts of its work."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from ....states.values.acts import MAX_TASKS, SubAgents, SubAgentTask
from ....states.values.value import FilledText
from ..declaration import tool


def _as_object(given: object) -> object:
    """A text stands for a task with nothing but that text, so that one kind of task is checked."""
    return {"text": given} if isinstance(given, str) else given


Text = Annotated[FilledText, Field(description=SubAgentTask.model_fields["text"].description)]

TextOrTask = Annotated[SubAgentTask, BeforeValidator(_as_object, json_schema_input_type=Text | SubAgentTask)]


def _as_text(task: SubAgentTask) -> str | SubAgentTask:
    """The shortest form of a task, which is stored."""
    return task.text if task == SubAgentTask(text=task.text) else task


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
    return SubAgents(tasks=tuple(map(_as_text, tasks)))
