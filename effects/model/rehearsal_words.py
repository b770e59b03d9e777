"""What the rehearsal model reads in a request, and what it writes: a dialogue in, a reply out.

A request is a list of messages and a list of tools in OpenAI's shape. Besides the words of the user it holds messages
of other agents, reminders that turnwise adds, results of tools, and notes on the time and the place. The rules of the
model look at a `Dialogue`, in which these are told apart.

The rehearsal model also has to know which tool a message mentions, which arguments the message gives for its
parameters, and which options a result lists. All of this is guessed from words and JSON schemas, never from the names
of particular tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...states.openai_writing import RESULT_IMAGES
from ...states.policy import Texts
from ...states.values.acts import Audience
from ...states.values.messages import read_agent_text
from .request import CONTEXT_TITLE, SUMMARY_TITLE
from .system_message import MEMORY_TITLE

ASK = "ask_user_question"

TALK, RESPOND, COMPLETE = "talk", ("respond_to_user", "speak_to_user"), "mark_work_complete"
SPAWN, TELL_USER, TELL_AGENT, TRANSFER = "spawn_agents", "send_user_message", "send_agent_message", "transfer_to"

_SPEAKING_TOOLS = (TALK, *RESPOND, COMPLETE, TELL_USER)
"""The tools for telling the user something and for ending the work. They are called when another rule has made a reply
for the user, never because the user mentions them."""

_SPECIAL_TOOLS = (*_SPEAKING_TOOLS, SPAWN, TELL_AGENT, TRANSFER)
"""The tools for which there are rules of their own. The arguments of all others are guessed from their schemas."""

CONDENSED = "Something was said before; a rehearsal does not remember what."
"""The summary that the model writes of a long history. Rules cannot tell what matters in it, and say so."""

_CONDENSED_MESSAGE = f"{SUMMARY_TITLE}\n{CONDENSED}"
"""The beginning of the message that replaces a history which this model summarized."""

_IMAGE_NOTE = re.compile(r"\s*\(\d+ images?: see below\.\)\Z")
"""The note that the request builder puts under a tool result whose images follow."""

_CONTEXT_NOTE = re.compile(rf"\A{CONTEXT_TITLE}\n• Time: [^\n]*\n• Location: [^\n]*(?:\n\n|\Z)")
"""The note on the time and the place, which stands in front of the user's text."""

_RECALLED_TEXT = re.compile(r"^\S+ \S+ UTC, user:\n((?:  [^\n]*\n?)+)", re.MULTILINE)
"""A text of a user under the title of what was recalled: who said it and when, and indented below it the text."""

_TEXTS = Texts()
_NUDGES = (
    _TEXTS.nudge,
    _TEXTS.speak,
    _TEXTS.answer_missing,
    _TEXTS.relay,
    _TEXTS.fallback,
    _TEXTS.claim_missing,
    _TEXTS.fallback_result,
)
_IS_NUDGE = re.compile("|".join(re.escape(nudge).replace(RESPOND[0], r"\S+") for nudge in _NUDGES))
"""Reminders that turnwise puts in a user's message. The model answers the user's own last message instead."""

_MAIL = r"<message_for_user [^<>]*>[^<>]*</message_for_user>"
_OVERDUE = re.compile(rf"(?:\n\n|\A){re.escape(_TEXTS.overdue)}((?:\n\n{_MAIL})+)(?=\n\n|\Z)")
"""The reminder of messages for the user that came before, behind the user's own text or alone."""


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

    `said` is the message to answer. `audience` is None if the user said it; a message of another agent is for the
    "user", or for the "agent" alone, and has an `origin`. `results` are the tool results since then as pairs of tool
    name and text. `tools` are the offered functions by name; `special` holds the names of those among `_SPECIAL_TOOLS`,
    which are not in `tools`, with their parameters. `is_new` says that the model has not answered in this conversation
    yet. `is_sub_agent` says that another agent started it for one task. `recalled` is what the user said in an older
    conversation, if something was recalled. `overdue` are messages for the user that an earlier turn left.
    """

    said: str
    results: tuple[tuple[str, str], ...]
    tools: dict[str, dict[str, Any]]
    is_new: bool
    recalled: str = ""
    audience: Audience | None = None
    origin: str = ""
    special: dict[str, dict[str, Any]] = field(default_factory=dict)
    is_sub_agent: bool = False
    overdue: tuple[str, ...] = ()

    @property
    def is_background(self) -> bool:
        """Whether the model plays an agent that has no user of its own, but works for one that does."""
        return TELL_USER in self.special


def read_dialogue(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Dialogue:
    """Read a request, whose messages and tools are in OpenAI's shape. `Pure.`"""
    last = _message_to_answer(messages)
    names = {call["id"]: call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()}
    said = _text_of(messages[last]) if last >= 0 else ""
    from_agent = read_agent_text(said)
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    return Dialogue(
        said=(said if from_agent is None else from_agent.text).removeprefix(_CONDENSED_MESSAGE).lstrip(),
        audience=None if from_agent is None else from_agent.audience,
        origin="" if from_agent is None else from_agent.origin,
        results=tuple(
            (names[message["tool_call_id"]], _IMAGE_NOTE.sub("", message["content"]) or "[image]")
            for message in messages[last + 1 :]
            if message["role"] == "tool" and names[message["tool_call_id"]] not in _SPEAKING_TOOLS
        ),
        tools={name: function for name, function in functions.items() if name not in _SPECIAL_TOOLS},
        special={name: function for name, function in functions.items() if name in _SPECIAL_TOOLS},
        recalled=_recalled_in(messages),
        is_new=not said.startswith(_CONDENSED_MESSAGE) and all(message["role"] != "assistant" for message in messages),
        is_sub_agent=_TEXTS.sub_agent_guidance in _system_message(messages),
        overdue=tuple(_overdue_in(messages)),
    )


def has_just_spoken(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether the newest message apart from results calls speaking tools and no others. `Pure.`"""
    newest = next((message for message in reversed(messages) if _speaks(message)), None)
    calls = (newest or {}).get("tool_calls") or ()
    return bool(calls) and all(call["function"]["name"] in _SPEAKING_TOOLS for call in calls)


def _speaks(message: dict[str, Any]) -> bool:
    """Whether a message is of the model or of the user, and not only a note on the time and the place."""
    return message["role"] == "assistant" or (message["role"] == "user" and _text_of(message) != "")


def _message_to_answer(messages: Sequence[dict[str, Any]]) -> int:
    """The index of the newest message that asks for something, -1 if there is none.

    An internal message of another agent may have come while something else is being answered. So it is the one to
    answer only if nothing else was said since the model's last answer.
    """
    said = [index for index, message in enumerate(messages) if _is_said(message)]
    answered = max((index for index, message in enumerate(messages) if _is_answer(message)), default=-1)
    asking = [index for index in said if not _is_internal(messages[index])]
    return max((index for index in asking if index > answered), default=max(said, default=-1))


def _is_said(message: dict[str, Any]) -> bool:
    """Whether the message holds text or images of the user, or of another agent, and not only a reminder or the images
    of a result."""
    if message["role"] != "user":
        return False
    text = _text_of(message)
    return text != "" and not _IS_NUDGE.fullmatch(text)


def _is_answer(message: dict[str, Any]) -> bool:
    """Whether the model answers in this message: it called no tool in it, or tools for speaking only."""
    calls = message.get("tool_calls") or ()
    return message["role"] == "assistant" and all(call["function"]["name"] in _SPEAKING_TOOLS for call in calls)


def _is_internal(message: dict[str, Any]) -> bool:
    """Whether another agent wrote the message for this agent alone."""
    read = read_agent_text(_text_of(message))
    return read is not None and read.audience == "agent"


def _text_of(message: dict[str, Any]) -> str:
    """The text of a user's message, with `[image]` for each image; images of tool results are left out."""
    content, texts, is_own = message["content"], [], True
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if part["type"] != "text":
            texts += ["[image]"] * is_own
        elif is_own := not part["text"].startswith(RESULT_IMAGES):
            texts.append(_OVERDUE.sub("", _CONTEXT_NOTE.sub("", part["text"])))
    return " ".join(filter(None, texts))


def _system_message(messages: Sequence[dict[str, Any]]) -> str:
    return str(next((message["content"] for message in messages if message["role"] == "system"), ""))


def _overdue_in(messages: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The messages for the user of which the newest message reminds."""
    content = messages[-1]["content"] if messages and messages[-1]["role"] == "user" else ""
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    for reminder in (found[1] for text in texts for found in _OVERDUE.finditer(text)):
        yield from (read.text for one in re.findall(_MAIL, reminder) if (read := read_agent_text(one)) is not None)


def _recalled_in(messages: Sequence[dict[str, Any]]) -> str:
    """The first text of a user among those that were recalled for this turn."""
    _, _, recalled = _system_message(messages).partition(MEMORY_TITLE)
    found = _RECALLED_TEXT.search(recalled)
    return "" if found is None else " ".join(found[1].split())


MAX_OPTIONS = 4
_LONGEST_LABEL = 80
"""A longer line is taken for prose, not for an option."""

_LISTED = re.compile(r"\s*(?:[-*•]|\d+[.)])\s+(.+)")
_SEPARATOR = re.compile(r",\s*(?:and\s+)?|;\s*(?:and\s+)?|\s+and\s+")
_WORD = re.compile(r"[\w'’-]+")
_QUOTED = re.compile(r"[\"“](.+?)[\"”]")
_TIME = re.compile(
    r"\b(?:\d{1,2}(?::\d\d)?\s*[ap]m|\d{1,2}:\d\d|today|tonight|tomorrow|noon|midnight|morning|afternoon|evening"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b",
    re.IGNORECASE,
)
_TIME_PARAMETER = re.compile(r"time|day|date|when|hour", re.IGNORECASE)
_PLACE = re.compile(r"\b(?:somewhere|in|near|at|to|from|about|called)\s+(?:an?\s+|the\s+)?([\w'’-]+)", re.IGNORECASE)
_NEGATION = r"\b(?:no|not|without|don['’]t)\b[^.,;!?]*\b"
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_SYNONYMS = {"umbrella": "weather", "rain": "weather", "sunny": "weather", "dinner": "table", "eat": "table"}
_STOP_WORDS = frozenset(
    _WORD.findall(
        "a an the and or of for to in on at is are be do does will would can could i you me my we it this that what "
        "which who when where how need want have has get give use any some with from by as not no if then there here "
        "please one list return value"
    )
)


def find_first_mention(tool: dict[str, Any], said: str) -> int | None:
    """The index of the first word in `said` that also stands in the tool's name or description. `Pure.`"""
    keywords = set(_stems(f"{tool['name'].replace('_', ' ')} {tool.get('description') or ''}"))
    return next((index for index, word in enumerate(_stems(said)) if word and word in keywords), None)


def count_mentions(description: str, said: str) -> int:
    """How many different words of `said` also stand in the description. `Pure.`"""
    return len({word for word in _stems(said) if word} & set(_stems(description)))


def find_keywords(said: str) -> list[str]:
    """The words that say what a text is about, as they stand in it, each once. `Pure.`"""
    words = {word.lower(): word for word in _WORD.findall(said) if len(word) > 2}
    return [word for lower, word in words.items() if lower not in _STOP_WORDS]


def _stems(text: str) -> list[str]:
    """The words of the text without their plural endings; stop words are empty."""
    words = [word.lower() for word in _WORD.findall(text)]
    return ["" if word in _STOP_WORDS else _SYNONYMS.get(word, word.rstrip("s")) for word in words]


def fill_parameters(parameters: dict[str, Any], said: str) -> dict[str, Any] | None:
    """Arguments for a JSON schema, taken from what was said; None if a required one is not in it. `Pure.`"""
    return None if list_unfilled(parameters, said) else _find_arguments(parameters, said)


def list_unfilled(parameters: dict[str, Any], said: str) -> list[str]:
    """The names of the required parameters of a JSON schema for which `said` holds no value. `Pure.`"""
    found = _find_arguments(parameters, said)
    return [name for name in parameters.get("required") or () if name not in found]


def _find_arguments(parameters: dict[str, Any], said: str) -> dict[str, Any]:
    candidates = _Candidates(said)
    properties = parameters.get("properties") or {}
    arguments = {name: candidates.take(name, schema) for name, schema in properties.items()}
    return {name: value for name, value in arguments.items() if value is not None}


class _Candidates:
    """The values that a message may give for parameters. Each number and each name is used once."""

    def __init__(self, said: str) -> None:
        self._said = said
        self._times = _TIME.findall(said)
        rest = _TIME.sub("", said)
        self._numbers = [number for word in _WORD.findall(rest) if (number := _number(word)) is not None]
        self._names = list(dict.fromkeys([*_QUOTED.findall(rest), *_proper_names(rest), *_PLACE.findall(rest)]))

    def take(self, name: str, schema: dict[str, Any]) -> Any:
        """A value for the parameter of this name, or None."""
        if "enum" in schema:
            return next((value for value in schema["enum"] if str(value).lower() in self._said.lower()), None)
        kind = schema.get("type")
        if kind in ("integer", "number"):
            return self._numbers.pop(0) if self._numbers else None
        if kind == "boolean":
            return self._affirms(name)
        return self._take_text(name) if kind == "string" else None

    def _affirms(self, name: str) -> bool:
        word = re.escape(name.replace("_", " "))
        mentioned = re.search(word, self._said, re.IGNORECASE)
        return mentioned is not None and not re.search(_NEGATION + word, self._said, re.IGNORECASE)

    def _take_text(self, name: str) -> str | None:
        if _TIME_PARAMETER.search(name):
            return " ".join(self._times) or None
        return self._names.pop(0) if self._names else self._said


def _number(word: str) -> int | None:
    if word.isascii() and word.isdecimal() and len(word) < 10:
        return int(word)
    return _NUMBERS.index(word.lower()) if word.lower() in _NUMBERS else None


def _proper_names(text: str) -> list[str]:
    """The capitalized words that do not begin a sentence."""
    matches = [(match[0], text[: match.start()].rstrip()[-1:]) for match in _WORD.finditer(text)]
    return [word for word, before in matches if len(word) > 1 and word[0].isupper() and before not in ("", *".!?")]


class Task(NamedTuple):
    """One of several tasks: what sets it apart from the others, and the whole text of the task."""

    item: str
    text: str


def tasks_in(said: str) -> list[Task]:
    """The tasks that a message lists: on lines of their own with a mark in front, or behind a colon with commas between
    them. What stands before the list belongs to each task. Empty if there are fewer than two. `Pure.`"""
    lines = [match for line in said.splitlines() if (match := _LISTED.match(line))]
    head, _, rest = said.partition(lines[0][0] if len(lines) > 1 else ":")
    items = [match[1] for match in lines] if len(lines) > 1 else _SEPARATOR.split(rest)
    items = [item.strip(" .\n") for item in items]
    title = " ".join(head.split()).rstrip(":")
    tasks = [Task(item, f"{title}: {item}" if title else item) for item in items if item]
    return tasks if len(tasks) > 1 else []


def options_in(text: str) -> list[dict[str, str]]:
    """The options that a result lists: the items of a JSON list, or its lines. Empty if there are fewer than two.

    Each option has a `label`, and a `description` if the item has more than one value. `Pure.`
    """
    options = {option["label"]: option for option in map(_option, _items(text))}
    usable = [o for label, o in options.items() if 0 < len(label) <= _LONGEST_LABEL and label.casefold() != "other"]
    return usable[:MAX_OPTIONS] if len(usable) > 1 else []


def _items(text: str) -> list[Any]:
    if text.startswith("Error: "):
        return []
    try:
        value = json.loads(text)
    except ValueError:
        return text.splitlines()
    if isinstance(value, dict):
        value = next((inner for inner in value.values() if isinstance(inner, list)), None)
    return value if isinstance(value, list) else []


def _option(item: Any) -> dict[str, str]:
    parts = [str(part).strip() for part in item.values()] if isinstance(item, dict) else [str(item).strip(" -*•\t")]
    label, description = parts[0] if parts else "", ", ".join(filter(None, parts[1:]))
    return {"label": label, "description": description} if description else {"label": label}


def choice_in(text: str) -> str:
    """The labels chosen in the answer to a question, which is JSON or lines of text; empty if there is no answer.
    `Pure.`"""
    try:
        answers = list(json.loads(text)["answers"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        answers = re.findall(r"^Answer: (.*)$", text, re.MULTILINE)
    return ", ".join(answer if isinstance(answer, str) else ", ".join(answer) for answer in answers)
