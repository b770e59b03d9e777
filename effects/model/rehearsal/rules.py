"""The rules of the rehearsal model: a few functions in place of a language model.

The model follows no script. Each rule looks at what was said and which tools are offered, and returns a reply or None;
the first reply is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from .agent_rules import AFTER_PASSING_ON, AGENT_RULES, NEWS, SENT, SILENCE, findings_of, tell_user
from .dialogue import (
    ASK,
    COMPLETE,
    RESPOND,
    SPAWN,
    TALK,
    TELL_AGENT,
    TELL_USER,
    TRANSFER,
    Call,
    Dialogue,
    Reply,
    has_just_spoken,
    read_dialogue,
)
from .guesses import choice_in, fill_parameters, find_first_mention, list_unfilled, options_in

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
LONGEST_HEADER = 12


def use_tools(dialogue: Dialogue) -> Reply | None:
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


def ask_to_choose(dialogue: Dialogue) -> Reply | None:
    """Ask the user to choose if a result lists several options."""
    if ASK not in dialogue.tools or any(name == ASK for name, _ in dialogue.results):
        return None
    for name, text in dialogue.results:
        if options := options_in(text):
            topic = _topic(name)
            question = {
                "question": f"Which {topic} would you like?",
                "header": topic[:LONGEST_HEADER].title(),
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
            lines += findings_of(dialogue.said, text)
        elif name == TELL_AGENT and text.startswith('{"success": true'):
            lines.append(SENT)
        elif name != ASK and not (choices and options_in(text)):
            lines.append(f"{_topic(name).capitalize()}: {_one_line(text)}")
    text = "\n".join(lines)
    return tell_user(text) if dialogue.is_background else Reply(text)


def request_details(dialogue: Dialogue) -> Reply | None:
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


Rule = Callable[[Dialogue], Reply | None]

RULES: tuple[Rule, ...] = (*AGENT_RULES, use_tools, ask_to_choose, report, remember, request_details, repeat)


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
