"""Why something failed, in a few kinds that decide what can be done about it.

Providers and their libraries know dozens of errors; a conversation only asks whether another attempt is worthwhile, and
whether another model could succeed. A performer maps each error to one kind. The last four do not come from a provider:
nothing here can carry the effect out, the work was checked and found incomplete, the program died too often, or
something broke inside the program. docs/host.md says what follows from each kind in which a model request can fail.
"""

from __future__ import annotations

from typing import Literal

FailureKind = Literal[
    "rate_limit",
    "server_error",
    "timeout",
    "network",
    "malformed_response",
    "authentication",
    "no_credit",
    "unknown_model",
    "invalid_request",
    "context_window",
    "content_filter",
    "unsupported_content",
    "unreadable_content",
    "unavailable",
    "unverified",
    "interrupted",
    "internal",
]

NO_FAULT_OF_A_MODEL: frozenset[FailureKind] = frozenset({"unavailable", "unverified", "interrupted"})
"""Kinds in which no model request ends."""

REFUSED_CONTENT: frozenset[FailureKind] = frozenset({"content_filter", "unsupported_content", "unreadable_content"})
"""Kinds in which something that the request holds was refused: a text or an image that a filter does not let pass,
content of a kind that the model does not take, such as an image for a model without eyes, and content of a kind that it
takes but that cannot be read, such as an image that was cut off."""

UNEXPLAINED: frozenset[FailureKind] = frozenset({"invalid_request", "server_error"})
"""Kinds in which a provider may refuse content without saying so, in words that nobody has listed."""

TRANSIENT: frozenset[FailureKind] = frozenset(
    {"rate_limit", "server_error", "timeout", "network", "malformed_response"}
)
"""Kinds that can pass by themselves: worth another attempt, then another model. All others fail at once."""
