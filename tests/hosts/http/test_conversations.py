"""Conversations over HTTP: what their endpoints read, change and return."""

from __future__ import annotations

from typing import Any

from turnwise.hosts.http.schemas import PRESETS
from turnwise.states import presets

from ...support.http.documented_client import serving_here
from ...support.http.obedient_model import Conversations, obedient_engine


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

    async def test_changes_before_a_refused_one_are_made(self) -> None:
        """The profile comes first, then the tools, the metadata and the title: what follows a refusal is not done."""
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
