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
from typing import NamedTuple

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
    `takes_own_ids` whether each server of such a model takes the ids of calls that it gave."""

    names: re.Pattern[str]
    is_shared: bool = True
    need: Need = Need.NOTHING
    takes_own_ids: bool = True


def _maker(names: str, is_shared: bool = True, need: Need = Need.NOTHING, takes_own_ids: bool = True) -> Maker:
    return Maker(re.compile(names, re.IGNORECASE), is_shared, need, takes_own_ids)


MISTRAL = r"(?:mi|mini|dev|magi|code)stral|(?:mi|pi|vo)xtral"
"""What the names of Mistral's models have in them."""

MAKERS: tuple[Maker, ...] = (
    # The templates of these models refuse ids that are not nine letters and digits, which servers give nevertheless.
    _maker(MISTRAL, takes_own_ids=False),
    # Anthropic, "Extended thinking": a final assistant message must start with a thinking block while thinking is
    # enabled. A signature belongs to the model that made it.
    _maker(r"claude|anthropic", is_shared=False, need=Need.THINKING_OFF),
    # Google, "Thought signatures": the first call of each step must be signed, by Gemini 3 and later.
    _maker(r"gemini-(?:[3-9]|\d\d)", need=Need.SIGNATURE),
    _maker(r"gemini"),
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
)
"""The makers of models that need to be known, the first one that fits. Any other model is a family of its own."""


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
