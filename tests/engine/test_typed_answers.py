"""Typed answers: what a host receives, what goes back to the model, and how a turn fails that gets none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field, field_validator

from turnwise import (
    Engine,
    InvalidInput,
    ModelAnswer,
    ModelRequest,
    NoOutput,
    Output,
    OutputField,
    OutputRendering,
    OutputUpdate,
    Policy,
    Profile,
    Token,
)
from turnwise.effects.model.outputs import TOOL
from turnwise.engine.updates import updates_of_log
from turnwise.states import LogEntry
from turnwise.testing import FunctionLlm, ScriptedLlm, call, calls, reply

from ..support.databases import BOTH_STORES, Database

pytestmark = BOTH_STORES


class Ticket(BaseModel):
    """A ticket of a help desk."""

    title: str
    priority: int

    @field_validator("priority")
    @classmethod
    def _is_small(cls, priority: int) -> int:
        if priority > 5:
            raise ValueError("there are five priorities")
        return priority


@dataclass
class Complaint:
    """What a customer complains of."""

    about: str


class Address(TypedDict):
    """Where somebody lives."""

    city: str
    zip: str | None


GIVEN = {"title": "The printer burns", "priority": 1}
TICKET = Ticket(title="The printer burns", priority=1)


def look() -> str:
    """Look at the printer."""
    return "It burns."


def final(**arguments: Any) -> Any:
    """The call by which a typed answer is given."""
    return call(TOOL, **arguments)


async def test_an_answer_is_of_the_type_that_was_asked_for(database: Database) -> None:
    """The turn has the object, its JSON, and delivers the JSON."""
    model = ScriptedLlm([final(**GIVEN)])

    async with Engine.open(database, model=model) as engine:
        turn = await (await engine.create()).send("It burns!", output=Ticket)

    assert turn.status == "completed"
    assert turn.output == TICKET
    assert turn.data["output"] == GIVEN
    assert Ticket.model_validate_json(turn.reply) == TICKET


async def test_the_model_is_offered_a_tool_for_its_answer_and_must_call_one() -> None:
    """The tool stands behind the others. Where there are no others it is the one to call."""
    model = ScriptedLlm([call("look"), final(**GIVEN), final(**GIVEN)])

    async with Engine.open("sqlite://", model=model, tools=[look]) as engine:
        conversation = await engine.create()
        await conversation.send("It burns!", output=Ticket)
        await (await engine.create(tools=[])).send("It burns!", output=Ticket)

    first, _, alone = model.requests
    assert [tool["function"]["name"] for tool in first.tools] == ["look", TOOL]
    assert first.tool_choice == "required"
    assert [tool["function"]["name"] for tool in alone.tools] == [TOOL]
    assert alone.tool_choice == TOOL


async def test_an_invalid_answer_goes_back_with_what_is_wrong() -> None:
    """By the result of the call, or, if it was a text, by a reminder that is no part of the dialogue. The validators of
    the application's type speak, too."""
    model = ScriptedLlm([final(title="It burns", priority=9), reply('{"title": "It burns"}'), final(**GIVEN)])

    async with Engine.open("sqlite://", model=model) as engine:
        conversation = await engine.create()
        turn = await conversation.send("It burns!", output=Ticket)
        said = [message.text for message in await conversation.transcript()]

    assert turn.output == TICKET
    assert "priority: Value error, there are five priorities" in model.requests[1].messages[-1]["content"]
    assert model.requests[1].messages[-1]["role"] == "tool"
    assert "priority: Field required" in model.requests[2].messages[-1]["content"]
    assert not any("Field required" in text for text in said)


async def test_a_turn_fails_once_its_answers_were_sent_back_as_often_as_the_policy_says(database: Database) -> None:
    """With the kind `output`. The next message is answered as ever, and a retry asks for the same form again."""
    model = ScriptedLlm([reply("No."), reply("No."), final(title="?"), final(**GIVEN)])

    async with Engine.open(database, model=model, policy=Policy(output_retries=2)) as engine:
        conversation = await engine.create()
        turn = await conversation.send("It burns!", output=Ticket)
        with pytest.raises(NoOutput, match="no answer of the form"):
            _ = turn.output
        kind = conversation.state.kind if conversation.state.type == "failed" else None
        again = await conversation.retry()

    assert (turn.status, kind) == ("failed", "output")
    assert again.output == TICKET


@pytest.mark.parametrize(
    ("given", "written", "read"),
    [
        (Complaint, {"about": "fire"}, Complaint("fire")),
        (Address, {"city": "Oslo", "zip": None}, {"city": "Oslo", "zip": None}),
        ((Ticket, Complaint), {"value": {"about": "fire"}}, Complaint("fire")),
        (Output[Ticket | Complaint](Ticket | Complaint, name="report"), {"value": GIVEN}, TICKET),
        (list[Ticket], {"value": [GIVEN]}, [TICKET]),
        (Output[Literal["a", "b"]](Literal["a", "b"]), {"value": "b"}, "b"),
        (int, {"value": 7}, 7),
        ({"title": "Any", "type": "object", "required": ["x"]}, {"x": 1}, {"x": 1}),
        ({"type": "array", "items": {"type": "integer"}}, {"value": [1]}, [1]),
    ],
    ids=["dataclass", "TypedDict", "tuple", "union", "list", "literal", "int", "schema", "array"],
)
async def test_every_kind_of_type_can_be_asked_for(given: Any, written: dict[str, Any], read: Any) -> None:
    """What is no object is wrapped in one for the model, and unwrapped for the host."""
    model = ScriptedLlm([final(**written)])

    async with Engine.open("sqlite://", model=model) as engine:
        turn = await (await engine.create()).send("Go", output=given)

    assert turn.output == read


@pytest.mark.parametrize(
    "text",
    [
        '{"title": "The printer burns", "priority": 1}',
        'Here it is:\n```json\n{"title": "The printer burns", "priority": 1}\n```\nBye.',
        'Well, {"title": "The printer burns", "priority": 1} it is.',
    ],
)
async def test_json_is_read_out_of_a_text(text: str) -> None:
    """A model that does not call the tool has answered all the same, if its text holds the answer."""
    async with Engine.open("sqlite://", model=ScriptedLlm([reply(text)])) as engine:
        turn = await (await engine.create()).send("It burns!", output=Ticket)

    assert turn.output == TICKET


async def test_a_prompted_model_reads_the_schema() -> None:
    """Behind everything that was said, and only in this request."""
    model = ScriptedLlm([reply('{"title": "The printer burns", "priority": 1}'), reply("Yes.")])

    async with Engine.open("sqlite://", model=model) as engine:
        conversation = await engine.create()
        turn = await conversation.send("It burns!", output=Output(Ticket, way="prompted"))
        await conversation.send("Is that all?")

    assert turn.output == TICKET
    assert '"priority"' in model.requests[0].messages[-1]["content"]
    assert model.requests[0].tools == ()
    assert "JSON schema" not in str(model.requests[1].messages)


async def test_an_answer_beside_other_calls_counts_if_they_succeed() -> None:
    """They run first. If one fails, the model is asked again."""

    def burn() -> str:
        """Fail."""
        raise ValueError("no")

    model = ScriptedLlm(
        [calls(call("look"), final(**GIVEN)), calls(call("burn"), final(**GIVEN)), final(title="Later", priority=2)]
    )

    async with Engine.open("sqlite://", model=model, tools=[look, burn]) as engine:
        conversation = await engine.create()
        at_once = await conversation.send("It burns!", output=Ticket)
        later = await conversation.send("And now?", output=Ticket)

    assert at_once.output == TICKET
    assert later.output == Ticket(title="Later", priority=2)


async def test_the_last_request_of_the_budget_may_still_give_the_answer() -> None:
    """No other tool may be called in it."""
    model = ScriptedLlm([call("look"), final(**GIVEN)])
    policy = Policy.model_validate({"limits": {"requests": 2}})

    async with Engine.open("sqlite://", model=model, tools=[look], policy=policy) as engine:
        turn = await (await engine.create()).send("It burns!", output=Ticket)

    assert turn.output == TICKET
    assert model.requests[-1].tool_choice == TOOL


@pytest.mark.parametrize(
    ("rule", "received"),
    [
        ("json", '{"title": "The printer burns", "priority": 1}'),
        (OutputField(field="title"), "The printer burns"),
        (OutputField(field="missing"), '{"title": "The printer burns", "priority": 1}'),
        (OutputRendering(rendering="short"), "1: The printer burns"),
    ],
)
async def test_the_user_receives_what_the_policy_says(rule: Any, received: str) -> None:
    """The JSON, a field, or what a function makes of the object; the transcript shows the same."""

    def short(ticket: Ticket) -> str:
        return f"{ticket.priority}: {ticket.title}"

    model = ScriptedLlm([final(**GIVEN)])
    policy = Policy(output_reply=rule)

    async with Engine.open("sqlite://", model=model, policy=policy, renderings={"short": short}) as engine:
        conversation = await engine.create()
        turn = await conversation.send("It burns!", output=Ticket)
        report = await conversation.replay()
        updates = [*updates_of_log(await conversation.events())]

    assert turn.reply == received
    assert turn.output == TICKET
    assert report.divergence is None
    assert [one.text for one in updates if one.type == "message" and one.role == "assistant"] == [received]
    assert [one.text for one in updates if one.type == "delivery"] == [received]


async def test_profiles_and_conversations_ask_for_a_form_and_a_message_for_another(database: Database) -> None:
    """The message is the strongest, then the profile, then the conversation."""
    model = ScriptedLlm([final(**GIVEN), final(about="fire"), final(city="Oslo", zip=None)])
    profile = Profile(name="complaints", output=Complaint)

    async with Engine.open(database, model=model, profiles=[profile]) as engine:
        conversation = await engine.create(output=Address)
        by_message = await conversation.send("It burns!", output=Ticket)
        by_profile = await conversation.send("I am angry.")
        turns = await conversation.turns()
    async with Engine.open(database, model=model) as engine:
        by_conversation = await (await engine.create(output=Address)).send("Where do I live?")

    assert by_message.output == TICKET
    assert by_profile.output == Complaint("fire")
    assert by_conversation.output == {"city": "Oslo", "zip": None}
    assert [turn.output for turn in turns] == [TICKET, Complaint("fire")]


async def test_a_turn_of_a_conversation_with_a_form_has_an_answer_of_it_or_says_why_not(database: Database) -> None:
    """By whatever method it is returned: no such turn has None for an answer, whatever its class is for a type
    checker."""
    model = ScriptedLlm([reply("No."), final(**GIVEN)])

    async with Engine.open(database, model=model, policy=Policy(output_retries=0)) as engine:
        conversation = await engine.create(output=Ticket)
        failed = await conversation.send("It burns!")
        listed = await conversation.turns()
        retried = await conversation.retry()
        latest = await conversation.wait()
        copied = await (await conversation.fork()).turns()

    for turn in (failed, *listed, copied[0]):
        with pytest.raises(NoOutput, match="no answer of the form"):
            _ = turn.output
    assert [retried.output, latest.output, copied[-1].output] == [TICKET, TICKET, TICKET]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"type": 7}, "not valid"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}}, "which is not in it"),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.com/schema"}}}, "which is not in it"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "not valid"),
        ({"$schema": "https://example.com", "type": "object"}, "unknown dialect"),
        ({"type": "object", "description": "x" * 200_000}, "characters of JSON long"),
        (object(), "JSON schema"),
        (7, "JSON schema"),
    ],
    ids=["type", "missing reference", "foreign reference", "pattern", "dialect", "large", "object", "number"],
)
async def test_a_form_that_cannot_be_checked_is_refused_before_anything_is_stored(given: Any, sentence: str) -> None:
    """In one sentence that names the field."""
    async with Engine.open("sqlite://", model=ScriptedLlm([])) as engine:
        conversation = await engine.create()
        with pytest.raises(InvalidInput, match=sentence) as refused:
            await conversation.send("It burns!", output=given)
        state = conversation.state

    assert refused.value.sentence.startswith("output")
    assert state.book.seq == 1


async def test_another_process_reads_json_and_one_that_knows_the_type_reads_the_type(database: Database) -> None:
    """The type is no part of the log; `Engine.open(outputs=[…])` names it."""
    async with Engine.open(database, model=ScriptedLlm([final(**GIVEN)])) as engine:
        conversation = await engine.create()
        await conversation.send("It burns!", output=Ticket)

    async with Engine.open(database) as engine:
        (without,) = await (await engine.get(conversation.id)).turns()
        unknown = without.output
    async with Engine.open(database, outputs=[Ticket]) as engine:
        (known,) = await (await engine.get(conversation.id)).turns()

    assert unknown == GIVEN
    assert known.output == TICKET


async def test_a_turn_keeps_its_answer_and_an_answer_that_its_type_no_longer_takes_is_none(database: Database) -> None:
    """The validators run when a turn is first asked for its answer. One that was read again asks them again."""
    limit, runs = 5, 0

    class Small(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def _is_small(cls, number: int) -> int:
            nonlocal runs
            runs += 1
            if number > limit:
                raise ValueError("too large")
            return number

    async with Engine.open(database, model=ScriptedLlm([call("final_result", number=5)])) as engine:
        conversation = await engine.create(output=Small)
        turn = await conversation.send("How many?")
        first, runs_before, limit = turn.output, runs, 4
        (again,) = await conversation.turns()

        assert turn.output is first
        assert runs == runs_before
        with pytest.raises(NoOutput, match="not valid for its type any more"):
            _ = again.output


class Writer:
    """A model that writes its answer in pieces."""

    name = "writer"

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces

    def output_way(self, has_tools: bool) -> str:
        """Its provider holds an answer to a schema."""
        return "native"

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Write them all."""
        for piece in self._pieces:
            show(Token(piece))
        return ModelAnswer("".join(self._pieces))


@pytest.mark.parametrize("rule", ["json", OutputField(field="title")], ids=["json", "field"])
async def test_partial_objects_stream(rule: Any) -> None:
    """As far as they can be read; they are shown live, and never stored. The text itself is shown if it is what the
    user receives."""
    written = '{"title": "The printer burns", "priority": 1}'
    model = Writer(*(written[place : place + 7] for place in range(0, len(written), 7)))

    async with Engine.open("sqlite://", model=model, policy=Policy(output_reply=rule)) as engine:
        conversation = await engine.create()
        shown = [update async for update in conversation.stream("It burns!", output=Ticket)]
        stored = update_types(await conversation.events())

    partial = [update for update in shown if isinstance(update, OutputUpdate)]
    tokens = [update for update in shown if update.type == "token"]
    assert partial[-1].value == GIVEN
    assert {"title": "The printe"} in [update.value for update in partial]
    assert partial[0].data.keys() == {"value", "turn", "request", "attempt"}
    assert bool(tokens) == (rule == "json")
    assert "output" not in stored


def update_types(entries: Sequence[LogEntry]) -> set[str]:
    """The types of the updates that follow from a log."""
    return {update.type for update in updates_of_log(entries)}


async def test_a_rehearsal_answers_in_the_form_that_is_asked_for() -> None:
    """So an application can be tried without a key. It uses its tools before."""

    async def find_table(party: int) -> str:
        """Find a table."""
        return "Taro"

    class Booking(BaseModel):
        restaurant: str
        party: int = Field(ge=1)
        when: Literal["today", "tomorrow"]
        notes: list[str] = []
        menu: Complaint | None

    async with Engine.open("sqlite://", tools=[find_table]) as engine:
        conversation = await engine.create()
        booked = await conversation.send("A table for 2 tomorrow", output=Booking)
        calls_made = [one.name for message in await conversation.transcript() for one in message.tool_calls]
        by_tool = await conversation.send("Hello", output=Output(Complaint, way="tool"))
        many = await conversation.send("Hello", output=list[Booking])

    assert booked.output.when == "tomorrow"
    assert calls_made == ["find_table"]
    assert isinstance(by_tool.output, Complaint)
    assert isinstance(many.output[0], Booking)


async def test_the_results_of_sub_agents_are_typed() -> None:
    """A task that names a profile whose answers have a form has its result as JSON, and not as a text of JSON."""
    spawn = call("spawn_agents", tasks=[{"text": "Look at the printer", "profile": "tickets"}, "Say hello"])

    def answer(request: ModelRequest) -> Any:
        said = str(request.messages)
        if request.output is not None:
            return final(**GIVEN)
        return reply("Hello") if "Say hello" in said and "spawn_agents" not in str(request.tools) else answers.pop(0)

    answers = [spawn, reply("Done.")]
    model = FunctionLlm(answer)
    profiles = [Profile(name="plain"), Profile(name="tickets", output=Ticket)]

    async with Engine.open("sqlite://", model=model, profiles=profiles, tools=["spawn_agents"]) as engine:
        conversation = await engine.create()
        turn = await conversation.send("Go")
        (result,) = [message.text for message in await conversation.transcript() if message.role == "tool"]
        report = await conversation.replay()

    assert turn.reply == "Done."
    assert json.loads(result)["agents"] == [
        {"status": "completed", "result": GIVEN},
        {"status": "completed", "result": "Hello"},
    ]
    assert report.divergence is None
