"""The rules of the rehearsal model: a few functions in place of a language model.

The model follows no script. Each rule looks at what was said and which tools are offered, and returns a reply or None;
the first reply is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ....states.openai_format.writing import RESULT_IMAGES
from ....states.policy.texts import Texts
from ..request.context_assembly import SUMMARY_TITLE
from ..request.fresh_context import CONTEXT_TITLE
from ..request.system_message import MEMORY_TITLE
from .guesses import choice_in, fill_parameters, find_first_mention, list_unfilled, options_in

ASK = "ask_user_question"
INTRODUCTION = (
    "This is a rehearsal: a few fixed rules answer, not a language model. "
    "For a real one, set OPENAI_API_KEY and start with --model openai/gpt-4.1-mini."
)

CONDENSED = "Something was said before; a rehearsal does not remember what."
"""The summary that the model writes of a long history. Rules cannot tell what matters in it, and say so."""

_CONDENSED_MESSAGE = f"{SUMMARY_TITLE}\n{CONDENSED}"
"""The beginning of the message that replaces a history which this model summarized."""

_IMAGE_NOTE = re.compile(r"\s*\(\d+ images?: see below\.\)\Z")
"""The note that the request builder puts under a tool result whose images follow."""

_CONTEXT_NOTE = re.compile(rf"\A{CONTEXT_TITLE}\n• Time: [^\n]*\n• Location: [^\n]*(?:\n\n|\Z)")
"""The note on the time and the place, which stands in front of the user's text."""

_FINGERPRINT = re.compile(r"_[0-9a-f]{8}\Z")

_RECALLED_TEXT = re.compile(r"^\S+ \S+ UTC, user:\n((?:  [^\n]*\n?)+)", re.MULTILINE)
"""A text of a user under the title of what was recalled: who said it and when, and indented below it the text."""

TALK, RESPOND, COMPLETE = "talk", ("respond_to_user", "speak_to_user"), "mark_work_complete"
SPEAKING_TOOLS = (TALK, *RESPOND, COMPLETE)
"""The tools for speaking to the user and for ending the work. The rules do not choose among them; `reply_to` uses them
to send the reply that a rule made."""

BEFORE_SPEAKING, AFTER_SPEAKING = "The user should hear this.", "The user was told."
"""What the model writes beside a call of a speaking tool, and after its result."""

_TEXTS = Texts()
_NUDGES = (_TEXTS.nudge, _TEXTS.speak, _TEXTS.answer_missing, _TEXTS.relay, _TEXTS.fallback)
_IS_NUDGE = re.compile("|".join(re.escape(nudge).replace(RESPOND[0], r"\S+") for nudge in _NUDGES))
"""Reminders that turnwise puts in a user's message. The model answers the user's own last message instead."""

MAX_CALLS = 2
LONGEST_HEADER = 12


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """The text that the model writes, and the tools that it calls."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Dialogue:
    """The part of a request that the rules look at.

    `said` is the user's last message, `results` are the tool results since then as pairs of tool name and text, and
    `tools` are the offered functions by name. `is_new` says that the model has not answered in this conversation yet.
    `recalled` is what the user said in an older conversation, if something was recalled.
    """

    said: str
    results: tuple[tuple[str, str], ...]
    tools: dict[str, dict[str, Any]]
    is_new: bool
    recalled: str = ""


# --- the rules


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
    """Report the results of the tools and the user's choice."""
    if not dialogue.results:
        return None
    choices = [choice_in(text) for name, text in dialogue.results if name == ASK]
    lines = [f"You chose {choice}." if choice else "You left the choice open." for choice in choices]
    for name, text in dialogue.results:
        if name != ASK and not (choices and options_in(text)):
            lines.append(f"{_topic(name).capitalize()}: {_one_line(text)}")
    return Reply("\n".join(lines))


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
    hint = f"Say something that {names} is good for, and I will use it." if names else "There is no tool I could use."
    return Reply(f"You said: “{dialogue.said}” {hint}")


Rule = Callable[[Dialogue], Reply | None]

RULES: tuple[Rule, ...] = (use_tools, ask_to_choose, report, remember, request_details, repeat)


def reply_to(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Reply:
    """The reply of the first rule that has one, for messages and tools in OpenAI's shape. `Pure.`"""
    if _has_just_spoken(messages):
        return Reply(AFTER_SPEAKING)
    dialogue = _read(messages, tools)
    reply = next(reply for rule in RULES if (reply := rule(dialogue)) is not None)
    text = f"{INTRODUCTION}\n\n{reply.text}" if dialogue.is_new else reply.text
    return _speak_by_tool(Reply(text, reply.calls), {tool["function"]["name"] for tool in tools})


def _speak_by_tool(reply: Reply, offered: Collection[str]) -> Reply:
    """The reply with its text as the argument of a speaking tool, or unchanged if no such tool can be used."""
    if TALK in offered:
        return Reply(BEFORE_SPEAKING, (Call(TALK, {"message": reply.text}), *reply.calls))
    respond = next((name for name in RESPOND if name in offered), None)
    if respond is None or reply.calls:
        return reply
    completion = (Call(COMPLETE, {"summary": AFTER_SPEAKING}),) if COMPLETE in offered else ()
    return Reply(BEFORE_SPEAKING, (Call(respond, {"text": reply.text}), *completion))


def _has_just_spoken(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether the newest message apart from results calls speaking tools and no others."""
    newest = next((message for message in reversed(messages) if _speaks(message)), None)
    calls = (newest or {}).get("tool_calls") or ()
    return bool(calls) and all(call["function"]["name"] in SPEAKING_TOOLS for call in calls)


def _speaks(message: dict[str, Any]) -> bool:
    """Whether a message is of the model or of the user, and not only a note on the time and the place."""
    return message["role"] == "assistant" or (message["role"] == "user" and _text_of(message) != "")


# --- reading a request


def _read(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Dialogue:
    last = max((index for index, message in enumerate(messages) if _is_from_user(message)), default=-1)
    names = {call["id"]: call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()}
    said = _text_of(messages[last]) if last >= 0 else ""
    functions = [tool["function"] for tool in tools]
    return Dialogue(
        said=said.removeprefix(_CONDENSED_MESSAGE).lstrip(),
        results=tuple(
            (names[message["tool_call_id"]], _IMAGE_NOTE.sub("", message["content"]) or "[image]")
            for message in messages[last + 1 :]
            if message["role"] == "tool" and names[message["tool_call_id"]] not in SPEAKING_TOOLS
        ),
        tools={function["name"]: function for function in functions if function["name"] not in SPEAKING_TOOLS},
        recalled=_recalled_in(messages),
        is_new=not said.startswith(_CONDENSED_MESSAGE) and all(message["role"] != "assistant" for message in messages),
    )


def _is_from_user(message: dict[str, Any]) -> bool:
    """Whether the message holds text or images of the user, and not only a reminder or the images of a result."""
    if message["role"] != "user":
        return False
    text = _text_of(message)
    return text != "" and not _IS_NUDGE.fullmatch(text)


def _text_of(message: dict[str, Any]) -> str:
    """The text of a user's message, with `[image]` for each image; images of tool results are left out."""
    content, texts, is_own = message["content"], [], True
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if part["type"] != "text":
            texts += ["[image]"] * is_own
        elif is_own := not part["text"].startswith(RESULT_IMAGES):
            texts.append(_CONTEXT_NOTE.sub("", part["text"]))
    return " ".join(filter(None, texts))


def _recalled_in(messages: Sequence[dict[str, Any]]) -> str:
    """The first text of a user among those that were recalled for this turn."""
    system = next((message["content"] for message in messages if message["role"] == "system"), "")
    _, _, recalled = str(system).partition(MEMORY_TITLE)
    found = _RECALLED_TEXT.search(recalled)
    return "" if found is None else " ".join(found[1].split())


def _topic(tool: str) -> str:
    return _readable(tool).split("_")[-1]


def _readable(tool: str) -> str:
    """The name of a tool as a person would write it. A name that providers do not accept, such as that of an MCP
    server's tool, is offered with a fingerprint behind it."""
    return _FINGERPRINT.sub("", tool)


def _one_line(text: str) -> str:
    options = [", ".join(option.values()) for option in options_in(text)]
    return "; ".join(options) or " ".join(text.split())
