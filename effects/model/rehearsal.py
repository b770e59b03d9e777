"""The rehearsal model: an `Llm` of fixed rules in place of a language model, which needs no key and no network.

A program can be tried, shown and tested with it before anybody has an account. Only the model is replaced: requests
are built, answers stream, tools run and questions are asked as with any other model. It imports no client library, so
a program that uses it starts at once.

The model follows no script. Each rule looks at what was said and which tools are offered, and returns a reply or
None; the first reply is used. Nothing here knows litellm or who asks.

By some of the rules it is one of several agents. In the foreground it presents what other agents have for its user,
and takes note of the rest. In the background it passes on what it has found. Anywhere it hands a list of tasks to
sub-agents, writes to another agent, and hands the conversation over to another profile, where it has the tool for
that and the user's words ask for it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from ...states.events import ORIGIN_OF_WAKE_UPS
from ...states.values.messages import Usage
from ...states.values.value import encodable
from .port import ModelAnswer, ModelCall, ModelRequest, Purpose, Token
from .rehearsal_words import (
    ASK,
    COMPLETE,
    CONDENSED,
    RESPOND,
    SPAWN,
    TALK,
    TELL_AGENT,
    TELL_USER,
    TRANSFER,
    Call,
    Dialogue,
    Reply,
    choice_in,
    count_mentions,
    fill_parameters,
    find_first_mention,
    find_keywords,
    has_just_spoken,
    list_unfilled,
    options_in,
    read_dialogue,
    tasks_in,
)

REHEARSAL = "rehearsal"
"""The name under which an engine, a policy and the log know the model."""

DELAY = 0.015
"""Seconds before each word, so that a reader can watch the answer come in."""

VERDICT = '{"passed": true, "reason": "A rehearsal takes every claim at its word."}'
"""The answer to a request to check the work."""

SUMMARY = "Something was done; a rehearsal cannot tell what."
"""The answer to a request to summarize a turn."""

_ANSWERS: dict[Purpose, str] = {"check": VERDICT, "summarize": SUMMARY, "condense": CONDENSED}


class RehearsalLlm:
    """Answers by fixed rules, word by word. `delay` is the pause before each word, in seconds; None means `DELAY`.

    `window` is how many tokens one request may hold, as for any model; without it nothing is condensed ahead.
    """

    name: Final = REHEARSAL

    def __init__(self, *, window: int | None = None, delay: float | None = None) -> None:
        self.window = window
        self._delay = DELAY if delay is None else delay

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer the request; call `show` with each word as it comes. Tokens in the usage are counted as words."""
        reply = _reply_to(request)
        words = re.findall(r"\s*\S+", encodable(reply.text))
        for word in words:
            await asyncio.sleep(self._delay)
            show(Token(word))
        return ModelAnswer(
            content="".join(words),
            tool_calls=tuple(
                ModelCall(f"call_{index}", call.name, json.dumps(call.arguments, ensure_ascii=False))
                for index, call in enumerate(reply.calls)
            ),
            finish_reason="tool_calls" if reply.calls else "stop",
            usage=Usage(input_tokens=len(json.dumps(request.messages).split()), output_tokens=len(words)),
            model=request.model,
        )


def _reply_to(request: ModelRequest) -> Reply:
    if request.purpose in _PREPARATIONS:
        return Reply(_PREPARATIONS[request.purpose](request.messages))
    if request.purpose in _ANSWERS:
        return Reply(_ANSWERS[request.purpose])
    return reply_to(request.messages, request.tools if request.tool_choice == "auto" else ())


# What is answered before a turn is answered: which profile suits it, and what to search for. Both requests have an
# instruction and the user's text. The choice among profiles lists them in the instruction, a line `- name: description`
# for each.
MAX_KEYWORDS = 8

_PROFILE = re.compile(r"^- ([^:\n]+)(?:: (.*))?$", re.MULTILINE)


def _choose_profile(messages: Sequence[dict[str, Any]]) -> str:
    """The answer that names the profile with whose name and description the user's text has the most words in common;
    of several, the first. `Pure.`"""
    said = _content(messages, "user")
    profiles = _PROFILE.findall(_content(messages, "system"))
    names = sorted(profiles, key=lambda profile: -count_mentions(" ".join(profile), said))
    return json.dumps({"profile": names[0][0] if names else ""}, ensure_ascii=False)


def search_terms(messages: Sequence[dict[str, Any]]) -> str:
    """The answer that names the words of the user's text that say what it is about. `Pure.`"""
    keywords = find_keywords(_content(messages, "user"))[:MAX_KEYWORDS]
    return json.dumps({"keywords": keywords, "from": None, "to": None}, ensure_ascii=False)


def _content(messages: Sequence[dict[str, Any]], role: str) -> str:
    """The content of the last message of this role, if it is a text."""
    contents = [message["content"] for message in messages if message["role"] == role]
    return contents[-1] if contents and isinstance(contents[-1], str) else ""


_PREPARATIONS: dict[Purpose, Callable[[Sequence[dict[str, Any]]], str]] = {
    "route": _choose_profile,
    "enrich": search_terms,
}

INTRODUCTION = (
    "This is a rehearsal: a few fixed rules answer, not a language model. "
    "For a real one, set OPENAI_API_KEY and start with --model openai/gpt-4.1-mini."
)

BEFORE_SPEAKING, AFTER_SPEAKING = "The user should hear this.", "The user was told."
"""What the model writes beside a call of a speaking tool, and after its result."""

_FINGERPRINT = re.compile(r"_[0-9a-f]{8}\Z")

_HINTS = {
    SPAWN: "Give me a list of tasks, and I will hand them to sub-agents.",
    TRANSFER: "Ask me to hand you over to somebody, and I will.",
}
"""What a user can say to see these tools used."""

MAX_CALLS = 2
_LONGEST_HEADER = 12


def _use_tools(dialogue: Dialogue) -> Reply | None:
    """Call the tools that the user mentions, if the user's words fill their required parameters."""
    if dialogue.results:
        return None
    ordinary = {name: tool for name, tool in dialogue.tools.items() if name != ASK}
    mentions = {name: find_first_mention(tool, dialogue.said) for name, tool in ordinary.items()}
    calls = [
        Call(name, arguments)
        for name in sorted(ordinary, key=lambda name: mentions[name] or 0)
        if mentions[name] is not None
        and (arguments := fill_parameters(ordinary[name].get("parameters") or {}, dialogue.said)) is not None
    ][:MAX_CALLS]
    return Reply(f"Let me use {' and '.join(_readable(call.name) for call in calls)}.", tuple(calls)) if calls else None


def _ask_to_choose(dialogue: Dialogue) -> Reply | None:
    """Ask the user to choose if a result lists several options."""
    if ASK not in dialogue.tools or any(name == ASK for name, _ in dialogue.results):
        return None
    for name, text in dialogue.results:
        if options := options_in(text):
            topic = _topic(name)
            question = {
                "question": f"Which {topic} would you like?",
                "header": topic[:_LONGEST_HEADER].title(),
                "options": options,
            }
            return Reply(f"There is more than one {topic}.", (Call(ASK, {"questions": [question]}),))
    return None


def report(dialogue: Dialogue) -> Reply | None:
    """Report the results of the tools and of sub-agents, and the user's choice. A background agent sends its report to
    the user of the agent that it works for."""
    if not dialogue.results:
        return None
    choices = [choice_in(text) for name, text in dialogue.results if name == ASK]
    lines = [f"You chose {choice}." if choice else "You left the choice open." for choice in choices]
    for name, text in dialogue.results:
        if name == SPAWN:
            lines += _findings_of(dialogue.said, text)
        elif name == TELL_AGENT and text.startswith('{"success": true'):
            lines.append(SENT)
        elif name != ASK and not (choices and options_in(text)):
            lines.append(f"{_topic(name).capitalize()}: {_one_line(text)}")
    text = "\n".join(lines)
    return _tell_user(text) if dialogue.is_background else Reply(text)


def _request_details(dialogue: Dialogue) -> Reply | None:
    """Name the parameters that are still needed if the user mentions a tool without filling all of them."""
    for name, tool in dialogue.tools.items():
        if name != ASK and find_first_mention(tool, dialogue.said) is not None:
            unfilled = " and ".join(list_unfilled(tool.get("parameters") or {}, dialogue.said))
            return Reply(
                f"To use {_readable(name)} I also need to know: {unfilled}. Say it all in one message, please."
            )
    return None


def remember(dialogue: Dialogue) -> Reply | None:
    """Answer a question with what the user said in an older conversation."""
    if not dialogue.recalled or not dialogue.said.rstrip().endswith("?"):
        return None
    return Reply(f"You said earlier: “{dialogue.recalled}”")


def repeat(dialogue: Dialogue) -> Reply:
    """Repeat the user's message, and name the tools that would do more."""
    names = " or ".join(_readable(name) for name in dialogue.tools if name != ASK)
    hints = [f"Say something that {names} is good for, and I will use it."] if names else []
    hints += [hint for name, hint in _HINTS.items() if name in dialogue.special]
    return Reply(f"You said: “{dialogue.said}” {' '.join(hints) or 'There is no tool I could use.'}")


NEWS = "An agent that works for you reports:"
"""What the model writes above a message that another agent has for the user."""

BEFORE_PASSING_ON, AFTER_PASSING_ON = "The user should know this.", "That is all for now."
"""What a background agent writes beside a message for the user, and after it."""

SENT = "The message is on its way."
"""What the model says once it has written to another agent."""

SILENCE = Reply("")
"""Nothing, as an answer to a message that is no request."""

_TO_USER = re.compile(r"\btell (?:the|your|my) user (?:that )?(.+)", re.IGNORECASE | re.DOTALL)
_TO_AGENT = re.compile(r"\btell (?:the )?agent (\S+?)[:,]? (?:that |to )?(.+)", re.IGNORECASE | re.DOTALL)
_TO_PROFILE = re.compile(r"\b(?:transfer|hand|pass|connect)\b.*? (?:over )?to (?:the )?([\w-]+)", re.IGNORECASE)


def present(dialogue: Dialogue) -> Reply | None:
    """Present to the user what another agent has for them."""
    return Reply(f"{NEWS}\n\n{dialogue.said}") if dialogue.audience == "user" else None


def _take_note(dialogue: Dialogue) -> Reply | None:
    """Say nothing to an internal message: it is no request of the user. Background agents do what it asks, and so does
    an agent that a schedule has woken."""
    is_update = dialogue.audience == "agent" and dialogue.origin != ORIGIN_OF_WAKE_UPS
    return SILENCE if is_update and not dialogue.is_background else None


def _pass_on(dialogue: Dialogue) -> Reply | None:
    """Pass on to the user what the message says, if it asks for that in the background."""
    found = _TO_USER.search(dialogue.said)
    if not dialogue.is_background or dialogue.results or found is None:
        return None
    return _tell_user(found[1])


def _tell_user(text: str) -> Reply:
    """Send the user a message through the agent in the foreground. `Pure.`"""
    return Reply(BEFORE_PASSING_ON, (Call(TELL_USER, {"text": text}),))


def _tell_agent(dialogue: Dialogue) -> Reply | None:
    """Write to the agent that the user names by its id."""
    found = _TO_AGENT.search(dialogue.said)
    if TELL_AGENT not in dialogue.special or dialogue.results or found is None:
        return None
    return Reply("Let me tell that agent.", (Call(TELL_AGENT, {"agent_id": found[1], "text": found[2]}),))


def transfer(dialogue: Dialogue) -> Reply | None:
    """Hand the conversation over to the profile that the user names, and then say who is speaking."""
    found = _TO_PROFILE.search(dialogue.said)
    if found is None or (TRANSFER not in dialogue.special and not dialogue.results):
        return None
    if not dialogue.results:
        return Reply(f"Let me hand you over to {found[1]}.", (Call(TRANSFER, {"profile": found[1]}),))
    result = next((text for name, text in dialogue.results if name == TRANSFER), None)
    return None if result is None else Reply(f"You are now speaking to {found[1]}. {result}")


def _hand_out(dialogue: Dialogue) -> Reply | None:
    """Hand a list of tasks to sub-agents, one each."""
    tasks = tasks_in(dialogue.said)
    if SPAWN not in dialogue.special or dialogue.results or not tasks:
        return None
    text = f"There are {len(tasks)} tasks. Let me hand them to sub-agents."
    return Reply(text, (Call(SPAWN, {"tasks": [task.text for task in tasks]}),))


_AGENT_RULES: tuple[Callable[[Dialogue], Reply | None], ...] = (
    present,
    _take_note,
    _pass_on,
    _tell_agent,
    transfer,
    _hand_out,
)


def _findings_of(said: str, result: str) -> Iterator[str]:
    """What the sub-agents of `said` returned, a line for each. `Pure.`"""
    try:
        agents = json.loads(result)["agents"]
    except (ValueError, KeyError, TypeError):
        yield result
        return
    tasks = [task.item for task in tasks_in(said)]
    for number, agent in enumerate(agents):
        title = tasks[number] if len(tasks) == len(agents) else f"Sub-agent {number + 1}"
        failed = "" if agent["status"] == "completed" else f" ({agent['status']})"
        yield f"{title}{failed}: {agent['result']}"


Rule = Callable[[Dialogue], Reply | None]

RULES: tuple[Rule, ...] = (*_AGENT_RULES, _use_tools, _ask_to_choose, report, remember, _request_details, repeat)


def reply_to(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Reply:
    """The reply of the first rule that has one, for messages and tools in OpenAI's shape. `Pure.`"""
    offered = {tool["function"]["name"] for tool in tools}
    if has_just_spoken(messages):
        return Reply(AFTER_PASSING_ON if TELL_USER in offered else AFTER_SPEAKING)
    dialogue = read_dialogue(messages, tools)
    reply = next(reply for rule in RULES if (reply := rule(dialogue)) is not None)
    if dialogue.is_background or dialogue.is_sub_agent or reply == SILENCE:
        return reply
    introduction = [INTRODUCTION] if dialogue.is_new else []
    news = [] if reply.calls else [f"{NEWS}\n\n{text}" for text in dialogue.overdue]
    return _speak_by_tool(Reply("\n\n".join([*introduction, *news, reply.text]), reply.calls), offered)


def _speak_by_tool(reply: Reply, offered: Collection[str]) -> Reply:
    """The reply with its text as the argument of a speaking tool, or unchanged if no such tool can be used."""
    if TALK in offered:
        return Reply(BEFORE_SPEAKING, (Call(TALK, {"message": reply.text}), *reply.calls))
    respond = next((name for name in RESPOND if name in offered), None)
    if respond is None or reply.calls:
        return reply
    completion = (Call(COMPLETE, {"summary": AFTER_SPEAKING}),) if COMPLETE in offered else ()
    return Reply(BEFORE_SPEAKING, (Call(respond, {"text": reply.text}), *completion))


def _topic(tool: str) -> str:
    return _readable(tool).split("_")[-1]


def _readable(tool: str) -> str:
    """The name of a tool as a person would write it. A name that providers do not accept, such as that of an MCP
    server's tool, is offered with a fingerprint behind it."""
    return _FINGERPRINT.sub("", tool)


def _one_line(text: str) -> str:
    options = [", ".join(option.values()) for option in options_in(text)]
    return "; ".join(options) or " ".join(text.split())
