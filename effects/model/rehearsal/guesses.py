"""Guesses what a user's words mean, without a language model.

The rehearsal model has to know which tool a message mentions, which arguments the message gives for its parameters, and
which options a result lists. All of this is guessed from words and JSON schemas, never from the names of particular
tools.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

MAX_OPTIONS = 4
LONGEST_LABEL = 80
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
    usable = [o for label, o in options.items() if 0 < len(label) <= LONGEST_LABEL and label.casefold() != "other"]
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
