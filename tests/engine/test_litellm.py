"""The engine with litellm over a real socket: what a provider may do to a conversation, and what is made of it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.support.servers.model_server import OPENAI, Answer, Data, ModelServer, Pause, Raw, Tokens, answers
from tests.support.servers.model_server import Reply as UnfinishedAnswersReply
from tests.support.servers.model_server import fails as unfinished_answers_fails
from turnwise import (
    ConfigurationError,
    Conversation,
    Engine,
    File,
    Limits,
    LiteLlm,
    Message,
    Policy,
    Retry,
    Settings,
    Turn,
    tool,
)
from turnwise.effects.model.system_message import MEMORY_TITLE
from turnwise.states import LlmFailed, Usage
from turnwise.testing import ManualClock

from ..effects.schemas.test_schemas import ODD, TEXT, has
from ..support.cases import holds_for
from ..support.engine_scenarios import results
from ..support.pictures import PNG
from ..support.servers.mcp_programs import Program, listed
from ..support.servers.openai_server import (
    Body,
    OpenAiServer,
    Reply,
    calls,
    drops_after,
    fails,
    hangs,
    has_no_choices,
    never_ends,
    says,
    sends,
)

# --- The engine with litellm over a real socket: what a provider may do to a conversation, and what becomes of it.


QUICK = Policy(retry=Retry(base=0.01))
QUESTION = {"question": "When?", "options": [{"label": "6:30 PM"}, {"label": "8:15 PM"}]}


@tool(crash="pure")
async def find_table(cuisine: str, party: int) -> list[str]:
    """Look for free tables."""
    return [f"{cuisine} for {party} at 6:30 PM", f"{cuisine} for {party} at 8:15 PM"]


def model_at(server: OpenAiServer, name: str = "openai/test") -> LiteLlm:
    """Return a model that is served by the server."""
    return LiteLlm(name, api_base=server.url, api_key="test")


async def roles(conversation: Conversation) -> list[str]:
    """Return the roles, in order."""
    return [message.role for message in await conversation.transcript()]


async def test_a_conversation_end_to_end(database: Path) -> None:
    """Streamed text, tool calls in fragments, a question in the middle of a round, the answer, the reply (P13, P14)."""
    first = calls(
        ("find_table", {"cuisine": "Sushi", "party": 2}),
        ("ask_user_question", {"questions": [QUESTION]}),
        ("find_table", {"cuisine": "Ramen", "party": 2}),
        text="Let me look.",
    )
    async with (
        OpenAiServer([first, says("Booked ", "for 6:30.")]) as server,
        Engine.open(database, model=model_at(server), tools=[find_table, "ask_user_question"]) as engine,
    ):
        conversation = await engine.create(system="You book tables.")
        asked = await conversation.send("A table for two")
        turn = await conversation.answer({"When?": "6:30 PM"})

        assert asked.status == "awaiting_user"
        assert turn.reply == "Booked for 6:30."
        assert await roles(conversation) == ["user", "assistant", "tool", "tool", "tool", "assistant"]
        assert (await conversation.replay()).divergence is None
        assert turn.usage.tokens == 30


async def test_ids_that_repeat_on_the_wire(database: Path) -> None:
    """P29: repeated and empty call ids, also within one response: the strict server accepts every request."""
    wanted = ("find_table", {"cuisine": "Sushi", "party": 2})
    script = [
        calls(wanted, wanted, ids=["call_0", "call_0"]),
        says("One."),
        calls(wanted, wanted, ids=["", ""]),
        says("Two."),
    ]
    async with (
        OpenAiServer(script) as server,
        Engine.open(database, model=model_at(server), tools=[find_table]) as engine,
    ):
        conversation = await engine.create()
        first, second = await conversation.send("Once"), await conversation.send("Twice")
        ids = [m.tool_call_id for m in await conversation.transcript() if m.role == "tool"]

        assert (first.reply, second.reply) == ("One.", "Two.")
        assert len(set(ids)) == 4


async def test_a_cancel_closes_the_connection(database: Path) -> None:
    """P8: after a cancel the connection is closed, what was streamed is kept, with what it has cost by litellm's count,
    and the next turn has its own request, which shows it."""
    script = [hangs("half a "), says("Whole.")]
    async with OpenAiServer(script) as server, Engine.open(database, model=model_at(server)) as engine:
        conversation = await engine.create()
        turn = asyncio.ensure_future(conversation.send("Hi"))
        await server.asked()
        async for update in conversation.updates():
            if update.type == "token":
                break
        await conversation.cancel()
        await server.left()
        again = await conversation.send("Again")

        stopped = await turn
        assert (stopped.status, stopped.final_content, stopped.reply) == ("cancelled", "half a ", "")
        assert stopped.usage == Usage(input_tokens=8, output_tokens=3, estimated=True)
        assert again.reply == "Whole."
        assert [m.text for m in await conversation.transcript()] == ["Hi", "half a ", "Again", "Whole."]
        assert [(m["role"], m["content"]) for m in server.requests[-1]["messages"]] == [
            ("user", "Hi"),
            ("assistant", "half a "),
            ("user", "(The user stopped your answer here.)\n\nAgain"),
        ]


@pytest.mark.parametrize(
    "passing",
    [fails(429, retry_after="0.02"), fails(500), drops_after("Half an ans"), has_no_choices(), sends("<html>")],
    ids=["429", "500", "dropped", "empty choices", "garbage"],
)
async def test_what_passes_is_tried_again(database: Path, passing: object) -> None:
    """P11: after one transient failure there is one answer, and nothing of the first attempt."""
    async with (
        OpenAiServer([passing, says("Here.")]) as server,  # type: ignore[list-item]
        Engine.open(database, model=model_at(server), policy=QUICK) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("Hi")

        assert turn.reply == "Here."
        assert [m.text for m in await conversation.transcript()] == ["Hi", "Here."]
        assert len(server.requests) == 2


async def test_the_next_model_takes_over(database: Path) -> None:
    """P11: after three failures of the first model the second one is used until the end of the turn."""
    async with (
        OpenAiServer([fails(503)] * 3) as first,
        OpenAiServer([calls(("find_table", {"cuisine": "Sushi", "party": 2})), says("Second here.")]) as second,
        Engine.open(
            database,
            model=model_at(first, "openai/first"),
            fallback_models=[model_at(second, "openai/second")],
            tools=[find_table],
            policy=QUICK,
        ) as engine,
    ):
        turn = await (await engine.create()).send("Hi")

        assert turn.reply == "Second here."
        assert (len(first.requests), len(second.requests)) == (3, 2)


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_what_cannot_pass_fails_at_once(database: Path, status: int) -> None:
    """P11, P33: a permanent failure makes one request, and its sentence holds nothing of the provider's payload."""
    refusal = fails(status, "the secret detail {'error': 1}")
    async with (
        OpenAiServer([refusal, says("Better.")]) as server,
        Engine.open(database, model=model_at(server)) as engine,
    ):
        conversation = await engine.create()
        failed = await conversation.send("Hi")
        again = await conversation.send("Once more")

        assert failed.status == "failed"
        assert failed.failure is not None
        assert "secret" not in failed.failure
        assert "\n" not in failed.failure
        assert again.reply == "Better."


async def test_a_slow_answer_runs_into_the_deadline(database: Path) -> None:
    """The deadline limits the whole call, however slowly the pieces come: the connection is closed and it retries."""
    settings = Settings(llm_chat_timeout_sec=0.3)
    async with (
        OpenAiServer([never_ends(), says("In time.")]) as server,
        Engine.open(database, model=model_at(server), policy=QUICK, settings=settings) as engine,
    ):
        turn = await (await engine.create()).send("Hi")
        await server.left()

        assert turn.reply == "In time."


async def test_a_cut_off_response(database: Path) -> None:
    """P41: cut-off calls have results that say so, and the model is asked again; a cut-off text ends the turn."""
    cut = calls(("find_table", '{"cuisine": "Su'), finish_reason="length")
    async with (
        OpenAiServer([cut, says("As far as I", finish_reason="length")]) as server,
        Engine.open(database, model=model_at(server), tools=[find_table]) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("Hi")
        said = await conversation.transcript()

        assert (turn.reply, turn.truncated) == ("As far as I", True)
        assert "cut off" in said[2].text
        assert said[2].error


async def test_half_characters_cannot_get_in(database: Path) -> None:
    """A lone surrogate is replaced, and an emoji that was cut in two pieces is joined."""
    async with (
        OpenAiServer([says("a\ud83d", "\ude00b\ud800")]) as server,
        Engine.open(database, model=model_at(server)) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("Hi")

        assert turn.reply == "a😀b�"
        assert (await conversation.replay()).divergence is None


# --- The arguments that models write, over a real socket: what runs, what is stored, and what the model reads of them.


BIG = 2**63 + 12_345


class Line(BaseModel):
    """One line of an order."""

    sku: str
    count: int = 1


SCHEMA = {
    "type": "object",
    "properties": {
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "note": {"type": "string"},
        "limit": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "express": {"type": "boolean"},
    },
    "$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}}},
}


class Shop:
    """Tools that note what they were called with: one with types, one with a schema, one without parameters."""

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.tools = [
            tool(self.order, crash="pure"),
            tool(self.order_by_schema, crash="pure", parameters=SCHEMA),
            tool(self.status, crash="pure"),
        ]

    async def order(self, lines: list[Line], note: str = "", limit: float | None = None, express: bool = False) -> str:
        """Order."""
        self.ran.append(
            {"lines": [line.model_dump(exclude_unset=True) for line in lines], "note": note}
            | ({"limit": limit, "express": express} if limit or express else {})
        )
        return "Ordered."

    async def order_by_schema(self, **given: Any) -> str:
        """Order."""
        self.ran.append({"note": "", **given})
        return "Ordered."

    async def status(self) -> str:
        """Tell the status."""
        self.ran.append({})
        return "Fine."


ARGUMENTS_QUICK = Policy(retry=Retry(attempts=2, base=0.0))


def arguments_model_at(server: OpenAiServer) -> LiteLlm:
    """A model that is served by the server."""
    return LiteLlm("openai/test", api_base=server.url, api_key="test")


async def result_of(conversation: Conversation) -> Message:
    """The result of the only call."""
    (result,) = [message for message in await conversation.transcript() if message.role == "tool"]
    return result


async def run(name: str, written: str) -> tuple[list[Any], str, list[dict[str, Any]]]:
    """What a call with these arguments ran with, its result, and the messages of the next request."""
    shop = Shop()
    async with (
        OpenAiServer([calls((name, written)), says("Done.")]) as server,
        Engine.open("sqlite://", model=arguments_model_at(server), tools=shop.tools) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("Go")

        assert turn.reply == "Done."
        assert (await conversation.replay()).divergence is None
        return shop.ran, (await result_of(conversation)).text, server.requests[-1]["messages"]


@pytest.mark.slow
@holds_for("name", ["order", "order_by_schema"])
@holds_for(
    ("written", "ran"),
    [
        (json.dumps(json.dumps({"lines": [{"sku": "a"}]})), {"lines": [{"sku": "a"}], "note": ""}),
        (json.dumps({"lines": '[{"sku": "7", "count": "2"}]'}), {"lines": [{"sku": "7", "count": 2}], "note": ""}),
        (json.dumps({"lines": ['{"sku": "a", "count": 2.0}']}), {"lines": [{"sku": "a", "count": 2}], "note": ""}),
        ('{"lines": [], "note": "one\ntwo\tthree"}', {"lines": [], "note": "one\ntwo\tthree"}),
        (json.dumps('{"lines": [], "note": "one\ntwo"}'), {"lines": [], "note": "one\ntwo"}),
        ('{"lines": [], "note": "[1]"}', {"lines": [], "note": "[1]"}),
        ('{"lines": [], "note": "7"}', {"lines": [], "note": "7"}),
        (f'{{"lines": [{{"sku": "a", "count": {BIG}}}]}}', {"lines": [{"sku": "a", "count": BIG}], "note": ""}),
        (f'{{"lines": [{{"sku": "a", "count": "{BIG}"}}]}}', {"lines": [{"sku": "a", "count": BIG}], "note": ""}),
        (f'{{"lines": [{{"sku": "a", "count": {BIG}.0}}]}}', {"lines": [{"sku": "a", "count": BIG}], "note": ""}),
        (
            '{"lines": "[]", "limit": "9.5", "express": "True"}',
            {"lines": [], "note": "", "limit": 9.5, "express": True},
        ),
        ('\ufeff{"lines": []}', {"lines": [], "note": ""}),
        ('{"lines": [1], "lines": []}', {"lines": [], "note": ""}),
        ('{"lines": [], "note": "\\ud83d"}', {"lines": [], "note": "\ufffd"}),
    ],
)
async def test_arguments_run_as_they_were_meant(name: str, written: str, ran: dict[str, Any]) -> None:
    """A function and a schema take the same, and the model reads its call as it ran."""
    found, _, messages = await run(name, written)

    assert found == [ran]
    (sent,) = [call for message in messages for call in message.get("tool_calls", ())]
    stored = json.loads(sent["function"]["arguments"])
    assert {"note": "", **stored} == {**ran, **{key: stored[key] for key in stored.keys() & ran.keys()}}


@pytest.mark.slow
@holds_for("written", ["", " \n", "null", "{}", '""', '"{}"', '"null"', '" "'])
async def test_no_arguments_may_be_written_in_many_ways(written: str) -> None:
    """A tool without parameters runs."""
    ran, result, _ = await run("status", written)

    assert (ran, result) == ([{}], "Fine.")


@pytest.mark.slow
@holds_for(
    ("name", "written"),
    [
        ("status", "[]"),
        ("status", "0"),
        ("order", 'call: {"lines": []}'),
        ("order", "{'lines': []}"),
        ("order", '{"lines": [],}'),
        ("order", '```\n{"lines": []}\n```'),
        ("order", '{"lines": []} as you wished'),
        ("order", '{"lines": []}<|call|>'),
        ("order", '{"lines": ['),
        ("order_by_schema", '{"limit": NaN}'),
        ("order_by_schema", '{"limit": 1e999}'),
        ("order_by_schema", '{"lines": ' + "[" * 5_000 + "]" * 5_000 + "}"),
        ("order_by_schema", '{"limit": ' + "9" * 20_000 + "}"),
        ("nobody", '{"a": '),
    ],
)
async def test_what_is_no_object_is_an_error_that_quotes_it(name: str, written: str) -> None:
    """The strict server takes the request, and the model reads what is wrong and what it wrote."""
    ran, result, messages = await run(name, written)

    assert ran == []
    assert result.startswith(("Invalid input: the arguments are not a JSON object", "There is no tool called nobody"))
    (sent,) = [call for message in messages for call in message.get("tool_calls", ())]
    (told,) = [message["content"] for message in messages if message["role"] == "tool"]
    assert isinstance(json.loads(sent["function"]["arguments"]), dict)
    assert f"You wrote: {written[:1_900]}" in told or sent["function"]["arguments"] == written
    assert len(told) < 3_000


@pytest.mark.parametrize("written", ['{"lines": []} {"lines": []}', '{"lines": []}{"lines": ["a"'])
async def test_a_call_behind_whose_end_another_object_begins_is_asked_for_again(written: str) -> None:
    """Nobody knows whether it is one call or two, so none runs."""
    shop = Shop()
    async with (
        OpenAiServer([calls(("order", written)), says("Done.")]) as server,
        Engine.open("sqlite://", model=arguments_model_at(server), tools=shop.tools, policy=ARGUMENTS_QUICK) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("Go")
        said = [message.role for message in await conversation.transcript()]

    assert (turn.reply, shop.ran, said) == ("Done.", [], ["user", "assistant"])
    assert len(server.requests) == 2


@pytest.mark.slow
@holds_for(
    ("name", "written", "field"),
    [
        ("order", '{"lines": "a, b"}', "lines"),
        ("order", '{"lines": [], "limit": "nine"}', "limit"),
        ("order", '{"lines": [{"sku": "a", "count": 1.5}]}', "lines.0.count"),
        ("order", '{"lines": [{"sku": 7}]}', "lines.0.sku"),
        ("order", '{"arguments": {"lines": []}}', "lines"),
        ("order", '{"lines": null}', "lines"),
        ("order_by_schema", '{"lines": "a, b"}', "lines"),
        ("order_by_schema", '{"lines": [{"count": "x"}]}', "lines.0.count"),
        ("order_by_schema", '{"express": "yes"}', "express"),
        ("order_by_schema", '{"note": ["a"]}', "note"),
    ],
)
async def test_what_does_not_fit_is_an_error_that_names_the_field(name: str, written: str, field: str) -> None:
    """The model reads its call as it wrote it."""
    ran, result, messages = await run(name, written)

    assert ran == []
    assert f"{field}: " in result
    (sent,) = [call for message in messages for call in message.get("tool_calls", ())]
    assert sent["function"]["arguments"] == written


# --- arguments that a person has changed


class Bank:
    """A tool whose calls a person approves."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.tool = tool(self.pay, approval=True)

    async def pay(self, to: str, amount: int) -> str:
        """Pay."""
        self.paid.append((to, amount))
        return json.dumps({"paid": amount})


WRITTEN, EDITED = {"to": "ann", "amount": 500}, {"to": "ann", "amount": 5}
NOTE = f"(A person changed the arguments of this call. It was made with these instead: {json.dumps(EDITED)})"


def results_in(body: dict[str, Any]) -> list[str]:
    """The results in a request."""
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


async def test_the_model_reads_which_arguments_ran_also_later(database: Path, tmp_path: Path) -> None:
    """In the next request, after a restart, in a fork and in an exported log; the log keeps both, and people see the
    result alone."""
    bank = Bank()
    script = [calls(("pay", WRITTEN)), *[says("Done.") for _ in range(3)]]
    async with OpenAiServer(script) as server:
        async with Engine.open(database, model=arguments_model_at(server), tools=[bank.tool]) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Pay 500")
            done = await conversation.approve(str(turn.call_id), True, arguments=EDITED)
            result = await result_of(conversation)
        async with Engine.open(database, model=arguments_model_at(server), tools=[bank.tool]) as engine:
            again = await engine.get(conversation.id)
            await again.send("And now?")
            fork = await again.fork()
            await fork.send("And here?")
            asked = [message.tool_calls[0].arguments for message in await fork.transcript() if message.tool_calls]
            assert (await again.replay()).divergence is None

        assert bank.paid == [("ann", 5)]
        assert done.reply == "Done."
        assert (result.text, json.loads(result.edited_arguments), asked) == ('{"paid": 5}', EDITED, [WRITTEN])
        assert [results_in(body) for body in server.requests[1:]] == [['{"paid": 5}\n\n' + NOTE]] * 3
        calls_sent = [
            m["tool_calls"][0]["function"]["arguments"] for m in server.requests[-1]["messages"] if "tool_calls" in m
        ]
        assert list(map(json.loads, calls_sent)) == [WRITTEN]


@pytest.mark.parametrize(
    ("allowed", "arguments", "told", "paid"),
    [
        (True, None, '{"paid": 500}', [("ann", 500)]),
        (True, {"amount": 500, "to": "ann"}, '{"paid": 500}', [("ann", 500)]),
        (True, {"to": "ann", "amount": "5"}, '{"paid": 5}\n\n' + NOTE.replace("5}", '"5"}'), [("ann", 5)]),
        (False, EDITED, None, []),
    ],
)
async def test_a_note_stands_only_where_something_was_changed(
    allowed: bool, arguments: Any, told: str | None, paid: list[tuple[str, int]]
) -> None:
    """Not where the same arguments were given, and not where the call did not run."""
    bank = Bank()
    async with (
        OpenAiServer([calls(("pay", WRITTEN)), says("Done.")]) as server,
        Engine.open("sqlite://", model=arguments_model_at(server), tools=[bank.tool]) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("Pay 500")
        await conversation.approve(str(turn.call_id), allowed, arguments=arguments)

        (result,) = results_in(server.requests[-1])
        assert bank.paid == paid
        assert result == told if told is not None else "A person changed" not in result


# --- Enrichment with litellm over a real socket: what a provider answers, and what becomes of it.


class Server(OpenAiServer):
    """A model's service that says "Yes.", and answers a request for the terms of a search with this reply."""

    def __init__(self, terms: Reply) -> None:
        self.bodies: list[Body] = []
        self._terms = terms
        super().__init__(self._choose)

    def _choose(self, body: Body) -> Reply:
        self.bodies.append(body)
        return self._terms if self.is_enrichment(body) else says("Yes.", tokens=(10, 5))

    def is_enrichment(self, body: Body) -> bool:
        """Whether this is a request for the terms of a search."""
        return '{"keywords"' in str(body["messages"][0]["content"])


async def converse(server: OpenAiServer, settings: Settings | None = None) -> Turn:
    """Have something said, and after an hour be asked about it in another conversation. Return that turn."""
    clock = ManualClock()
    model = LiteLlm("openai/test", api_base=server.url, api_key="test")
    async with Engine.open("sqlite://", model=model, clock=clock, settings=settings) as engine:
        await (await engine.create(owner="anna")).send("My cat is called Miuku.")
        await clock.advance(3_600)
        conversation = await engine.create(owner="anna", policy=Policy(recall=True))
        return await conversation.send("What is my cat called?")


async def test_what_a_model_names_is_found() -> None:
    """J4: the request has no tools, and what it used counts for the turn."""
    answer = 'Here it is:\n```json\n{"keywords": ["cat"], "from": "2026-01-01", "to": null}\n```'
    async with Server(says(answer, tokens=(100, 20))) as server:
        turn = await converse(server)

    (enrichment,) = filter(server.is_enrichment, server.bodies)
    recalled = server.bodies[-1]["messages"][-1]["content"]
    assert [one["role"] for one in enrichment["messages"]] == ["system", "user"]
    assert "tools" not in enrichment
    assert turn.usage.tokens == 120 + 15
    assert f"{MEMORY_TITLE}\n" in recalled and "  My cat is called Miuku." in recalled


@pytest.mark.slow
@pytest.mark.parametrize(
    "terms",
    [
        says("I cannot say."),
        says('{"keywords": [["cat"], {"a": 1}, null]}'),
        has_no_choices(),
        fails(500),
        fails(429),
        sends("{"),
    ],
    ids=["no JSON", "no keywords", "no choices", "500", "429", "garbage"],
)
async def test_a_provider_that_fails_leaves_the_past_out(terms: Reply) -> None:
    """J4: the turn goes on, and nothing is asked twice."""
    await check_the_past_is_left_out(terms)


async def test_a_provider_that_hangs_leaves_the_past_out() -> None:
    """J4, J19: after the seconds of the setting."""
    await check_the_past_is_left_out(hangs(), Settings(llm_tools_timeout_sec=0.5))


async def check_the_past_is_left_out(terms: Reply, settings: Settings | None = None) -> None:
    """Have a provider answer the request for the terms of a search like this."""
    async with Server(terms) as server:
        turn = await converse(server, settings)

    assert turn.reply == "Yes."
    assert sum(map(server.is_enrichment, server.bodies)) == 1
    assert MEMORY_TITLE not in str(server.bodies[-1])


# --- Content that providers refuse, with litellm over a real socket: the conversation goes on, whoever refuses it how.


REFUSALS_OF_PROVIDERS_QUICK = Policy(retry=Retry(attempts=2, base=0.01))

NO_EYES = [
    (400, "unknown variant `image_url`, expected `text` at line 1 column 4795", None),
    (404, "No endpoints found that support image input", None),
    (400, "This model does not support image input", None),
    (400, "At most 0 image(s) may be provided in one request.", None),
]
FILTERS = [
    (400, "The response was filtered due to the prompt.", "content_filter"),
    (400, "Invalid prompt: flagged as violating our usage policy.", "invalid_prompt"),
]


@tool(crash="pure")
async def look() -> Any:
    """Take a picture."""
    return ["A door:", File(PNG)]


@tool(crash="pure")
async def fetch() -> str:
    """Fetch a page."""
    return "FORBIDDEN words"


class Script:
    """Refuses each request that holds `word`, calls the tool that the newest message of the user names, and answers
    every other request. `refused` counts the requests that were refused."""

    def __init__(self, word: str, status: int, message: str, code: str | None) -> None:
        self._word, self._refusal = word, fails(status, message, code=code)
        self.refused = 0

    def __call__(self, body: Body) -> Reply:
        """Return the reply to a request."""
        if self._word in json.dumps(body["messages"]):
            self.refused += 1
            return self._refusal
        last = body["messages"][-1]
        named = [name for name in ("look", "fetch") if last["role"] == "user" and name in str(last["content"])]
        return calls((named[0], {})) if named else says("Fine.")


def engine_at(server: OpenAiServer, name: str = "openai/test", **options: Any) -> Engine:
    """An engine whose model is the server."""
    model = LiteLlm(name, api_base=server.url, api_key="test", **options)
    return Engine.open("sqlite://", model=model, tools=[look, fetch], policy=REFUSALS_OF_PROVIDERS_QUICK)


@pytest.mark.slow
@pytest.mark.parametrize(("status", "message", "code"), NO_EYES)
async def test_an_image_for_a_model_without_eyes(status: int, message: str, code: str | None) -> None:
    """The image of a user and that of a tool give way, and are refused once."""
    for texts in (("What is this?", "Go on"), ("look", "Go on")):
        script = Script("image_url", status, message, code)
        async with OpenAiServer(script) as server, engine_at(server) as engine:
            conversation = await engine.create()
            images = [PNG] if texts[0] != "look" else []
            turns = [await conversation.send(texts[0], files=images), await conversation.send(texts[1])]

        assert [turn.status for turn in turns] == ["completed", "completed"]
        assert script.refused == 1


@pytest.mark.parametrize(("status", "message", "code"), FILTERS)
async def test_a_filter(status: int, message: str, code: str | None) -> None:
    """A message fails its turn alone, and a result none."""
    script = Script("FORBIDDEN", status, message, code)
    async with OpenAiServer(script) as server, engine_at(server) as engine:
        conversation = await engine.create()
        turns = [await conversation.send(text) for text in ("Hello", "FORBIDDEN", "Go on", "fetch", "Thanks")]

    assert [turn.status for turn in turns] == ["completed", "failed", "completed", "completed", "completed"]
    assert script.refused == 2


async def test_what_one_conversation_has_learned_helps_the_others() -> None:
    """A model that has refused two requests with images is sent none by any conversation of the engine."""
    script = Script("image_url", *NO_EYES[0])
    async with OpenAiServer(script) as server, engine_at(server) as engine:
        turns = [await (await engine.create()).send("What is this?", files=[PNG]) for _ in range(4)]

    assert [turn.status for turn in turns] == ["completed"] * 4
    assert script.refused == 2


@pytest.mark.parametrize("name", ["azure/o1-mini", "openai/test"])
async def test_a_model_that_is_known_to_take_no_images_is_sent_none(name: str) -> None:
    """Because litellm's list says so, or the application does."""
    known: dict[str, Any] = {"model": "openai/test", "takes": {"image": False}} if name == "openai/test" else {}
    model = LiteLlm(name, **known)

    assert model.takes("image") is False


# --- Tools of servers and applications over litellm and a real socket: none of them fails the turns of the others.


ONCE = Policy(retry=Retry(attempts=1))
ALL = [listed("good", has(a=TEXT)), *(listed(f"odd{n}", schema) for n, schema in enumerate(ODD.values()))]


def offered(body: Body) -> list[str]:
    """Return the names of the tools in a request."""
    return [one["function"]["name"] for one in body.get("tools", [])]


@tool(parameters=has(**{"$filter": TEXT, "list of": {"type": "array", "items": has(**{"my key": TEXT})}}))
def search(**arguments: Any) -> str:
    """Search."""
    return json.dumps(arguments)


def many(count: int) -> Sequence[Any]:
    """Return this many tools."""
    return [tool(lambda: "", name=f"tool{n}", description=f"Tool {n}.") for n in range(count)]


class TestOdd:
    """What servers list."""

    @pytest.mark.slow
    async def test_every_odd_tool_is_offered_beside_a_good_one(self, database: Path, tmp_path: Path) -> None:
        """In one request, which the strictest provider takes."""
        server = Program(tmp_path / "s", ALL).server()
        async with (
            OpenAiServer([says("Fine.")]) as provider,
            Engine.open(database, model=model_at(provider), mcps={"s": server}, policy=ONCE) as engine,
        ):
            turn = await (await engine.create()).send("Hi")

        assert turn.reply == "Fine."
        assert len(offered(provider.requests[0])) == len(ALL)

    @pytest.mark.parametrize("encoded", [0, 1, 2])
    async def test_names_of_properties_come_back(self, encoded: int, database: Path) -> None:
        """A call is checked, stored and run under the properties' own names, also if its arguments were encoded more
        than once."""
        written: Any = {"filter": "a", "list_of": [{"my_key": "b"}]}
        for _ in range(encoded):
            written = json.dumps(written)
        async with (
            OpenAiServer([calls(("search", written)), says("Found.")]) as provider,
            Engine.open(database, model=model_at(provider), tools=[search], policy=ONCE) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("Hi")
            (result,) = results(await conversation.transcript())

        assert json.loads(result) == {"$filter": "a", "list of": [{"my key": "b"}]}


class TestLeftOut:
    """What cannot be offered is told."""

    async def test_too_many(self, database: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The first ones are offered, also in the list in the system message, and one warning tells the others."""
        caplog.set_level(logging.WARNING, "turnwise.tools")
        async with (
            OpenAiServer([says("One."), says("Two.")]) as provider,
            Engine.open(database, model=model_at(provider), tools=many(131), policy=ONCE) as engine,
        ):
            conversation = await engine.create()
            for text in ("Hi", "Hi again"):
                await conversation.send(text)

        assert [offered(body) for body in provider.requests] == [[f"tool{n}" for n in range(128)]] * 2
        assert "tool128" not in json.dumps(provider.requests)
        assert len(caplog.records) == 1
        assert "The tool tool130 is left out" in caplog.text

    @pytest.mark.slow
    async def test_the_check_tells_them(self, tmp_path: Path) -> None:
        """A sentence for each tool, those of servers too."""
        bad = listed("bad", {"type": "object", "$ref": "https://example.com/x"})
        server = Program(tmp_path / "s", [listed("good"), bad]).server()
        async with (
            OpenAiServer() as provider,
            Engine.open("sqlite://", model=model_at(provider), tools=many(128), mcps={"s": server}) as engine,
        ):
            told = await engine.check()

        assert told == (
            "A tool of s is left out: The schema of s:bad refers to https://example.com/x, which is not in it.",
            "The tool s:good is left out if all are offered together: a request holds at most 128 tools.",
        )

    async def test_the_check_tells_nothing_if_all_are_offered(self) -> None:
        """And raises for what stands in the way of every turn."""
        async with OpenAiServer() as provider:
            assert await Engine.open("sqlite://", model=model_at(provider), tools=[search]).check() == ()
        with pytest.raises(ConfigurationError):
            await Engine.open("sqlite://", model="nobody/knows").check()


# --- Answers that break off, go quiet or take long, over a real socket: they end when they should, and count.


PRICES = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
TOLD = Data({"choices": [], "usage": {"prompt_tokens": 500, "completion_tokens": 50, "total_tokens": 550}})
WHOLE = answers("Whole.", usage=Tokens(500, 60))


@asynccontextmanager
async def conversing(
    *replies: UnfinishedAnswersReply, limits: Limits | None = None, silence: float = 20.0, whole: float = 60.0
) -> AsyncIterator[Conversation]:
    """Talk to a server that answers like this."""
    policy = Policy(retry=Retry(attempts=3, base=0.01), **({} if limits is None else {"limits": limits}))
    settings = Settings(llm_chat_timeout_sec=silence, llm_chat_whole_timeout_sec=whole)
    async with ModelServer(replies) as server:
        model = server.llm(OPENAI.model, **PRICES)
        async with Engine.open("sqlite://", model=model, policy=policy, settings=settings) as engine:
            yield await engine.create()


class TestAnAnswerThatBreaksOff:
    """It has been paid for."""

    async def test_it_counts_as_its_provider_says(self) -> None:
        """For the turn and for the conversation, with its cost."""
        async with conversing(answers("Half an ans", TOLD, end="breaks_off"), WHOLE) as conversation:
            turn = await conversation.send("Hi")
            total = await conversation.usage()

        assert turn.usage == total
        assert (turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.estimated) == (1000, 110, False)
        assert turn.usage.cost == pytest.approx(1000e-6 + 220e-6)

    async def test_it_is_estimated_where_the_provider_says_nothing(self) -> None:
        """By what has come of it."""
        async with conversing(answers("Half an answer. " * 10, end="breaks_off"), WHOLE) as conversation:
            turn = await conversation.send("Hi")

        assert 60 + 35 < turn.usage.output_tokens < 60 + 45
        assert turn.usage.input_tokens > 500

    async def test_it_uses_up_the_limits_of_the_turn(self) -> None:
        """Then it is not asked for again."""
        broken = answers("Half an ans", TOLD, end="breaks_off")
        async with conversing(broken, broken, WHOLE, limits=Limits(tokens=1000)) as conversation:
            turn = await conversation.send("Hi")
            failures = [entry.event for entry in await conversation.events() if isinstance(entry.event, LlmFailed)]

        assert (turn.status, turn.limit, turn.usage.tokens) == ("failed", "tokens", 1100)
        assert len(failures) == 2

    async def test_a_request_that_was_refused_costs_nothing(self) -> None:
        """Nobody has read it."""
        async with conversing(unfinished_answers_fails(500, "no"), WHOLE) as conversation:
            turn = await conversation.send("Hi")

        assert turn.usage == Usage(input_tokens=500, output_tokens=60, cost=turn.usage.cost)


def slowly(*pieces: Any, pause: float) -> Answer:
    """Answer with these pieces, with a pause behind each."""
    return answers(*(one for piece in pieces for one in (piece, Pause(pause))))


class TestSilence:
    """A model that says nothing has hung; one that goes on writing has not."""

    async def test_an_answer_that_keeps_coming_is_let_finish(self) -> None:
        """However long it takes in all."""
        async with conversing(slowly(*("word " for _ in range(10)), pause=0.1), silence=0.6) as conversation:
            turn = await conversation.send("Hi")

        assert (turn.status, turn.reply) == ("completed", "word " * 10)

    @pytest.mark.parametrize("filler", [Raw(b": keep-alive\n\n"), ""], ids=["comments", "empty pieces"])
    async def test_what_is_no_piece_is_silence(self, filler: Any) -> None:
        """A server sends it to keep the connection open."""
        began = time.monotonic()
        async with conversing(slowly(*[filler] * 60, pause=0.05), WHOLE, silence=0.4) as conversation:
            turn = await conversation.send("Hi")

        assert turn.reply == "Whole."
        assert time.monotonic() - began < 2.9

    async def test_a_silent_answer_has_been_paid_for_as_far_as_it_came(self) -> None:
        """Estimated, since its provider never told."""
        async with conversing(answers("Half an ans", Pause(5)), WHOLE, silence=0.4) as conversation:
            turn = await conversation.send("Hi")

        assert turn.reply == "Whole."
        assert turn.usage.estimated
        assert turn.usage.output_tokens == 60 + 3

    async def test_the_whole_has_a_limit_of_its_own(self) -> None:
        """An answer that never ends is no answer."""
        endless = slowly(*("word " for _ in range(100)), pause=0.05)
        async with conversing(endless, WHOLE, silence=0.4, whole=0.6) as conversation:
            turn = await conversation.send("Hi")

        assert turn.reply == "Whole."


class TestAnAnswerThatIsCancelled:
    """What has come of it has been paid for."""

    async def test_it_counts_for_its_turn_and_for_the_conversation(self) -> None:
        """Estimated, because its provider had not told yet."""
        async with conversing(answers("Half an ans", Pause(5))) as conversation:
            shown = conversation.stream("Hi")
            async for update in shown:
                if update.type == "token":
                    break
            await conversation.cancel()
            total = await conversation.usage()
            turn = (await conversation.turns())[-1]

        assert turn.usage == total
        assert (total.output_tokens, total.estimated) == (3, True)
        assert total.cost is not None
        assert total.cost > 0
