"""Families of models: which models can read what another one wrote for itself.

A model seals some of what it writes: thinking with a signature, a call with a thought signature, reasoning that only
its provider can decrypt. That goes back to the model, which may even refuse a request without it. Another model cannot
read it, and refuses a request that has it. So each model belongs to a family, and what one of them wrote goes back to
models of the same family only.

A family is a provider's protocol together with the makers of models that share their seals over it. The protocol
belongs to it because the same seal stands in other fields over another protocol. `MAKERS` is the only place that knows
makers by name.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from .port import Llm, name_of


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
    the user's next message, at every provider."""

    names: re.Pattern[str]
    is_shared: bool = True
    need: Need = Need.NOTHING
    takes_own_ids: bool = True
    needs_user_first: bool = False
    needs_separator: bool = False


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
    _maker(r"claude|anthropic", is_shared=False, need=Need.THINKING_OFF, needs_user_first=True),
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
