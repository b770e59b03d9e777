"""What people read when a model request fails, and which JSON objects stand in the text when it succeeds.

A provider's own error message may quote the prompt, so it is written to the log `turnwise.model` and never shown:
people read one sentence for each kind of failure.

Models that are asked for one JSON object write it between code fences and sentences, or write several. So the text is
searched, and the reader of an answer decides which object it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from json import JSONDecoder

from ...states.values.messages import Usage
from ...states.values.value import FailureKind, encodable
from ..logs import performer_logger
from .port import NOTHING_SPENT, LlmFailure

logger = performer_logger("turnwise.model")

SENTENCES: dict[FailureKind, str] = {
    "rate_limit": "The model's provider takes no more requests for now.",
    "server_error": "The model's provider reported an internal error.",
    "timeout": "The model took too long to answer.",
    "network": "The connection to the model failed.",
    "malformed_response": "The model's provider sent an answer that cannot be read.",
    "authentication": "The model's provider refused the key or the account.",
    "no_credit": "The account at the model's provider has no credit left.",
    "unknown_model": "The model's provider does not know this model.",
    "invalid_request": "The model's provider refused the request as invalid.",
    "context_window": "The conversation is too long for the model.",
    "content_filter": "The model's provider refused the content.",
    "unsupported_content": "The model does not take this kind of content, such as images.",
    "unreadable_content": "The model's provider cannot read an image or a file in the conversation.",
    "internal": "The model could not be asked.",
}
"""The sentence for each kind of failure that a model request can have."""

_LONGEST_DETAIL = 500
"""Characters of a provider's error message that are logged. The message may quote the whole prompt."""


def make_failure(
    kind: FailureKind, model: str, detail: str, retry_after: float | None = None, usage: Usage = NOTHING_SPENT
) -> LlmFailure:
    """Return a failure of this kind with its sentence, and log `detail` as a warning.

    `detail` must hold no secrets. `retry_after` is the wait in seconds that the provider asks for, and `usage` what was
    spent.
    """
    logger.warning("%s failed (%s): %s", model, kind, " ".join(detail.split())[:_LONGEST_DETAIL])
    return LlmFailure(kind, SENTENCES[kind], retry_after, usage)


_MAX_BRACES = 100
"""How many opening braces are tried: more than any model writes around its answer."""

_DECODER = JSONDecoder()


def json_objects(text: str, member: str) -> Iterator[str]:
    """The JSON objects in the text that have this member, one after the other, each as it is written; objects inside of
    others are passed over. The search is bounded, whatever the text holds. `Pure.`"""
    text = encodable(text)
    start = text.find("{")
    for _ in range(_MAX_BRACES):
        if start < 0:
            return
        try:
            value, end = _DECODER.raw_decode(text, start)
            if member in value:
                yield text[start:end]
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
