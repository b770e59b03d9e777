"""A conversation goes back over HTTP: messages are edited, turns answered again, and branches returned to."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise import Engine
from turnwise.testing import FunctionLlm

from ...support.http.documented_client import DocumentedClient, serving_here


def answering_engine() -> Engine:
    """An engine whose model says what it was told last."""
    return Engine.open("sqlite://", model=FunctionLlm(lambda request: f"To {request.messages[-1]['content']}"))


async def said(api: DocumentedClient, conversation_id: str, *texts: str) -> None:
    """Say these texts, each under itself as its id, and wait for the answers."""
    for text in texts:
        await api.result("sendMessage", {"text": text, "message_id": text}, conversation_id=conversation_id)
        await rested(api, conversation_id)


async def rested(api: DocumentedClient, conversation_id: str) -> None:
    """Wait until nothing is under way."""
    while (await api.result("getConversation", conversation_id=conversation_id))["state"]["type"] != "idle":
        pass


async def texts_in(api: DocumentedClient, conversation_id: str) -> list[str]:
    """What is shown of a conversation."""
    await rested(api, conversation_id)
    answer = await api.result("getMessages", conversation_id=conversation_id)
    return [message["content"] for message in answer["messages"]]


@pytest.mark.parametrize("repeated", [False, True])
async def test_what_is_hidden_returns(repeated: bool) -> None:
    """Each request is documented, and sent again it is taken once."""
    async with serving_here(answering_engine()) as api:

        async def asked(operation: str, body: dict[str, Any]) -> Any:
            """Ask for it, once or twice."""
            first = await api.result(operation, body, conversation_id=created["id"])
            await rested(api, created["id"])
            return await api.result(operation, body, conversation_id=created["id"]) if repeated else first

        created = await api.result("createConversation", {})
        await said(api, created["id"], "a", "b")
        edited = await asked("editMessage", {"message_id": "b", "text": "B", "request_id": "e"})
        after_edit = await texts_in(api, created["id"])
        again = await asked("regenerateTurn", {"turn": 3, "request_id": "r"})
        await asked("rewindConversation", {"to": "a", "request_id": "w"})
        rewound = await texts_in(api, created["id"])
        left = await api.result("listBranches", conversation_id=created["id"])
        await asked("switchBranch", {"branch": 2, "request_id": "s"})
        switched = await texts_in(api, created["id"])

    assert (edited["message_id"], edited["turn"]["turn"], again["turn"]["turn"]) == ("e", 3, 4)
    assert (after_edit, rewound, switched) == (["a", "To a", "B", "To B"], [], ["a", "To a", "b", "To b"])
    assert [one["number"] for one in left["branches"]] == [2, 3, 4]
    assert left["branches"][0]["turns"] == [1, 2]


async def test_what_there_is_not_is_a_problem() -> None:
    """In one sentence, with a code for programs."""
    async with serving_here(answering_engine()) as api:
        created = await api.result("createConversation", {})
        await said(api, created["id"], "a", "b")
        await api.result("rewindConversation", {"to": 1}, conversation_id=created["id"])
        bodies: list[tuple[str, dict[str, Any]]] = [
            ("editMessage", {"message_id": "x", "text": "y"}),
            ("editMessage", {"message_id": "b", "text": "y"}),
            ("regenerateTurn", {"turn": 2}),
            ("rewindConversation", {"to": 7}),
            ("switchBranch", {"branch": 1}),
        ]
        answers = [await api.problem(operation, body, conversation_id=created["id"]) for operation, body in bodies]
        await api.result("closeConversation", conversation_id=created["id"])
        closed = await api.problem("switchBranch", {"branch": 2}, conversation_id=created["id"])

    assert answers == [
        (422, "unknown_message"),
        (409, "hidden"),
        (409, "moved_on"),
        (422, "unknown_turn"),
        (422, "unknown_branch"),
    ]
    assert closed == (409, "closed")
