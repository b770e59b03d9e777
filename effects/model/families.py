"""Families of models: which models can read what another one wrote for itself.

A model seals some of what it writes: thinking with a signature, a call with a thought signature, reasoning that only
its provider can decrypt. That goes back to the model, which may refuse a request without it, while another model
refuses a request that has it. So each model belongs to a family: a provider's protocol, over which a seal stands in
fields of its own, and the maker of the models, of which `MAKERS` alone knows the names.

What a provider wrote on a message besides what everybody reads is stored and goes back to its family by this rule:

- What belongs to calls goes with them in every request: their ids and their fields, such as a thought signature, and
  also the fields and the thinking of their message, because a provider may keep the seals of calls there.
- Sealed thinking goes back within its turn, or for as long as `Policy.keep_thinking` says, and so do the fields and the
  thinking of a message without calls. A turn that is tried again continues the one before.

What cannot be stored exactly is left out as a whole, since a part of it would be refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ...states.openai_writing import WireMessage
from ...states.values.messages import LONGEST_ID, Message, ProviderFields, ToolCall
from ...states.values.value import encodable
from ..logs import performer_logger
from .port import Llm, ModelAnswer, ModelCall, name_of


class Need(Enum):
    """What a model needs in a round of calls that it did not write itself, or that lost its seals."""

    NOTHING = "nothing"
    THINKING_OFF = "thinking off"
    """The round under way must begin with sealed thinking. Without it the request is taken if it asks for none."""

    SIGNATURE = "signature"
    """The first call of a round must be signed. There is a signature that says that there is none."""

    REASONING = "reasoning"
    """A message with calls must have `reasoning_content`, which may be blank."""


class Maker(NamedTuple):
    """A maker of models, told by their names. `is_shared` says whether one of them reads what another one sealed, and
    `takes_own_ids` whether each server of such a model takes the ids of calls that it gave. `needs_user_first` says
    that a user must speak first, and `needs_separator` that the assistant must speak between the result of a tool and
    the user's next message, at every provider. `needs_breakpoints` says that a provider keeps only
    beginnings of requests that end at a mark."""

    names: re.Pattern[str]
    is_shared: bool = True
    need: Need = Need.NOTHING
    takes_own_ids: bool = True
    needs_user_first: bool = False
    needs_separator: bool = False
    needs_breakpoints: bool = False


def _maker(names: str, **more: Any) -> Maker:
    return Maker(re.compile(names, re.IGNORECASE), **more)


MAKERS: tuple[Maker, ...] = (
    # The templates of these models refuse ids that are not nine letters and digits, which servers give nevertheless.
    _maker(
        r"(?:mi|mini|dev|magi|code)stral|(?:mi|pi|vo)xtral",
        takes_own_ids=False,
        needs_user_first=True,
        needs_separator=True,
    ),
    # Anthropic, "Extended thinking": a final assistant message must start with a thinking block while thinking is
    # enabled. A signature belongs to the model that made it.
    _maker(
        r"claude|anthropic",
        is_shared=False,
        need=Need.THINKING_OFF,
        needs_user_first=True,
        needs_breakpoints=True,
    ),
    # Google, "Thought signatures": the first call of each step must be signed, by Gemini 3 and later.
    _maker(r"gemini-(?:[3-9]|\d\d)", need=Need.SIGNATURE, needs_user_first=True),
    _maker(r"gemini", needs_user_first=True),
    # DeepSeek, "Thinking mode", and Moonshot, "Kimi K2 Thinking": the reasoning goes with the calls that it led to.
    _maker(r"deepseek", need=Need.REASONING),
    _maker(r"kimi|moonshot", need=Need.REASONING),
    _maker(r"mimo", need=Need.REASONING),
    _maker(r"glm"),
    _maker(r"qwen|qwq"),
    _maker(r"minimax"),
    _maker(r"grok"),
    _maker(r"gpt-oss"),
    _maker(r"(?:^|/)(?:gpt|chatgpt|o\d)"),
    # The templates of these, and these providers for all models, refuse a request that the assistant begins.
    _maker(r"gemma|llama|bedrock|vertex_ai", is_shared=False, needs_user_first=True),
)
"""The makers of models that need to be known, the first one that fits. Any other model is a family of its own."""

STRIPPED = {"hosted_vllm": frozenset({"reasoning_content", "thinking_blocks"})}
"""What litellm keeps out of the messages over a protocol, by the name that it gives the protocol. Servers of vLLM put
the reasoning into their templates, so it is to reach them nevertheless."""


def family_of(model: Llm) -> str:
    """The family of a model: the one that it declares by an attribute `family`, or that of its name."""
    declared = getattr(model, "family", None)
    return declared if isinstance(declared, str) and declared else family_named(name_of(model))


@lru_cache(maxsize=1_024)
def family_named(name: str) -> str:
    """The family of the model with this name, which is the provider's protocol and the model, as litellm names both.
    `Pure.`"""
    maker = maker_of(name)
    if maker is None or not maker.is_shared:
        return name
    protocol = name.partition("/")[0] if "/" in name else ""
    protocol += "/responses" if "/responses/" in name else ""
    found = maker.names.search(name)
    return f"{protocol}/{found[0].strip('/').lower()}" if found else name


@lru_cache(maxsize=1_024)
def maker_of(name: str) -> Maker | None:
    """The maker of the model with this name; None if it is none of `MAKERS`. `Pure.`"""
    return next((maker for maker in MAKERS if maker.names.search(name)), None)


@lru_cache(maxsize=1_024)
def needs_user_first(name: str) -> bool:
    """Whether a request to the model with this name must begin with a user's message. `Pure.`"""
    return any(maker.needs_user_first and maker.names.search(name) for maker in MAKERS)


@lru_cache(maxsize=1_024)
def needs_separator(name: str) -> bool:
    """Whether the model with this name wants the assistant to speak between a result and a user's message. `Pure.`"""
    return any(maker.needs_separator and maker.names.search(name) for maker in MAKERS)


logger: Final = performer_logger("turnwise.model")

LARGEST = 1_000_000
"""The most characters of JSON that the fields of one message or one call may have. Chosen to be more than any model's
window, as `MAX_TEXT` is."""

DEEPEST = 50
"""The most levels of such JSON. Databases and parsers end at 100 or more."""

THINKING = "reasoning_content"
"""The usual name of the field that holds thinking."""

CONTENT = "content"
"""The field for the blocks of a message, where they go back in place of its text."""

ITEMS = "response_items"
"""The field for the items of a response of OpenAI's, which go back in place of text and calls."""

PLACE = "…"
"""Stands for the thinking in the tags between which it stood in the text."""

_SEALED = ("thinking", "redacted_thinking")

# --- storing


_NO_FIELDS = ProviderFields()
"""Of an answer that holds nothing but what its maker has sealed."""


def provider_fields_of(
    answer: ModelAnswer, calls: Sequence[ToolCall], family: str, model: str
) -> ProviderFields | None:
    """Return what is stored of an answer whose calls became these; None if nothing of it goes back, neither thinking
    nor an id. `family` is that of the `model`."""
    message = _storable(answer.opaque_fields, model)
    of_calls = {
        stored.call_id: fields
        for made, stored in zip(answer.tool_calls, calls, strict=True)
        if (fields := _storable(_fields_of_call(made), model))
    }
    name: Any = answer.thinking_field
    is_named = bool(answer.thinking) and name != THINKING and isinstance(name, str) and len(name) <= LONGEST_ID
    thinking = encodable(name) if is_named else ""
    declared = family if family != family_named(model) else ""
    has_seal = bool(answer.thinking or answer.opaque or any(call.provider_id for call in calls))
    if not (message or of_calls or thinking or declared):
        return _NO_FIELDS if has_seal else None
    return ProviderFields(family=encodable(declared), thinking=thinking, message=message, calls=of_calls)


def storable_blocks(blocks: Any, model: str) -> Any:
    """Return these blocks of sealed thinking, or none of them if one cannot be stored exactly."""
    return blocks if not blocks or _is_storable(blocks, model) else ()


def storable_block(block: object, model: str) -> dict[str, Any] | None:
    """Return this object of a provider, or None if it is none or cannot be stored exactly."""
    return _storable(block, model) or None


def _fields_of_call(call: ModelCall) -> Mapping[str, Any]:
    """The fields of a call, with its id if that is too long to be carried along."""
    given: Any = call.opaque
    fields = given if isinstance(given, Mapping) else {}
    return {**fields, "id": call.id} if len(call.id) > LONGEST_ID else fields


def _storable(fields: object, model: str) -> dict[str, Any]:
    return dict(fields) if isinstance(fields, Mapping) and fields and _is_storable(fields, model) else {}


def _is_storable(value: Any, model: str) -> bool:
    """Whether JSON holds this value exactly, and it is neither too large nor too deep. If not, that is logged."""
    try:
        is_storable = _is_shallow(value, DEEPEST) and len(_encoded(value)) <= LARGEST
    except (ValueError, TypeError, RecursionError):
        is_storable = False
    if not is_storable:
        logger.warning("What %s wrote for itself cannot be stored, so it does not go back.", model)
    return is_storable


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def _is_shallow(value: Any, levels: int) -> bool:
    if isinstance(value, Mapping):
        return levels > 0 and all(type(name) is str and _is_shallow(each, levels - 1) for name, each in value.items())
    if isinstance(value, list | tuple):
        return levels > 0 and all(_is_shallow(each, levels - 1) for each in value)
    return value is None or isinstance(value, str | int | float)


# --- sending


def is_of_family(message: Message, model: str, family: str) -> bool:
    """Whether a model of this name and family can read what the provider of this message wrote. `Pure.`"""
    provider = message.provider
    if provider is not None and provider.family:
        return provider.family == family
    return bool(message.model) and (message.model == model or family_named(message.model) == family)


def own_id(message: Message, call: ToolCall) -> str:
    """The id that the provider gave this call of the message, if it goes back; empty if not. `Pure.`"""
    if message.provider is None:
        return ""
    return call.provider_id or str(message.provider.calls.get(call.call_id, {}).get("id", ""))


def is_sent_for_a_while(message: Message) -> bool:
    """Whether some of what goes back to the family of this message does so for some turns only. `Pure.`"""
    return bool(message.opaque) or (message.provider is not None and not message.tool_calls)


def add_provider_fields(sent: WireMessage, message: Message, kept_since: int) -> None:
    """Add to a message of the assistant, as it is sent, what goes back to its family. `kept_since` is the first turn
    whose thinking goes back."""
    provider = message.provider
    is_kept = message.turn >= kept_since
    if is_kept and message.opaque:
        sent["thinking_blocks"] = list(message.opaque)
    is_told = is_kept and (message.opaque or provider is not None)
    if message.thinking and (is_told or (provider is not None and message.tool_calls and not message.opaque)):
        _add_thinking(sent, (provider.thinking if provider else "") or THINKING, message.thinking)
    if provider is not None and (is_kept or message.tool_calls):
        _add_fields(sent, message, provider)
    if provider is not None and CONTENT in provider.message:
        _add_blocks(sent, message, provider.message[CONTENT], is_kept=is_kept)


def _add_thinking(sent: WireMessage, name: str, thinking: str) -> None:
    """Add the thinking under the name of its field, or within the text, between the tags between which it stood."""
    before, place, behind = name.partition(PLACE)
    if not place:
        sent[name] = thinking
    elif isinstance(sent.get(CONTENT), str | None):
        sent[CONTENT] = f"{before}{thinking}{behind}{sent.get(CONTENT) or ''}"


def _add_blocks(sent: WireMessage, message: Message, blocks: Any, *, is_kept: bool) -> None:
    """Put the blocks of the provider in the place of the text, if they say the same. Sealed thinking among them goes
    back only as long as it is kept."""
    told = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    if told == message.text:
        sent[CONTENT] = [one for one in blocks if is_kept or one.get("type") not in _SEALED]


def _add_fields(sent: WireMessage, message: Message, provider: ProviderFields) -> None:
    sent.update((name, field) for name, field in provider.message.items() if name not in sent)
    for call, written in zip(message.tool_calls, sent.get("tool_calls", ()), strict=True):
        if fields := provider.calls.get(call.call_id):
            _add_to_call(written, fields)


def _add_to_call(written: dict[str, Any], fields: Mapping[str, Any]) -> None:
    function = fields.get("function")
    if isinstance(function, Mapping):
        written["function"] = {**function, **written["function"]}
    written.update((name, field) for name, field in fields.items() if name not in written)
