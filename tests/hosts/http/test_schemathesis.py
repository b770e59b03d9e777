"""schemathesis makes requests from the OpenAPI document, and holds each answer against it.

The requests are at the limits of what the document allows and beyond them (coverage), at random (fuzzing), and in
sequences in which an answer gives the next request its ids (stateful). The two streams of updates do not end, so they
are left out here; test_app.py holds their events against the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from ...support.http.live_server import LiveServer, serving
from ...support.http.obedient_model import obedient_engine

pytestmark = pytest.mark.slow

STREAMS = ["followConversation", "followConversations"]

ENDS = ["closeConversation", "deleteConversation"]
"""Operations after which there is nothing left to ask of a conversation."""

ACCEPTED = ("2xx", "404", "409", "422")
"""How a request of the documented form may be answered: which ids, tools and states there are is not part of it. The
OpenAI API has 400 for that."""

LARGE = ["createChatCompletion", "runAgent"]
"""Operations of other protocols, whose bodies have hundreds of boundaries. They are tried in the deep test."""

CONVERSATION = "asked"
"""The id of a conversation that waits for an answer."""

OFF: dict[str, Any] = {"enabled": False}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """A server in this process, in a thread of its own, with a conversation that asks."""
    with serving(obedient_engine()) as running, running.client() as client:
        client.post("/conversations", json={"id": CONVERSATION}).raise_for_status()
        client.post(f"/conversations/{CONVERSATION}/messages", json={"text": "ask"}).raise_for_status()
        yield running


def accepted(*statuses: str) -> dict[str, Any]:
    """How requests of the documented form may be answered, and others: either may be too large."""
    return {
        "positive_data_acceptance": {"expected-statuses": [*statuses, "413"]},
        "negative_data_rejection": {"expected-statuses": ["400", "401", "403", "404", "409", "413", "415", "422"]},
    }


def faults(
    server: LiveServer, leave_out: list[str], examples: int, operations: Iterable[Any] = (), **options: Any
) -> tuple[list[str], int]:
    """Let schemathesis make its requests. Returns what it finds, and how many answers it has looked at."""
    import schemathesis  # late: it takes more than a second, in each process that collects this file
    from schemathesis.config import SchemathesisConfig
    from schemathesis.engine import events, from_schema

    config = SchemathesisConfig.from_dict({
        "seed": 1,
        "request-timeout": 120,
        "generation": {"max-examples": examples, "deterministic": True},
        "checks": accepted(*ACCEPTED),
        "operations": [{"include-path-regex": "^/v1/", "checks": accepted(*ACCEPTED, "400")}, *operations],
        **options,
    })  # fmt: skip
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=config)
    found, answers = [], 0
    for event in from_schema(schema.exclude(operation_id=[*STREAMS, *leave_out])).execute():
        if isinstance(event, events.NonFatalError | events.FatalError):
            found.append(repr(vars(event)))
        if isinstance(event, events.ScenarioFinished):
            answers += len(event.recorder.interactions)
            found += described(event.recorder)
    return found, answers


def described(recorder: Any) -> Iterator[str]:
    """What was found, with the request and the answer."""
    for case, checks in recorder.checks.items():
        for check in checks:
            if check.failure_info:
                made = recorder.interactions[case]
                request = f"{made.request.method} {made.request.uri} {made.request.body!r}"
                answer = made.response and f"{made.response.status_code} {made.response.content!r}"
                yield f"{recorder.label}: {check.failure_info.failure}\n{request[:2000]}\n{str(answer)[:2000]}"


def test_each_operation_answers_as_documented(server: LiveServer) -> None:
    """H1: requests to a conversation that waits for an answer get no undocumented answer, and no 500."""
    in_deep_test = {"include-operation-id": "createConversation", "phases": {"coverage": OFF}}
    found, answers = faults(
        server,
        [*ENDS, *LARGE],
        examples=2,
        parameters={"path.conversation_id": CONVERSATION},
        phases={"stateful": OFF, "coverage": {"generation": {"mode": "positive"}, "unexpected-methods": []}},
        operations=[in_deep_test],
    )

    assert found == []
    assert answers > 200


def test_sequences_of_requests_are_answered_as_documented(server: LiveServer) -> None:
    """H1: the same holds for conversations that the requests themselves create, change, copy and delete."""
    found, answers = faults(
        server, [], examples=5, phases={"examples": OFF, "coverage": OFF, "fuzzing": OFF, "stateful": {"max-steps": 10}}
    )

    assert found == []
    assert answers > 10


@pytest.mark.deep
def test_every_phase_with_more_examples(server: LiveServer) -> None:
    """H1: all phases for all operations, with every boundary of a policy: more than a thousand requests of it alone."""
    found, answers = faults(server, [], examples=20)

    assert found == []
    assert answers > 2000
