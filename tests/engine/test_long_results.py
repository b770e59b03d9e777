"""What a model is shown of long and old results, and how it reads the rest: over a database, litellm and a socket."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise import Clearing, ConfigurationError, Engine, LiteLlm, Message, ModelRequest, ModelSpec, Policy, tool
from turnwise.effects.model.port import ModelAnswer
from turnwise.effects.shown_results import part_from, shown_part
from turnwise.states import LogEntry, Texts, ToolCall, Usage
from turnwise.testing import FunctionLlm, ScriptedLlm, call, crash_at_every_boundary, reply
from turnwise.testing.history import History
from turnwise.testing.laws import check_newest, clears_before_it_compacts, clears_old_results

from ..support.databases import BOTH_STORES, Database
from ..support.fault_profile import LONG
from ..support.servers.openai_server import OpenAiServer, calls, is_too_long, says

pytestmark = BOTH_STORES

TEXT = "".join(f"line {number}: {'é' * (number % 7)}\n" for number in range(9_000))
"""A hundred thousand characters and more, each part of which is different."""

LINE = Texts().result_cut
MARK = re.compile(r'read_result\(call_id="([^"]+)", from=(\d+)\)')
CLEARED = re.compile(r'not shown any more; read_result\(call_id="([^"]+)"\)')


@tool(crash="pure")
def read_book(number: int = 0) -> str:
    """Read a book."""
    return TEXT


@tool(crash="pure", max_result=300)
def read_page() -> str:
    """Read a page."""
    return TEXT


def results_in(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """The results among the messages that a provider is sent."""
    return [message["content"] for message in messages if message["role"] == "tool"]


def results_of(request: ModelRequest) -> list[str]:
    """The results in a request."""
    return results_in(request.messages)


def offered(request: ModelRequest) -> list[str]:
    """The names of the tools that a request offers."""
    return [definition["function"]["name"] for definition in request.tools]


def reads_on(request: ModelRequest) -> Any:
    """Read a book, and then on and on from where the newest result says that it was cut."""
    results = results_of(request)
    if not results:
        return call("read_book")
    found = MARK.search(results[-1])
    return reply("Read.") if found is None else call("read_result", call_id=found[1], **{"from": int(found[2])})


def types_of(entries: Iterable[LogEntry]) -> list[str]:
    """The types of the effects of these steps."""
    return [effect.type for entry in entries for effect in entry.effects]


async def called(conversation: Any, name: str) -> list[ToolCall]:
    """The calls of this tool so far."""
    transcript: list[Message] = await conversation.transcript()
    return [made for message in transcript for made in message.tool_calls if made.name == name]


class TestShownInPart:
    """`Policy.max_result`: of a longer result a request shows the beginning and the end."""

    @given(st.text(min_size=1), st.integers(200, 500), st.integers(1, 60))
    @settings(deadline=None)
    def test_piece_by_piece_nothing_is_lost(self, text: str, limit: int, times: int) -> None:
        """Whatever the text is, the parts give it back, no part is longer than the limit, and each is worth a call."""
        whole, place, read = text * times, 0, ""

        for _ in range(1 + len(whole) // 20):
            part = part_from(LINE, whole, "call_1_0", place, limit)
            assert len(part) <= limit
            found = MARK.search(part.rpartition("\n")[2])
            end = len(whole) if found is None or len(whole) - place <= limit else int(found[2])
            read, place = read + part[: end - place], end
            if place == len(whole):
                break

        assert read == whole

    @given(st.text(min_size=1), st.integers(200, 500))
    @settings(deadline=None)
    def test_the_beginning_the_end_and_where_to_read_on(self, text: str, limit: int) -> None:
        """The line between them names the call and the place behind the beginning."""
        whole = text * (1 + 600 // len(text))

        shown = shown_part(LINE, whole, 'a"b', limit)

        beginning, _, rest = shown.partition("\n[… ")
        assert whole.startswith(beginning) and whole.endswith(rest.rpartition("…]\n")[2])
        assert f'read_result(call_id="a\\"b", from={len(beginning)})' in shown
        assert len(shown) <= limit

    async def test_a_model_reads_all_of_it(self, database: Database) -> None:
        """The tool is offered once something is left out, and its answers are no longer than other results. The log
        holds the whole text, and every request can be written again as it was."""
        llm = FunctionLlm(reads_on)
        async with Engine.open(database, model=llm, tools=[read_book]) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Read it")
            parts = [message.text for message in await conversation.transcript() if message.role == "tool"]
            steps = [entry.seq for entry in await conversation.events() if entry.event.type == "tool_complete"]
            views = [await conversation.model_request(seq) for seq in steps]

            assert (turn.reply, (await conversation.replay()).divergence) == ("Read.", None)
        assert [offered(request) for request in llm.requests[:2]] == [["read_book"], ["read_book", "read_result"]]
        assert all(view.is_exact for view in views)
        assert parts[0] == TEXT
        beginning = results_of(llm.requests[1])[0].partition("\n[… ")[0]
        assert "".join((beginning, *(part.rpartition("\n[… ")[0] or part for part in parts[1:]))) == TEXT
        assert all(len(result) <= 20_000 for request in llm.requests for result in results_of(request))

    async def test_what_is_left_out_never_changes_what_stands_before_it(self, database: Database) -> None:
        """Providers cache the beginning of a request: each begins with all messages of the one before it."""
        llm = FunctionLlm(reads_on)
        async with Engine.open(database, model=llm, tools=[read_book]) as engine:
            await (await engine.create()).send("Read it")

        for one, other in pairwise(llm.requests):
            assert other.messages[: len(one.messages)] == one.messages

    async def test_a_tool_may_have_its_own_limit(self, database: Database) -> None:
        """`tool(max_result=…)`; it was noted with the call, so it holds after a restart without the tool."""
        answers = [call("read_page"), reply("Read."), reply("Again.")]
        llm = ScriptedLlm(answers)
        async with Engine.open(database, model=llm, tools=[read_page]) as engine:
            conversation = await engine.create()
            await conversation.send("Read it")
        async with Engine.open(database, model=llm, tools=[read_book]) as engine:
            await (await engine.get(conversation.id)).send("And now?")

        shown = [results_of(request)[0] for request in llm.requests[1:]]
        assert shown[0] == shown[1] and len(shown[0]) <= 300
        assert offered(llm.requests[2]) == ["read_book", "read_result"]

    async def test_short_results_need_no_tool(self) -> None:
        """What fits is shown as it is, and nothing else is offered."""
        llm = ScriptedLlm([call("read_book"), reply("Read.")])
        async with Engine.open("sqlite://", model=llm, tools=[read_book]) as engine:
            await (await engine.create(policy=Policy(max_result=len(TEXT)))).send("Read it")

        assert results_of(llm.requests[1]) == [TEXT]
        assert offered(llm.requests[1]) == ["read_book"]

    async def test_a_result_of_a_given_history(self) -> None:
        """It is shown and read like any other."""
        made = {"id": "old-1", "type": "function", "function": {"name": "read_book", "arguments": "{}"}}
        history = [
            {"role": "user", "content": "Read"},
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": "old-1", "content": TEXT},
        ]
        llm = ScriptedLlm([call("read_result", call_id="old-1", **{"from": len(TEXT) - 5}), reply("Read.")])
        async with Engine.open("sqlite://", model=llm) as engine:
            await (await engine.create(messages=history)).send("How does it end?")

        assert 'call_id="old-1"' in results_of(llm.requests[0])[0]
        assert results_of(llm.requests[1])[1] == TEXT[-5:]


class TestWhatCannotBeRead:
    """Each has an error result of one sentence, and the turn goes on."""

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ({"call_id": "call_9_9"}, "Error: There is no result of a call call_9_9 in this conversation."),
            ({"call_id": ""}, "Error: There is no result of a call  in this conversation."),
            ({"call_id": "x" * 5_000}, "Error: There is no result of a call xxx"),
            ({"call_id": "call_1_0", "from": -1}, "Error: Invalid input: from: Input should be greater than or equal"),
            ({}, "Error: Invalid input: call_id: Field required"),
        ],
    )
    async def test_unknown_calls_and_places(self, arguments: dict[str, Any], sentence: str) -> None:
        """Also where nothing was left out: the tool may always be called."""
        llm = ScriptedLlm([call("read_result", **arguments), reply("Well.")])
        async with Engine.open("sqlite://", model=llm) as engine:
            turn = await (await engine.create()).send("Read it")

        assert turn.reply == "Well."
        assert results_of(llm.requests[1])[0].startswith(sentence)

    async def test_a_place_behind_the_end(self) -> None:
        """The sentence says how long the result is."""
        llm = FunctionLlm(lambda request: answers.pop(0))
        answers: list[Any] = [call("read_book"), reply("Read.")]
        async with Engine.open("sqlite://", model=llm, tools=[read_book]) as engine:
            conversation = await engine.create()
            await conversation.send("Read it")
            (made,) = await called(conversation, "read_book")
            answers += [call("read_result", call_id=made.call_id, **{"from": len(TEXT)}), reply("Well.")]
            await conversation.send("And then?")

        said = f"Error: The result of that call has {len(TEXT):,} characters, so nothing begins at {len(TEXT):,}."
        assert results_of(llm.requests[-1])[-1] == said

    async def test_results_of_other_conversations_and_of_hidden_turns(self, database: Database) -> None:
        """A model reads what its own conversation shows, and nothing else."""
        answers: list[Any] = [call("read_book"), reply("Read.")] * 2
        llm = FunctionLlm(lambda request: answers.pop(0))
        async with Engine.open(database, model=llm, tools=[read_book]) as engine:
            one, other = await engine.create(), await engine.create()
            for conversation in (one, other):
                await conversation.send("Read it", message_id="m1")
            (of_one,), (of_other,) = await called(one, "read_book"), await called(other, "read_book")
            await one.rewind(to=0)
            for made in (of_one, of_other):
                answers += [call("read_result", call_id=made.call_id), reply("Well.")]
                await one.send("And then?")
                assert results_of(llm.requests[-1])[-1].startswith("Error: There is no result of a call")

    async def test_no_other_tool_has_its_name(self) -> None:
        """What a request says of it would be wrong otherwise."""
        with pytest.raises(ConfigurationError, match="read_result is a built-in tool"):
            Engine.open("sqlite://", model=ScriptedLlm([]), tools=[tool(read_book.function, name="read_result")])


WINDOW = 30_000


def counting(rounds: int) -> FunctionLlm:
    """A model that reads so many books, one in each round, and counts a token for every four characters."""

    def answer(request: ModelRequest) -> ModelAnswer:
        characters = sum(len(message["content"] or "") for message in request.messages)
        done = len(results_of(request))
        answer = call("read_book", number=done) if done < rounds else reply("Read.")
        return replace(answer, usage=Usage(input_tokens=characters // 4))

    return FunctionLlm(answer)


class TestCleared:
    """`Policy.clear_results`: near the window, old results give way to a line each, and nothing is summarized."""

    async def test_a_turn_of_many_results_is_never_compacted(self, database: Database) -> None:
        """Twelve results of 5,000 tokens go through a window of 30,000. Each request begins with the one before it,
        except where results were cleared, several at once; those are the same from then on."""
        llm = counting(12)
        policy = Policy(models=(ModelSpec(name="function", window=WINDOW),))
        async with Engine.open(database, model=llm, tools=[read_book]) as engine:
            conversation = await engine.create(policy=policy)
            turn = await conversation.send("Read them")
            types = types_of(await conversation.events())
            texts = [message.text for message in await conversation.transcript() if message.role == "tool"]
            steps = [entry.seq for entry in await conversation.events() if "request_llm" in types_of([entry])]
            views = [await conversation.model_request(seq) for seq in steps]

            assert (turn.reply, (await conversation.replay()).divergence) == ("Read.", None)
        assert all(view.is_exact for view in views)
        assert texts == [TEXT] * 12
        assert (types.count("clear_results"), types.count("compact_history")) == (3, 0)
        changed = [other.messages[: len(one.messages)] != one.messages for one, other in pairwise(llm.requests)]
        assert changed.count(True) == 3
        cleared = [[bool(CLEARED.search(result)) for result in results_of(request)] for request in llm.requests]
        assert cleared[-1] == [True] * 9 + [False] * 3
        assert all(one == other[: len(one)] or any(other) for one, other in pairwise(cleared))

    async def test_the_line_says_how_it_is_read_again(self, database: Database) -> None:
        """In a later turn, by another process, and from the beginning on."""
        policy = Policy(models=(ModelSpec(name="function", window=WINDOW),), clear_results=Clearing(rounds=1))
        async with Engine.open(database, model=counting(7), tools=[read_book]) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send("Read them")

        def asks_again(request: ModelRequest) -> Any:
            results = results_of(request)
            found = CLEARED.search(results[0])
            assert found is not None
            return call("read_result", call_id=found[1]) if len(results) == 7 else reply(results[-1][:7])

        async with Engine.open(database, model=FunctionLlm(asks_again), tools=[read_book]) as engine:
            turn = await (await engine.get(conversation.id)).send("How did the first one begin?")

        assert turn.reply == "line 0:"

    @pytest.mark.slow
    async def test_over_a_socket_a_request_that_is_too_long_is_sent_without_them(self, database: Database) -> None:
        """litellm and a server: the provider refuses the request for its length, whose window nobody knows. It is sent
        again without the old results, and nothing is summarized."""
        script = [calls(("read_book", {}))] * 5 + [is_too_long(), says("Read.")]
        policy = Policy(max_result=1_000)
        async with (
            OpenAiServer(script) as server,
            Engine.open(
                database, model=LiteLlm("openai/test", api_base=server.url, api_key="test"), tools=[read_book]
            ) as engine,
        ):
            conversation = await engine.create(policy=policy)
            turn = await conversation.send("Read them")
            types = types_of(await conversation.events())

        assert (turn.reply, turn.status) == ("Read.", "completed")
        assert (types.count("clear_results"), types.count("compact_history")) == (1, 0)
        refused, taken = (results_in(body["messages"]) for body in server.requests[-2:])
        assert [bool(CLEARED.search(result)) for result in refused] == [False] * 5
        assert [bool(CLEARED.search(result)) for result in taken] == [True, True, False, False, False]


BOOKS = 8
REMARK = "I have read it with care. " * 310
"""About 2,000 tokens, which no clearing takes away."""


def reads_books(request: ModelRequest) -> ModelAnswer:
    """Read one book after the other, with a remark on each, and say of those that are condensed how far they came.
    A token has four characters."""
    written = json.dumps(request.messages)
    done = max((int(number) for number in re.findall(r"number\W+(\d+)", written)), default=-1)
    said = "".join(str(message.get("content") or "") for message in request.messages)
    if "<record>" in said:
        answer = reply(f"number {done} was read last.")
    elif done + 1 < BOOKS:
        answer = replace(call("read_book", number=done + 1), content=REMARK)
    else:
        answer = reply("All are read.")
    return replace(answer, usage=Usage(input_tokens=len(said) // 4))


async def reads_through(database: Path) -> None:
    """A turn for which clearing is enough at first, and then is not. A process goes on with what the one before it has
    left."""
    rules = Policy(models=(ModelSpec(name="function", window=16_000),), clear_results=Clearing(rounds=1))
    async with Engine.open(database, model=FunctionLlm(reads_books), tools=[read_book]) as engine:
        known = await engine.list()
        conversation = await engine.get(known[0].id) if known else await engine.create(policy=rules)
        turn = await conversation.send("Read them", message_id="m1")
        read = [made.arguments["number"] for made in await called(conversation, "read_book")]
        entries = await conversation.events()
    assert (turn.reply, read) == ("All are read.", [*range(BOOKS)])
    history, cleared = History(), 0
    for entry in entries:
        history.take(entry.event)
        check_newest(history, clears_before_it_compacts, clears_old_results)
        if "clear_results" in types_of([entry]):
            before, cleared = cleared, sum(message.cleared for message in history.transcript)
            assert cleared > before, "nothing is cleared that was not cleared before"
    types = types_of(entries)
    assert types.count("clear_results") >= 2 and types.count("compact_history") >= 1


@pytest.mark.slow
@pytest.mark.faults
def test_no_crash_clears_twice_or_summarizes_what_clearing_has_room_for() -> None:
    """Whether the process is killed before the step that clears, behind it, or while a summary is written. The doctor
    finds nothing, and the log replays."""
    report = crash_at_every_boundary(reads_through, every=1 if LONG else 6)

    assert report.kills >= 10
