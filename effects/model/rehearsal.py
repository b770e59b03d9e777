"""The rehearsal model: an `Llm` of fixed rules in place of a language model, which needs no key and no network.

A program can be tried, shown and tested with it before anybody has an account. Only the model is replaced: requests
are built, answers stream, tools run and questions are asked as with any other model. It imports no client library, so
a program that uses it starts at once.

Which tool a message mentions, which arguments it gives and which options a result lists is guessed from words and JSON
schemas. Only the built-in tools have rules of their own: by them the model speaks, asks, and is one of several agents.
A demonstration writes down beforehand what is answered in a conversation.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...states.events import ORIGIN_OF_WAKE_UPS
from ...states.openai_writing import RESULT_FILES
from ...states.policy import Texts
from ...states.values.messages import Usage, read_agent_text
from ...states.values.output import OutputWay
from ...states.values.value import encodable
from ..schemas.subschemas import resolve, types_of
from .port import LlmFailure, ModelAnswer, ModelCall, ModelRequest, Purpose, Token
from .request import CONTEXT_TITLE, SUMMARY_TITLE
from .spoken_words import spoken_by
from .system_message import DOCUMENTS_TITLE, MEMORY_TITLE

REHEARSAL = "rehearsal"  # the name under which an engine, a policy and the log know the model
DELAY = 0.015  # seconds before each word, so that a reader can watch the answer come in
PRICES = 0.40e-6, 1.60e-6  # US dollars for a token in and for one out, so that a demonstration shows costs
INTRODUCTION = (
    "This is a rehearsal: a few fixed rules answer, not a language model. "
    "For a real one, set OPENAI_API_KEY and start with --model openai/gpt-4.1-mini."
)
SUMMARY = "Something was done; a rehearsal cannot tell what."
CONDENSED = "Something was said before; a rehearsal does not remember what."
BEFORE_SPEAKING, AFTER_SPEAKING = "The user should hear this.", "The user was told."
BEFORE_PASSING_ON, AFTER_PASSING_ON = "The user should know this.", "That is all for now."
NEWS, SENT = "An agent that works for you reports:", "The message is on its way."


def says(text: str, *calls: ModelCall, thinking: str = "") -> ModelAnswer:
    """Return an answer with a text and calls of tools. `Pure.`"""
    return ModelAnswer(text, thinking, tool_calls=calls, finish_reason="tool_calls" if calls else "stop")


def call(name: str, /, **arguments: object) -> ModelCall:
    """Return a call of a tool. `Pure.`"""
    return ModelCall("call_0", name, json.dumps(arguments, ensure_ascii=False))


class RehearsalLlm:
    """Answers by fixed rules, word by word, each after `delay` seconds; None means `DELAY`. `window` is how many tokens
    one request may hold, as for any model. Under the `name` of another model it stands in for that one."""

    def __init__(self, *, window: int | None = None, delay: float | None = None, name: str = REHEARSAL) -> None:
        self.name = name
        self.window = window
        self._delay = DELAY if delay is None else delay
        self._scripts: dict[str, list[ModelAnswer | LlmFailure]] = {}

    def write(self, conversation_id: str, answers: Iterable[ModelAnswer | LlmFailure]) -> None:
        """Have these answers given in a conversation, in this order, before the rules answer."""
        self._scripts[conversation_id] = [*answers]

    def output_way(self, has_tools: bool) -> OutputWay:
        """How it is asked for a typed answer: as by a provider that holds an answer to a schema."""
        return "native"

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer the request; call `show` with each word as it comes. Tokens in the usage are counted as words. Raises
        `LlmFailure` where one was written."""
        script = self._scripts.get(request.conversation_id)
        if script:
            answer = script.pop(0)
        elif purpose := _ANSWERS.get(request.purpose):
            texts = {one["role"]: one["content"] for one in request.messages if isinstance(one["content"], str)}
            answer = says(purpose(texts.get("system", ""), texts.get("user", "")))
        else:
            answer = _rehearsed(request)
        if isinstance(answer, LlmFailure):
            raise answer
        thoughts, words = map(_words_in, (answer.thinking, answer.content))
        spoken = "".join(token.text for token in spoken_by(answer.tool_calls, request.spoken))
        said = (Token(word, "speech") for word in _words_in(spoken))
        for token in (*(Token(word, "thinking") for word in thoughts), *map(Token, words), *said):
            await asyncio.sleep(self._delay)
            show(token)
        read, written = len(json.dumps(request.messages).split()), len(thoughts) + len(words)
        cost = None if script is None else round(read * PRICES[0] + written * PRICES[1], 6)
        usage = Usage(input_tokens=read, output_tokens=written, reasoning_tokens=len(thoughts), cost=cost)
        return replace(answer, content="".join(words), usage=usage, model=request.model)


def _words_in(text: str) -> list[str]:
    return re.findall(r"\s*\S+", encodable(text))


def _rehearsed(request: ModelRequest) -> ModelAnswer:
    """The answer by the rules. Where a typed one is wanted and no tool is called before it, it is made up from what was
    said and from the schema."""
    output = request.output
    if output is None:
        return reply_to(request.messages, request.tools if request.tool_choice == "auto" else ())
    others = [tool for tool in request.tools if tool["function"]["name"] != output.tool]
    answer = reply_to(request.messages, () if output.must_answer else others)
    if answer.tool_calls:
        return answer
    value = example_of(dict(output.schema), _read(request.messages, ()).said)
    return says("", call(output.tool, **value)) if output.tool else says(json.dumps(value, ensure_ascii=False))


def reply_to(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> ModelAnswer:
    """The answer by the rules, for messages and tools in OpenAI's shape. An internal message is no request of the user,
    so only agents in the background, and those that a schedule has woken, do what it asks. `Pure.`"""
    dialogue = _read(messages, tools)
    is_background = TELL_USER in dialogue.tools
    newest = [one for one in messages if one["role"] == "assistant" or _text_of(one)][-1:]
    if any(one.get("tool_calls") and _called(one) <= _SPEAKING for one in newest):
        return says(AFTER_PASSING_ON if is_background else AFTER_SPEAKING)
    if dialogue.audience == "agent" and not is_background:
        return says("")
    if dialogue.audience == "user":
        answer = says(f"{NEWS}\n\n{dialogue.said}")
    else:
        answer = _go_on(dialogue) if dialogue.results else _call_for(dialogue) or _use_tools(dialogue)
    if is_background or _TEXTS.sub_agent_guidance in dialogue.system:
        return answer
    news = [f"{NEWS}\n\n{text}" for text in dialogue.overdue if not answer.tool_calls]
    text = "\n\n".join([*[INTRODUCTION] * dialogue.is_new, *news, answer.content])
    return _by_tool(text, answer.tool_calls, dialogue.tools)


def _by_tool(text: str, calls: tuple[ModelCall, ...], offered: Collection[str]) -> ModelAnswer:
    """The answer with its text as the argument of a speaking tool, or as text if no such tool can be used."""
    if TALK in offered:
        return says(BEFORE_SPEAKING, call(TALK, message=text), *calls)
    for respond in (name for name in RESPOND if name in offered and not calls):
        completion = (call(COMPLETE, summary=AFTER_SPEAKING),) if COMPLETE in offered else ()
        return says(BEFORE_SPEAKING, call(respond, text=text), *completion)
    return says(text, *calls)


ASK, SPAWN, TRANSFER = "ask_user_question", "spawn_agents", "transfer_to"
TELL_USER, TELL_AGENT = "send_user_message", "send_agent_message"
TALK, RESPOND, COMPLETE = "talk", ("respond_to_user", "speak_to_user"), "mark_work_complete"
_SPEAKING = {TALK, *RESPOND, COMPLETE, TELL_USER}
_SPECIAL = (*_SPEAKING, ASK, SPAWN, TELL_AGENT, TRANSFER)  # a message that mentions one does not call it
_TEXTS = Texts()
_NUDGES = "nudge", "speak", "answer_missing", "relay", "fallback", "claim_missing", "fallback_result"
_NUDGE = re.compile("|".join(re.escape(getattr(_TEXTS, one)).replace(RESPOND[0], r"\S+") for one in _NUDGES))
_CONDENSED_MESSAGE = f"{SUMMARY_TITLE}\n{CONDENSED}"
_NOTE = re.compile(r"\s*\(\d+ [a-z ]+: see below\.\)\Z")
_CONTEXT_NOTE = re.compile(rf"\A{CONTEXT_TITLE}\n• Time: [^\n]*\n• Location: [^\n]*(?:\n\n|\Z)")
_RECALLED = re.compile(rf"{MEMORY_TITLE}.*?^\S+ \S+ UTC, user:\n((?:  [^\n]*\n?)+)", re.M | re.S)
_FOUND = re.compile(rf"(?:\n\n|\A)(?:{MEMORY_TITLE}|{DOCUMENTS_TITLE})\n.*\Z", re.S)
_MAIL = r"<message_for_user [^<>]*>[^<>]*</message_for_user>"
_OVERDUE = re.compile(rf"(?:\n\n|\A){re.escape(_TEXTS.overdue)}((?:\n\n{_MAIL})+)(?=\n\n|\Z)")


@dataclass(frozen=True)
class _Dialogue:
    """What the rules look at: the message to answer, and the `results` since then as pairs of tool name and text.

    `audience` is None if the user `said` it; a message of another agent is for the "user", or for the "agent" alone.
    `overdue` are messages for the user that an earlier turn left, and `recalled` is what the user said in an older
    conversation.
    """

    said: str
    audience: str | None
    results: tuple[tuple[str, str], ...]
    tools: dict[str, dict[str, Any]]
    system: str
    is_new: bool
    overdue: tuple[str, ...]
    recalled: str


def _read(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> _Dialogue:
    asked = _place_of_request(messages)
    said = _text_of(messages[asked]) if asked >= 0 else ""
    mail = read_agent_text(said)
    names = {call["id"]: call["function"]["name"] for one in messages for call in one.get("tool_calls") or ()}
    results = [(names[one["tool_call_id"]], one["content"]) for one in messages[asked + 1 :] if one["role"] == "tool"]
    newest = "\n\n".join(_texts_in(messages[-1])) if messages else ""
    late, recalled = "".join(_OVERDUE.findall(newest)), _RECALLED.search(newest)
    return _Dialogue(
        said=(said if mail is None else mail.text).removeprefix(_CONDENSED_MESSAGE).lstrip(),
        audience=None if mail is None or mail.origin == ORIGIN_OF_WAKE_UPS else mail.audience,
        results=tuple((name, _NOTE.sub("", text) or "[a file]") for name, text in results if name not in _SPEAKING),
        tools={tool["function"]["name"]: tool["function"] for tool in tools},
        system=str(next((one["content"] for one in messages if one["role"] == "system"), "")),
        is_new=not said.startswith(_CONDENSED_MESSAGE) and all(one["role"] != "assistant" for one in messages),
        overdue=tuple(one.text for one in map(read_agent_text, re.findall(_MAIL, late)) if one is not None),
        recalled="" if recalled is None else " ".join(recalled[1].split()),
    )


def _place_of_request(messages: Sequence[dict[str, Any]]) -> int:
    """The place of the newest message that asks for something, -1 if there is none. An internal one may have come while
    something else is being answered, so it does so only if nothing else was said since."""
    said = {place: text for place, one in enumerate(messages) if (text := _text_of(one)) and not _NUDGE.fullmatch(text)}
    spoken = [place for place, one in enumerate(messages) if one["role"] == "assistant" and _called(one) <= _SPEAKING]
    mails = {place: read_agent_text(text) for place, text in said.items() if place > max(spoken, default=-1)}
    asking = [place for place, mail in mails.items() if mail is None or mail.audience != "agent"]
    return max(asking, default=max(said, default=-1))


def _called(message: dict[str, Any]) -> set[str]:
    return {call["function"]["name"] for call in message.get("tool_calls") or ()}


def _parts_in(message: dict[str, Any]) -> list[tuple[str, bool]]:
    """The parts of a user's message as texts, and whether each is one; `[image]` stands for an image."""
    content = message["content"] if message["role"] == "user" else ""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [(part["text"], True) if part["type"] == "text" else (_label(part), False) for part in parts]


def _label(part: dict[str, Any]) -> str:
    match part:
        case {"type": "image_url"}:
            return "[image]"
        case {"type": "input_audio"}:
            return "[recording]"
        case {"type": "file", "file": {"filename": str(name)}}:
            return f"[{name}]"
        case _:
            return "[file]"


def _texts_in(message: dict[str, Any]) -> list[str]:
    return [text for text, _ in _parts_in(message)]


def _text_of(message: dict[str, Any]) -> str:
    """What a person or an agent said in a user's message, without what turnwise adds to it and files of results."""
    texts, is_own = [], True
    for text, is_text in _parts_in(message):
        is_own = not text.startswith(RESULT_FILES) if is_text else is_own
        texts.append(_OVERDUE.sub("", _FOUND.sub("", _CONTEXT_NOTE.sub("", text))) if is_own else "")
    return " ".join(filter(None, texts))


def _call_for(dialogue: _Dialogue) -> ModelAnswer | None:
    """Pass on to the user, to another agent, to another profile or to sub-agents what the words say."""
    said, tools = dialogue.said, dialogue.tools
    if TELL_USER in tools and (found := _TO_USER.search(said)):
        return says(BEFORE_PASSING_ON, call(TELL_USER, text=found[1]))
    if TELL_AGENT in tools and (found := _TO_AGENT.search(said)):
        return says("Let me tell that agent.", call(TELL_AGENT, agent_id=found[1], text=found[2]))
    if TRANSFER in tools and (found := _TO_PROFILE.search(said)):
        return says(f"Let me hand you over to {found[1]}.", call(TRANSFER, profile=found[1]))
    if SPAWN in tools and (tasks := tasks_in(said)):
        text = f"There are {len(tasks)} tasks. Let me hand them to sub-agents."
        return says(text, call(SPAWN, tasks=[task for _, task in tasks]))
    return None


def _use_tools(dialogue: _Dialogue) -> ModelAnswer:
    """Call the tools that the words mention and fill. Without one, answer a question with what the user said in an
    older conversation, name what a tool still needs, or repeat what was said."""
    mentioned = _mentioned(dialogue)
    if calls := [call(name, **arguments) for _, name, arguments, missing in mentioned if not missing][:MAX_CALLS]:
        return says(f"Let me use {' and '.join(_readable(one.name) for one in calls)}.", *calls)
    if dialogue.said.rstrip().endswith("?") and dialogue.recalled:
        return says(f"You said earlier: “{dialogue.recalled}”")
    for _, name, _, missing in mentioned:
        needs = " and ".join(missing)
        return says(f"To use {_readable(name)} I also need to know: {needs}. Say it all in one message, please.")
    names = " or ".join(_readable(name) for name in dialogue.tools if name not in _SPECIAL)
    hint = f"Say something that {names} is good for, and I will use it." if names else "There is no tool I could use."
    return says(f"You said: “{dialogue.said}” {hint}")


def _go_on(dialogue: _Dialogue) -> ModelAnswer:
    """Say who is speaking now, ask to choose among the options that a result lists, or report the results."""
    found, results = _TO_PROFILE.search(dialogue.said), dict(dialogue.results)
    if found is not None and TRANSFER in results:
        return says(f"You are now speaking to {found[1]}. {results[TRANSFER]}")
    for name, text in dialogue.results:
        if ASK in dialogue.tools and ASK not in results and (options := options_in(text)):
            topic = _readable(name).split("_")[-1]
            question = {"question": f"Which {topic} would you like?", "header": topic[:12].title(), "options": options}
            return says(f"There is more than one {topic}.", call(ASK, questions=[question]))
    text = "\n".join(_report(dialogue))  # to the user of the agent that a background agent works for
    return says(BEFORE_PASSING_ON, call(TELL_USER, text=text)) if TELL_USER in dialogue.tools else says(text)


def _report(dialogue: _Dialogue) -> Iterator[str]:
    choices = [_choice_in(text) for name, text in dialogue.results if name == ASK]
    yield from (f"You chose {choice}." if choice else "You left the choice open." for choice in choices)
    for name, text in dialogue.results:
        if name == SPAWN:
            agents = json.loads(text)["agents"] if text.startswith("{") else ()
            for (title, _), agent in zip(tasks_in(dialogue.said), agents, strict=False):
                failed = "" if agent["status"] == "completed" else f" ({agent['status']})"
                yield f"{title}{failed}: {agent['result']}"
            yield from () if agents else (text,)
        elif name == TELL_AGENT and text.startswith('{"success": true'):
            yield SENT
        elif name != ASK and not (choices and options_in(text)):
            options = "; ".join(", ".join(option.values()) for option in options_in(text))
            yield f"{_readable(name).split('_')[-1].capitalize()}: {options or ' '.join(text.split())}"


def _readable(tool: str) -> str:
    return re.sub(r"_[0-9a-f]{8}\Z", "", tool)  # the fingerprint of a name that providers do not accept


def _mentioned(dialogue: _Dialogue) -> list[tuple[int, str, dict[str, Any], list[str]]]:
    """The tools with a word in what was said, in order: its place, the name, the arguments said, and those left out."""
    words = _stems(dialogue.said)
    found: list[tuple[int, str, dict[str, Any], list[str]]] = []
    for name, tool in dialogue.tools.items():
        known = set(_stems(f"{name.replace('_', ' ')} {tool.get('description') or ''}")) - {""}
        if name not in _SPECIAL and known.intersection(words):
            arguments, missing = fill_parameters(tool.get("parameters") or {}, dialogue.said)
            found.append((min(map(words.index, known.intersection(words))), name, arguments, missing))
    return sorted(found, key=lambda each: each[0])


def _choose_profile(instruction: str, said: str) -> str:
    """The profile, of those that the instruction lists, that has the most words in common with the user's text."""
    words = set(_stems(said)) - {""}
    profiles = re.findall(r"^- ([^:\n]+)(?:: (.*))?$", instruction, re.M)
    names = sorted(profiles, key=lambda profile: -len(words & set(_stems(" ".join(profile)))))
    return json.dumps({"profile": names[0][0] if names else ""}, ensure_ascii=False)


def _search_terms(_: str, said: str) -> str:
    words = {word.lower(): word for word in _WORD.findall(said) if len(word) > 2}
    keywords = [word for lower, word in words.items() if lower not in _STOP_WORDS][:MAX_KEYWORDS]
    return json.dumps({"keywords": keywords, "from": None, "to": None}, ensure_ascii=False)


_ANSWERS: dict[Purpose, Callable[[str, str], str]] = {
    "route": _choose_profile,
    "enrich": _search_terms,
    "check": lambda *_: '{"passed": true, "reason": "A rehearsal takes every claim at its word."}',
    "summarize": lambda *_: SUMMARY,
    "condense": lambda *_: CONDENSED,
}


_WORD = re.compile(r"[\w'’-]+")
_QUOTED = re.compile(r"[\"“](.+?)[\"”]")
_TIME = re.compile(
    r"(?i)\b(?:\d{1,2}(?::\d\d)?\s*[ap]m|\d{1,2}:\d\d|today|tonight|tomorrow|noon|midnight|morning|afternoon|evening"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"
)
_TIME_PARAMETER = re.compile(r"time|day|date|when|hour", re.I)
_NAME = re.compile(r"(?<=[^.!?\s])\s+([^\W\d_][\w'’-]+)")
_PLACE = re.compile(r"\b(?:somewhere|in|near|at|to|from|about|called)\s+(?:an?\s+|the\s+)?([\w'’-]+)", re.I)
_NEGATION = r"\b(?:no|not|without|don['’]t)\b[^.,;!?]*\b"
_NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_NUMBER = re.compile(rf"[0-9]{{1,9}}|{'|'.join(_NUMBERS)}")
_SYNONYMS = {"umbrella": "weather", "rain": "weather", "sunny": "weather", "dinner": "table", "eat": "table"}
_TO_USER = re.compile(r"\btell (?:the|your|my) user (?:that )?(.+)", re.I | re.S)
_TO_AGENT = re.compile(r"\btell (?:the )?agent (\S+?)[:,]? (?:that |to )?(.+)", re.I | re.S)
_TO_PROFILE = re.compile(r"\b(?:transfer|hand|pass|connect)\b.*? (?:over )?to (?:the )?([\w-]+)", re.I)
MAX_CALLS, MAX_OPTIONS, MAX_KEYWORDS = 2, 4, 8
_STOP_WORDS = frozenset(
    _WORD.findall(
        "a an the and or of for to in on at is are be do does will would can could i you me my we it this that what "
        "which who when where how need want have has get give use any some with from by as not no if then there here "
        "please one list return value"
    )
)


def _stems(text: str) -> list[str]:
    """The words of the text without their plural endings; stop words are empty."""
    words = [word.lower() for word in _WORD.findall(text)]
    return ["" if word in _STOP_WORDS else _SYNONYMS.get(word, word.rstrip("s")) for word in words]


def fill_parameters(parameters: dict[str, Any], said: str) -> tuple[dict[str, Any], list[str]]:
    """Arguments for a JSON schema, taken from what was said, and the required ones that are not in it. Each number and
    each name is used once. `Pure.`"""
    times, rest = " ".join(_TIME.findall(said)), _TIME.sub("", said)
    words = [word.lower() for word in _WORD.findall(rest)]
    numbers = [_NUMBERS.index(word) if word in _NUMBERS else int(word) for word in words if _NUMBER.fullmatch(word)]
    proper = [name for name in _NAME.findall(rest) if name[0].isupper()]
    names = list(dict.fromkeys([*_QUOTED.findall(rest), *proper, *_PLACE.findall(rest)]))
    found: dict[str, Any] = {}
    for name, schema in (parameters.get("properties") or {}).items():
        kind, phrase = schema.get("type"), re.escape(name.replace("_", " "))
        if "enum" in schema:
            found[name] = next((one for one in schema["enum"] if str(one).lower() in said.lower()), None)
        elif kind in ("integer", "number"):
            found[name] = numbers.pop(0) if numbers else None
        elif kind == "boolean":
            found[name] = bool(re.search(phrase, said, re.I)) and not re.search(_NEGATION + phrase, said, re.I)
        elif kind == "string" and _TIME_PARAMETER.search(name):
            found[name] = times or None
        elif kind == "string":
            found[name] = names.pop(0) if names else said
    arguments = {name: value for name, value in found.items() if value is not None}
    return arguments, [name for name in parameters.get("required") or () if name not in arguments]


_DEEPEST_EXAMPLE = 6
"""How deep an example goes into a schema that contains itself."""

_FORMATS = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "somebody@example.com",
    "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
"""An example of each format of a text."""


def example_of(schema: dict[str, Any], said: str) -> dict[str, Any]:
    """An object that fits this JSON schema of an object, as far as that can be seen from its keywords, with words of
    what was said where there is room for them. `Pure.`"""
    found, _ = fill_parameters(schema, said)
    return {**_example(schema, schema, said, 0), **{name: value for name, value in found.items() if value != said}}


def _example(root: dict[str, Any], schema: Any, said: str, depth: int) -> Any:
    if not isinstance(schema, dict):
        return None
    if (meant := resolve(root, schema.get("$ref"))) is not None:
        return _example(root, meant, said, depth)
    for keyword in ("const", "default"):
        if keyword in schema:
            return schema[keyword]
    if options := schema.get("enum"):
        return next((one for one in options if str(one).lower() in said.lower()), options[0])
    for keyword in ("anyOf", "oneOf", "allOf"):
        if options := schema.get(keyword):
            simple = [one for one in options if one.get("type") == "null"] if depth >= _DEEPEST_EXAMPLE else []
            return _example(root, (simple or options)[0], said, depth)
    kind = next(iter(types_of(schema)), "object" if "properties" in schema else "string")
    return _EXAMPLES.get(kind, _no_example)(root, schema, said, depth)


def _no_example(root: dict[str, Any], schema: dict[str, Any], said: str, depth: int) -> Any:
    return None


def _example_object(root: dict[str, Any], schema: dict[str, Any], said: str, depth: int) -> Any:
    required = schema.get("required", ())
    properties = schema.get("properties", {})
    wanted = [name for name in properties if name in required or depth < _DEEPEST_EXAMPLE]
    return {name: _example(root, properties[name], said, depth + 1) for name in wanted}


def _example_array(root: dict[str, Any], schema: dict[str, Any], said: str, depth: int) -> Any:
    first = [_example(root, one, said, depth + 1) for one in schema.get("prefixItems", ())]
    least = schema.get("minItems", 0 if depth >= _DEEPEST_EXAMPLE else 1)
    return first + [_example(root, schema.get("items", {}), said, depth + 1) for _ in range(least - len(first))]


def _example_number(root: dict[str, Any], schema: dict[str, Any], said: str, depth: int) -> Any:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    steps = (low, None if above is None else above + 1, None if below is None else below - 1, high)
    number = next((one for one in steps if one is not None and one > 0), 1 if 0 in (above, low) else 0)
    return int(number) if schema.get("type") == "integer" else number


def _example_text(root: dict[str, Any], schema: dict[str, Any], said: str, depth: int) -> Any:
    text = _FORMATS.get(schema.get("format", ""), said or "text")
    return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength", len(text) + 1_000)]


_EXAMPLES: dict[str, Callable[[dict[str, Any], dict[str, Any], str, int], Any]] = {
    "object": _example_object,
    "array": _example_array,
    "integer": _example_number,
    "number": _example_number,
    "string": _example_text,
    "boolean": lambda *_: False,
}


def tasks_in(said: str) -> list[tuple[str, str]]:
    """The tasks that a message lists, on lines with a mark in front, or behind a colon with commas between them: what
    sets each apart, and its whole text, with what stands before the list. Empty if there are fewer than two. `Pure.`"""
    lines = [match for line in said.splitlines() if (match := re.match(r"\s*(?:[-*•]|\d+[.)])\s+(.+)", line))]
    head, _, rest = said.partition(lines[0][0] if len(lines) > 1 else ":")
    separated = re.split(r",\s*(?:and\s+)?|;\s*(?:and\s+)?|\s+and\s+", rest)
    items = [item.strip(" .\n") for item in ([match[1] for match in lines] if len(lines) > 1 else separated)]
    title = " ".join(head.split()).rstrip(":")
    tasks = [(item, f"{title}: {item}" if title else item) for item in items if item]
    return tasks if len(tasks) > 1 else []


def options_in(text: str) -> list[dict[str, str]]:
    """The options that a result lists: the items of a JSON list, or its lines. Empty if there are fewer than two. Each
    has a `label`, and a `description` if the item has more than one value. `Pure.`"""
    try:
        value = json.loads(text)
    except ValueError:
        value = [] if text.startswith("Error: ") else text.splitlines()
    if isinstance(value, dict):
        value = next((inner for inner in value.values() if isinstance(inner, list)), None)
    options: dict[str, dict[str, str]] = {}
    for item in value if isinstance(value, list) else ():
        parts = item.values() if isinstance(item, dict) else [item]
        label, *more = [str(part).strip(" -*•\t") for part in parts] or [""]
        if 0 < len(label) <= 80 and label.casefold() != "other":
            description = ", ".join(filter(None, more))
            options[label] = {"label": label, "description": description} if description else {"label": label}
    return list(options.values())[:MAX_OPTIONS] if len(options) > 1 else []


def _choice_in(text: str) -> str:
    """The labels chosen in the answer to a question, which is JSON or lines of text; empty if there is no answer."""
    try:
        answers = list(json.loads(text)["answers"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        answers = re.findall(r"^Answer: (.*)$", text, re.M)
    return ", ".join(answer if isinstance(answer, str) else ", ".join(answer) for answer in answers)
