"""The OpenAPI document: what it says of bodies, answers, refusals and events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import schemathesis
from pydantic import TypeAdapter, ValidationError

from turnwise import Policy, Update, update_schema
from turnwise.engine.json_forms import summary_model
from turnwise.engine.updates import ConversationOpenedUpdate
from turnwise.hosts.http.markdown import MarkdownElement, markdown_tree
from turnwise.hosts.http.schemas import GivenPolicy
from turnwise.hosts.http.server_routes import MarkdownElement as MarkdownElementModel

from ...support.http.documented_client import api_document, operations_of
from ...support.http.obedient_model import Conversations, obedient_engine

SCHEMAS: dict[str, Any] = api_document()["components"]["schemas"]


def references(part: Any) -> Iterator[str]:
    """All references in a part of the document."""
    if isinstance(part, dict):
        yield from [part["$ref"]] if isinstance(part.get("$ref"), str) else []
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from references(one)


def in_components(schema: Any) -> Any:
    """A schema as it stands among the components: without defaults, and with references to them."""
    if isinstance(schema, list):
        return [in_components(one) for one in schema]
    if not isinstance(schema, dict):
        return schema.replace("#/$defs/", "#/components/schemas/") if isinstance(schema, str) else schema
    return {key: in_components(value) for key, value in schema.items() if key != "default"}


class TestTheComponents:
    """The schemas under their names."""

    def test_every_reference_leads_to_one(self) -> None:
        """No reference is broken, and no component is left over."""
        used = set(references(api_document()))

        assert used == {f"#/components/schemas/{name}" for name in SCHEMAS}

    def test_updates_are_those_of_the_engine(self) -> None:
        """The component `Update`, and each update in it, is what `update_schema()` says."""
        schema = in_components(update_schema())

        assert SCHEMAS["Update"]["oneOf"] == schema["oneOf"]
        for kind in get_args(Update):
            assert SCHEMAS[kind.__name__] == schema["$defs"][kind.__name__]

    @pytest.mark.parametrize("name", ["NewConversation", "NewMessage", "GivenAnswers", "Policy", "Changes", "Approval"])
    def test_a_body_has_no_other_keys(self, name: str) -> None:
        """What clients send is closed."""
        assert SCHEMAS[name]["additionalProperties"] is False

    @pytest.mark.parametrize(
        "name", ["Message", "Turn", "Usage", "State", "ShownConversation", "MachineMap", "Problem"]
    )
    def test_an_answer_may_have_other_keys(self, name: str) -> None:
        """A later version may add keys to what clients receive."""
        assert "additionalProperties" not in SCHEMAS[name]

    def test_no_property_has_a_default(self) -> None:
        """A generator of types would take it for a property that is always there."""
        for schema in SCHEMAS.values():
            for one in schema.get("properties", {}).values():
                assert "default" not in one

    async def test_a_conversation_of_a_tree_is_that_of_the_engine(self) -> None:
        """The conversations of a tree have the keys that the document says."""
        async with obedient_engine() as engine:
            await Conversations(engine).idle()
            (summary,) = await engine.list()

        shown = ConversationOpenedUpdate(summary).data["conversation"]
        assert shown.keys() == summary_model().model_fields.keys()
        summary_model().model_validate(shown)

    def test_an_element_of_markdown_is_that_of_the_renderer(self) -> None:
        """The elements have the keys that the document says."""
        assert MarkdownElementModel.model_fields.keys() == MarkdownElement.__annotations__.keys()
        tree = markdown_tree("1. *a*\n\n| a |\n|:-:|\n| b |\n\n```py\nx\n```\n[x](https://example.org)")
        TypeAdapter(list[str | MarkdownElementModel]).validate_python(tree)


class TestTheDocument:
    """The document as a whole."""

    @pytest.mark.slow
    def test_is_one_that_generators_read(self) -> None:
        """It is a valid document of OpenAPI 3.1, and uses no word that only a later version has."""
        document = api_document()

        schemathesis.openapi.from_dict(document).validate()
        assert document["openapi"].startswith("3.1.")
        assert "itemSchema" not in json.dumps(document)


class TestTheOperations:
    """What every operation declares."""

    def test_refusals_are_problems(self) -> None:
        """Every refusal of the host's own operations is a problem, and every one may be refused to a stranger."""
        for name, (_, path, operation) in operations_of(api_document()).items():
            refused = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
            if not path.startswith(("/v1/", "/agui")):
                assert {"401", "403", "503"} <= refused.keys(), name
            for answer in refused.values():
                assert "application/json" not in answer["content"] or path.startswith("/v1/"), name

    @pytest.mark.parametrize(
        ("name", "data"), [("followConversation", "Update"), ("followConversations", "TreeUpdate")]
    )
    def test_streams_have_events(self, name: str, data: str) -> None:
        """The data of each event is an update, or the end."""
        answer = operations_of(api_document())[name][2]["responses"]["200"]
        stream = answer["content"]["text/event-stream"]["schema"]
        event = stream["contentSchema"]["properties"]["data"]

        assert (stream["type"], stream["contentMediaType"]) == ("string", "text/event-stream")
        assert event["contentSchema"]["anyOf"] == [
            {"$ref": f"#/components/schemas/{data}"},
            {"$ref": "#/components/schemas/End"},
        ]


class TestAPolicy:
    """Rules that a client writes as JSON."""

    def test_is_read_as_it_was_written(self) -> None:
        """What `Policy` writes as JSON is the same policy again."""
        policy = Policy(nudges=3, when_busy="queue", sub_agent_deadline=None)

        assert TypeAdapter(GivenPolicy).validate_python(policy.model_dump(mode="json")) == policy

    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            ({"nudges": "3"}, "nudges: Input should be a valid integer"),
            ({"limits": {"requests": 0}}, "limits.requests"),
            ({"colour": "red"}, "colour: Extra inputs are not permitted"),
            ([], "Input should be an object"),
            ({"nudges": float("nan")}, "nudges"),
            ({"\ud800": 1}, "Invalid"),
        ],
    )
    def test_says_what_is_wrong(self, given: Any, sentence: str) -> None:
        """The first fault is named with its place."""
        with pytest.raises(ValidationError, match=sentence):
            TypeAdapter(GivenPolicy).validate_python(given)
