"""Conversations over HTTP: what their endpoints read, change and return, also when asked again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine
from turnwise.hosts.http.schemas import PRESETS
from turnwise.states import presets
from turnwise.testing import RecordingChannel, ScriptedLlm, call, reply

from ...support.cases import holds_for
from ...support.http.documented_client import DocumentedClient, api_document, operations_of, serving_here
from ...support.http.obedient_model import CALL, Conversations, leave_in_doubt, naming_call, obedient_engine

# --- Conversations over HTTP: what their endpoints read, change and return.


class TestCreating:
    """POST /conversations."""

    async def test_all_that_is_given_is_kept(self) -> None:
        """What a client gives is what it reads."""
        async with serving_here(obedient_engine()) as api:
            body = {
                "system": "Be kind.",
                "model": "obedient",
                "tools": ["pay"],
                "policy": {"text": "reply", "nudges": 3},
                "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
                "owner": "ann",
                "title": "Dinner",
                "metadata": {"table": [4]},
            }
            created = await api.result("createConversation", body)
            said = await api.result("getMessages", conversation_id=created["id"])
            again = await api.result("getConversation", conversation_id=created["id"])

        assert created == again
        assert {name: created[name] for name in ("system", "tools", "owner", "title", "metadata")} == {
            name: body[name] for name in ("system", "tools", "owner", "title", "metadata")
        }
        assert (created["policy"]["nudges"], created["policy"]["models"][0]["name"]) == (3, "obedient")
        assert [message["content"] for message in said["messages"]] == ["Be kind.", "Hi", "Hello"]
        assert (created["state"]["type"], created["seq"]) == ("idle", 1)

    async def test_an_agent_of_another_conversation(self) -> None:
        """A background agent names the conversation that it works for."""
        async with serving_here(obedient_engine()) as api:
            served = await api.result("createConversation", {"preset": "foreground", "owner": "ann"})
            body = {"role": "background", "preset": "background", "works_for": served["id"]}
            agent = await api.result("createConversation", body)
            listed = await api.result("listConversations", works_for=served["id"])

        assert (agent["role"], agent["works_for"], agent["owner"]) == ("background", served["id"], "ann")
        assert [one["id"] for one in listed["conversations"]] == [agent["id"]]

    def test_every_preset_can_be_named(self) -> None:
        """A preset that is added to `turnwise.presets` is not forgotten here."""
        public = {
            name: value for name, value in vars(presets).items() if getattr(value, "__module__", "") == presets.__name__
        }

        assert dict(PRESETS) == public


class TestListing:
    """GET /conversations."""

    async def test_pages_follow_each_other(self) -> None:
        """`next` is the `before` of the next page; the last page has none. Nothing is missed or repeated."""
        async with serving_here(obedient_engine()) as api:
            created = [(await api.result("createConversation", {}))["id"] for _ in range(5)]
            pages = [await api.result("listConversations", limit=2)]
            while pages[-1]["next"] is not None:
                pages.append(await api.result("listConversations", limit=2, before=pages[-1]["next"]))

        assert [one["id"] for page in pages for one in page["conversations"]] == created[::-1]

    async def test_pages_go_on_behind_a_conversation_that_is_gone(self) -> None:
        """`next` is a place: the conversation at which the page ended may be deleted. An id is taken as before, and has
        to be that of a conversation; what looks like a place and is none is refused."""
        async with serving_here(obedient_engine()) as api:
            created = [(await api.result("createConversation", {"id": f"c.{n}"}))["id"] for n in range(5)]
            first = await api.result("listConversations", limit=2)
            await api.call("deleteConversation", conversation_id=created[3])
            second = await api.result("listConversations", limit=2, before=first["next"])
            by_id = await api.result("listConversations", limit=2, before=created[2])
            unfit = (created[3], "@", "@1", "@x.c", "@9.")
            refused = [await api.problem("listConversations", before=one) for one in unfit]

        assert [one["id"] for one in second["conversations"]] == [created[2], created[1]]
        assert [one["id"] for one in by_id["conversations"]] == [created[1], created[0]]
        assert refused == [(404, "unknown_conversation"), *[(422, "invalid_input")] * 4]

    async def test_what_is_asked_for_is_selected(self) -> None:
        """Owner, state and role select."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            asking = await Conversations(engine, owner="ann").asking()
            await Conversations(engine, owner="ann").idle()
            await Conversations(engine, owner="bob").asking()
            found = await api.result("listConversations", owner="ann", state="awaiting_user_response")

        assert [one["id"] for one in found["conversations"]] == [asking.id]


class TestNesting:
    """Lists and objects inside each other."""

    async def test_what_is_stored_can_be_shown(self) -> None:
        """Metadata that no answer could hold are refused, and nothing is stored; those that are taken are shown."""
        async with serving_here(obedient_engine()) as api:
            refused = {await api.problem("createConversation", {"metadata": {"a": _nested(n)}}) for n in (99, 252, 254)}
            assert (await api.result("listConversations"))["conversations"] == []
            mine = (await api.result("createConversation", {"metadata": {"a": _nested(98)}}))["id"]
            log = await api.result("getLog", conversation_id=mine)

        assert refused == {(422, "invalid_input")}
        assert log["steps"][0]["event"]["metadata"] == {"a": _nested(98)}


def _nested(levels: int) -> Any:
    """Lists inside each other, of this many levels."""
    return [_nested(levels - 1)] if levels else None


class TestChanging:
    """PATCH and DELETE /conversations/{id}."""

    async def test_what_is_left_out_stays(self) -> None:
        """Each change leaves the rest as it was; null for the tools stands for all."""
        async with serving_here(obedient_engine()) as api:
            body = {"title": "Dinner", "metadata": {"a": 1}, "tools": ["pay"]}
            mine = (await api.result("createConversation", body))["id"]
            titled = await api.result("changeConversation", {"title": "Lunch"}, conversation_id=mine)
            freed = await api.result("changeConversation", {"tools": None, "metadata": {}}, conversation_id=mine)
            unchanged = await api.result("changeConversation", {}, conversation_id=mine)

        assert (titled["title"], titled["metadata"], titled["tools"]) == ("Lunch", {"a": 1}, ["pay"])
        assert (freed["title"], freed["metadata"], freed["tools"]) == ("Lunch", {}, None)
        assert unchanged == freed

    async def test_a_profile_is_changed(self) -> None:
        """The conversation goes on under another profile of its policy."""
        async with serving_here(obedient_engine()) as api:
            policy = {"profiles": [{"name": "cook"}, {"name": "guide"}]}
            mine = (await api.result("createConversation", {"policy": policy}))["id"]
            await api.result("changeConversation", {"profile": "guide"}, conversation_id=mine)
            await api.result("sendMessage", {"text": "Hello"}, conversation_id=mine)
            shown = await api.result("getConversation", conversation_id=mine)

        assert shown["profile"] == "guide"

    async def test_a_system_prompt_is_changed(self) -> None:
        """The request behind it has the new one, and "" takes it away; the same request id changes nothing again."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            mine = (await api.result("createConversation", {"system": "You cook."}))["id"]
            body = {"system": "You book tables.", "request_id": "prompt"}
            changed = await api.result("changeConversation", body, conversation_id=mine)
            again = await api.result("changeConversation", body, conversation_id=mine)
            await api.result("sendMessage", {"text": "Hello"}, conversation_id=mine)
            shown = await api.result("getModelRequest", conversation_id=mine, seq=changed["seq"] + 1)
            gone = await api.result("changeConversation", {"system": ""}, conversation_id=mine)

        assert (changed["system"], again["seq"], gone["system"]) == ("You book tables.", changed["seq"], "")
        assert shown["messages"][0]["content"].startswith("You book tables.")

    async def test_changes_before_a_refused_one_are_made(self) -> None:
        """The profile comes first, then the system prompt, the tools, the metadata and the title: what follows a
        refusal is not done."""
        async with serving_here(obedient_engine()) as api:
            mine = (await api.result("createConversation", {"title": "Dinner"}))["id"]
            body = {"title": "Lunch", "tools": ["unknown"]}
            refused = await api.problem("changeConversation", body, conversation_id=mine)
            shown = await api.result("getConversation", conversation_id=mine)

        assert refused == (422, "configuration")
        assert (shown["title"], shown["tools"]) == ("Dinner", None)

    async def test_a_deleted_conversation_is_gone(self) -> None:
        """It can be neither read nor deleted again."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).running()
            await api.call("deleteConversation", conversation_id=conversation.id)
            again = await api.problem("deleteConversation", conversation_id=conversation.id)
            read = await api.problem("getTranscript", conversation_id=conversation.id)

        assert again == read == (404, "unknown_conversation")


class TestCopying:
    """POST /conversations/{id}/fork."""

    async def test_within_a_turn_the_problem_names_the_steps_that_are_possible(self) -> None:
        """A client can offer them instead, and nothing was copied."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).idle()
            rest = conversation.state.book.seq
            refused = await api.call("forkConversation", {"at": 2}, conversation_id=conversation.id)

        problem = refused.json()
        assert (refused.status_code, problem["code"], problem["steps"]) == (422, "cannot_fork_there", [1, rest])

    async def test_a_copy_ends_at_a_rest(self) -> None:
        """The step on which the copy landed is that of the last rest; the conversation itself is as before."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).idle()
            rest = conversation.state.book.seq
            await conversation.send("ask")
            made = await api.result("forkConversation", conversation_id=conversation.id)
            copied = await api.result("getTranscript", conversation_id=made["conversation"]["id"])

        assert (made["landed_on"], made["conversation"]["seq"]) == (rest, rest)
        assert [message["text"] for message in copied["messages"]] == ["Hello", "Hello!"]
        assert conversation.state.type == "awaiting_user_response"


# --- What is read of a conversation over HTTP: what was said, its turns, its steps, what a model was sent.


class TestWhatWasSaid:
    """/transcript, /messages, /turns and /usage."""

    async def test_is_what_the_engine_says(self) -> None:
        """The transcript is that of a snapshot; the messages, the turns and the usage are those of the handle."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).approving()
            shown = [
                await api.result(name, conversation_id=conversation.id)
                for name in ("getTranscript", "getMessages", "listTurns", "getUsage")
            ]
            async with aclosing(conversation.updates()) as updates:
                snapshot = await anext(updates)
            turns = await conversation.turns()
            expected = [
                {"messages": snapshot.data["transcript"]},
                {"messages": await conversation.messages()},
                {"turns": [turn.data for turn in turns]},
                (await conversation.usage()).model_dump(mode="json"),
            ]

        assert shown == expected

    async def test_is_shown_however_deep_a_model_nests_arguments(self) -> None:
        """Arguments that no client could read are shown as the text that the model wrote."""
        deep: Any = None
        for _ in range(300):
            deep = [deep]
        engine = Engine.open("sqlite://", model=ScriptedLlm([call("look", at=deep), "Done."]))
        async with serving_here(engine) as api:
            conversation = await engine.create()
            await conversation.send("Hello")
            shown = await api.result("getTranscript", conversation_id=conversation.id)

        (called,) = (one for message in shown["messages"] for one in message.get("tool_calls", ()))
        assert (called["arguments"], json.loads(called["raw_arguments"])) == ({}, {"at": deep})


class TestTheLog:
    """/log, /log/{seq}/request, /replay and /outbox."""

    @pytest.mark.slow
    async def test_pages_follow_each_other(self) -> None:
        """`next` is the `after` of the next page; together the pages are all steps."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).asking()
            pages = [await api.result("getLog", conversation_id=conversation.id, limit=2)]
            while pages[-1]["next"] is not None:
                following = pages[-1]["next"]
                pages.append(await api.result("getLog", conversation_id=conversation.id, limit=2, after=following))
            steps = [step for page in pages for step in page["steps"]]

        assert [step["seq"] for step in steps] == [*range(1, conversation.state.book.seq + 1)]
        assert steps[-1]["state"]["type"] == "awaiting_user_response"

    async def test_the_outbox_names_the_channels(self) -> None:
        """A client tells an outbox in which everything is delivered from one into which nothing comes."""
        for channels in ([RecordingChannel(name="sms")], []):
            engine = Engine.open("sqlite://", model=ScriptedLlm([]), channels=channels)
            async with serving_here(engine) as api:
                conversation = await engine.create()
                outbox = await api.result("getOutbox", conversation_id=conversation.id)

            assert outbox == {"deliveries": [], "channels": [one.name for one in channels]}

    async def test_the_request_of_a_step_is_shown(self) -> None:
        """The step that asked the model leads to the request that it was sent, exactly."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).idle()
            log = await api.result("getLog", conversation_id=conversation.id)
            asked = next(step for step in log["steps"] if step["requests"])
            request = await api.result("getModelRequest", conversation_id=conversation.id, seq=asked["seq"])

        assert [message["content"] for message in request["messages"]] == ["Hello"]
        assert (request["is_exact"], [request["effect_id"]]) == (True, asked["requests"])

    async def test_a_replay_finds_nothing_in_a_log_of_this_version(self) -> None:
        """Every step comes out as it was stored."""
        engine = obedient_engine()
        async with serving_here(engine) as api:
            conversation = await Conversations(engine).asking()
            replayed = await api.result("replayConversation", conversation_id=conversation.id)

        assert replayed == {"events": conversation.state.book.seq, "divergence": None}


class TestSubAgents:
    """Conversations that a turn has started: their ids hold slashes."""

    async def test_are_listed_and_read_by_their_ids(self) -> None:
        """A slash in an id is written as %2F; every endpoint of a sub-agent is found."""
        model = ScriptedLlm([call("spawn_agents", tasks=["Look."]), reply("Seen."), reply("Done.")])
        engine = Engine.open("sqlite://", model=model, tools=["spawn_agents"])
        async with serving_here(engine) as api:
            conversation = await engine.create(owner="ann")
            await conversation.send("Go.")
            (child,) = (await api.result("listChildren", conversation_id=conversation.id))["conversations"]
            shown = await api.result("getConversation", conversation_id=child["id"])
            said = await api.result("getTranscript", conversation_id=child["id"])
            unknown = await api.problem("getTranscript", conversation_id=f"{conversation.id}/99")

        assert child["id"].startswith(f"{conversation.id}/")
        assert (shown["role"], shown["parent"], shown["owner"]) == ("sub_agent", conversation.id, "ann")
        assert said["messages"][-1]["text"] == "Seen."
        assert unknown == (404, "unknown_conversation")


# --- Requests that are sent again under their id, as clients do that lost the answer: the same result, done once.


REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "answerQuestions": ("asking", {"answers": {"When?": "6:30 PM"}, "call_id": CALL}),
    "declineQuestions": ("asking", {}),
    "cancelTurn": ("running", {}),
    "approveCall": ("approving", {"call_id": CALL, "allowed": True}),
    "retryTurn": ("failed", {}),
    "withdrawMessage": ("running", {"message_id": "queued"}),
    "editMessage": ("idle", {"message_id": "first", "text": "Good evening"}),
    "regenerateTurn": ("idle", {"turn": 1}),
    "rewindConversation": ("idle", {"to": 0}),
    "switchBranch": ("rewound", {"branch": 1}),
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
