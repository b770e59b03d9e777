"""A model for rehearsals: a handful of rules in a model's place, for when there is no key and no network.

It is registered with litellm as a provider of its own, so everything above it is real: requests are built and sent,
answers stream, tools run, people are asked. It follows no script. Each rule looks at what was said and what is
offered, and replies or passes; the first that replies is heard.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ....states.policy.texts import Texts
from ..performers.compaction import INSTRUCTION
from ..performers.summary import INSTRUCTION as TO_SUMMARIZE
from ..performers.verification import INSTRUCTION as TO_VERIFY
from ..request.context_assembly import SUMMARY
from ..request.request_builder import RESULT_IMAGES
from .guesses import choice_in, fill, first_mention, missing, options_in

NAME = "rehearsal"
ROUTE = "rehearsal/rehearsal"
"""Under this name litellm knows it: provider and model."""

DELAY = 0.015
"""Seconds before each word, as if it had to be thought of; `LiteLlm("rehearsal", delay=0)` for none."""

ASK = "ask_user_question"
INTRODUCTION = (
    "This is a rehearsal: a few fixed rules answer, not a language model. "
    "For a real one, set OPENAI_API_KEY and start with --model openai/gpt-4.1-mini."
)

_SEE_BELOW = re.compile(r"\s*\(\d+ images?: see below\.\)\Z")
"""What `prompt.py` puts under a result whose images follow."""

VERDICT = '{"passed": true, "reason": "A rehearsal takes every claim at its word."}'
SUMMARIZED = "Something was done; a rehearsal cannot tell what."
"""What it makes of a turn that it is to check, and of one that it is to summarize."""

CONDENSED = "Something was said before; a rehearsal does not remember what."
"""What it makes of a history that it is to condense. Rules cannot tell what matters, and say so."""

_TO_CONDENSE = INSTRUCTION.partition("\n")[0]
_STANDS_FOR_IT = f"{SUMMARY}\n{CONDENSED}"
"""How the messages begin that ask for a summary, and that hold the one given."""

TALK, RESPOND, COMPLETE = "talk", ("respond_to_user", "speak_to_user"), "mark_work_complete"
SPEAKING = (TALK, *RESPOND, COMPLETE)
"""The tools by which it reaches its user, and ends its work; no rule looks at them."""

ALOUD, SAID = "The user should hear this.", "The user was told."
"""What it thinks before it says something by tool, and after."""

_TEXTS = Texts()
_NUDGES = (_TEXTS.nudge, _TEXTS.speak, _TEXTS.answer_missing, _TEXTS.relay, _TEXTS.fallback)
_IS_NUDGE = re.compile("|".join(re.escape(nudge).replace(RESPOND[0], r"\S+") for nudge in _NUDGES))
"""What is said to a model in a user's place, in the words that turnwise has for it: it answers the user instead."""

MOST_CALLS = 2
LONGEST_HEADER = 12


@dataclass(frozen=True)
class Call:
    """A tool to call."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What is said, and which tools are called."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Conversation:
    """What a rule looks at: what the user said last, the results since then, by tool name, and the tools offered.

    `begins` tells that the user has not heard anything yet.
    """

    said: str
    results: tuple[tuple[str, str], ...]
    tools: dict[str, dict[str, Any]]
    begins: bool


# --- the rules


def condense(conversation: Conversation) -> Reply | None:
    """Let a sentence stand for a history."""
    return Reply(CONDENSED) if conversation.said.startswith(_TO_CONDENSE) else None


def use_tools(conversation: Conversation) -> Reply | None:
    """Call the tools that the user's words point to, as far as these words fill their parameters."""
    if conversation.results:
        return None
    ordinary = {name: tool for name, tool in conversation.tools.items() if name != ASK}
    places = {name: first_mention(tool, conversation.said) for name, tool in ordinary.items()}
    calls = [
        Call(name, arguments)
        for name in sorted(ordinary, key=lambda name: places[name] or 0)
        if places[name] is not None
        and (arguments := fill(ordinary[name].get("parameters") or {}, conversation.said)) is not None
    ][:MOST_CALLS]
    return Reply(f"Let me use {' and '.join(call.name for call in calls)}.", tuple(calls)) if calls else None


def ask_to_choose(conversation: Conversation) -> Reply | None:
    """Where a result leaves a choice, let the user make it."""
    if ASK not in conversation.tools or any(name == ASK for name, _ in conversation.results):
        return None
    for name, text in conversation.results:
        if options := options_in(text):
            topic = _topic(name)
            question = {
                "question": f"Which {topic} would you like?",
                "header": topic[:LONGEST_HEADER].title(),
                "options": options,
            }
            return Reply(f"There is more than one {topic}.", (Call(ASK, {"questions": [question]}),))
    return None


def report(conversation: Conversation) -> Reply | None:
    """Tell what came of the tools and of the question."""
    if not conversation.results:
        return None
    asked = [text for name, text in conversation.results if name == ASK]
    told = [f"You chose {choice_in(text)}." if choice_in(text) else "You left the choice open." for text in asked]
    for name, text in conversation.results:
        if name != ASK and not (asked and options_in(text)):
            told.append(f"{_topic(name).capitalize()}: {_one_line(text)}")
    return Reply("\n".join(told))


def say_what_is_missing(conversation: Conversation) -> Reply | None:
    """Where the words point to a tool and do not fill its parameters, name those that they leave open."""
    for name, tool in conversation.tools.items():
        if name != ASK and first_mention(tool, conversation.said) is not None:
            left_open = " and ".join(missing(tool.get("parameters") or {}, conversation.said))
            return Reply(f"To use {name} I also need to know: {left_open}. Say it all in one message, please.")
    return None


def repeat(conversation: Conversation) -> Reply:
    """Say what was heard, and what would be answered by more than this."""
    names = " or ".join(name for name in conversation.tools if name != ASK)
    hint = f"Say something that {names} is good for, and I will use it." if names else "There is no tool I could use."
    return Reply(f"You said: “{conversation.said}” {hint}")


RULES: tuple[Callable[[Conversation], Reply | None], ...] = (
    condense,
    use_tools,
    ask_to_choose,
    report,
    say_what_is_missing,
    repeat,
)


def reply_to(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Reply:
    """What the rules make of a request in OpenAI's shape. `Pure.`"""
    conversation = _read(messages, tools)
    offered = {tool["function"]["name"] for tool in tools}
    if _has_said_it(messages):
        return Reply(SAID)
    reply = next(reply for rule in RULES if (reply := rule(conversation)) is not None)
    text = f"{INTRODUCTION}\n\n{reply.text}" if conversation.begins else reply.text
    reply = Reply(text, reply.calls)
    return _by_tool(reply, offered) or reply


def _by_tool(reply: Reply, offered: Collection[str]) -> Reply | None:
    """The same, said by the tool for it; None if none is offered."""
    if TALK in offered:
        return Reply(ALOUD, (Call(TALK, {"message": reply.text}), *reply.calls))
    respond = next((name for name in RESPOND if name in offered), None)
    if respond is None or reply.calls:
        return None
    ends = (Call(COMPLETE, {"summary": SAID}),) if COMPLETE in offered else ()
    return Reply(ALOUD, (Call(respond, {"text": reply.text}), *ends))


def _has_said_it(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether the last that was done was to say something by tool, and nothing else."""
    newest = next((message for message in reversed(messages) if message["role"] not in ("tool", "system")), None)
    calls = (newest or {}).get("tool_calls") or ()
    return bool(calls) and all(call["function"]["name"] in SPEAKING for call in calls)


def _read(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Conversation:
    last = max((place for place, message in enumerate(messages) if _is_said(message)), default=-1)
    called = {call["id"]: call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()}
    said = _said(messages[last]) if last >= 0 else ""
    return Conversation(
        said=said.removeprefix(_STANDS_FOR_IT).lstrip(),
        results=tuple(
            (called[message["tool_call_id"]], _SEE_BELOW.sub("", message["content"]) or "[image]")
            for message in messages[last + 1 :]
            if message["role"] == "tool" and called[message["tool_call_id"]] not in SPEAKING
        ),
        tools={
            tool["function"]["name"]: tool["function"] for tool in tools if tool["function"]["name"] not in SPEAKING
        },
        begins=not said.startswith((_TO_CONDENSE, _STANDS_FOR_IT))
        and all(message["role"] != "assistant" for message in messages),
    )


def _is_said(message: dict[str, Any]) -> bool:
    """Whether a person said something, or showed it."""
    if message["role"] != "user":
        return False
    said = _said(message)
    return said != "" and not _IS_NUDGE.fullmatch(said)


def _said(message: dict[str, Any]) -> str:
    """What a person said and showed, without the images of tools' results that stand beside it."""
    content, words, shown = message["content"], [], True
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if part["type"] != "text":
            words += ["[image]"] * shown
        elif shown := not part["text"].startswith(RESULT_IMAGES):
            words.append(part["text"])
    return " ".join(words)


def _topic(tool: str) -> str:
    return tool.split("_")[-1]


def _one_line(text: str) -> str:
    options = [", ".join(option.values()) for option in options_in(text)]
    return "; ".join(options) or " ".join(text.split())


# --- records

_OF_RECORDS = {TO_VERIFY.partition("\n")[0]: VERDICT, TO_SUMMARIZE.partition("\n")[0]: SUMMARIZED}


def of_record(messages: Sequence[dict[str, Any]]) -> Reply | None:
    """What it makes of the record of a turn; None where it is not to read one. `Pure.`"""
    said = _said(messages[-1])
    return next((Reply(made) for beginning, made in _OF_RECORDS.items() if said.startswith(beginning)), None)


# --- the provider


class Rehearsal:
    """What litellm calls in place of a provider's API: of its `CustomLLM` the one method that is ever asked for."""

    async def astreaming(
        self, messages: list[dict[str, Any]], optional_params: dict[str, Any], **_: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Say the reply word by word, then call its tools."""
        usable = optional_params.get("tool_choice") != "none"
        reply = of_record(messages) or reply_to(messages, optional_params.get("tools") or () if usable else ())
        words = re.findall(r"\s*\S+", reply.text)
        for word in words:
            await asyncio.sleep(optional_params.get("delay", DELAY))
            yield _chunk(word)
        for index, call in enumerate(reply.calls):
            function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
            yield _chunk(tool_use={"id": f"call_{index}", "type": "function", "function": function, "index": index})
        read = len(json.dumps(messages).split())
        yield _chunk(
            is_finished=True,
            finish_reason="tool_calls" if reply.calls else "stop",
            usage={"prompt_tokens": read, "completion_tokens": len(words), "total_tokens": read + len(words)},
        )


def _chunk(text: str = "", **fields: Any) -> dict[str, Any]:
    ends = {"is_finished": False, "finish_reason": "", "usage": None, "tool_use": None}
    return {"index": 0, "text": text, **ends, **fields}


def register(litellm: Any) -> None:
    """Make litellm know the provider `rehearsal`. Doing so again changes nothing."""
    if all(item["provider"] != NAME for item in litellm.custom_provider_map):
        litellm.custom_provider_map.append({"provider": NAME, "custom_handler": Rehearsal()})
        litellm.utils.custom_llm_setup()
