"""Histories in OpenAI's chat format for tests: valid ones, arbitrary ones, and a checker that knows nothing of how they
are repaired."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from turnwise.effects.given_files import TakenFiles
from turnwise.effects.model.port import ModelRequest
from turnwise.states import Context, HistoryMessage, Idle, LogEntry, Opened, UserMessage, begin, transition
from turnwise.states.effects import RequestLlm
from turnwise.states.openai_reading import repair_history
from turnwise.states.transcript import Transcript
from turnwise.testing.generation.chance import FILES
from turnwise.testing.strategies import NOON

from ..pictures import GIF, PDF, PNG, WAV, base64, data_url, sent, shown, stored
from ..servers.openai_server import LEGAL_NAME, Body, is_json_object

Given = dict[str, Any]
"""A message in OpenAI's chat format."""

MENU, DOOR = "https://example.org/menu.jpg", shown(stored(PNG))["stored_file"]


# --- what is wrong with a list of messages


def faults_in(messages: list[Given]) -> list[str]:
    """Why a program that keeps to OpenAI's format would not take this list."""
    json.dumps(messages, ensure_ascii=False, allow_nan=False).encode()
    return [*_faults_of_each(messages), *_faults_of_calls(messages)]


def _faults_of_each(messages: list[Given]) -> Iterator[str]:
    for place, message in enumerate(messages):
        role, content = message["role"], message.get("content")
        if role not in ("system", "developer", "user", "assistant", "tool"):
            yield f"{place}: unknown role"
        if not isinstance(content, str | list | None) or content == []:
            yield f"{place}: content is neither text nor parts"
        for part in content if isinstance(content, list) else ():
            if part["type"] not in ("text", "image_url", "file", "stored_file", "refusal"):
                yield f"{place}: unknown part"
        says_something = _says_something(content) or bool((message.get("refusal") or "").strip())
        if role != "tool" and not says_something and not (role == "assistant" and message.get("tool_calls")):
            yield f"{place}: empty"


_FILES = ("image_url", "stored_file")


def _says_something(content: str | list[Given] | None) -> bool:
    if isinstance(content, list):
        return any(
            part["type"] in ("image_url", "stored_file") or part.get("text", part.get("refusal", "")).strip()
            for part in content
        )
    return bool((content or "").strip())


def _faults_of_calls(messages: list[Given]) -> Iterator[str]:
    owed: list[str] = []
    for place, message in enumerate([*messages, {"role": "end"}]):
        if message["role"] != "tool":
            yield from (f"{place}: no result of {call_id}" for call_id in owed)
            owed = [call["id"] for call in message.get("tool_calls") or ()]
        elif message["tool_call_id"] in owed:
            owed.remove(message["tool_call_id"])
        else:
            yield f"{place}: a result of no call"
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    if len({call["id"] for call in calls} - {""}) < len(calls):
        yield "an id is used twice, or empty"
    for call in calls:
        if call["type"] != "function" or not LEGAL_NAME.fullmatch(call["function"]["name"]):
            yield f"{call['id']}: an illegal name"
        if not is_json_object(call["function"]["arguments"]):
            yield f"{call['id']}: arguments that are no object"


# --- what a conversation makes of it


def opening(messages: list[Given], system: str = "") -> Opened:
    """The first event of a conversation with this history."""
    history = repair_history(messages, system, TakenFiles().take)
    return Opened(event_id="opened", at=NOON, system=history.system, messages=history.messages, repairs=history.repairs)


def next_request(opened: Opened, text: str = "Go on.") -> tuple[RequestLlm, Context, Transcript]:
    """What the model is asked when a person says something next, and the transcript and context for it."""
    context = Context().after(opened)
    said = UserMessage(event_id="next", at=NOON, text=text)
    first = begin(opened)
    step = transition(first.state, said, context)
    transcript = Transcript()
    assert isinstance(first.state, Idle)
    for entry in (LogEntry.of(opened, first), LogEntry.of(said, step)):
        transcript.add(entry)
    (effect,) = (effect for effect in step.effects if isinstance(effect, RequestLlm))
    return effect, context, transcript


def as_given(messages: tuple[HistoryMessage, ...]) -> list[Given]:
    """The messages as dictionaries."""
    return [message.given for message in messages]


# --- valid histories

WORDS = st.text(max_size=20).filter(str.strip)
NAMES = st.sampled_from(["find_table", "weather", "a-b_c", "n" * 64])
OBJECTS = st.dictionaries(
    st.text(max_size=5), st.none() | st.booleans() | st.integers() | st.text(max_size=5), max_size=3
)
TEXT_PARTS = st.builds(lambda text: {"type": "text", "text": text}, WORDS)
IMAGE_PARTS = st.sampled_from(
    [
        {"type": "image_url", "image_url": {"url": MENU}},
        {"type": "image_url", "image_url": {"url": MENU, "detail": "low"}},
        {"type": "image_url", "image_url": {"detail": "low"}, "stored_file": DOOR},
        {"type": "image_url", "image_url": {}, "stored_file": shown(stored(GIF))["stored_file"]},
        *(shown(file) for file in FILES if file.sha256),
    ]
)
PARTS = st.lists(TEXT_PARTS | IMAGE_PARTS, min_size=1, max_size=4)
EXTRAS = st.sampled_from([{}, {}, {"annotations": []}, {"refusal": None}, {"provider": {"x": [1.5, None]}}])
"""Members that programs leave in messages."""


def _user(content: str | list[Given], name: Given) -> list[Given]:
    return [{"role": "user", "content": content, **name}]


def _says(said: Given, extra: Given) -> list[Given]:
    return [{"role": "assistant", **extra, **said}]


USERS = st.builds(_user, WORDS | PARTS, st.sampled_from([{}, {"name": "Ada"}]))
SPEECHES = st.builds(
    _says,
    st.builds(lambda text: {"content": text}, WORDS)
    | st.builds(lambda parts: {"content": parts}, st.lists(TEXT_PARTS, min_size=1, max_size=2))
    | st.builds(lambda text: {"content": None, "refusal": text}, WORDS),
    EXTRAS,
)
INSTRUCTIONS = st.builds(
    lambda role, text: [{"role": role, "content": text}],
    st.sampled_from(["system", "developer"]),
    WORDS | st.lists(TEXT_PARTS, min_size=1, max_size=2),
)


@st.composite
def _rounds(draw: st.DrawFn) -> list[Given]:
    """A message with calls, whose ids `_with_ids` gives, and the results in any order."""
    calls = [
        {"type": "function", "function": {"name": draw(NAMES), "arguments": json.dumps(draw(OBJECTS))}}
        for _ in range(draw(st.integers(1, 3)))
    ]
    said = draw(st.sampled_from([{}, {"content": None}, {"content": ""}, {"content": "Let me see."}]))
    results = [
        {
            "role": "tool",
            "of": call,
            "content": draw(st.text(max_size=9) | PARTS),
            **draw(st.sampled_from([{}, {"name": "x"}])),
        }
        for call in draw(st.permutations(calls))
    ]
    return [{"role": "assistant", **said, "tool_calls": calls}, *results]


def _with_ids(messages: list[Given]) -> list[Given]:
    """Each call gets its id, which its result names."""
    shapes = ("call_{}", "call_{}_0", "toolu-{}", "{:09}", "é{}")
    number = 0
    for message in messages:
        for call in message.get("tool_calls") or ():
            number += 1
            call["id"] = shapes[number % len(shapes)].format(number)
        if "of" in message:
            message["tool_call_id"] = message.pop("of")["id"]
    copied: list[Given] = json.loads(json.dumps(messages))
    return copied


def valid_histories(max_size: int = 8) -> st.SearchStrategy[list[Given]]:
    """Histories in which nothing is wrong; an assistant's greeting or instructions may stand first."""
    turns = st.lists(st.one_of(USERS, SPEECHES, INSTRUCTIONS, _rounds()), max_size=max_size)
    return turns.map(lambda lists: _with_ids([message for messages in lists for message in messages]))


# --- whatever a program may hand over

NASTY = st.sampled_from(
    [None, True, 0, -1, 10**400, 1.5, float("nan"), float("inf"), "", " ", "\ud800", "x" * 300, [], {}, object(), b"x"]
)
ANYTHING = st.recursive(
    NASTY | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=6,
)
IDS = st.sampled_from(
    ["a", "a", "b", "a_r2", "call_1_0", "call_999999999999_0", "\ud800", "i" * 201, "", 7, None, ["a"]]
)
ARGUMENTS = st.sampled_from(
    [
        "{}",
        "",
        "{",
        "[1]",
        "null",
        '{"a": NaN}',
        '{"a": "\\ud800"}',
        '{"a": 1}',
        "[" * 100_000,
        {"a": 1},
        {"a": float("nan")},
    ]
)
FUNCTIONS = st.fixed_dictionaries(
    {}, optional={"name": st.sampled_from(["find", "x:find", "", "\ud800", "n" * 65, "a b", 3]), "arguments": ARGUMENTS}
)
ANY_CALLS = st.one_of(
    st.builds(lambda call_id, function: {"id": call_id, "type": "function", "function": function}, IDS, FUNCTIONS),
    st.builds(lambda call_id, function: {"id": call_id, "function": function}, IDS, FUNCTIONS),
    st.builds(lambda own, name: {"type": "custom", "id": own, "custom": {"name": name, "input": "x"}}, IDS, NAMES),
    st.builds(lambda name, args: {"name": name, "args": args, "type": "tool_call"}, NAMES, ARGUMENTS),
    ANYTHING,
)
ANY_PARTS = st.one_of(
    TEXT_PARTS,
    IMAGE_PARTS,
    st.sampled_from(
        [
            {"type": "text", "text": ""},
            {"type": "text"},
            {"type": "input_text", "text": "Hello"},
            {"type": "input_image", "image_url": data_url("image/png", PNG)},
            {"type": "stored_file", "stored_file": {"sha256": "x"}},
            {"type": "image_url", "stored_file": None},
            {"type": "image_url", "image_url": "https://example.org/a.png"},
            {"type": "image_url", "image_url": {"url": "http://example.org/a.png"}},
            {"type": "image_url", "image_url": {"url": data_url("image/jpg", PNG)}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,###"}},
            {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "wav"}},
            {"type": "file", "file": {"file_id": "1"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": data_url("application/pdf", PDF)}},
            {"type": "input_file", "file_url": "https://example.org/menu"},
            {"type": "document", "source": {"type": "text", "data": "Hello"}, "title": "Menu"},
            {"type": "document", "source": {"type": "url", "url": "https://example.org/menu.pdf"}},
            {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}},
            {"type": "refusal", "refusal": "No."},
            "Hello",
        ]
    ),
    ANYTHING,
)
ANY_MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(
            ["user", "assistant", "assistant", "tool", "tool", "system", "developer", "function", 3]
        ),
        "content": st.text(max_size=5) | st.lists(ANY_PARTS, max_size=4) | ANYTHING,
        "tool_calls": st.lists(ANY_CALLS, max_size=3) | ANYTHING,
        "function_call": FUNCTIONS | ANYTHING,
        "tool_call_id": IDS,
        "name": st.sampled_from(["find", "Ada"]) | ANYTHING,
        "refusal": st.sampled_from(["No.", None]) | ANYTHING,
        "extra": ANYTHING,
    },
)


ITEMS = st.one_of(
    st.builds(lambda own, name: {"type": "function_call", "call_id": own, "name": name, "arguments": "{}"}, IDS, NAMES),
    st.builds(lambda own, output: {"type": "function_call_output", "call_id": own, "output": output}, IDS, ANYTHING),
    st.sampled_from([{"type": "reasoning", "summary": []}, {"type": "function_call"}]),
)
"""Items of the Responses API."""


def any_histories(max_size: int = 8) -> st.SearchStrategy[list[Given]]:
    """Lists of mappings of any content, most of which look like messages."""
    mixed = st.lists(
        ANY_MESSAGES | ITEMS | st.dictionaries(st.text(max_size=5), ANYTHING, max_size=2), max_size=max_size
    )
    return st.one_of(mixed, st.builds(_damaged, valid_histories(), st.lists(st.integers(0, 30), max_size=4)))


def _damaged(messages: list[Given], places: list[int]) -> list[Given]:
    """A valid history of which some messages are missing or stand elsewhere."""
    for place in places:
        if place % 3 and messages:
            messages.append(messages.pop(place % len(messages)))
        elif messages:
            del messages[place % len(messages)]
    return messages


def body_of(model: str, messages: tuple[Any, ...], tools: tuple[Any, ...], tool_choice: str) -> Body:
    """A request as a client would send it."""
    body: Body = {"model": model, "messages": list(sent(ModelRequest(model, messages)).messages)}
    if tools:
        body |= {"tools": list(tools), "tool_choice": tool_choice}
    whole: Body = json.loads(json.dumps(body))
    return whole
