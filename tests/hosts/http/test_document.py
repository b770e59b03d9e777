"""The OpenAPI document: what it says of bodies, answers and refusals, and what is made from it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import schemathesis
from pydantic import TypeAdapter, ValidationError

from turnwise import Policy, Update, update_schema
from turnwise.engine.json_forms import summary_model
from turnwise.engine.updates import ConversationOpenedUpdate
from turnwise.hosts.http.conversations import NewConversation
from turnwise.hosts.http.doors.openai import CompletionBody
from turnwise.hosts.http.markdown import MarkdownElement, markdown_tree
from turnwise.hosts.http.requests import GivenAnswers
from turnwise.hosts.http.schemas import GivenPolicy
from turnwise.hosts.http.server_routes import MarkdownElement as MarkdownElementModel
from turnwise.hosts.http.server_routes import MarkdownTexts

from ...support.cases import holds_for
from ...support.http.documented_client import api_document, operations_of
from ...support.http.live_server import LiveServer, serving
from ...support.http.obedient_model import Conversations, obedient_engine
from ...support.npm.node_packages import NodePackages

# --- The OpenAPI document: what it says of bodies, answers, refusals and events.


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


# --- A body is refused in one sentence, whatever a client sends.


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


# --- Types for TypeScript, generated from the OpenAPI document, and a client that is written against them.


CLIENT = Path(__file__).parent / "client_types" / "client.ts"

STRICT = ("--strict", "--noEmit", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess", "--noUnusedLocals")
MODULES = ("--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom")


@pytest.mark.slow
def test_a_client_compiles_with_the_generated_types(npm: NodePackages, tmp_path: Path) -> None:
    """openapi-typescript reads the document, and a client that uses requests, answers, problems and updates compiles;
    its last lines would not, and the compiler is told to expect that."""
    (tmp_path / "openapi.json").write_text(json.dumps(api_document()), "utf-8")
    npm.tool("openapi-typescript", "openapi.json", "--output", "api.d.ts", folder=tmp_path)
    generated = (tmp_path / "api.d.ts").read_text("utf-8")
    shutil.copy(CLIENT, tmp_path)

    npm.tool("tsc", *STRICT, *MODULES, "client.ts", "api.d.ts", folder=tmp_path)

    assert all(f"    {name}: {{" in generated for name in operations_of(api_document()))


# --- schemathesis makes requests from the OpenAPI document, and holds each answer against it.
#
# The requests are at the limits of what the document allows and beyond them (coverage), at random (fuzzing), and in
# sequences in which an answer gives the next request its ids (stateful). The two streams of updates do not end, so they
# are left out here; test_app.py holds their events against the document.


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


def accepted(*statuses: str, others: Iterable[str] = ()) -> dict[str, Any]:
    """How requests of the documented form may be answered, and `others`: either may be too large."""
    refused = ["400", "401", "403", "404", "409", "413", "415", "422"]
    return {
        "positive_data_acceptance": {"expected-statuses": [*statuses, "413"]},
        "negative_data_rejection": {"expected-statuses": [*refused, *others]},
    }


UPLOAD = {"include-operation-id": "uploadFile", "checks": accepted(*ACCEPTED, "415", others=["201"])}
"""Any bytes are a file, and some contradict the type that the request declares."""


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
        "operations": [{"include-path-regex": "^/v1/", "checks": accepted(*ACCEPTED, "400")}, UPLOAD, *operations],
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_sequences_of_requests_are_answered_as_documented(server: LiveServer) -> None:
    """H1: the same holds for conversations that the requests themselves create, change, copy and delete."""
    found, answers = faults(
        server, [], examples=5, phases={"examples": OFF, "coverage": OFF, "fuzzing": OFF, "stateful": {"max-steps": 10}}
    )

    assert found == []
    assert answers > 10


@pytest.mark.slow
@pytest.mark.deep
def test_every_phase_with_more_examples(server: LiveServer) -> None:
    """H1: all phases for all operations, with every boundary of a policy: more than a thousand requests of it alone."""
    found, answers = faults(server, [], examples=20)

    assert found == []
    assert answers > 2000
