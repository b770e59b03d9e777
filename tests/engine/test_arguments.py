"""The arguments that models write, over a real socket: what runs, what is stored, and what the model reads of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from turnwise import Conversation, Engine, LiteLlm, Message, Policy, Retry, tool

from ..support.cases import holds_for
from ..support.servers.openai_server import OpenAiServer, calls, says

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


QUICK = Policy(retry=Retry(attempts=2, base=0.0))


def model_at(server: OpenAiServer) -> LiteLlm:
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
        Engine.open("sqlite://", model=model_at(server), tools=shop.tools) as engine,
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
        Engine.open("sqlite://", model=model_at(server), tools=shop.tools, policy=QUICK) as engine,
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
        async with Engine.open(database, model=model_at(server), tools=[bank.tool]) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Pay 500")
            done = await conversation.approve(str(turn.call_id), True, arguments=EDITED)
            result = await result_of(conversation)
        async with Engine.open(database, model=model_at(server), tools=[bank.tool]) as engine:
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
        Engine.open("sqlite://", model=model_at(server), tools=[bank.tool]) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("Pay 500")
        await conversation.approve(str(turn.call_id), allowed, arguments=arguments)

        (result,) = results_in(server.requests[-1])
        assert bank.paid == paid
        assert result == told if told is not None else "A person changed" not in result
