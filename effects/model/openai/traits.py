"""The forms of requests that some servers refuse: how each refusal reads, and what is sent instead.

A server that speaks OpenAI's protocol seldom takes all of it. Which part is missing differs from server to server and
from version to version, so the refusal decides and no list of names does. Each rule describes what refusals of one form
have in common: what is said of what. What is sent instead is written by a pure function of the request. Where that
changes nothing the request did not have this form, so the refusal speaks of something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..written_messages import BEGINNING, may_be_merged, merged, separator

Arguments = dict[str, Any]
"""The arguments of litellm for one request. They are not changed; rewriting makes new ones."""

Message = dict[str, Any]

_NOT = (
    r"(?:not|no|never|cannot|cant|doesnt|dont|isnt|arent|without|unsupported|unimplemented|unrecognized|unpermitted|"
    r"undefined|unknown|invalid)"
)

_GO_ON = "Go on."
_CALLING = "(calling)"
NOTHING = "(nothing)"
"""Texts of messages where a server wants one and there is none."""


@dataclass(frozen=True)
class Trait:
    """A form of requests that some server refuses. `told` names it in a sentence: a server does not take it, so
    requests are sent without. `says` is found in the text of a refusal, in lower case and without quotation marks; it
    is empty where the trait is made of what a refusal names. `tool` is the name of the tool that is left out, if it is
    one. `once` says that the server has refused only what this request gave, so that nothing is known of others."""

    name: str
    told: str
    says: str
    rewrite: Callable[[Arguments], Arguments]
    tool: str = ""
    once: bool = False

    def is_named(self, text: str) -> bool:
        """Whether a refusal with this text speaks of it."""
        return bool(self.says) and re.search(self.says, text) is not None


def _trait(name: str, told: str, rewrite: Callable[[Arguments], Arguments], *says: str) -> Trait:
    return Trait(name, told, "|".join(f"(?:{pattern})" for pattern in says), rewrite)


# --- parameters


def without(arguments: Arguments, *names: str) -> Arguments:
    """The arguments without these; the same object if there are none of them. `Pure.`"""
    if not any(name in arguments for name in names):
        return arguments
    return {name: value for name, value in arguments.items() if name not in names}


def _without_stream(arguments: Arguments) -> Arguments:
    return {**without(arguments, "stream_options"), "stream": False} if arguments.get("stream") else arguments


def _without_choice(*, is_forced: bool) -> Callable[[Arguments], Arguments]:
    def leave_out(arguments: Arguments) -> Arguments:
        is_meant = "tool_choice" in arguments and (arguments["tool_choice"] != "none") is is_forced
        return without(arguments, "tool_choice") if is_meant else arguments

    return leave_out


def _renamed(old: str, new: str) -> Callable[[Arguments], Arguments]:
    def rename(arguments: Arguments) -> Arguments:
        if old not in arguments or new in arguments:
            return arguments
        return {new if name == old else name: value for name, value in arguments.items()}

    return rename


_FORM = (
    "Answer with one JSON object that fits this JSON schema, and with nothing else: no explanation, and no fence "
    "around it."
)
"""What is said to a model whose server takes no schema of an answer."""


def _prompted(arguments: Arguments) -> Arguments:
    """The schema of the answer as an instruction behind the last message."""
    form = arguments.get("response_format")
    if not isinstance(form, dict):
        return without(arguments, "response_format")
    schema = (form.get("json_schema") or {}).get("schema", {"type": "object"})
    told = {"role": "user", "content": f"{_FORM}\n{json.dumps(schema, ensure_ascii=False)}"}
    messages = [*(arguments.get("messages") or ())]
    if messages and messages[-1]["role"] == "user":
        told = merged(messages.pop(), told)
    return {**without(arguments, "response_format"), "messages": [*messages, told]}


# --- messages


def _with_messages(arguments: Arguments, messages: list[Message]) -> Arguments:
    before = arguments.get("messages") or []
    is_same = len(messages) == len(before) and all(new is old for new, old in zip(messages, before, strict=True))
    return arguments if is_same else {**arguments, "messages": messages}


def each_message(rewrite: Callable[[Message], Message]) -> Callable[[Arguments], Arguments]:
    """What rewrites each message of a request. `Pure.`"""
    return lambda arguments: _with_messages(arguments, list(map(rewrite, arguments.get("messages") or [])))


def _with_text_beside_calls(message: Message) -> Message:
    is_null = message["role"] == "assistant" and message.get("content") is None
    return {**message, "content": ""} if is_null else message


def _with_some_text(message: Message) -> Message:
    content = message.get("content")
    if isinstance(content, list):
        kept = [part for part in content if part.get("type") != "text" or str(part.get("text", "")).strip()]
        return message if len(kept) == len(content) else {**message, "content": kept or NOTHING}
    if isinstance(content, str) and content.strip():
        return message
    return {**message, "content": _CALLING if message.get("tool_calls") else NOTHING}


def _with_text_for_parts(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list) or not all(part.get("type") == "text" for part in content):
        return message
    return {**message, "content": "\n\n".join(str(part.get("text", "")) for part in content)}


def _with_parts_for_text(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, str) or not content.strip():
        return message
    return {**message, "content": [{"type": "text", "text": content}]}


def _developer_as_system(message: Message) -> Message:
    return {**message, "role": "system"} if message["role"] == "developer" else message


def _system_as_developer(message: Message) -> Message:
    return {**message, "role": "developer"} if message["role"] == "system" else message


def _one_system_first(arguments: Arguments) -> Arguments:
    messages = arguments.get("messages") or []
    systems = [one for one in messages if one["role"] in _SYSTEM]
    if not systems or (len(systems) == 1 and messages[0] is systems[0]):
        return arguments
    first = {**systems[0], "content": "\n\n".join(map(_text_of, systems))}
    return _with_messages(arguments, [first, *(one for one in messages if one["role"] not in _SYSTEM)])


def _system_in_user(arguments: Arguments) -> Arguments:
    messages = arguments.get("messages") or []
    text = "\n\n".join(_text_of(one) for one in messages if one["role"] in _SYSTEM)
    if not text:
        return arguments
    others = [one for one in messages if one["role"] not in _SYSTEM]
    if not others or others[0]["role"] != "user":
        return _with_messages(arguments, [{"role": "user", "content": text}, *others])
    return _with_messages(arguments, [merged({"role": "user", "content": text}, others[0]), *others[1:]])


_SYSTEM = ("system", "developer")


def _text_of(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else "\n\n".join(str(one.get("text", "")) for one in content or ())


def _alternating(arguments: Arguments) -> Arguments:
    """User and assistant in turn, beginning with the user."""
    arranged: list[Message] = []
    for message in arguments.get("messages") or []:
        role = message["role"]
        before = arranged[-1]["role"] if arranged else "system"
        if role == "assistant" and before in _SYSTEM:
            arranged.append({"role": "user", "content": BEGINNING})
        if role == before and role not in _SYSTEM and _may_be_one(arranged[-1], message):
            arranged[-1] = merged(arranged[-1], message)
        else:
            arranged.append(message)
    return _with_messages(arguments, arranged)


def _may_be_one(first: Message, second: Message) -> bool:
    return may_be_merged(first) and may_be_merged(second) and not first.get("tool_calls")


def _separated(arguments: Arguments) -> Arguments:
    """A message of the assistant between a result and a user's message."""
    arranged: list[Message] = []
    for message in arguments.get("messages") or []:
        arranged += separator(arranged[-1]["role"], message["role"]) if arranged else ()
        arranged.append(message)
    return _with_messages(arguments, arranged)


def _user_last(arguments: Arguments) -> Arguments:
    messages = arguments.get("messages") or []
    if not messages or messages[-1]["role"] != "assistant" or messages[-1].get("tool_calls"):
        return arguments
    return _with_messages(arguments, [*messages, {"role": "user", "content": _GO_ON}])


def _with_names_of_tools(arguments: Arguments) -> Arguments:
    """Each result with the name of its tool."""
    names: dict[str, str] = {}
    named: list[Message] = []
    for message in arguments.get("messages") or []:
        names |= {call.get("id", ""): call["function"]["name"] for call in message.get("tool_calls") or ()}
        name = (
            names.get(message.get("tool_call_id", "")) if message["role"] == "tool" and "name" not in message else None
        )
        named.append({**message, "name": name} if name else message)
    return _with_messages(arguments, named)


# --- tools


def each_tool(rewrite: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Callable[[Arguments], Arguments]:
    """What rewrites the function of each tool of a request, or leaves the tool out, for which it returns None.
    `Pure.`"""

    def rewritten(arguments: Arguments) -> Arguments:
        tools = arguments.get("tools") or []
        functions = [(tool, rewrite(tool["function"]) if "function" in tool else tool) for tool in tools]
        kept = [
            tool if new is tool.get("function", tool) else {**tool, "function": new}
            for tool, new in functions
            if new is not None
        ]
        if len(kept) == len(tools) and all(new is old for new, old in zip(kept, tools, strict=True)):
            return arguments
        return (
            {**arguments, "tools": kept} if kept else without(arguments, "tools", "tool_choice", "parallel_tool_calls")
        )

    return rewritten


def _without_strict(function: dict[str, Any]) -> dict[str, Any]:
    return without(function, "strict")


# --- the table

PARAMETERS: tuple[Trait, ...] = (
    _trait(
        "stream_options", "stream_options", lambda a: without(a, "stream_options"), r"stream_options", r"include_usage"
    ),
    _trait("tool_choice_none", 'tool_choice "none"', _without_choice(is_forced=False), r"tool[_ ]choice"),
    _trait(
        "tool_choice_forced", "a tool_choice that forces a call", _without_choice(is_forced=True), r"tool[_ ]choice"
    ),
    _trait(
        "response_format",
        "a schema of the answer",
        _prompted,
        r"response[_ ]?(?:format|schema|mime)",
        r"json[_ ]?schema",
        r"structured[_ ]outputs?",
        r"\bguided\b|\bgrammar\b|\boutput_(?:format|config)\b",
    ),
    _trait("max_tokens", "max_tokens", _renamed("max_tokens", "max_completion_tokens"), r"max_completion_tokens"),
    _trait(
        "max_completion_tokens",
        "max_completion_tokens",
        _renamed("max_completion_tokens", "max_tokens"),
        r"max_completion_tokens",
    ),
)
"""What is refused of parameters that every request may have, and for which something else can be sent."""

SHAPES: tuple[Trait, ...] = (
    _trait(
        "stream",
        "streams",
        _without_stream,
        rf"\b{_NOT}\b.{{0,80}}\bstream(?:ing|ed|s)?\b",
        r"\bunexpected (?:keyword )?(?:argument|field|parameter|property|key|input)s?\b.{0,20}\bstream\b",
        rf"\bstream(?:ing|ed|s)?\b.{{0,80}}\b(?:{_NOT}|disabled|unavailable|not available|forbidden|extra)\b",
        r"\bstream(?:ing)?\b.{0,20}\b(?:to|be|is|=) (?:false|0)\b|\bstream=false",
        r"verified to stream|\b(?:body|param)\W{1,4}stream\b",
    ),
    _trait("strict_tools", "strict in tools", each_tool(_without_strict), r"\bstrict\b"),
    _trait(
        "developer_role",
        "the role of a developer",
        each_message(_developer_as_system),
        r"\bdeveloper\b",
        r"\broles?\b.{0,80}\b(?:system|unknown|unexpected|invalid)",
    ),
    _trait(
        "late_system",
        "system messages behind the first message",
        _one_system_first,
        r"\bsystem\b.{0,60}\b(?:first|beginning|start|begin|only one|single)\b",
        r"\b(?:first|beginning|multiple|more than one|only one|several|single)\b.{0,50}\bsystem\b",
    ),
    _trait(
        "system_role",
        "system messages",
        _system_in_user,
        rf"\bsystem\b.{{0,80}}\b{_NOT}\b",
        rf"\b{_NOT}\b.{{0,80}}\b(?:system|developer)\b",
        r"\bdeveloper instruction\b|\bunexpected\b.{0,40}\bsystem\b",
        r"\bsystem\b.{0,40}\b(?:unexpected|is not one of|only)\b",
    ),
    _trait(
        "null_content",
        "messages with calls and no text",
        each_message(_with_text_beside_calls),
        r"\bcontent\b.{0,160}\b(?:null|none\b|nil|missing|required|nonetype|undefined)",
        r"\bcontent\b.{0,160}\b(?:valid|a|type|expected) str",
        r"\b(?:null|none|missing|required|nonetype|undefined)\b.{0,80}\bcontent\b",
    ),
    _trait(
        "text_parts",
        "text as a list of parts",
        each_message(_with_text_for_parts),
        r"\bcontent\b.{0,160}\b(?:string|str|text|list|array|sequence|parts?)\b",
        r"\b(?:sequence|array|list|map)\b.{0,60}\bexpected (?:a )?str",
        r"\bexpected (?:a )?str.{0,60}\b(?:sequence|array|list)\b",
        r"cannot unmarshal array|must be a string|valid string",
    ),
    _trait(
        "empty_content",
        "messages without text",
        each_message(_with_some_text),
        r"\b(?:content|text|parts?|messages?)\b.{0,100}\b(?:empty|blank|at least 1|at least one|min_?length)\b",
        r"\b(?:content|text|parts?)\b.{0,100}\b(?:white ?space|required|missing|minimum|null|none)\b",
        r"\b(?:empty|blank|non-?empty|no)\b.{0,60}\b(?:content|text|messages?|parts?)\b",
    ),
    _trait(
        "user_after_tool",
        "a user's message behind the result of a tool",
        _separated,
        r"\buser\b.{0,40}\b(?:after|following|behind|follows?)\b.{0,30}\btool",
        r"\b(?:after|following)\b.{0,30}\btool\b.{0,60}\bassistant",
    ),
    _trait(
        "repeated_roles",
        "two messages of one role in a row",
        _alternating,
        r"\balternat\w*",
        r"\b(?:consecutive|successive|two|multiple|repeated|same)\b.{0,60}\b(?:roles?|messages?|turns?)\b",
        r"\bin a row\b",
        r"\b(?:first|start|begin\w*)\b.{0,60}\buser\b",
    ),
    _trait(
        "assistant_last",
        "a message of the assistant as the last one",
        _user_last,
        r"\bprefill",
        r"\b(?:last|final)\b.{0,40}\b(?:message|role|turn)\b.{0,80}\b(?:user|assistant|tool)\b",
        r"\bend(?:s|ing)? with\b.{0,40}\b(?:user|assistant)\b",
        r"add_generation_prompt|continue_final_message",
    ),
    _trait(
        "unnamed_results",
        "results without the name of their tool",
        _with_names_of_tools,
        r"\bname\b.{0,80}\b(?:missing|required|null|none|empty)\b",
        r"\b(?:missing|required|empty)\b.{0,60}\bname\b",
    ),
    _trait(
        "plain_system",
        "the role system",
        each_message(_system_as_developer),
        r"\bdeveloper\b.{0,40}\binstead\b|\buse (?:the )?developer\b",
    ),
    _trait(
        "plain_text",
        "text that is no list of parts",
        each_message(_with_parts_for_text),
        r"\bcontent\b.{0,80}\b(?:must|should|expected|valid|invalid)\b.{0,40}\b(?:list|array|parts?|sequence)\b",
    ),
)
"""What is refused of the shape of a request, in the order in which a refusal is compared with them."""

_LASTING = re.compile(
    r"\b(?:not|doesnt|dont|isnt|arent) (?:\w+ )?(?:support\w*|implement\w*|enabled)|\bunsupported\b|\bunimplemented\b|"
    r"\bonly (?:\w+ )?(?:support\w*|allowed)|\bsupported only\b|\balternat\w*|raise_exception|jinja|chat[ _]template|"
    r"\bnonetype\b|\bconcatenate\b|\brole\b|"
    r"\b(?:missing|expected|invalid)\b.{0,20}\bcontent\b|\bcontent\b.{0,40}\b(?:missing|expected|required|must)\b"
)
_PASSING = re.compile(
    r"\btry\b.{0,30}\bagain\b|\bretry|\blater\b|temporar|unavailable|not available|overload|time(?:d )?out"
)
_OF_TEMPLATES = frozenset(
    {"stream", "developer_role", "late_system", "system_role", "null_content", "text_parts", "repeated_roles"}
    | {"user_after_tool", "assistant_last", "unnamed_results"}
)


def named_shapes(text: str, is_server_error: bool = False) -> Iterator[Trait]:
    """Yield the shapes that a refusal names. A server that has failed may work a moment later, so what it says counts
    only where it speaks of what it can do, or of the template that writes the messages for the model. `Pure.`"""
    if is_server_error and (is_passing(text) or not _LASTING.search(text)):
        return
    for trait in SHAPES:
        if trait.is_named(text) and (not is_server_error or trait.name in _OF_TEMPLATES):
            yield trait


def is_passing(text: str) -> bool:
    """Whether a server says that it may not fail again. `Pure.`"""
    return _PASSING.search(text) is not None


BY_NAME = {trait.name: trait for trait in (*PARAMETERS, *SHAPES)}

# --- parameters and fields of any name

_KEPT = frozenset(
    {"model", "messages", "tools", "tool_choice", "stream", "stream_options", "num_retries", "max_retries", "timeout"}
    | {"request_timeout", "custom_llm_provider", "client", "extra_headers", "headers", "metadata", "fallbacks", "proxy"}
    | {"drop_params", "additional_drop_params", "mock_response", "litellm_params", "ssl_verify", "organization"}
)
"""Arguments that are not for the server, or without which there is no request."""

_OF_ACCESS = re.compile(r"token$|secret|password|^api_|^azure|^aws|^vertex|^base_url$|cost")

_COMMON_WORDS = frozenset(
    {"n", "stop", "user", "seed", "store", "thinking", "reasoning", "functions", "modalities", "input", "audio"}
)
"""Names of parameters that are words of ordinary sentences."""

_OF_MESSAGES = frozenset({"role", "content", "tool_calls", "tool_call_id"})
_OF_CALLS = frozenset({"id", "type", "function"})

_REFUSED = (
    r"(?:not|unsupported|unknown|unrecognized|unexpected|invalid|extra|additional|deprecated|only|cannot|cant|"
    r"doesnt|isnt|arent|no longer|forbidden|extra_forbidden|illegal|remove|disallowed|mutually exclusive)"
)

_OF_VALUES = re.compile(
    r"\b(?:too (?:large|small|high|low|big|long|short|many|few)|between|range|must be|should be|has to be|at most|"
    r"at least|maximum|minimum|up to|(?:less|greater|larger|smaller|higher|lower|more) than|exceeds?|out of bounds|"
    r"positive|negative|integer|number|valid (?:int|float|value)\w*|value error)\b|[<>]=?"
)
"""What is said of a value, not of the parameter that has it."""

_TAKEN = re.compile(
    r"(?<!not )(?<!longer )\b(?:supported|allowed|valid|permitted|accepted|available|known) "
    r"(?:parameters|arguments|fields|options|keys|properties|ones|inputs)\b[^.;{}]*|\bexpected one of\b[^.;{}]*"
    r"|(?:[\w-]+(?:, | and |, and | or ))*[\w-]+ (?:(?:do|does|both|all) )?(?:works?\b|"
    r"(?:is|are) (?:fine|ok|okay|supported|allowed|accepted|valid|permitted|possible)\b)[^.;,{}]*"
)
"""What is said of the parameters that are taken."""

_CLAUSES = re.compile(r"[.;!?]\s|,?\s(?:but|however|whereas|while|although)\b|\}\s*,\s*\{")


def named_parameters(text: str, arguments: Arguments) -> Iterator[Trait]:
    """Yield the parameters of the request that a refusal names, to be left out, in the order of the refusal; of two
    that exclude each other the later one first. `Pure.`"""
    body = arguments.get("extra_body")
    inner = body if isinstance(body, dict) else {}
    names = [name for name in (*arguments, *inner) if name not in _KEPT and not _OF_ACCESS.search(name)]
    found = sorted((*fault, name) for name in names if (fault := _fault_of(name, text)) is not None)
    if re.search(r"\b(?:both|together|only one|mutually exclusive|at the same time)\b", text):
        found.reverse()
    yield from (_without_parameter(name, once) for _, once, name in found)


def _without_parameter(name: str, once: bool = False) -> Trait:
    """The trait of a server that does not take the parameter of this name, or with `once` not the value that it has in
    this request. `Pure.`"""

    def leave_out(arguments: Arguments) -> Arguments:
        body = arguments.get("extra_body")
        if isinstance(body, dict) and name in body:
            arguments = {**arguments, "extra_body": without(body, name)}
        return without(arguments, name)

    return Trait(f"parameter {name}", name, "", leave_out, once=once)


def _fault_of(name: str, text: str) -> tuple[int, bool] | None:
    """Where a refusal speaks of a parameter, and whether only of its value; None if it does not refuse it."""
    place = 0
    for clause in _CLAUSES.split(text):
        said = _TAKEN.sub(" ", clause)
        if _names(name, said) and (_OF_VALUES.search(said) or re.search(rf"\b{_REFUSED}\b", said)):
            return text.index(clause, place) + max(clause.find(name.lower()), 0), _OF_VALUES.search(said) is not None
        place += len(clause)
    if found := re.search(rf"\b(?:param|loc): (?:\[body, )?{re.escape(name.lower())}\b", text):
        return found.start(), _OF_VALUES.search(text) is not None or not re.search(rf"\b{_REFUSED}\b", text)
    return None


def names_value(text: str) -> bool:
    """Whether a refusal speaks of the value of a parameter. `Pure.`"""
    return _OF_VALUES.search(text) is not None


def _names(name: str, text: str) -> bool:
    word = rf"(?<![\w-]){re.escape(name.lower())}(?![\w-])"
    near = rf"{_REFUSED}\b.{{0,60}}{word}|{word}.{{0,40}}\b{_REFUSED}\b" if name.lower() in _COMMON_WORDS else word
    return re.search(near, text) is not None


def named_fields(text: str, arguments: Arguments) -> Iterator[Trait]:
    """Yield the fields of messages and calls, none of those that every server knows, that a refusal names. `Pure.`"""
    if re.search(rf"\b{_REFUSED}\b", text):
        for name in dict.fromkeys(further_fields(arguments.get("messages") or [])):
            if re.search(rf"(?<![\w-]){re.escape(name.lower())}(?![\w-])", text):
                yield _without_field(name)


def further_fields(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the names of the fields of messages and calls that not every server knows. `Pure.`"""
    for message in messages:
        yield from (name for name in message if name not in _OF_MESSAGES)
        for call in message.get("tool_calls") or ():
            yield from (name for name in call if name not in _OF_CALLS)


def _without_field(name: str) -> Trait:
    """The trait of a server that does not take the field of this name in messages and calls. `Pure.`"""

    def leave_out(message: Message) -> Message:
        calls = message.get("tool_calls") or []
        if any(name in call for call in calls):
            message = {**message, "tool_calls": [without(call, name) for call in calls]}
        return message if name in _OF_MESSAGES else without(message, name)

    return Trait(f"field {name}", f"{name} in messages", "", each_message(leave_out))


def without_anywhere(name: str) -> Trait:
    """The trait of a server that takes this name neither as a parameter nor as a field of messages. `Pure.`"""
    parameter, field = _without_parameter(name), _without_field(name)
    return Trait(parameter.name, name, "", lambda arguments: field.rewrite(parameter.rewrite(arguments)))


def copy_json(value: Any) -> Any:
    """A copy of this JSON data with lists and dicts of its own, and the same texts; tuples become lists. It takes a
    third of the time of `copy.deepcopy`, which matters for the messages of a long conversation. `Pure.`"""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return {name: one if isinstance(one, str) else copy_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [copy_json(one) for one in value]
    return value
