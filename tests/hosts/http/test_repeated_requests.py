"""Requests that are sent again under their id, as clients do that lost the answer: the same result, done once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ...support.cases import holds_for
from ...support.http.documented_client import DocumentedClient, api_document, operations_of, serving_here
from ...support.http.obedient_model import CALL, Conversations, leave_in_doubt, naming_call, obedient_engine

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "answerQuestions": ("asking", {"answers": {"When?": "6:30 PM"}, "call_id": CALL}),
    "declineQuestions": ("asking", {}),
    "cancelTurn": ("running", {}),
    "approveCall": ("approving", {"call_id": CALL, "allowed": True}),
    "retryTurn": ("failed", {}),
    "withdrawMessage": ("running", {"message_id": "queued"}),
    "compactConversation": ("idle", {}),
    "closeConversation": ("running", {}),
    "changeConversation": ("idle", {"title": "New", "metadata": {"a": 1}, "tools": ["pay"]}),
}
"""The state in which each request is taken, and its body."""


def lasting(result: dict[str, Any]) -> Any:
    """What an answer says of the request, without what goes on by itself meanwhile."""
    if "turn" in result:
        return result["turn"]["turn"]
    return result.get("no_op", result.get("title"))


def references(operation: dict[str, Any]) -> Iterator[str]:
    """The schemas of the body of an operation, which may be left out."""
    body = operation.get("requestBody", {"content": {}})["content"].get("application/json", {}).get("schema", {})
    yield from (one["$ref"] for one in [body, *body.get("anyOf", [])] if "$ref" in one)


class TestARequestThatIsSentAgain:
    """The same id, the same body."""

    @pytest.mark.slow
    @holds_for("operation", REQUESTS)
    async def test_is_carried_out_once(self, operation: str) -> None:
        """Both answers are the same, and the log has one step for the request; another body is refused."""
        state, body = REQUESTS[operation]
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await getattr(Conversations(engine), state)()
            body = {**naming_call(body, conversation), "request_id": "r"}
            first = await api.call(operation, body, conversation_id=conversation.id)
            second = await api.call(operation, body, conversation_id=conversation.id)
            log = await conversation.events()

        assert first.status_code == second.status_code
        assert lasting(first.json()) == lasting(second.json())
        ids = [entry.event.event_id for entry in log if getattr(entry.event, "event_id", "").startswith("r")]
        assert ids == (["r"] if operation != "changeConversation" else ["r/tools", "r/metadata", "r/title"])

    def test_is_tested_for_every_operation_that_takes_an_id(self) -> None:
        """A new operation with a `request_id` is not forgotten here."""
        schemas = api_document()["components"]["schemas"]
        repeatable = {
            f"#/components/schemas/{name}" for name in schemas if "request_id" in schemas[name].get("properties", {})
        }
        operations = operations_of(api_document())
        taking = {name for name, (_, _, one) in operations.items() if repeatable & {*references(one)}}

        assert taking == REQUESTS.keys() | {"resolveCall", "forkConversation"}

    async def test_a_verdict_is_taken_once(self, tmp_path: Path) -> None:
        """A call in doubt is resolved once."""
        doubtful = await leave_in_doubt(tmp_path / "doubt.db")
        async with serving_here(obedient_engine(tmp_path / "doubt.db")) as api:
            doubt = (await api.result("getConversation", conversation_id=doubtful))["state"]["data"]["call_id"]
            body = {"call_id": doubt, "verdict": "did_not_run", "request_id": "r"}
            first = await api.result("resolveCall", body, conversation_id=doubtful)
            second = await api.result("resolveCall", body, conversation_id=doubtful)

        assert first["turn"]["turn"] == second["turn"]["turn"] == 1

    async def test_a_message_is_taken_once(self) -> None:
        """A message that is sent again under its id is not said twice, and belongs to the same turn."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await engine.create()
            body = {"text": "Hello", "message_id": "m"}
            first = await api.result("sendMessage", body, conversation_id=conversation.id)
            await conversation.wait()
            second = await api.result("sendMessage", body, conversation_id=conversation.id)
            other = await api.problem("sendMessage", {**body, "text": "Bye"}, conversation_id=conversation.id)
            transcript = await conversation.transcript()

        assert (first["message_id"], second["message_id"]) == ("m", "m")
        assert (first["turn"]["turn"], second["turn"]["turn"]) == (1, 1)
        assert second["turn"]["status"] == "completed"
        assert other == (409, "event_id_reused")
        assert [message.text for message in transcript] == ["Hello", "Hello!"]

    async def test_the_server_chooses_an_id_for_a_message_without_one(self) -> None:
        """Every message has an id, by which it can be withdrawn."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).running()
            sent = await api.result("sendMessage", {"text": "Hello"}, conversation_id=conversation.id)
            withdrawn = await api.result(
                "withdrawMessage", {"message_id": sent["message_id"]}, conversation_id=conversation.id
            )

        assert sent["turn"]["status"] == "queued"
        assert withdrawn["state"]["data"]["inbox"] == ["queued"]

    async def test_a_refused_request_may_be_sent_again(self) -> None:
        """A refusal is not remembered: the same request succeeds once the conversation takes it."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await engine.create()
            body = {"answers": {"When?": "6:30 PM"}, "request_id": "r"}
            refused = await api.problem("answerQuestions", body, conversation_id=conversation.id)
            await conversation.send("ask")
            taken = await api.call("answerQuestions", body, conversation_id=conversation.id)

        assert refused == (409, "wrong_state")
        assert taken.status_code == 200


class TestAConversationThatIsCreatedAgain:
    """The same id, chosen by the client."""

    async def created(self, api: DocumentedClient, **body: Any) -> tuple[int, Any]:
        """The status of a creation, and the id or the code."""
        response = await api.call("createConversation", {"id": "mine", **body})
        return response.status_code, response.json().get("id", response.json().get("code"))

    async def test_exists_once(self) -> None:
        """The second answer is 200 with the same conversation as it is now; another one under this id is refused."""
        async with serving_here(obedient_engine()) as api:
            first = await self.created(api, title="Dinner")
            await api.result("sendMessage", {"text": "Hello"}, conversation_id="mine")
            second = await self.created(api, title="Dinner")
            other = await self.created(api, title="Lunch")
            listed = await api.result("listConversations")

        assert first == (201, "mine")
        assert second == (200, "mine")
        assert other == (409, "event_id_reused")
        assert [one["title"] for one in listed["conversations"]] == ["Dinner"]


class TestACopy:
    """A fork that is asked for again."""

    async def test_is_made_once(self, tmp_path: Path) -> None:
        """The same copy is returned under the same id, as it is by now, also after a restart, and is listed once;
        another id makes another copy, and the id with another step is refused."""
        async with serving_here(obedient_engine(tmp_path / "fork.db")) as api:
            original = (await api.result("createConversation", {"id": "main"}))["id"]
            asked = {"request_id": "r"}
            first = await api.call("forkConversation", asked, conversation_id=original)
            copied = first.json()["conversation"]["id"]
            await api.result("changeConversation", {"title": "Copied"}, conversation_id=copied)
        async with serving_here(obedient_engine(tmp_path / "fork.db")) as api:
            await api.result("changeConversation", {"title": "Original"}, conversation_id=original)
            again = await api.call("forkConversation", asked, conversation_id=original)
            same = await api.call("forkConversation", {**asked, "at": 1}, conversation_id=original)
            other = await api.result("forkConversation", {"request_id": "s"}, conversation_id=original)
            elsewhere = await api.problem("forkConversation", {**asked, "at": 2}, conversation_id=original)
            unfit = await api.problem("forkConversation", {"request_id": ""}, conversation_id=original)
            listed = await api.result("listConversations")

        assert [one.status_code for one in (first, again, same)] == [201, 201, 201]
        assert {one.json()["conversation"]["id"] for one in (first, again, same)} == {copied}
        assert [one.json()["landed_on"] for one in (first, again, same)] == [1, 1, 1]
        assert again.json()["conversation"]["title"] == "Copied"
        assert {one["id"] for one in listed["conversations"]} == {"main", copied, other["conversation"]["id"]}
        assert (elsewhere, unfit) == ((409, "event_id_reused"), (422, "invalid_input"))
