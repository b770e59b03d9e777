"""Writes a request in the form of OpenAI's Responses API.

A response is a list of items: reasoning, messages, calls, what the provider's own tools did. The provider wants them
back as they came, in their order and with their ids: it refuses reasoning without the item behind it, and a search
without the reasoning in front of it. litellm's bridge from chat completions to this API has no place for that. Whatever
it is given, it writes the input anew, from texts, calls and reasoning; it takes none in `extra_body`; and its hooks are
for all requests of a program. So these requests are not given to `acompletion` but to `aresponses`, litellm's own
function for this API, with an input that is written here. litellm would change that, too: it drops ids and fields that
it does not know. It sends what stands in `extra_body` as it is, so the input stands there as well.

Items are stored without what the message tells already, its text and the arguments of its calls. They are filled with
that again when they go back. Where they do not fit, because the text was cut or withheld, or a call is another one, the
message is written without them: a plain message, its calls, and none of the reasoning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..families import ITEMS
from ..openai.traits import Arguments, Message, each_message, without

Item = dict[str, Any]

RESPONSES = "/responses/"
"""What litellm's names of models have in them that are asked over the Responses API."""

_OWN = frozenset({"openai", "azure", "xai"})
"""The protocols whose providers have this API themselves. Requests over others go to litellm's bridge, which knows of
each what it has instead."""

CALLS: Mapping[str, str] = {"function_call": "arguments", "custom_tool_call": "input"}
"""The types of items that are calls, and the field for what each is called with."""

_TEXTS: Mapping[str, str] = {"output_text": "text", "refusal": "refusal"}
"""The types of parts of a message whose text is the text of the message, and the field where it stands."""


def is_asked_directly(model: str) -> bool:
    """Whether the model of this name is asked over the Responses API by `aresponses`. `Pure.`"""
    return RESPONSES in model and model.partition("/")[0] in _OWN


# --- items as they are stored


def stored_items(items: Sequence[Mapping[str, Any]], text: str) -> list[Item]:
    """The items of a response whose messages say this text, as they are stored: with lengths in place of texts, and
    without what calls are called with. Empty if they say something else. Reasoning at the end, behind which something
    is missing, is left out, because the provider refuses it. `Pure.`"""
    kept = list(items)
    while kept and kept[-1].get("type") == "reasoning":
        kept.pop()
    said = "".join(part[name] for item in kept for part, name in _said_in(item, str))
    return [_stored(item) for item in kept] if said == text else []


def _said_in(item: Mapping[str, Any], kind: type) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The parts of an item that say a text, each with the name of the field where it stands: the text, or its length
    in items that are stored."""
    parts = item.get("content") if item.get("type") == "message" else None
    for part in parts if isinstance(parts, list) else ():
        name = _TEXTS.get(str(part.get("type"))) if isinstance(part, Mapping) else None
        if name and type(part.get(name)) is kind:
            yield part, name


def _stored(item: Mapping[str, Any]) -> Item:
    if field := CALLS.get(str(item.get("type"))):
        return {name: value for name, value in item.items() if name not in (field, "name")}
    lengths = {id(part): {**part, name: len(part[name])} for part, name in _said_in(item, str)}
    if not lengths:
        return dict(item)
    for part in lengths.values():
        if part.get("logprobs"):
            del part["logprobs"]  # they are stored with the message, and are many
    return {**item, "content": [lengths.get(id(part), part) for part in item["content"]]}


def _filled(items: Any, message: Message) -> list[Item]:
    """The items with the text and the calls of their message, as they came; empty if they do not fit."""
    text, place, filled = _text_of(message), 0, list[Item]()
    calls = {call["id"]: call["function"] for call in message.get("tool_calls") or ()}
    for item in _listed(items):
        if field := CALLS.get(str(item.get("type"))):
            function = calls.pop(str(item.get("call_id") or item.get("id")), None)
            if function is None:
                return []
            filled.append({**item, "name": function["name"], field: function["arguments"]})
            continue
        parts = {}
        for part, name in _said_in(item, int):
            end = place + part[name]
            parts[id(part)] = {**part, name: text[place:end]}
            place = end
        told = {"content": [parts.get(id(part), part) for part in item["content"]]} if parts else {}
        filled.append({**item, **told})
    return filled if place == len(text) and not calls else []


def _listed(items: Any) -> list[Mapping[str, Any]]:
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def _text_of(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content)
    return content or ""


# --- the request


def with_reasoning_items(arguments: Arguments) -> Arguments:
    """The request with the items of responses in the form that litellm's bridge takes: the reasoning that stands in
    front of a message or a call. litellm sends some requests over the bridge by itself. `Pure.`"""
    return each_message(_for_bridge)(arguments)


def _for_bridge(message: Message) -> Message:
    if ITEMS not in message:
        return message
    items = _listed(message[ITEMS])
    pairs = zip(items, [*items[1:], {}], strict=True)
    kept = [dict(one) for one, after in pairs if one.get("type") == "reasoning" and after.get("type") in _SAID]
    return {**without(message, ITEMS), **({"reasoning_items": kept} if kept else {})}


_SAID = frozenset({"message", *CALLS})


_RENAMED = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens", "base_url": "api_base"}
_RENAMED |= {"metadata": "litellm_metadata"}
"""Arguments that have another name here. What an application tells its callbacks stays with litellm, as it does for
chat completions."""

_WRITTEN = ("model", "messages", "tools", "tool_choice", "response_format", "verbosity", "web_search_options")
_LEFT_OUT = (*_WRITTEN, "stream_options", "logprobs", "extra_body")


def response_arguments(arguments: Arguments) -> Arguments:
    """The arguments of `aresponses` for the request with these arguments of `acompletion`. `Pure.`"""
    instructions, items = _input_of(arguments["messages"])
    told = {"instructions": instructions} if instructions else {}
    others = {_RENAMED.get(name, name): value for name, value in arguments.items() if name not in _LEFT_OUT}
    return {
        **others,
        **told,
        **_tools_of(arguments),
        **_form_of(arguments),
        "model": arguments["model"].replace(RESPONSES, "/"),
        "input": items,
        "extra_body": {**(arguments.get("extra_body") or {}), "input": items},
    }


def _tools_of(arguments: Arguments) -> Arguments:
    tools = [_tool(tool) for tool in arguments.get("tools") or ()]
    if (options := arguments.get("web_search_options")) is not None:
        tools.append({"type": "web_search", **options})
    made: Arguments = {"tools": tools} if tools else {}
    match arguments.get("tool_choice"):
        case {"type": kind, "function": {"name": name}}:
            made["tool_choice"] = {"type": kind, "name": name}
        case None:
            pass
        case choice:
            made["tool_choice"] = choice
    return made


def _tool(tool: Mapping[str, Any]) -> Item:
    """A tool. Functions are strict here unless it is said that they are not; in chat completions they are not."""
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, Mapping):
        return dict(tool)
    return {"type": "function", "strict": False, **function}


def _form_of(arguments: Arguments) -> Arguments:
    """The form of the answer."""
    form, text = arguments.get("response_format"), dict(arguments.get("text") or {})
    if isinstance(form, Mapping):
        text["format"] = {**without(dict(form), "json_schema"), **(form.get("json_schema") or {})}
    if (verbosity := arguments.get("verbosity")) is not None:
        text["verbosity"] = verbosity
    return {"text": text} if text else {}


def _input_of(messages: Sequence[Message]) -> tuple[str, list[Item]]:
    """The instructions, and the items of the input, of which there must be one at least."""
    instructions, items = list[str](), list[Item]()
    types: dict[str, str] = {}
    for message in messages:
        if message["role"] == "system" and not items and isinstance(message["content"], str):
            instructions.append(message["content"])
        else:
            written = list(_items_of(message, types))
            types.update((item["call_id"], item["type"]) for item in written if item.get("type") in CALLS)
            items += written
    told = "\n\n".join(instructions)
    return (told, items) if items else ("", [_message("system", [{"type": "input_text", "text": told}])])


def _items_of(message: Message, types: Mapping[str, str]) -> Iterable[Item]:
    """The items of one message. `types` are those of the calls before it, by their ids."""
    role, content = message["role"], message.get("content")
    if role == "tool":
        call_id = message["tool_call_id"]
        kind = f"{types.get(call_id, 'function_call')}_output"
        return [{"type": kind, "call_id": call_id, "output": _parts_of(content)}]
    if role != "assistant":
        return [_message(role, _parts_of(content))]
    return _filled(message.get(ITEMS), message) or _plain(message)


def _plain(message: Message) -> Iterator[Item]:
    if text := _text_of(message):
        yield _message("assistant", [{"type": "output_text", "text": text}])
    for call in message.get("tool_calls") or ():
        function = call["function"]
        told = {"name": function["name"], "arguments": function["arguments"]}
        yield {"type": "function_call", "call_id": call["id"], **told}


def _message(role: str, content: list[Item]) -> Item:
    return {"type": "message", "role": role, "content": content}


def _parts_of(content: Any) -> list[Item]:
    if not isinstance(content, list):
        return [{"type": "input_text", "text": content or ""}]
    return [_part(part) for part in content]


def _part(part: Mapping[str, Any]) -> Item:
    match part:
        case {"type": "text", "text": text}:
            return {"type": "input_text", "text": text}
        case {"type": "image_url", "image_url": {"url": url} as image}:
            return {"type": "input_image", "detail": image.get("detail", "auto"), "image_url": url}
        case {"type": "file", "file": {"file_id": str(url)}} if url.startswith(("https://", "http://")):
            return {"type": "input_file", "file_url": url}
        case {"type": "file", "file": file}:
            return {"type": "input_file", **{name: value for name, value in file.items() if name != "format"}}
        case _:
            return dict(part)
