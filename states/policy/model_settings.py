"""How a model is asked, apart from what it is asked."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..values.value import Text
from .rules import Rules


class ModelSettings(Rules):
    """Parameters of model requests. None means that a parameter is not sent, so the provider's default holds."""

    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """How much the model varies its words: 0 is the least."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """The most tokens that one response may have."""

    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """The share of probability from which each token is chosen."""

    seed: int | None = None
    """A number that makes the responses of some providers repeatable."""

    reasoning_effort: Annotated[Text, Field(min_length=1)] | None = None
    """How long the model thinks before it answers, in the words of its provider, such as "low" or "high"."""


DEFAULT_SETTINGS = ModelSettings()
"""Settings of which none is sent."""
