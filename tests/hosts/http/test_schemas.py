"""A body is refused in one sentence, whatever a client sends."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from turnwise.hosts.http.conversations import NewConversation
from turnwise.hosts.http.doors.openai import CompletionBody
from turnwise.hosts.http.requests import GivenAnswers
from turnwise.hosts.http.server_routes import MarkdownTexts

from ...support.cases import holds_for

MANY = 20_000
FIELDS = {f"field {each}": each for each in range(MANY)}
TOLD = [{"role": "user", "content": "Hello"}]


@pytest.mark.slow
@holds_for(
    ("kind", "given"),
    [
        (GivenAnswers, {"answers": {"When?": [0] * MANY}}),
        (GivenAnswers, {"answers": {}, **FIELDS}),
        (CompletionBody, {"model": "m", "messages": [0] * MANY}),
        (CompletionBody, {"model": "m", "messages": [{"role": "user", "content": [0] * MANY}]}),
        (CompletionBody, {"model": "m", "messages": TOLD, "metadata": FIELDS}),
        (CompletionBody, {"model": "m", "messages": TOLD, "turnwise": {"call_id": "c", **FIELDS}}),
        (NewConversation, {"messages": [0] * MANY}),
        (NewConversation, {"policy": {"profiles": [0] * MANY}}),
        (NewConversation, {"policy": FIELDS}),
        (MarkdownTexts, {"texts": [0] * MANY}),
    ],
)
def test_a_body_has_few_faults(kind: type[Any], given: dict[str, Any]) -> None:
    """FastAPI describes each fault of a body, although only the first is told."""
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(kind).validate_python(given)

    assert refused.value.error_count() <= 2
