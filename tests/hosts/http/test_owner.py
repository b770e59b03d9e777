"""An application with users of its own: what belongs to one is not found by another, whatever is asked.

The operations are read from the OpenAPI document, so that a new one cannot be forgotten.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import httpx
import pytest
from starlette.requests import Request

from turnwise import ConfigurationError, Engine
from turnwise.effects.model.port import ModelAnswer, ModelRequest
from turnwise.hosts.http import create_app, owned_id
from turnwise.hosts.http.app import DOORS, ROUTERS
from turnwise.hosts.http.permissions import PERMISSIONS
from turnwise.hosts.page.files import page_routes
from turnwise.testing import FunctionLlm, call, reply

from ...support.cases import holds_for
from ...support.http.documented_client import NO_BODY, DocumentedClient, api_document, calling, operations_of
from ...support.http.obedient_model import CALL, Conversations, obedient_engine
from ...support.http.stream_reader import reading

SECRET = "the secret of ann"

BODIES: dict[str, Any] = {
    "changeConversation": {"title": "Mine now"},
    "sendMessage": {"text": "Hello"},
    "answerQuestions": {"answers": {"When?": "6:30 PM"}, "call_id": CALL},
    "approveCall": {"call_id": CALL, "allowed": True},
    "resolveCall": {"call_id": CALL, "verdict": "again"},
    "withdrawMessage": {"message_id": "m"},
    "editMessage": {"message_id": "m", "text": "Hello"},
    "rewindConversation": {"to": 0},
    "switchBranch": {"branch": 0},
}
"""The bodies that operations on a conversation need."""

PARAMETERS = {"seq": 2, "sha256": "0" * 64}
"""What stands in paths besides the conversation."""

OF_NOBODY = {
    *("getMachine", "listModels", "listTools", "listPermissions", "renderMarkdown"),
    *("openSession", "closeSession", "getHealth"),
}
"""Operations that show nothing of any conversation."""

OF_ALL = {"createConversation", "listConversations", "followConversations"}
"""Operations that concern conversations without naming one in the path; each has a test below."""

OF_DOORS = {"createChatCompletion", "listChatModels", "getChatModel", "runAgent"}
"""Operations of other protocols; tests/hosts/http/doors has them."""

UNDOCUMENTED = {"/.well-known/agent-card.json", "/a2a"}
"""The paths of A2A, which has a description of its own; tests/hosts/http/doors has them."""

OPERATIONS = operations_of(api_document())
OF_ONE = [name for name, (_, path, _) in OPERATIONS.items() if "{conversation_id}" in path]


async def by_header(request: Request) -> str | None:
    """The user whom a header names; in a program this is a session or a signed token."""
    if request.headers.get("x-user") == "banned":
        raise PermissionError
    return request.headers.get("x-user")


@asynccontextmanager
async def two_users() -> AsyncIterator[tuple[Engine, DocumentedClient, str]]:
    """An engine, Bob's client, and the id of a conversation of Ann's that waits for an answer. Bob may do everything
    with conversations of his own."""
    engine = obedient_engine()
    app = create_app(engine, owner=by_header, allow=PERMISSIONS)
    async with engine, calling(app, headers={"x-user": "bob"}) as bob:
        anns = await Conversations(engine, owner="ann", title=SECRET).asking()
        yield engine, bob, anns.id


class TestTheConversationOfAnother:
    """Bob knows the id of Ann's conversation."""

    async def test_is_not_found(self) -> None:
        """Every operation that names a conversation answers 404, as for an id that nobody has; nothing happens."""
        async with two_users() as (engine, bob, anns):
            conversation = await engine.get(anns)
            before = await conversation.events()
            for operation in OF_ONE:
                path = OPERATIONS[operation][1]
                parameters = {name: value for name, value in PARAMETERS.items() if f"{{{name}}}" in path}
                body = BODIES.get(operation, NO_BODY)
                response = await bob.call(operation, body, conversation_id=anns, **parameters)
                unknown = await bob.call(operation, body, conversation_id="nobody", **parameters)
                assert response.status_code == 404, operation
                assert response.text.replace(anns, "nobody") == unknown.text, operation
            after = await conversation.events()
            listed = await engine.list()

        assert len(OF_ONE) > 20
        assert before == after
        assert [summary.id for summary in listed] == [anns]

    def test_every_operation_is_asked(self) -> None:
        """A new operation must be sorted into one of the lists of this module."""
        routes = [route for router in (*ROUTERS, *DOORS) for route in router.routes]

        assert OPERATIONS.keys() == {*OF_ONE, *OF_NOBODY, *OF_ALL, *OF_DOORS}
        assert {route.path for route in routes if not route.include_in_schema} <= UNDOCUMENTED

    @pytest.mark.slow
    @pytest.mark.parametrize("parameter", ["owner", "parent", "works_for", "before"])
    async def test_is_not_listed(self, parameter: str) -> None:
        """A list shows Bob's own conversations, and no way of asking for others leads to them."""
        async with two_users() as (engine, bob, anns):
            mine = await engine.create(owner="bob")
            listed = await bob.result("listConversations")
            response = await bob.call("listConversations", **{parameter: "ann" if parameter == "owner" else anns})

        assert [one["id"] for one in listed["conversations"]] == [mine.id]
        assert SECRET not in response.text
        assert not response.is_success or response.json()["conversations"] == []

    async def test_has_no_agent_of_somebody_else(self) -> None:
        """Bob cannot create an agent that works for Ann's conversation, nor a conversation of Ann's."""
        async with two_users() as (_, bob, anns):
            agent = await bob.problem("createConversation", {"role": "background", "works_for": anns})
            hers = await bob.problem("createConversation", {"owner": "ann"})

        assert agent == (404, "unknown_conversation")
        assert hers == (422, "invalid_input")

    async def test_is_not_followed(self) -> None:
        """Bob's stream of all conversations shows his own only."""
        engine = obedient_engine()
        app = create_app(engine, owner=by_header)
        async with engine, calling(app, headers={"x-user": "bob"}) as bob:
            hers = await bob.problem("followConversations", owner="ann")
            async with reading(app, "/events", headers={"x-user": "bob"}) as reader:
                await reader.until_event("tree")
                await Conversations(engine, owner="ann", title=SECRET).asking()
                mine = await Conversations(engine, owner="bob").idle()
                while not any(event.json.get("conversation_id") == mine.id for event in reader.events[1:]):
                    await reader.until(len(reader.received) + 1)

        shown = {event.json["conversation_id"] for event in reader.events} - {None}
        assert shown == {mine.id}
        assert SECRET not in json.dumps([event.json for event in reader.events])
        assert hers == (422, "invalid_input")


class TestSomebodyUnknown:
    """A caller whom the application does not know."""

    FOR_EVERYBODY: ClassVar = {"/", "/page/{name}", "/health", "/session"}
    """The page, which asks who one is, and what shows nothing of any conversation."""

    async def test_learns_nothing(self) -> None:
        """Every route of the application is refused with 401, documented or not, but for those that are for everybody;
        a new one must be sorted into one of the two."""
        engine = obedient_engine()
        app = create_app(engine, owner=by_header)
        routers = [route for router in (*ROUTERS, *DOORS) for route in router.routes]
        routes = [(method, route.path) for route in (*routers, *page_routes()) for method in route.methods]
        routes.append(("GET", "/openapi.json"))
        async with engine, calling(app) as nobody:
            for method, template in routes:
                path = re.sub(r"\{[^}]*\}", "1", template)
                sent = {} if method == "GET" else {"json": {}}
                answer = await nobody.client.request(method, path, **sent)
                assert (answer.status_code == 401) == (template not in self.FOR_EVERYBODY), (method, template)
                if answer.status_code == 401:
                    assert "turnwise" not in answer.text and "rehearsal" not in answer.text

        assert {"/v1/models", "/a2a", "/.well-known/agent-card.json", "/machine"} <= {
            template for _, template in routes
        }


class TestTheConversationOfTheCaller:
    """What Bob does with his own."""

    async def test_belongs_to_the_caller(self) -> None:
        """A conversation that Bob creates is his, without his saying so, and so is its copy."""
        async with two_users() as (_, bob, _):
            mine = await bob.result("createConversation", {})
            named = await bob.result("createConversation", {"owner": "bob"})
            copied = await bob.result("forkConversation", conversation_id=mine["id"])

        assert mine["owner"] == named["owner"] == copied["conversation"]["owner"] == "bob"

    @pytest.mark.slow
    @holds_for("user", [None, "", "banned"])
    @holds_for("operation", ["listConversations", "getMachine", "createConversation"])
    async def test_needs_a_known_caller(self, user: str | None, operation: str) -> None:
        """A caller for whom the application returns None or "", or raises PermissionError, is refused with 401."""
        engine = obedient_engine()
        headers = {} if user is None else {"x-user": user}
        async with engine, calling(create_app(engine, owner=by_header), headers=headers) as nobody:
            body = {} if operation == "createConversation" else NO_BODY
            refused = await nobody.call(operation, body)

        assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
        assert refused.headers["www-authenticate"] == "Bearer"

    @pytest.mark.parametrize("login_url", [None, "/login", "https://example.org/login?next=/assistant/"])
    async def test_learns_where_to_sign_in(self, login_url: str | None) -> None:
        """A client can tell a caller whom the application must know from one who lacks the token, which comes first."""
        engine = obedient_engine()
        app = create_app(engine, owner=by_header, token="a-token", login_url=login_url)
        token = {"authorization": "Bearer a-token"}
        async with engine, calling(app) as stranger, calling(app, headers=token) as nobody:
            without_token = (await stranger.call("listConversations", NO_BODY)).json()
            without_user = (await nobody.call("listConversations", NO_BODY)).json()

        assert (without_token["sign_in"], without_token.get("login_url")) == ("token", None)
        assert (without_user["sign_in"], without_user.get("login_url")) == ("application", login_url)

    @holds_for(
        "login_url",
        [
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            "java\tscript:alert(1)",
            " javascript:alert(1)",
            "data:text/html,hello",
            "//example.org/login",
            "/\\example.org",
            "https:login",
            "https://",
            "http://[::1",
            "mailto:ann@example.org",
            "/log in",
            "/lōgin",
            "",
            7,
        ],
    )
    def test_is_led_to_sites_only(self, login_url: Any) -> None:
        """An address that a page must not lead people to is an error of the configuration, when the application is
        made."""
        with pytest.raises(ConfigurationError, match="login_url"):
            create_app(obedient_engine(), owner=by_header, login_url=login_url)

    async def test_may_be_found_by_a_plain_function(self) -> None:
        """`owner` need not be a coroutine function."""
        engine = obedient_engine()
        app = create_app(engine, owner=lambda request: request.headers["x-user"])
        async with engine, calling(app, headers={"x-user": "bob"}) as bob:
            assert (await bob.result("createConversation", {}))["owner"] == "bob"


class Doors:
    """All ways in which a caller names a conversation by an id of its own choice, each with a body that creates it."""

    def __init__(self, client: httpx.AsyncClient, user: str) -> None:
        self._client = client
        self._headers = {"x-user": user, "a2a-version": "1.0"}

    async def create(self, door: str, chosen: str) -> tuple[int, str]:
        """Create or continue a conversation by this door. Returns the status, and the answer without what differs from
        one call to the next."""
        say: dict[str, Any] = {"role": "user", "content": "Hello"}
        said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hello"}], "contextId": chosen}
        completed = {"model": "function", "messages": [say], "metadata": {"conversation_id": chosen}}
        path, body = {
            "POST /conversations": ("/conversations", {"id": chosen}),
            "completions": ("/v1/chat/completions", completed),
            "agui": ("/agui", {**RUN, "threadId": chosen, "messages": [{**say, "id": "m"}]}),
            "a2a": ("/a2a", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": said}}),
        }[door]
        answer = await self._client.post(path, json=body, headers=self._headers)
        return answer.status_code, VARYING.sub("", answer.text)

    async def get(self, path: str, **options: Any) -> httpx.Response:
        """Ask for a path."""
        return await self._client.get(path, headers=self._headers, **options)


VARYING = re.compile(r'chatcmpl-[0-9a-f-]+|T[0-9:.]+(Z|\+)|"created":[0-9]+|(?<=\.)[0-9a-f]{12}(?=\.)')
"""Ids, marks of histories and moments that differ from one call to the next."""

RUN: Any = {"runId": "r", "tools": [], "context": [], "state": {}, "forwardedProps": {}}

DOORS_OF_IDS = ("POST /conversations", "completions", "agui", "a2a")


@asynccontextmanager
async def ann_and_bob(engine: Engine | None = None) -> AsyncIterator[tuple[Engine, Doors, Doors]]:
    """An application, as each of its two users calls it."""
    engine = engine or Engine.open("sqlite://", model=FunctionLlm(lambda request: reply("Hello")))
    async with engine, calling(create_app(engine, owner=by_header)) as api:
        yield engine, Doors(api.client, "ann"), Doors(api.client, "bob")


class TestChosenIds:
    """Each owner has the ids that they choose for themselves."""

    @pytest.mark.slow
    @holds_for("of_ann", DOORS_OF_IDS)
    @holds_for("of_bob", DOORS_OF_IDS)
    async def test_of_others_cannot_be_found_out(self, of_ann: str, of_bob: str) -> None:
        """Whichever way Ann has taken an id, Bob gets by every door what he gets for an id that nobody has; he has a
        conversation of his own then, and Ann's is as before."""
        async with ann_and_bob() as (engine, ann, bob):
            await ann.create(of_ann, "diary")
            (hers,) = [one.id for one in await engine.list(owner="ann")]
            before = await (await engine.get(hers)).events()
            taken = await bob.create(of_bob, "diary")
            free = await bob.create(of_bob, "dairy")
            after = await (await engine.get(hers)).events()
            his = await engine.list(owner="bob")

        assert taken[0] in (200, 201), taken
        assert (taken[0], taken[1].replace("diary", "dairy")) == free
        assert before == after
        assert len(his) == 2

    @pytest.mark.slow
    @holds_for("first", DOORS_OF_IDS)
    @holds_for("second", DOORS_OF_IDS)
    async def test_lead_to_the_same_conversation_by_every_door(self, first: str, second: str) -> None:
        """What was created by one door under an id is continued by another under it."""
        async with ann_and_bob() as (engine, ann, _):
            await ann.create(first, "diary")
            await ann.create(second, "diary")
            shown = await ann.get("/conversations/diary")
            listed = await engine.list()

        assert len(listed) == 1
        assert shown.json()["id"] == "diary"

    @pytest.mark.slow
    @pytest.mark.parametrize("door", DOORS_OF_IDS)
    async def test_are_what_their_owner_sees(self, door: str) -> None:
        """No answer shows another id than the chosen one: not the one of the creation, nor any that reads."""
        async with ann_and_bob() as (engine, ann, _):
            created = await ann.create(door, "diary")
            (stored,) = [one.id for one in await engine.list()]
            mark = stored.removeprefix("diary")
            await engine.create(role="background", works_for=stored, conversation_id="clerk")
            paths = [path for method, path, _ in OPERATIONS.values() if method == "get" and "/events" not in path]
            read = [await ann.get(path.replace("{conversation_id}", "diary").replace("{seq}", "2")) for path in paths]
            clerk = (await ann.get("/conversations", params={"works_for": "diary"})).json()["conversations"]
            by_mark = await ann.get(f"/conversations/{stored}")
            async with reading(engine_app(engine), "/events", headers={"x-user": "ann"}) as reader:
                tree = await reader.until_event("tree")

        assert len(mark) == 17
        assert mark not in created[1]
        assert not [one.url for one in read if mark in one.text]
        assert [(one["id"], one["works_for"]) for one in clerk] == [("clerk", "diary")]
        assert by_mark.json()["id"] == "diary"
        assert mark not in json.dumps(tree.json)

    async def test_stand_in_the_pages_of_a_list(self) -> None:
        """The place at which a page ends has them, too, also where the conversation is gone; that of somebody else
        shows nothing of theirs."""
        async with ann_and_bob() as (engine, ann, bob):
            for number in range(4):
                await ann.create("POST /conversations", f"c.{number}")
            first = (await ann.get("/conversations", params={"limit": 2})).json()
            await engine.delete(owned_id("ann", "c.2"))
            second = (await ann.get("/conversations", params={"limit": 2, "before": first["next"]})).json()
            of_bob = (await bob.get("/conversations", params={"before": first["next"]})).json()

        assert first["next"].endswith(".c.2")
        assert [one["id"] for one in second["conversations"]] == ["c.1", "c.0"]
        assert of_bob == {"conversations": [], "next": None}

    async def test_of_a_database_from_before_are_kept(self) -> None:
        """A conversation that is stored under the id itself belongs to its owner as before, who finds it and creates it
        once; the same id of somebody else is another conversation."""
        async with ann_and_bob() as (engine, ann, bob):
            await engine.create(conversation_id="diary", owner="ann")
            found = await ann.get("/conversations/diary")
            again = await ann.create("POST /conversations", "diary")
            own = await bob.create("POST /conversations", "diary")
            listed = [one.owner for one in await engine.list()]

        assert (found.status_code, again[0], own[0]) == (200, 200, 201)
        assert sorted(listed, key=str) == ["ann", "bob"]

    @pytest.mark.slow
    @pytest.mark.parametrize("chosen", ["diary~MARK", "diary~MARK~MARK", "~MARK", "diary/3", "x" * 100, "x" * 101, "é"])
    async def test_cannot_be_made_to_look_like_those_of_others(self, chosen: str) -> None:
        """An id with the mark of Ann is Bob's own like every other, or is refused as it would be without her."""
        async with ann_and_bob() as (engine, ann, bob):
            await ann.create("POST /conversations", "diary")
            (hers,) = [one.id for one in await engine.list()]
            wanted = chosen.replace("~MARK", hers.removeprefix("diary"))
            absent = await bob.get(f"/conversations/{quote(wanted, safe='')}")
            status, _ = await bob.create("POST /conversations", wanted)
            longest = await bob.create("POST /conversations", "y" * 100)
            owners = {one.id: one.owner for one in await engine.list()}

        assert absent.status_code == 404
        assert status in (201, 422)
        assert longest[0] == 201
        assert owners[hers] == "ann"
        assert len([one for one in owners.values() if one == "ann"]) == 1

    async def test_of_what_is_damaged_cannot_be_found_out_either(self, database: Path) -> None:
        """Nobody can tell whose such a conversation is. So its id is free to every user, and no answer tells that it
        is there."""
        async with Engine.open(database, model=FunctionLlm(lambda _: reply("Hello."))) as engine:
            await engine.create(conversation_id="diary", owner="ann")
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("UPDATE conversations SET state = x'00'")
            connection.commit()

        engine = Engine.open(database, model=FunctionLlm(lambda _: reply("Hello.")))
        async with engine, calling(create_app(engine, owner=by_header), headers={"x-user": "bob"}) as bob:
            for method in ("GET", "DELETE"):
                paths = ("/conversations/diary", "/conversations/nothing")
                asked = [await bob.client.request(method, path) for path in paths]
                assert [answer.status_code for answer in asked] == [404, 404]
            created = await bob.client.post("/conversations", json={"id": "diary"})

        assert created.status_code == 201

    async def test_are_known_to_the_application(self) -> None:
        """`owned_id` says under which id the engine has what a caller has called by a name."""
        async with ann_and_bob() as (engine, ann, _):
            await ann.create("POST /conversations", "diary")
            conversation = await engine.get(owned_id("ann", "diary"))

        assert conversation.owner == "ann"

    async def test_are_those_of_sub_agents_too(self) -> None:
        """The id of a sub-agent begins with what its owner calls the conversation, in lists, paths and streams."""

        def answer(request: ModelRequest) -> ModelAnswer:
            is_parent = request.tools and not any(one["role"] == "tool" for one in request.messages)
            return call("spawn_agents", tasks=["Count"]) if is_parent else reply("Done")

        engine = Engine.open("sqlite://", model=FunctionLlm(answer), tools=["spawn_agents"])
        async with ann_and_bob(engine) as (engine, ann, bob):
            await ann.create("completions", "diary")
            children = (await ann.get("/conversations/diary/children")).json()["conversations"]
            child = (await ann.get(f"/conversations/{quote(children[0]['id'], safe='')}")).json()
            by_parent = (await ann.get("/conversations", params={"parent": "diary"})).json()["conversations"]
            absent = await bob.get(f"/conversations/{quote(children[0]['id'], safe='')}")

        assert re.fullmatch(r"diary/[0-9]+/[0-9a-f]{12}", child["id"])
        assert child["parent"] == "diary"
        assert [one["id"] for one in by_parent] == [child["id"]]
        assert absent.status_code == 404


def engine_app(engine: Engine) -> Any:
    """The application of an engine that is open."""
    return create_app(engine, owner=by_header)
