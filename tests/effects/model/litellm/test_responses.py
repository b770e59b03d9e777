"""OpenAI's Responses API over a real socket: what is asked there, and that the items of a response go back as they
came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from turnwise import Engine, ModelRequest, ModelSettings, ModelSpec, Output, Retry, presets, tool
from turnwise.effects.model.families import ITEMS
from turnwise.effects.model.litellm.loading import load_litellm
from turnwise.effects.model.litellm.response_request import response_arguments, stored_items
from turnwise.effects.model.litellm.responses import ResponseEvents
from turnwise.effects.model.openai.dialect import Dialect

from ....support.servers.model_server import (
    OPENAI,
    RESPONSES,
    Answer,
    Data,
    ModelServer,
    Pause,
    Tokens,
    answers,
    call,
    fails,
)

Item = dict[str, Any]

URL = "https://example.org/oslo"
QUICK = presets.assistant().replace(retry=Retry(attempts=1, base=0.0))
KEPT = QUICK.replace(keep_thinking="conversation")


@tool(crash="pure")
def note(text: str) -> str:
    """Note it."""
    return f"Noted {text}."


def reasoning(number: int) -> Item:
    """Return sealed reasoning, as the API writes it."""
    return {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": f"gAAA{number}=="}


def message(number: int, *texts: str, **more: Any) -> Item:
    """Return a message with a part for each text."""
    parts = [{"type": "output_text", "annotations": [], "text": text} for text in texts]
    return {"id": f"msg_{number}", "type": "message", "status": "completed", "content": parts, **more} | {
        "role": "assistant"
    }


def called(number: int, arguments: str = '{"text": "rain"}') -> Item:
    """Return a call of `note`."""
    call = {"arguments": arguments, "call_id": f"call_{number}", "name": "note"}
    return {"id": f"fc_{number}", "type": "function_call", "status": "completed", **call}


CITED = {"type": "url_citation", "end_index": 8, "start_index": 3, "title": "Oslo", "url": URL}
SEARCHED = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "queries": ["weather oslo"], "query": "weather oslo", "sources": None},
}
COMPUTED = {
    "id": "ci_1",
    "type": "code_interpreter_call",
    "status": "completed",
    "code": "print(2 + 2)",
    "container_id": "cntr_1",
    "outputs": None,
}
FOUND = {"id": "fs_1", "type": "file_search_call", "status": "completed", "queries": ["oslo"], "results": None}
SAID = message(2, "It rains.", " All day.", phase="final_answer")
SAID["content"][0] |= {"annotations": [CITED], "logprobs": []}
OUTPUT = [
    reasoning(1),
    SEARCHED,
    reasoning(2),
    COMPUTED,
    FOUND,
    message(1, "I look. ", phase="commentary"),
    reasoning(3),
    SAID,
]
CALLING = [*OUTPUT, reasoning(4), called(1), called(2, '{"text":  "snow"}')]


def streamed(items: Iterable[Item]) -> list[Data]:
    """Return the events of a response with these items, in the order in which the API sends them."""
    events: list[Item] = []
    for place, item in enumerate(items):
        at = {"output_index": place, "item_id": item.get("id")}
        begun = {**item, "status": "in_progress", **({"content": []} if "content" in item else {})}
        if "arguments" in item:
            begun["arguments"] = ""
        events.append({"type": "response.output_item.added", **at, "item": begun})
        for number, part in enumerate(item.get("content") or ()):
            told = {**at, "content_index": number, "delta": part["text"], "logprobs": []}
            events.append({"type": "response.output_text.delta", **told})
        if "arguments" in item:
            events.append({"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]})
        events.append({"type": "response.output_item.done", **at, "item": item})
    return [Data(one) for one in events]


def responds(*items: Item, finish: str | None = "", **more: Any) -> Answer:
    """Answer with these items."""
    return answers(*streamed(items), finish=finish, **more)


def faults(sent: Sequence[Item]) -> list[str]:
    """Why the API would refuse this input; empty if it would not."""
    found, owed, ids = [], set[str](), set[str]()
    for before, item in zip([{}, *sent], [*sent, {"type": "end"}], strict=True):
        kind, name = item["type"], item.get("id")
        if before.get("type") == "reasoning" and (kind == "reasoning" or "id" not in item):
            found.append(f"Item '{before['id']}' of type 'reasoning' was provided without its required following item.")
        if name in ids:
            found.append(f"Duplicate item found with id {name}.")
        ids |= {name} if name else set()
        if kind == "function_call_output":
            owed -= {item["call_id"]} if item["call_id"] in owed else found.append("No tool call found.") or set()
        elif owed and kind not in ("function_call", "reasoning"):
            found.append(f"No tool output found for function call {owed}.")
        owed |= {item["call_id"]} if kind == "function_call" else set()
        needed = {"ws_1": "rs_1", "ci_1": "rs_2", "msg_2": "rs_3", "fc_1": "rs_4"}.get(str(name))
        if needed and needed not in ids:
            found.append(f"Item '{name}' was provided without its required 'reasoning' item: '{needed}'.")
    return found


SCRIPT = [responds(*CALLING), responds(reasoning(5), message(3, "Noted.")), responds(message(4, "Bye."))]


class TestWhatGoesBack:
    """The items of a response."""

    async def test_all_of_it_goes_back_as_it_came(self) -> None:
        """With ids, phases, citations and what is sealed, in order, in front of the results of its calls."""
        async with (
            ModelServer(SCRIPT, RESPONSES) as server,
            Engine.open("sqlite://", model=server.llm(), tools=[note], policy=QUICK) as engine,
        ):
            conversation = await engine.create(system="You help.")
            turn = await conversation.send("The weather?")
            await conversation.send("Thanks.")

        assert turn.reply == "Noted."
        first, second, third = (body["input"] for body in server.bodies)
        assert second[1 : 1 + len(CALLING)] == CALLING
        assert [(one["type"], one["call_id"]) for one in second[1 + len(CALLING) :]] == [
            ("function_call_output", "call_1"),
            ("function_call_output", "call_2"),
        ]
        assert second[: len(first)] == first
        assert third[: len(second)] == second
        assert [one.get("id") for one in third[len(second) :]] == [None, None]
        assert [faults(body["input"]) for body in server.bodies] == [[], [], []]
        assert server.bodies[0]["instructions"] == "You help."
        assert "reasoning.encrypted_content" in server.bodies[0]["include"]

    async def test_an_answer_goes_back_for_as_long_as_thinking_does(self) -> None:
        """Then its text alone, without ids, because the provider takes none of the rest without its reasoning."""
        for policy, expected in ((KEPT, OUTPUT), (QUICK, None)):
            async with (
                ModelServer([responds(*OUTPUT), responds(message(4, "Bye."))], RESPONSES) as server,
                Engine.open("sqlite://", model=server.llm(), policy=policy) as engine,
            ):
                conversation = await engine.create()
                turn = await conversation.send("The weather?")
                await conversation.send("Thanks.")
                (_, said, *_) = await conversation.transcript()

            text = {"type": "output_text", "text": "I look. It rains. All day."}
            plain = [{"type": "message", "role": "assistant", "content": [text]}]
            assert server.bodies[1]["input"][1:-1] == (expected or plain)
            assert (turn.reply, said.citations[0].start) == (text["text"], 11)

    async def test_the_text_is_stored_once(self) -> None:
        """Its items hold lengths in its place."""
        long = "It rains in Oslo. " * 100
        async with (
            ModelServer(
                [responds(reasoning(1), message(1, long), called(1)), responds(message(2, "Bye."))], RESPONSES
            ) as server,
            Engine.open("sqlite://", model=server.llm(), tools=[note], policy=QUICK) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("The weather?")
            (_, said, *_) = await conversation.transcript()

        assert said.provider is not None
        assert len(json.dumps(said.provider.message)) < 500
        assert server.bodies[1]["input"][2] == message(1, long)

    async def test_another_family_reads_text_and_calls_alone(self) -> None:
        """What it cannot read is left out."""
        async with (
            ModelServer([responds(*CALLING), responds(message(3, "Noted."))], RESPONSES) as first,
            ModelServer([answers("Bye.")]) as second,
            Engine.open("sqlite://", model=first.llm(), models=[second.llm()], tools=[note], policy=KEPT) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("The weather?")
            await conversation.set_policy(KEPT.replace(models=(ModelSpec(name="openai/test"),)))
            await conversation.send("Thanks.")

        sent = second.bodies[0]["messages"]
        assert [sorted(one) for one in sent[1:3]] == [
            ["content", "role", "tool_calls"],
            ["content", "role", "tool_call_id"],
        ]
        assert not any(word in json.dumps(sent) for word in ("rs_", "ws_1", "gAAA", ITEMS))

    async def test_the_other_way_round_too(self) -> None:
        """What another family wrote has no ids, and its calls are calls."""
        async with (
            ModelServer([answers(call("note", text="a")), answers("Noted.")]) as first,
            ModelServer([responds(message(1, "Bye."))], RESPONSES) as second,
            Engine.open("sqlite://", model=first.llm(), models=[second.llm()], tools=[note], policy=KEPT) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("The weather?")
            await conversation.set_policy(KEPT.replace(models=(ModelSpec(name=RESPONSES.model),)))
            await conversation.send("Thanks.")

        sent = second.bodies[0]["input"]
        assert [one["type"] for one in sent] == ["message", "function_call", "function_call_output", *["message"] * 2]
        assert faults(sent) == []

    async def test_over_the_bridge_of_litellm_reasoning_goes_back(self) -> None:
        """litellm asks this model over the API by itself: what stands in front of messages and calls is sent."""
        model = "openai/gpt-5.4"
        async with (
            ModelServer([responds(*CALLING), responds(message(3, "Noted."))], RESPONSES) as server,
            Engine.open("sqlite://", model=server.llm(model, reasoning_effort="low"), tools=[note]) as engine,
        ):
            turn = await (await engine.create()).send("The weather?")

        assert turn.reply == "Noted."
        assert [one["id"] for one in server.bodies[1]["input"] if one["type"] == "reasoning"] == ["rs_3", "rs_4"]
        assert not any(word in json.dumps(server.bodies[1]) for word in ("ws_1", ITEMS))

    async def test_a_server_without_streams(self) -> None:
        """The whole response has the same items."""
        whole = RESPONSES.plain(answers(""))
        items = [one for one in CALLING[:-1] if one is not COMPUTED]
        bodies: list[Item] = []

        def script(body: Item) -> Any:
            bodies.append(body)
            return fails(200, {**whole, "output": items if len(bodies) == 1 else [message(3, "Noted.")]})

        async with (
            ModelServer(script, RESPONSES) as server,
            Engine.open(
                "sqlite://", model=server.llm(dialect=Dialect(stream=False)), tools=[note], policy=QUICK
            ) as engine,
        ):
            turn = await (await engine.create()).send("The weather?")

        assert turn.reply == "Noted."
        assert bodies[1]["input"][1:-1] == items


class TestValidRequests:
    """Whatever becomes of a conversation, each request is one that the provider takes."""

    async def test_after_a_rewind(self) -> None:
        """In front of the answer, and into the middle of a turn."""
        async with (
            ModelServer(SCRIPT, RESPONSES) as server,
            Engine.open("sqlite://", model=server.llm(), tools=[note], policy=KEPT) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("The weather?")
            await conversation.regenerate()
            transcript = await conversation.transcript()
            await conversation.edit(transcript[0].message_id, "The weather in Bergen?")
            await conversation.send("Thanks.")

        assert [faults(body["input"]) for body in server.bodies] == [[]] * 5

    async def test_after_a_stop(self) -> None:
        """What was streamed is kept as text: its reasoning and its search go with the items that never came."""
        begun = [*streamed([reasoning(1), SEARCHED]), *streamed([message(1, "It rains.")])[:2]]
        begun = [Data({**one.data, "output_index": 2}) if place >= 4 else one for place, one in enumerate(begun)]
        async with (
            ModelServer([answers(*begun, Pause(30)), responds(message(4, "Bye."))], RESPONSES) as server,
            Engine.open("sqlite://", model=server.llm(), tools=[note], policy=KEPT) as engine,
        ):
            conversation = await engine.create()
            async for update in conversation.stream("The weather?"):
                if update.type == "token":
                    await conversation.cancel()
            await conversation.send("Thanks.")

        (sent,) = [body["input"] for body in server.bodies[1:]]
        assert "It rains." in json.dumps(sent)
        assert [one["type"] for one in sent] == ["message"] * 3
        assert faults(sent) == []

    @pytest.mark.parametrize("finish", ["length", "filter"])
    async def test_after_an_incomplete_response(self, finish: str) -> None:
        """Reasoning behind which something is missing does not go back."""
        items = [reasoning(1), SEARCHED, message(1, "It rains"), reasoning(2)]
        async with (
            ModelServer([responds(*items, finish=finish), responds(message(4, "Bye."))], RESPONSES) as server,
            Engine.open("sqlite://", model=server.llm(), tools=[note], policy=KEPT) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("The weather?")
            await conversation.send("Thanks.")

        assert [faults(body["input"]) for body in server.bodies] == [[]] * 2

    async def test_after_clearing_and_compaction(self) -> None:
        """Results are cleared and turns are summarized; what is left is whole."""
        count = 0

        def script(body: Item) -> Answer:
            nonlocal count
            if "tools" not in body:
                return answers("A summary.")
            count += 1
            usage = Tokens(len(json.dumps(body["input"])) // 4)
            items = [{**one, "id": f"{one['id']}x{count}"} for one in (reasoning(9), SEARCHED, reasoning(8))]
            if count % 3:
                made = called(count, json.dumps({"text": "x" * 3000}))
                return responds(*items, {**made, "id": f"fc_{count}x"}, usage=usage)
            return responds(*items, message(100 + count, "Well. " * 100), usage=usage)

        async with (
            ModelServer(script, RESPONSES) as server,
            Engine.open("sqlite://", model=server.llm(window=8_000), tools=[note], policy=KEPT) as engine,
        ):
            conversation = await engine.create()
            for number in range(6):
                await conversation.send(f"Message {number}")

        sent = [json.dumps(body["input"]) for body in server.bodies]
        assert any("is not shown any more" in one for one in sent)
        assert any("A summary." in one for one in sent)
        assert [faults(body["input"]) for body in server.bodies] == [[]] * len(server.bodies)

    @pytest.mark.parametrize(
        "refusal",
        [
            "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
            "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
            "The encrypted content gAAA... could not be verified.",
        ],
    )
    async def test_items_that_the_provider_no_longer_takes_are_left_out(self, refusal: str) -> None:
        """As with the key of another organization: the conversation goes on with text and calls."""

        def script(body: Item) -> Any:
            if "rs_1" in json.dumps(body):
                return fails(400, {"error": {"message": refusal, "type": "invalid_request_error"}})
            return responds(message(3, "Noted.")) if len(body["input"]) > 1 else responds(reasoning(1), called(1))

        async with (
            ModelServer(script, RESPONSES) as server,
            Engine.open("sqlite://", model=server.llm(), tools=[note], policy=KEPT) as engine,
        ):
            turn = await (await engine.create()).send("The weather?")

        assert turn.reply == "Noted."
        assert [one["type"] for one in server.bodies[-1]["input"]] == [
            "message",
            "function_call",
            "function_call_output",
        ]


TEXTS = st.lists(st.sampled_from(["", " ", "It rains.", "\n", "🌧", "ü"]), max_size=2)
KINDS = st.sampled_from(["reasoning", "message", "call", "search"])


@given(st.lists(st.tuples(KINDS, TEXTS), max_size=7), st.sampled_from(["as it came", "cut", "without a call"]))
def test_items_go_back_whole_or_not_at_all(kinds: list[tuple[str, list[str]]], change: str) -> None:
    """Any response: the same items as long as text and calls are the same, else none of what its provider sealed."""
    makers: Mapping[str, Callable[[int, list[str]], Item]] = {
        "reasoning": lambda number, _: reasoning(number),
        "message": lambda number, texts: message(number, *texts),
        "call": lambda number, _: called(number),
        "search": lambda number, _: {**SEARCHED, "id": f"ws_{number}x"},
    }
    items = [makers[kind](100 + number, texts) for number, (kind, texts) in enumerate(kinds)]
    text = "".join(part["text"] for item in items for part in item.get("content", ()))
    made = [
        {"id": item["call_id"], "type": "function", "function": {"name": "note", "arguments": item["arguments"]}}
        for item in items
        if item["type"] == "function_call"
    ]
    sent = {"role": "assistant", "content": text or None, "tool_calls": made, ITEMS: stored_items(items, text)}
    if change == "cut":
        sent["content"] = text[:-1]
    elif change == "without a call":
        sent["tool_calls"] = made[:-1]
    is_same = (sent["content"] or "") == text and sent["tool_calls"] == made

    request = response_arguments({"model": RESPONSES.model, "messages": [{"role": "user", "content": "Hi"}, sent]})

    _, *written = request["input"]
    whole = list(items)
    while whole and whole[-1]["type"] == "reasoning":
        whole.pop()
    if is_same and whole:
        assert written == whole
    else:
        assert all("id" not in one for one in written)
    assert request["extra_body"]["input"] == request["input"]


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.sampled_from(["message", "function_call", "output_text"]),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["type", "content", "text", "id", "call_id", "output", "item"]), inner)
        ),
    )
)
def test_no_shape_of_an_item_fails_an_answer(value: Any) -> None:
    """Whatever a server writes."""
    events = ResponseEvents()
    told = [
        chunk
        for event in (
            {"type": "response.output_item.done", "output_index": 0, "item": value},
            {"type": "response.completed", "response": {"output": value}},
        )
        for chunk in events.chunks_of(event)
    ]

    message = {"role": "assistant", "content": "Hi", ITEMS: value}
    response_arguments({"model": RESPONSES.model, "messages": [message]})

    assert told


class Weather(BaseModel):
    """The weather."""

    rain: bool


class TestParameters:
    """What is asked for, in the API's own words."""

    async def test_settings_and_form(self) -> None:
        """Under the names of this API; what is told to callbacks is not for the provider."""
        settings = ModelSettings(
            tool_choice="note", parallel_tool_calls=False, top_logprobs=2, server_tools=("web_search",)
        )
        options = {"max_tokens": 500, "reasoning_effort": "low", "store": False, "verbosity": "low"}
        options |= {"metadata": {"trace": {"id": 1}}, "extra_body": {"prompt": {"id": "p"}}, "user": "ada"}
        async with (
            ModelServer([responds(called(1)), answers('{"rain": true}')], RESPONSES) as server,
            Engine.open("sqlite://", model=server.llm(**options), tools=[note], policy=QUICK) as engine,
        ):
            turn = await (await engine.create()).send(
                "The weather?", output=Output(Weather, way="native"), settings=settings
            )

        first, second = server.bodies
        assert turn.output == Weather(rain=True)
        assert first["tool_choice"] == {"type": "function", "name": "note"}
        assert first["text"]["format"]["type"] == "json_schema"
        assert first["text"]["format"]["schema"]["properties"].keys() == {"rain"}
        assert first["text"]["verbosity"] == "low"
        assert (first["max_output_tokens"], first["store"]) == (500, False)
        assert first["reasoning"]["effort"] == "low"
        assert (first["parallel_tool_calls"], first["top_logprobs"], first["user"]) == (False, 2, "ada")
        assert "message.output_text.logprobs" in first["include"]
        assert [one.get("strict") for one in first["tools"]] == [False, None]
        assert first["tools"][1] == {"type": "web_search"}
        assert first["prompt"] == {"id": "p"}
        assert not {"metadata", "messages", "stop", "max_tokens", "response_format"} & first.keys()
        assert first["stream"] is second["stream"] is True

    @pytest.mark.parametrize("model", ["azure/responses/gpt-5", "xai/responses/grok-4"])
    async def test_other_providers_of_this_api(self, model: str) -> None:
        """They are asked in the same way."""
        async with (
            ModelServer([responds(*CALLING), responds(message(3, "Noted."))], RESPONSES) as server,
            Engine.open("sqlite://", model=server.llm(model, api_version="preview"), tools=[note]) as engine,
        ):
            turn = await (await engine.create()).send("The weather?")

        assert turn.reply == "Noted."
        assert server.bodies[0]["model"] == model.rpartition("/")[2]
        assert server.bodies[1]["input"][1:-2] == CALLING

    async def test_files(self) -> None:
        """An image, and a document at an address."""
        content = [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": f"{URL}.png"}},
            {"type": "file", "file": {"file_id": f"{URL}.pdf", "format": "application/pdf"}},
        ]
        async with ModelServer([answers("Oslo.")], RESPONSES) as server:
            await server.llm().complete(ModelRequest("m", ({"role": "user", "content": content},)), lambda token: None)

        assert server.bodies[0]["input"][0]["content"][1:] == [
            {"type": "input_image", "detail": "auto", "image_url": f"{URL}.png"},
            {"type": "input_file", "file_url": f"{URL}.pdf"},
        ]

    async def test_callbacks_are_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As for chat completions: the text, and what it cost."""
        litellm, told = load_litellm(), asyncio.Queue[tuple[str, int]]()

        async def log(kwargs: Any, response: Any, start: Any, end: Any) -> None:
            told.put_nowait((response.choices[0].message.content, response.usage.prompt_tokens))

        monkeypatch.setattr(litellm, "success_callback", [*litellm.success_callback, log])
        for dialect in (OPENAI, RESPONSES):
            async with (
                ModelServer([answers("Hello.")], dialect) as server,
                Engine.open("sqlite://", model=server.llm(), policy=QUICK) as engine,
            ):
                await (await engine.create()).send("Hi")
                async with asyncio.timeout(60):
                    assert await told.get() == ("Hello.", 10)
