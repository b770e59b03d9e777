"""An application with users of its own: what belongs to one is not found by another, whatever is asked.

The operations are read from the OpenAPI document, so that a new one cannot be forgotten.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from starlette.requests import Request

from turnwise import ConfigurationError, Engine
from turnwise.hosts.http import create_app
from turnwise.hosts.http.app import DOORS, ROUTERS
from turnwise.hosts.page.files import page_routes

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
}
"""The bodies that operations on a conversation need."""

OF_NOBODY = {"getMachine", "listModels", "listTools", "renderMarkdown", "openSession", "closeSession", "getHealth"}
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
    """An engine, Bob's client, and the id of a conversation of Ann's that waits for an answer."""
    engine = obedient_engine()
    async with engine, calling(create_app(engine, owner=by_header), headers={"x-user": "bob"}) as bob:
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
                parameters = {"seq": 2} if "{seq}" in OPERATIONS[operation][1] else {}
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
            taken = await bob.call("createConversation", {"id": anns})

        assert agent == (404, "unknown_conversation")
        assert hers == (422, "invalid_input")
        assert (taken.status_code, SECRET in taken.text) == (409, False)

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

    @pytest.mark.parametrize("user", [None, "", "banned"])
    @pytest.mark.parametrize("operation", ["listConversations", "getMachine", "createConversation"])
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

    @pytest.mark.parametrize(
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
