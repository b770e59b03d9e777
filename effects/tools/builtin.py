"""The built-in tools, by which a model speaks to its user, asks, recalls, and works with other agents.

Most of them return an act, which asks for what only the machine can do: the machine carries it out in the step that
takes the result, so that it is done exactly if the call is known to have succeeded. The docstring of each tool is
what a model reads of it.

A model takes its text for an answer, while an application may deliver none of it. By the tools that speak the
difference is clear: what a model says by them is meant for the user, and everything else is not. The agent to which
another tool writes is found in the directory when the call runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from ...states.errors import InvalidInput
from ...states.policy import Policy, Texts
from ...states.values.acts import (
    MAX_TASKS,
    AgentMail,
    Audience,
    Speech,
    SubAgents,
    SubAgentTask,
    Transfer,
    WorkComplete,
)
from ...states.values.messages import ToolResult
from ...states.values.questions import ChoiceQuestionSet, UserQuestion
from ...states.values.value import MAX_QUOTED, FilledText, shortened
from ..agents import Agent, ReachableAgents
from ..printable import is_blank
from ..recall.performer import write_found
from ..recall.terms import Span, bounds_of, read_keywords, read_span
from .arguments import TypedArguments
from .context import Question, ToolContext, ToolError
from .normalization import InvalidArguments, Normalized, NothingToSay
from .results import refusal
from .tool import AnyTool, make_tool, tool

_NO_AGENTS = "Messages to other agents cannot be sent here."
_NO_FOREGROUND = "There is no agent with a user that this agent works for."
_NO_TARGET = "Say by `agent_id` which agent the message is for: this agent works for none that has a user."
_UNKNOWN_AGENT = "There is no agent {agent_id} that this agent may write to."
_CLOSED_AGENT = "The agent {agent_id} is closed and takes no messages."
_SELF = "An agent cannot write to itself."


@tool(acts=("mail",), crash="pure", exclusive=True)
async def send_user_message(
    context: ToolContext,
    text: Annotated[FilledText, Field(description="What the user should learn, with all that is needed to present it")],
) -> ToolResult:
    """Have something presented to the user.

    You have no user of your own. Your message goes to the agent that talks to the user, which presents it in its own
    words. So send facts and results, not a finished text. Use it for what the user should know; for what only that
    agent needs to know, use send_agent_message.
    """
    return _mail(await _foreground(_agents_of(context), _NO_FOREGROUND), text, "user")


@tool(acts=("mail",), crash="pure", exclusive=True)
async def send_agent_message(
    context: ToolContext,
    text: Annotated[FilledText, Field(description="What that agent should know or do")],
    agent_id: Annotated[
        str | None,
        Field(description="The agent to write to; without it, the agent that talks to the user you work for"),
    ] = None,
    silent: Annotated[
        bool, Field(description="True if that agent need not act on it now and may read it with its next message")
    ] = False,
) -> ToolResult:
    """Send an internal message to another agent: an update, a result, or a request.

    It is no request of a user and is not shown to one. That agent may answer by a message of its own, or not at all.
    """
    agents = _agents_of(context)
    target = await _foreground(agents, _NO_TARGET) if agent_id is None else await _find(agents, agent_id)
    return _mail(target, text, "agent", silent=silent)


def _agents_of(context: ToolContext) -> ReachableAgents:
    if context.agents is None:
        raise ToolError(_NO_AGENTS)
    return context.agents


async def _foreground(agents: ReachableAgents, missing: str) -> Agent:
    found = await agents.foreground()
    if found is None:
        raise ToolError(missing)
    return found


async def _find(agents: ReachableAgents, agent_id: str) -> Agent:
    if agent_id == agents.conversation_id:
        raise ToolError(_SELF)
    found = await agents.find(agent_id)
    if found is None:
        raise ToolError(_UNKNOWN_AGENT.format(agent_id=shortened(agent_id, MAX_QUOTED)))
    return found


def _mail(target: Agent, text: str, audience: Audience, *, silent: bool = False) -> ToolResult:
    """The result of a call that sends this message. It names the agent that gets it."""
    if target.is_closed:
        raise ToolError(_CLOSED_AGENT.format(agent_id=target.id))
    mail = AgentMail(target=target.id, text=text, audience=audience, silent=silent)
    return ToolResult(text=json.dumps({"success": True, "agent_id": target.id}), acts=(mail,))


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


_NOTHING_FOUND = "Nothing was found."
_NO_KEYWORDS = "Nothing can be searched for without a keyword."
_NO_MEMORY = "Older conversations cannot be searched here."
_NO_MOMENT = "`{name}` must be a date or a moment by ISO 8601, such as 2025-09-15 or 2025-09-15T17:53Z."


@tool(crash="pure")
async def recall_conversation(
    context: ToolContext,
    keywords: Annotated[
        list[str],
        Field(
            description="Words or short names that the earlier texts are likely to contain, in their language. A text "
            "that holds more of them comes first."
        ),
    ],
    since: Annotated[
        str | None, Field(alias="from", description="Only texts from this date or moment on, by ISO 8601")
    ] = None,
    until: Annotated[
        str | None, Field(alias="to", description="Only texts up to this date or moment, by ISO 8601")
    ] = None,
) -> str:
    """Search what you and this user said to each other earlier.

    Use it when the user refers to something from an earlier conversation that you cannot see here, or when what was
    said then would make your answer better. You get the texts that fit best, with who said them and when.
    """
    if context.memory is None:
        raise ToolError(_NO_MEMORY)
    if not (words := read_keywords(keywords)):
        raise ToolError(_NO_KEYWORDS)
    between = bounds_of(_moment("from", since), _moment("to", until))
    found = await context.memory.search(words, between.since, between.until)
    return write_found(found) or _NOTHING_FOUND


def _moment(name: str, given: str | None) -> Span | None:
    span = read_span(given)
    if span is None and given is not None and given.strip():
        raise ToolError(_NO_MOMENT.format(name=name))
    return span


class SpeechArguments(TypedArguments):
    """The arguments of a tool whose parameter `parameter` holds the words for the user.

    `refusal_in` picks, among the texts of a policy, the one that the model reads if the words are missing.

    Such a tool has one parameter that matters: the words for the user. If they are missing, the model reads one and
    the same refusal, whatever else it wrote. A policy may also say that speaking tools never fail: then whatever
    words there are go out, and a call without any is acknowledged all the same.
    """

    def __init__(self, function: Callable[..., Any], parameter: str, refusal_in: Callable[[Texts], str]) -> None:
        super().__init__(function)
        self._parameter = parameter
        self._refusal_in = refusal_in
        self._policy = Policy()

    def under(self, policy: Policy) -> SpeechArguments:
        """The arguments as read under this policy."""
        bound = copy(self)
        bound._policy = policy
        return bound

    def accepted(self, text: str) -> str:
        """The arguments as a call runs with them. Raises InvalidArguments, unless no call may fail."""
        try:
            return super().accepted(text)
        except (InvalidArguments, NothingToSay):
            if not self._policy.speech.never_fail:
                raise
            return text

    def values(self, text: str) -> dict[str, Any]:
        """The keyword arguments. Raises InvalidArguments, or NothingToSay under a policy that lets no call fail."""
        try:
            return super().values(text)
        except InvalidArguments:
            if not self._policy.speech.never_fail:
                raise
            raise NothingToSay from None

    def _values(self, written: Normalized) -> dict[str, Any]:
        value = written.data.get(self._parameter)
        if self._policy.speech.never_fail:
            words = {self._parameter: self._words_in(value)}
            return super()._values(Normalized(json.dumps(words), words))
        if self._is_missing(value):
            raise InvalidArguments(refusal(self._refusal_in(self._policy.texts)))
        return super()._values(written)

    def _is_missing(self, value: object) -> bool:
        return not isinstance(value, str) or (is_blank(value) and self._policy.speech.empty == "error")

    def _words_in(self, value: object) -> str:
        """The words that the model meant; a number is taken for its digits. Raises NothingToSay."""
        words = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
        if not isinstance(words, str) or self._is_missing(words):
            raise NothingToSay
        return words


def _speaking_tool(
    parameter: str, refusal_in: Callable[[Texts], str], **declared: Any
) -> Callable[[Callable[..., Any]], AnyTool]:
    """Make a function a tool that says the value of its parameter to the user. `refusal_in` picks the text that the
    model reads if the value is missing.

    Such a tool only records what was said, so a call that a crash interrupted runs again.
    """

    def decorate(function: Callable[..., Any]) -> AnyTool:
        tool = make_tool(function, acts=("speech",), spoken=parameter, crash="pure", **declared)
        return replace(tool, arguments=SpeechArguments(function, parameter, refusal_in))

    return decorate


@_speaking_tool("text", refusal_in=lambda texts: texts.nothing_said)
async def respond_to_user(
    text: Annotated[
        str,
        Field(
            description="What the user is to receive. Write naturally, the way one person talks to another: "
            "no Markdown, no code, no other markup."
        ),
    ],
) -> Speech:
    """Say something to the user, so that it is sure to reach them.

    Where the user listens, on voice, the text is spoken aloud; elsewhere it is sent to them as a message. Ordinary text
    that you write beside your calls is for yourself and may never reach the user. So call this whenever something is
    meant for them: an answer, a text that they want to hear, a result, a confirmation.
    """
    return Speech(text=text.strip())


speak_to_user: AnyTool = replace(respond_to_user, name="speak_to_user")
"""The same tool under its other name."""


@_speaking_tool("message", refusal_in=lambda texts: texts.no_message, exclusive=True)
async def talk(
    message: Annotated[str, Field(description="What to say to the user. Write naturally, without any markup.")],
) -> Speech:
    """Talk to the user: they receive the message at once. Take this for the only way to reach the user.

    All other text that you write counts as your own thinking. You must therefore use this tool for every word that is
    meant for the user, be it a greeting, an answer, what you are about to do or what came of it. Use it as often as you
    have something to say.
    """
    return Speech(text=message, when="now")


def _check_not_blank(summary: str) -> str:
    if not summary.strip():
        raise ValueError("a summary must not be empty")
    return summary.strip()


@tool(acts=("work_complete",), crash="pure")
async def mark_work_complete(
    summary: Annotated[str, AfterValidator(_check_not_blank), Field(description="What was done, in a few sentences")],
    confidence: Annotated[
        float | None, Field(strict=True, ge=0, le=1, description="How sure you are that nothing is missing, 0 to 1")
    ] = None,
) -> WorkComplete:
    """Declare that all the work which the user asked for is done.

    Call it last, once nothing is left to do and everything meant for the user was said to them: the summary is for the
    record and does not replace an answer. The claim may be checked, and you will be told if something is missing. Do
    not call it while you are waiting for something, or if you could not do what was asked.
    """
    return WorkComplete(summary=summary, confidence=confidence)


_NO_RESULTS = "Results of earlier calls cannot be read here."


@tool(crash="pure")
async def read_result(
    context: ToolContext,
    call_id: Annotated[str, Field(description="The id of the call, as it stands where something is left out")],
    start: Annotated[
        int, Field(alias="from", ge=0, description="The place of the first character to read, counted from 0")
    ] = 0,
) -> ToolResult:
    """Read the result of an earlier call, or the part of it that you were not shown.

    Long results are cut, and old ones are not shown any more. Where something is left out, a line says so, and names
    the call and the place at which you can read on. Read only what you need.
    """
    if context.results is None:
        raise ToolError(_NO_RESULTS)
    try:
        return await context.results.read(call_id, start)
    except InvalidInput as error:
        raise ToolError(error.sentence) from None


NO_PROFILE = "profile is required"


@tool(exclusive=True, acts=("transfer",), crash="pure")
async def transfer_to(
    profile: Annotated[str, Field(description="The name of the profile, as the instructions list it")],
) -> Transfer:
    """Go on by another profile, with the same user and the same conversation.

    Use it when the instructions list a profile that suits what the user needs now better than the present one. The
    change holds from your next step on, until it is made again.
    """
    if not profile.strip():
        raise ToolError(NO_PROFILE)
    return Transfer(profile=profile.strip())
