"""Guesses at what a few words of a person may mean, where no language model is there to understand them.

The rehearsal model needs to know which tool a message points to, what to fill its parameters with, and what a result
leaves open. All of it is guessed from words and JSON schemas, never from the names of particular tools.
"""

from __future__ import annotations

import json
import re
from typing import Any

MOST_OPTIONS = 4
LONGEST_LABEL = 80
"""A longer line is prose and no option."""

_WORD = re.compile(r"[\w'’-]+")
_QUOTED = re.compile(r"[\"“](.+?)[\"”]")
_TIME = re.compile(
    r"\b(?:\d{1,2}(?::\d\d)?\s*[ap]m|\d{1,2}:\d\d|today|tonight|tomorrow|noon|midnight|morning|afternoon|evening"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b",
    re.IGNORECASE,
)
_TELLS_TIME = re.compile(r"time|day|date|when|hour", re.IGNORECASE)
_PLACE = re.compile(r"\b(?:somewhere|in|near|at|to|from|about|called)\s+(?:an?\s+|the\s+)?([\w'’-]+)", re.IGNORECASE)
_NEGATION = r"\b(?:no|not|without|don['’]t)\b[^.,;!?]*\b"
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_KINDRED = {"umbrella": "weather", "rain": "weather", "sunny": "weather", "dinner": "table", "eat": "table"}
_TELLS_NOTHING = frozenset(
    _WORD.findall(
        "a an the and or of for to in on at is are be do does will would can could i you me my we it this that what "
        "which who when where how need want have has get give use any some with from by as not no if then there here "
        "please one list return value"
    )
)


def first_mention(tool: dict[str, Any], said: str) -> int | None:
    """The place of the first word that the tool's name or description shares with what was said. `Pure.`"""
    telling = set(_stems(f"{tool['name'].replace('_', ' ')} {tool.get('description') or ''}"))
    return next((place for place, word in enumerate(_stems(said)) if word and word in telling), None)


def _stems(text: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(text)]
    return ["" if word in _TELLS_NOTHING else _KINDRED.get(word, word.rstrip("s")) for word in words]


def fill(parameters: dict[str, Any], said: str) -> dict[str, Any] | None:
    """Arguments for a JSON schema, each from what was said; None if a required one cannot be had. `Pure.`"""
    return None if missing(parameters, said) else _found(parameters, said)


def missing(parameters: dict[str, Any], said: str) -> list[str]:
    """The required parameters of a JSON schema that cannot be had from what was said. `Pure.`"""
    found = _found(parameters, said)
    return [name for name in parameters.get("required") or () if name not in found]


def _found(parameters: dict[str, Any], said: str) -> dict[str, Any]:
    words = _Words(said)
    found = {name: words.value(name, schema) for name, schema in (parameters.get("properties") or {}).items()}
    return {name: value for name, value in found.items() if value is not None}


class _Words:
    """What was said, sorted by what it may be good for. A number or a name serves once."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.times = _TIME.findall(said)
        rest = _TIME.sub("", said)
        self.numbers = [number for word in _WORD.findall(rest) if (number := _number(word)) is not None]
        self.names = list(dict.fromkeys([*_QUOTED.findall(rest), *_proper_names(rest), *_PLACE.findall(rest)]))

    def value(self, name: str, schema: dict[str, Any]) -> Any:
        if "enum" in schema:
            return next((value for value in schema["enum"] if str(value).lower() in self.said.lower()), None)
        kind = schema.get("type")
        if kind in ("integer", "number"):
            return self.numbers.pop(0) if self.numbers else None
        if kind == "boolean":
            return self._affirms(name)
        return self._text(name) if kind == "string" else None

    def _affirms(self, name: str) -> bool:
        word = re.escape(name.replace("_", " "))
        mentioned = re.search(word, self.said, re.IGNORECASE)
        return mentioned is not None and not re.search(_NEGATION + word, self.said, re.IGNORECASE)

    def _text(self, name: str) -> str | None:
        if _TELLS_TIME.search(name):
            return " ".join(self.times) or None
        return self.names.pop(0) if self.names else self.said


def _number(word: str) -> int | None:
    if word.isascii() and word.isdecimal() and len(word) < 10:
        return int(word)
    return _NUMBERS.index(word.lower()) if word.lower() in _NUMBERS else None


def _proper_names(text: str) -> list[str]:
    """The words whose capital does not come from standing first in a sentence."""
    found = [(match[0], text[: match.start()].rstrip()[-1:]) for match in _WORD.finditer(text)]
    return [word for word, before in found if len(word) > 1 and word[0].isupper() and before not in ("", *".!?")]


def options_in(text: str) -> list[dict[str, str]]:
    """What a result leaves to choose from: the items of a JSON list, or its lines; none unless there are two.

    Each has a `label`, and a `description` if the item says more. `Pure.`
    """
    options = {option["label"]: option for option in map(_option, _items(text))}
    fitting = [o for label, o in options.items() if 0 < len(label) <= LONGEST_LABEL and label.casefold() != "other"]
    return fitting[:MOST_OPTIONS] if len(fitting) > 1 else []


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
    """The labels in the answer to a question, told as JSON or as lines; empty if there was no answer. `Pure.`"""
    try:
        answers = list(json.loads(text)["answers"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        answers = re.findall(r"^Answer: (.*)$", text, re.MULTILINE)
    return ", ".join(answer if isinstance(answer, str) else ", ".join(answer) for answer in answers)
