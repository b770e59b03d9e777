"""Streams are read as servers really write them: texts, and calls in any pieces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise import LlmFailure, ModelAnswer, ModelRequest, Token
from turnwise.effects.model.litellm.loading import load_litellm
from turnwise.effects.model.openai.stream_calls import AmbiguousCalls, Fragment, assemble_calls
from turnwise.states.values.value import FailureKind

from ....support.cases import holds_for
from ....support.servers.model_server import (
    ANTHROPIC,
    DIALECTS,
    GEMINI,
    OPENAI,
    Answer,
    Data,
    Dialect,
    ModelServer,
    Pause,
    Piece,
    Raw,
    answers,
    call,
    thinks,
)

# --- Streams as servers really send them, over a real socket: an answer arrives whole, or it is asked for again.


WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
EMOJI = "😀"


async def ask(answer: Answer, dialect: Dialect = OPENAI) -> tuple[ModelAnswer, list[Token]]:
    """Return the answer that a model makes of this, and the tokens that it shows."""
    shown: list[Token] = []
    async with ModelServer([answer], dialect) as server:
        request = ModelRequest("m", ({"role": "user", "content": "Weather?"},), (WEATHER,))
        return await server.llm().complete(request, shown.append), shown


async def kind_of(answer: Answer, dialect: Dialect = OPENAI) -> FailureKind:
    """Return the kind of failure that this answer ends in."""
    with pytest.raises(LlmFailure) as caught:
        await ask(answer, dialect)
    return caught.value.kind


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> Data:
    """Return a chunk of OpenAI's protocol; fields of the choice are given as `choice`."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish, **more.pop("choice", {})}
    return Data({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more})


def bare(*pieces: Piece, **more: Any) -> Answer:
    """Return an answer of exactly these pieces, without an end of the protocol's own."""
    return Answer(pieces, is_framed=False, **more)


DONE = Raw(b"data: [DONE]\n\n")
TEXT_OF_OLLAMA = (Data({"model": "m", "message": {"role": "assistant", "content": "It ra"}, "done": False}),)
TEXT = (chunk({"content": "It "}), chunk({"content": "rains."}))


@pytest.mark.usefixtures("each_client")
class TestAnswers:
    """What is only unusual is an answer."""

    @pytest.mark.slow
    @holds_for(
        "pieces",
        [
            (*TEXT, DONE),
            (*TEXT, chunk({}, ""), DONE),
            (*TEXT, chunk({}, "stop")),
            (*TEXT, chunk({}, "END_TURN"), DONE),
            (chunk({"content": "It "}, "stop"), chunk({"content": "rains."}, "stop")),
            (chunk({}, "stop"), *TEXT, DONE),
            (*TEXT, chunk({}, "stop"), Data({"choices": None, "usage": {"prompt_tokens": 1}}), DONE),
            (Data({"choices": [], "prompt_filter_results": []}), *TEXT, chunk({}, "stop"), DONE),
            (*(Data({"choices": [{"delta": {"content": text}}]}) for text in ("It ", "rains.")), DONE),
            (Raw("\ufeff".encode()), *TEXT, chunk({}, "stop")),
            (Raw(b": wait\r\n\r\n"), *TEXT, Raw(b":\n\n"), chunk({}, "stop"), DONE),
            (Raw(b'data:{"choices":[{"delta":{"content":"It rains."},"finish_reason":"stop"}]}\r\rdata:[DONE]\r\r'),),
            (*(Raw(b'data: {"choices":[{"delta":{"content":"%b"}}]}\n' % text) for text in (b"It ", b"rains.")), DONE),
            (Raw(b'data: {"choices":\ndata: [{"delta":{"content":"It rains."}}]}\n\n'), DONE),
            (Raw(b'{"choices":[{"delta":{"content":"It rains."},"finish_reason":"stop"}]}\n'),),
            (Raw(json.dumps({"choices": [{"message": {"content": "It rains."}}]}, indent=2).encode()),),
            (Raw(json.dumps({"choices": [{"message": {"content": "It rains."}}]}).encode()),),
            (chunk({"content": None, "refusal": "It rains."}, "stop"),),
            (*TEXT, chunk({}, "stop"), chunk({"content": "Other"}, choice={"index": 1}), DONE),
(*TEXT, chunk(None, "eos"), DONE),
            (chunk({"content": [{"type": "text", "text": "It "}, {"type": "text", "text": "rains."}]}, "stop"),),
            (*TEXT, Data({"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]}), DONE),
            (*TEXT, chunk({}, "stop"), Raw(b"data: {broken\n\n")),
        ],
    )  # fmt: skip
    async def test_an_unusual_answer(self, pieces: tuple[Piece, ...]) -> None:
        """Its text arrives, as the answer and as tokens."""
        answer, shown = await ask(bare(*pieces))

        assert (answer.content, answer.finish_reason) == ("It rains.", "stop")
        assert "".join(token.text for token in shown) == "It rains."

    @pytest.mark.parametrize(
        ("reason", "usual"),
        [("length", "length"), ("MAX_TOKENS", "length"), ("max_output_tokens", "length"), ("tool_use", "tool_calls")],
    )
    async def test_finish_reasons_in_other_words(self, reason: str, usual: str) -> None:
        """They mean what OpenAI's mean."""
        answer, _ = await ask(bare(*TEXT, chunk({}, reason), DONE))

        assert answer.finish_reason == usual

    @pytest.mark.parametrize("line_end", ["\u2028", "\x85", "\u2029", "\u000b"])
    async def test_line_ends_that_are_none(self, line_end: str) -> None:
        """A line of the protocol ends at a line feed or a carriage return, not at what else Unicode has."""
        content = json.dumps({"choices": [{"delta": {"content": f"a{line_end}b"}}]}, ensure_ascii=False)

        answer, _ = await ask(bare(Raw(f"data: {content}\n\n".encode()), DONE))

        assert answer.content == f"a{line_end}b"

    @pytest.mark.parametrize("dialect", DIALECTS)
    async def test_each_dialect(self, dialect: str) -> None:
        """Thinking, text and calls, and fields that seal them."""
        sealed = replace(call("weather", city="Oslo"), signature="c2VhbGVk")
        answer, _ = await ask(answers(thinks("H", "m."), "It ", "rains.", sealed), DIALECTS[dialect])

        assert (answer.thinking, answer.content) == ("Hm.", "It rains.")
        assert [(made.name, json.loads(made.arguments)) for made in answer.tool_calls] == [
            ("weather", {"city": "Oslo"})
        ]

    @pytest.mark.parametrize(
        "body",
        [
            *(f"{mark}{{0}}\n\n{mark}{{1}}\n\n" for mark in ("Data: ", " data: ", "data: data: ", "data:")),
            "{0}{1}",
            "[{0},\n{1}]",
            "event: ping\ndata: ping\n\ndata: {0}\n\nevent: heartbeat\ndata: 7s\n\ndata: {1}\n\n",
        ],
    )
    @pytest.mark.parametrize("indent", [None, 1])
    async def test_the_frame_of_the_chunks(self, body: str, indent: int | None) -> None:
        """However the events are framed, and over how many lines they are written."""
        chunks = [json.dumps(one.data, indent=indent) for one in (TEXT[0], chunk({"content": "rains."}, "stop"))]

        answer, _ = await ask(bare(Raw(body.replace("{0}", chunks[0]).replace("{1}", chunks[1]).encode())))

        assert answer.content == "It rains."

    @pytest.mark.parametrize(
        "pieces",
        [
            [{"message": {"content": "It "}}, {"message": {"content": "It rains."}, "finish_reason": "stop"}],
            [{"message": {"content": "It "}}, {"message": {"content": "rains."}, "finish_reason": "stop"}],
            [{"delta": {"content": "It rains."}}, {"message": {"content": "It rains."}, "finish_reason": "stop"}],
            [{"delta": {"content": "It "}}, {"message": {"content": "It rains."}, "finish_reason": "stop"}],
        ],
        ids=str,
    )
    async def test_messages_in_place_of_deltas(self, pieces: list[Any]) -> None:
        """All of the text so far, a piece of it, or all of it once more."""
        answer, _ = await ask(bare(*(Data({"choices": [piece]}) for piece in pieces), DONE))

        assert answer.content == "It rains."

    @pytest.mark.parametrize("dialect", ["openai", "reasoning", "parts", "anthropic", "gemini", "ollama"])
    async def test_one_piece_where_a_stream_was_asked_for(self, dialect: str) -> None:
        """Servers behind some proxies do not stream."""
        whole = answers(thinks("Hm."), "It rains.", call("weather", city="Oslo"), is_plain=True)

        answer, _ = await ask(whole, DIALECTS[dialect])

        assert (answer.content, len(answer.tool_calls)) == ("It rains.", 1)

    async def test_usage_wherever_it_stands(self) -> None:
        """On the first chunk, on a choice, in other fields; in pieces it is what was told last."""
        first = chunk({"content": "Hi"}, usage={"prompt_tokens": 7, "completion_tokens": 0})
        last = chunk({}, "stop", choice={"usage": {"prompt_tokens": None, "completion_tokens": 3}})

        answer, _ = await ask(bare(first, last, DONE))
        groq, _ = await ask(
            bare(*TEXT, chunk({}, "stop", x_groq={"usage": {"prompt_tokens": 7, "completion_tokens": 3}}))
        )

        assert [(a.usage.input_tokens, a.usage.output_tokens) for a in (answer, groq)] == [(7, 3), (7, 3)]

    async def test_opaque_fields(self) -> None:
        """What the protocol does not know is kept with the call, or with the message; a text in pieces is one."""
        detail = {"type": "reasoning.text", "index": 0}
        fragment = {"index": 0, "id": "a", "function": {"name": "weather", "arguments": "{}"}}
        pieces = (
            chunk({"reasoning": "H", "reasoning_details": [{**detail, "text": "H"}]}),
            chunk({"reasoning": "m", "reasoning_details": [{**detail, "text": "m", "signature": "s"}]}),
            chunk({"tool_calls": [{**fragment, "extra_content": {"google": {"thought_signature": "t"}}}]}),
        )

        answer, _ = await ask(bare(*pieces, chunk({}, "tool_calls"), DONE))

        assert answer.opaque_fields == {"reasoning_details": [{**detail, "text": "Hm", "signature": "s"}]}
        assert answer.tool_calls[0].opaque == {"extra_content": {"google": {"thought_signature": "t"}}}
        assert answer.thinking_field == "reasoning"


@pytest.mark.usefixtures("each_client")
class TestHalfCharacters:
    """A character outside the basic plane may be cut into two halves."""

    @holds_for(
        ("pieces", "text"),
        [
            (("a\ud83d", "\ude00b"), f"a{EMOJI}b"),
            (("a\ud83d", "", "\ude00"), f"a{EMOJI}"),
            (("\ud83d", "\ude00\ud83d", "\ude00"), EMOJI * 2),
            (("a\ud83d",), "a\ufffd"),
            (("a\ud83d", "b"), "a\ufffdb"),
            (("\ude00", "a"), "\ufffda"),
        ],
    )
    @holds_for("field", ["content", "reasoning_content"])
    async def test_halves_are_joined(self, pieces: tuple[str, ...], text: str, field: str) -> None:
        """In the answer and in what is shown meanwhile."""
        answer, shown = await ask(bare(*(chunk({field: piece}) for piece in pieces), chunk({}, "stop"), DONE))

        assert (answer.content or answer.thinking) == text
        assert "".join(token.text for token in shown) == text

    async def test_thinking_between_the_halves_of_a_text(self) -> None:
        """Each kind of text waits for its own half."""
        pieces = ({"content": "\ud83d"}, {"reasoning_content": "Hm"}, {"content": "\ude00"})

        answer, _ = await ask(bare(*map(chunk, pieces), DONE))

        assert (answer.content, answer.thinking) == (EMOJI, "Hm")


AMOUNT = {"amount": 250}
WRITTEN = json.dumps(AMOUNT)


def anthropic(*events: dict[str, Any]) -> Answer:
    """Return an answer of Anthropic's with these events between its beginning and its end."""
    return answers(*map(Data, events), finish="calls")


def starts(index: int, **block: Any) -> dict[str, Any]:
    """Return the event in which a block begins."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def grows(index: int, **delta: Any) -> dict[str, Any]:
    """Return the event in which a block grows."""
    return {"type": "content_block_delta", "index": index, "delta": delta}


def stops(index: int) -> dict[str, Any]:
    """Return the event in which a block ends."""
    return {"type": "content_block_stop", "index": index}


def pays(index: int, **given: Any) -> dict[str, Any]:
    """Return the event in which a call of `pay` begins, with these arguments."""
    return starts(index, type="tool_use", id=f"t{index}", name="pay", input=given)


@pytest.mark.usefixtures("each_client")
class TestArguments:
    """A call has the arguments that were written, wherever they stand, or there is no answer."""

    @pytest.mark.parametrize(
        "delta",
        [
            {"function_call": {"name": "pay", "arguments": WRITTEN}},
            {"tool_calls": {"id": "a", "function": {"name": "pay", "arguments": WRITTEN}}},
            {"tool_calls": [{"id": "a", "name": "pay", "arguments": WRITTEN}]},
            {"tool_calls": [{"id": "a", "name": "pay", "arguments": AMOUNT, "function": None}]},
            *(
                {"tool_calls": [{"id": "a", "function": {"name": "pay", name: given}}]}
                for name in ("parameters", "input", "args")
                for given in (AMOUNT, WRITTEN)
            ),
        ],
        ids=str,
    )
    async def test_where_they_stand(self, delta: dict[str, Any]) -> None:
        """In the call or in its function, under any name for them, as an object or as text."""
        answer, _ = await ask(bare(chunk(delta), chunk({}, "stop"), DONE))

        assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == [("pay", AMOUNT)]

    async def test_an_object_under_an_unknown_name(self) -> None:
        """It may be the arguments."""
        made = {"id": "a", "function": {"name": "pay", "kwargs": AMOUNT}}

        assert await kind_of(bare(chunk({"tool_calls": [made]}), chunk({}, "stop"), DONE)) == "malformed_response"

    @pytest.mark.parametrize("is_together", [True, False])
    async def test_a_call_in_the_older_form_as_well(self, is_together: bool) -> None:
        """It is one call."""
        function = {"name": "pay", "arguments": WRITTEN}
        old, new = {"function_call": function}, {"tool_calls": [{"index": 0, "id": "a", "function": function}]}
        deltas = [old | new] if is_together else [old, new]

        answer, _ = await ask(bare(*map(chunk, deltas), chunk({}, "tool_calls"), DONE))

        assert [(call.id, call.arguments) for call in answer.tool_calls] == [("a", WRITTEN)]

    @pytest.mark.parametrize(
        "events",
        [
            [pays(0, **AMOUNT), stops(0)],
            [pays(0, **AMOUNT), grows(0, type="input_json_delta", partial_json=""), stops(0)],
            [pays(0, **AMOUNT), grows(0, type="input_json_delta", partial_json="{}"), stops(0)],
            [pays(0, **AMOUNT), grows(0, type="input_json_delta", partial_json=WRITTEN), stops(0)],
            [pays(0, amount=None), grows(0, type="input_json_delta", partial_json=WRITTEN), stops(0)],
            [pays(0, **AMOUNT)],
            [{**pays(0), "content_block": {**pays(0)["content_block"], "input": WRITTEN}}, stops(0)],
        ],
        ids=str,
    )
    async def test_in_the_first_event_of_anthropics_block(self, events: list[dict[str, Any]]) -> None:
        """There they stand whole, whatever comes in pieces behind them."""
        answer, _ = await ask(anthropic(*events), ANTHROPIC)

        assert [(call.name, json.loads(call.arguments)) for call in answer.tool_calls] == [("pay", AMOUNT)]

    async def test_two_different_ones_in_anthropics_block(self) -> None:
        """Nothing tells which were meant."""
        other = grows(0, type="input_json_delta", partial_json='{"amount": 3}')

        assert await kind_of(anthropic(pays(0, **AMOUNT), other, stops(0)), ANTHROPIC) == "malformed_response"

    async def test_two_of_anthropics_blocks_at_a_time(self) -> None:
        """Each piece belongs to the block of its index."""
        now = starts(1, type="tool_use", id="t1", name="now", input={})
        piece = grows(0, type="input_json_delta", partial_json=WRITTEN)

        answer, _ = await ask(anthropic(pays(0), now, piece, stops(1), stops(0)), ANTHROPIC)

        assert {call.name: json.loads(call.arguments) for call in answer.tool_calls} == {"pay": AMOUNT, "now": {}}

    async def test_whole_thinking_of_anthropics(self) -> None:
        """A block of thinking may be whole and sealed in its first event."""
        thinking = starts(0, type="thinking", thinking="Hm.", signature="seal")

        answer, _ = await ask(anthropic(thinking, stops(0), pays(1, **AMOUNT), stops(1)), ANTHROPIC)

        assert answer.opaque == ({"type": "thinking", "thinking": "Hm.", "signature": "seal"},)

    async def test_none_in_geminis_call(self) -> None:
        """A call without arguments has none."""
        candidate = {"content": {"parts": [{"functionCall": {"name": "now"}}]}, "finishReason": "STOP"}

        answer, _ = await ask(bare(Data({"candidates": [candidate]})), GEMINI)

        assert [(call.name, call.arguments) for call in answer.tool_calls] == [("now", "{}")]

    @pytest.mark.parametrize("indent", [None, 2])
    async def test_a_list_of_geminis_responses(self, indent: int | None) -> None:
        """That is how Gemini streams without server-sent events."""
        parts = [[{"text": "It "}], [{"functionCall": {"name": "pay", "args": AMOUNT}}]]
        responses = [GEMINI.response(one, reason) for one, reason in zip(parts, (None, "STOP"), strict=True)]

        answer, _ = await ask(bare(Raw(json.dumps(responses, indent=indent).encode())), GEMINI)

        assert (answer.content, [json.loads(call.arguments) for call in answer.tool_calls]) == ("It ", [AMOUNT])


@pytest.mark.usefixtures("each_client")
class TestFailures:
    """What is no answer fails, in a kind that is asked again, or that is told."""

    @holds_for(
        ("pieces", "kind"),
        [
            (TEXT, "network"),
            ((*TEXT, Raw(b'data: {"choices": [{"del')), "network"),
            ((DONE,), "malformed_response"),
            ((chunk({"role": "assistant"}), DONE), "malformed_response"),
            ((Raw(b"<html>502</html>"),), "malformed_response"),
            ((*TEXT, Raw(b"data: {broken\n\n"), DONE), "malformed_response"),
            ((chunk({"content": 7}), DONE), "malformed_response"),
            ((chunk({"tool_calls": "none"}), DONE), "malformed_response"),
            ((Data({"choices": "none"}), DONE), "malformed_response"),
            ((*TEXT, chunk({}, "error"), DONE), "server_error"),
            ((*TEXT, chunk({}, "stop", choice={"native_finish_reason": "network_error"}), DONE), "network"),
            ((*TEXT, chunk({}, "MALFORMED_FUNCTION_CALL"), DONE), "malformed_response"),
            ((*TEXT, chunk({}, "insufficient_system_resource"), DONE), "server_error"),
            ((*TEXT, chunk({}, "SAFETY"), DONE), "content_filter"),
            ((*TEXT, Data({"error": {"message": "overloaded", "code": 503}}), DONE), "server_error"),
            ((*TEXT, Data({"error": {"message": "Rate limit reached", "code": 429}})), "rate_limit"),
            ((*TEXT, chunk({}, choice={"error": {"message": "gone", "code": 502}})), "server_error"),
            ((Raw(b'event: error\ndata: {"message": "overloaded"}\n\n'),), "server_error"),
            ((Data({"object": "error", "message": "boom", "code": 500}),), "server_error"),
            ((Data({"base_resp": {"status_code": 1000, "status_msg": "unknown error"}}),), "server_error"),
            ((Raw(b'{"detail": "Internal Server Error"}'),), "server_error"),
            (tuple(chunk({"content": "again "}) for _ in range(200)), "server_error"),
        ],
    )  # fmt: skip
    async def test_what_is_no_answer(self, pieces: tuple[Piece, ...], kind: FailureKind) -> None:
        """An error may stand anywhere in a stream."""
        assert await kind_of(bare(*pieces)) == kind

    @pytest.mark.parametrize("arguments", ["", '{"city": "Os'])
    async def test_a_call_that_may_have_been_cut(self, arguments: str) -> None:
        """Without a finish reason nobody knows whether more arguments were to come."""
        function = {"name": "weather", "arguments": arguments}

        assert (
            await kind_of(bare(chunk({"tool_calls": [{"index": 0, "function": function}]}), DONE))
            == "malformed_response"
        )

    @pytest.mark.parametrize("dialect", ["anthropic", "gemini", "ollama"])
    async def test_a_stream_of_another_protocol_that_breaks_off(self, dialect: str) -> None:
        """litellm may mark its chunks as it likes."""
        assert await kind_of(answers("It ra", end="breaks_off"), DIALECTS[dialect]) == "network"

    async def test_an_error_in_a_stream_of_another_protocol(self) -> None:
        """A server whose model has crashed says so in place of an event."""
        told = Data({"error": "llama runner process has terminated: exit status 2"})

        assert await kind_of(bare(*TEXT_OF_OLLAMA, told), DIALECTS["ollama"]) == "server_error"

    @pytest.mark.parametrize(
        ("reason", "kind"),
        [
            ("SAFETY", "content_filter"),
            ("MALFORMED_FUNCTION_CALL", "malformed_response"),
            ("RECITATION", "content_filter"),
        ],
    )
    async def test_finish_reasons_of_gemini(self, reason: str, kind: FailureKind) -> None:
        """They are read as Gemini writes them."""
        assert await kind_of(answers("It ", finish=reason), GEMINI) == kind

    async def test_calls_that_cannot_be_told_apart(self) -> None:
        """They are asked for again, and none of them runs."""
        both = [{"index": 0, "function": {"name": "weather", "arguments": text}} for text in ("{}", '{"city": "Oslo"}')]
        pieces = [chunk({"tool_calls": [fragment]}) for fragment in both]

        assert await kind_of(bare(*pieces, chunk({}, "tool_calls"), DONE)) == "malformed_response"


@pytest.mark.usefixtures("each_client")
class TestEnds:
    """An answer that is complete is used, whatever the connection does."""

    @pytest.mark.parametrize(
        "answer",
        [
            answers("Whole.", end="stays_open"),
            bare(chunk({"content": "Whole."}), chunk({}, "stop"), end="stays_open"),
            bare(chunk({"content": "Whole."}, "stop"), end="stays_open"),
            bare(chunk({"content": "Whole."}), DONE, end="stays_open"),
            bare(chunk({"content": "Whole."}), chunk({}, "stop"), *[Raw(b": k\n\n"), Pause(0.1)] * 200),
        ],
    )
    async def test_a_connection_that_stays_open(self, answer: Answer) -> None:
        """It is not waited for."""
        await asyncio.to_thread(load_litellm)
        async with asyncio.timeout(5):
            done, _ = await ask(answer)

        assert done.content == "Whole."

    @pytest.mark.parametrize("dialect", ["openai", "anthropic"])
    async def test_pieces_of_a_call_say_that_the_answer_goes_on(self, dialect: str) -> None:
        """Arguments may take longer than a model may be silent; nothing of them is shown."""
        _, shown = await ask(answers(replace(call("pay", WRITTEN), pieces=5)), DIALECTS[dialect])

        assert len(shown) >= 5
        assert {token.text for token in shown} == {""}

    async def test_a_finish_reason_on_every_chunk_of_a_slow_answer(self) -> None:
        """More has come after such a reason, so the end of the stream counts."""
        slow = bare(
            chunk({"content": "It "}, "stop"),
            chunk({"content": "ra"}, "stop"),
            Pause(1.5),
            chunk({"content": "ins."}, "stop"),
        )

        answer, _ = await ask(slow)

        assert answer.content == "It rains."


# --- Calls are put together from their fragments as they were written, whichever dialect the fragments follow.


NAMES = ("weather", "traffic", "pay", "now")
OSLO, ROME, E6 = '{"city": "Oslo"}', '{"city": "Rome"}', '{"road": "E6"}'
HALVES = ('{"city": ', '"Oslo"}')

Row = tuple[int | None, str, str, str]
"""Index, id, name and arguments of a fragment."""


def assembled(*rows: Row | Sequence[Row], names: Iterable[str] = NAMES) -> list[tuple[str, str]]:
    """Return names and arguments of the calls in these fragments. A row is a delta; a list of rows is one, too."""
    deltas = [[row] if isinstance(row, tuple) else row for row in rows]
    fragments = [Fragment(place, *row) for place, delta in enumerate(deltas) for row in delta]
    return [(call.name, call.arguments) for call in assemble_calls(fragments, tuple(names))]


@pytest.mark.usefixtures("each_client")
class TestWhatStandsAroundCalls:
    """What a model or a server writes around a call takes nothing from it."""

    @pytest.mark.parametrize(
        "name", ["functions.pay", "pay:0", "functions.pay:3", "default_api:pay", "pay<|channel|>x"]
    )
    def test_templates_of_names(self, name: str) -> None:
        """Namespaces, numbers and marks of a template are no part of the name of an offered tool."""
        assert assembled((0, "a", name, OSLO)) == [("pay", OSLO)]
        assert assembled((0, "a", name, OSLO), names=[name, "pay"]) == [(name, OSLO)]
        assert assembled((0, "a", f"other.{name}", OSLO)) == [(f"other.{name}", OSLO)]

    @pytest.mark.parametrize("placeholder", ["{}", "null", '""'])
    def test_a_placeholder_behind_the_pieces(self, placeholder: str) -> None:
        """It says that nothing more comes."""
        calls = assembled((0, "a", "pay", ""), *((0, "", "", half) for half in HALVES), (0, "", "", placeholder))

        assert calls == [("pay", OSLO)]

    @pytest.mark.parametrize("rest", ["}", " I hope that helps", "<|call|>", "\n```"])
    def test_text_behind_the_arguments(self, rest: str) -> None:
        """The model is told what it wrote; the call does not run."""
        assert assembled((0, "a", "pay", OSLO + rest)) == [("pay", OSLO + rest)]

    @pytest.mark.parametrize("rest", [ROME, f" {E6}", '{"city'])
    def test_another_object_behind_the_arguments(self, rest: str) -> None:
        """It may belong to another call."""
        with pytest.raises(AmbiguousCalls):
            assembled((0, "a", "pay", OSLO + rest))


@pytest.mark.usefixtures("each_client")
class TestCallsUnderOneIndex:
    """Several calls may come under one index, or under none."""

    @holds_for("index", [0, 3, None])
    @holds_for("ids", [("a", "b"), ("", ""), ("same", "same")])
    def test_whole_calls_with_other_arguments(self, index: int | None, ids: tuple[str, str]) -> None:
        """Each is a call of its own."""
        calls = assembled((index, ids[0], "weather", OSLO), (index, ids[1], "weather", ROME))

        assert calls == [("weather", OSLO), ("weather", ROME)]

    @pytest.mark.parametrize("index", [0, None])
    @pytest.mark.parametrize("ids", [("a", "b"), ("", ""), ("same", "same")], ids=repr)
    def test_whole_calls_in_one_delta(self, index: int | None, ids: tuple[str, str]) -> None:
        """A list names each call once, so equal ones are several."""
        calls = assembled([(index, ids[0], "weather", OSLO), (index, ids[1], "weather", OSLO)])

        assert calls == [("weather", OSLO)] * 2

    def test_equal_calls_with_an_id_each(self) -> None:
        """The ids tell them apart."""
        assert assembled((0, "a", "pay", OSLO), (0, "b", "pay", OSLO)) == [("pay", OSLO)] * 2

    @pytest.mark.parametrize("index", [0, None])
    def test_calls_in_pieces_without_ids(self, index: int | None) -> None:
        """A name begins a call."""
        calls = assembled(
            (index, "", "weather", ""),
            *((index, "", "", half) for half in HALVES),
            (index, "", "traffic", ""),
            (index, "", "", E6),
        )

        assert calls == [("weather", OSLO), ("traffic", E6)]

    def test_calls_whose_ids_stand_on_the_first_piece(self) -> None:
        """The pieces without an id belong to the newest one."""
        calls = assembled((0, "a", "weather", ""), (0, "", "", OSLO), (0, "b", "traffic", ""), (0, "", "", E6))

        assert calls == [("weather", OSLO), ("traffic", E6)]

    @pytest.mark.parametrize("index", [0, None])
    def test_interleaved_pieces_with_ids(self, index: int | None) -> None:
        """Each piece belongs to its id."""
        calls = assembled(
            (index, "a", "weather", HALVES[0]),
            (index, "b", "traffic", '{"road": '),
            (index, "a", "", HALVES[1]),
            (index, "b", "", '"E6"}'),
        )

        assert calls == [("weather", OSLO), ("traffic", E6)]

    def test_calls_without_arguments(self) -> None:
        """Two names of tools are two calls, and no name that was cut."""
        assert assembled((0, "", "now", ""), (0, "", "traffic", "")) == [("now", ""), ("traffic", "")]


@pytest.mark.usefixtures("each_client")
class TestIndexes:
    """The index is whatever the server makes of it."""

    @pytest.mark.parametrize("indexes", [(0, 1), (1, 2), (7, 3)])
    def test_any_numbers_tell_calls_apart(self, indexes: tuple[int, int]) -> None:
        """They need not begin at 0, nor follow each other; pieces may be interleaved."""
        first, second = indexes
        calls = assembled(
            (first, "a", "weather", ""),
            (second, "b", "traffic", ""),
            (first, "", "", HALVES[0]),
            (second, "", "", E6),
            (first, "", "", HALVES[1]),
        )

        assert calls == [("weather", OSLO), ("traffic", E6)]

    def test_an_index_on_the_first_piece_only(self) -> None:
        """Pieces without one follow the piece before."""
        calls = assembled((0, "a", "weather", ""), (None, "", "", HALVES[0]), (None, "", "", HALVES[1]))

        assert calls == [("weather", OSLO)]

    def test_an_index_that_grows_with_each_piece(self) -> None:
        """A piece without a name begins no call."""
        calls = assembled((0, "a", "weather", HALVES[0]), (1, "", "", HALVES[1]), (2, "b", "traffic", E6))

        assert calls == [("weather", OSLO), ("traffic", E6)]

    def test_pieces_under_the_index_of_another_call(self) -> None:
        """Nobody can tell whose arguments these are."""
        with pytest.raises(AmbiguousCalls):
            assembled((0, "a", "weather", ""), (0, "", "", OSLO), (1, "b", "pay", ""), (0, "", "", E6))


@pytest.mark.usefixtures("each_client")
class TestPieces:
    """What one call is cut into."""

    @holds_for("index", [0, None])
    @holds_for("name", ["", "pay"])
    @holds_for("pieces", [['{"amount": 250}'], ['{"amount": 2', "50}"], ["{", '"amount"', ": 250", "}"]])
    def test_an_id_that_changes_with_each_piece(self, index: int | None, name: str, pieces: list[str]) -> None:
        """The pieces go on with an object that is open, so they are one call."""
        rows = [(index, f"id-{place}", name, piece) for place, piece in enumerate(pieces)]

        assert assembled((index, "id", "pay", ""), *rows) == [("pay", '{"amount": 250}')]

    @holds_for(
        ("told", "name"),
        [
            (("wea", "ther"), "weather"),
            (("w", "eat", "her"), "weather"),
            (("weather", "weather"), "weather"),
            (("w", "wea", "weather"), "weather"),
            ((" weather\n",), "weather"),
            ((" wea", "ther "), "weather"),
            (("weather", " "), "weather"),
            (("un", "known"), "unknown"),
        ],
    )
    def test_a_name_in_pieces(self, told: tuple[str, ...], name: str) -> None:
        """It may be cut, repeated, repeated with what comes next, or have blanks around it."""
        rows: list[Row] = [(0, "a" if place == 0 else "", part, "") for place, part in enumerate(told)]

        assert assembled(*rows, (0, "", "", OSLO)) == [(name, OSLO)]

    @pytest.mark.parametrize("name", ["", "weather"])
    def test_arguments_that_repeat_what_came_before(self, name: str) -> None:
        """The last piece has all of them."""
        rows: list[Row] = [(0, "a", name, '{"ci'), (0, "a", name, '{"city": '), (0, "a", name, OSLO)]

        calls = assembled((0, "a", "weather", ""), *rows)

        assert calls == [("weather", OSLO)]

    @pytest.mark.parametrize("placeholder", ["{}", "null", '""'])
    @pytest.mark.parametrize("pieces", [[OSLO], list(HALVES)])
    def test_a_placeholder_first(self, placeholder: str, pieces: list[str]) -> None:
        """What follows are the arguments."""
        calls = assembled((0, "a", "weather", placeholder), *((0, "", "", piece) for piece in pieces))

        assert calls == [("weather", OSLO)]

    def test_a_placeholder_under_a_name_that_is_repeated(self) -> None:
        """This may be one call, or one without arguments and one with."""
        with pytest.raises(AmbiguousCalls):
            assembled((0, "", "pay", "{}"), (0, "", "pay", '{"amount": 250}'))

    def test_a_call_without_a_name(self) -> None:
        """Nobody can tell what it calls."""
        with pytest.raises(AmbiguousCalls):
            assembled((0, "a", "", OSLO))

    def test_arguments_that_the_model_wrote_wrong(self) -> None:
        """They are handed on as they are, because nothing else is unusual."""
        assert assembled((0, "a", "weather", '{"city": '), (0, "", "", "Oslo")) == [("weather", '{"city": Oslo')]

    def test_half_characters(self) -> None:
        """A character that was cut is one again."""
        assert assembled((0, "a", "pay", '{"to": "\ud83d'), (0, "", "", '\ude00"}')) == [("pay", '{"to": "😀"}')]

    def test_a_fragment_that_says_nothing(self) -> None:
        """It is no call."""
        assert assembled((0, "", "", ""), (0, "a", "now", "{}")) == [("now", "{}")]

    def test_many_pieces(self) -> None:
        """Their number is not limited."""
        text = json.dumps({"text": "a" * 20_000})

        assert assembled((0, "a", "pay", ""), *((0, "", "", letter) for letter in text)) == [("pay", text)]


@pytest.mark.usefixtures("each_client")
class TestSentAgain:
    """A call that is complete may be sent again."""

    PIECES: tuple[Row, ...] = ((0, "a", "weather", ""), (0, "", "", HALVES[0]), (0, "", "", HALVES[1]))

    @holds_for(
        "again",
        [
            (0, "a", "weather", OSLO),
            (0, "", "weather", OSLO),
            (0, "", "", OSLO),
            (0, "", "", '{"city":"Oslo"}'),
            (None, "a", "weather", OSLO),
            (None, "", "weather", OSLO),
            (1, "a", "weather", OSLO),
            (1, "", "weather", OSLO),
        ],
    )
    def test_whole_after_its_pieces(self, again: Row) -> None:
        """With or without index, id and name."""
        assert assembled(*self.PIECES, again) == [("weather", OSLO)]

    @pytest.mark.parametrize("in_one_delta", [True, False])
    @pytest.mark.parametrize("indexes", [(0, 1), (2, 3), (None, None)], ids=repr)
    def test_all_calls_after_their_pieces(self, indexes: tuple[int | None, int | None], in_one_delta: bool) -> None:
        """In a list, or one after the other."""
        again: list[Row] = [(indexes[0], "", "weather", OSLO), (indexes[1], "", "traffic", E6)]
        more: list[Row | Sequence[Row]] = [again] if in_one_delta else [*again]

        calls = assembled(*self.PIECES, (1, "b", "traffic", ""), (1, "", "", E6), *more)

        assert calls == [("weather", OSLO), ("traffic", E6)]

    def test_one_that_differs_is_another_call(self) -> None:
        """It was not sent before."""
        assert assembled(*self.PIECES, (1, "b", "weather", ROME)) == [("weather", OSLO), ("weather", ROME)]


# --- for any calls, any dialect and any way to cut them

Written = tuple[str, str]
"""Name and arguments of a call."""

StreamCallsDialect = Callable[[int, str, Sequence[str]], list[Row]]
"""How a server writes a call: its place, its name, and the arguments in pieces."""


def _changing_id(place: int, name: str, pieces: Sequence[str]) -> list[Row]:
    ids = (f"{place}-{number}" for number in range(len(pieces) + 1))
    return [(place, next(ids), name, ""), *((place, next(ids), "", piece) for piece in pieces)]


def _repeated_arguments(place: int, name: str, pieces: Sequence[str]) -> list[Row]:
    return [(place, f"id{place}", name, "".join(pieces[: end + 1])) for end in range(len(pieces))]


STREAM_CALLS_DIALECTS: dict[str, StreamCallsDialect] = {
    "as OpenAI": lambda n, name, p: [(n, f"id{n}", name, ""), *((n, "", "", piece) for piece in p)],
    "whole": lambda n, name, p: [(n, f"id{n}", name, "".join(p))],
    "whole, one index": lambda n, name, p: [(0, f"id{n}", name, "".join(p))],
    "whole, no index": lambda n, name, p: [(None, f"id{n}", name, "".join(p))],
    "one id for all": lambda n, name, p: [(n, "id", name, ""), *((n, "id", "", piece) for piece in p)],
    "one index": lambda n, name, p: [(0, f"id{n}", name, ""), *((0, "", "", piece) for piece in p)],
    "one index, no ids": lambda n, name, p: [(0, "", name, ""), *((0, "", "", piece) for piece in p)],
    "no index": lambda n, name, p: [(None, f"id{n}", name, ""), *((None, f"id{n}", "", piece) for piece in p)],
    "no index, no ids": lambda n, name, p: [(None, "", name, ""), *((None, "", "", piece) for piece in p)],
    "the id on each piece": lambda n, name, p: [(n, f"id{n}", name, ""), *((n, f"id{n}", "", piece) for piece in p)],
    "the name on each piece": lambda n, name, p: [(n, "", name, ""), *((n, "", name, piece) for piece in p)],
    "another id on each piece": _changing_id,
    "a name in two pieces": lambda n, name, p: [
        (n, f"id{n}", name[:2], ""),
        (n, "", name[2:], p[0]),
        *((n, "", "", piece) for piece in p[1:]),
    ],
    "arguments repeated": _repeated_arguments,
    "a placeholder first": lambda n, name, p: [(n, f"id{n}", name, "{}"), *((n, "", "", piece) for piece in p)],
    "sent again": lambda n, name, p: [
        (n, f"id{n}", name, ""),
        *((n, "", "", piece) for piece in p),
        (n, f"id{n}", name, "".join(p)),
    ],
}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 999) | st.text('ab"{}\\ é', max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=4,
)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(NAMES), st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1, max_size=2).map(json.dumps)
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def in_pieces(draw: st.DrawFn, text: str) -> list[str]:
    """A text, cut in any way."""
    places = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=5)))
    return [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.slow
@given(st.data(), CALLS, st.sampled_from(sorted(STREAM_CALLS_DIALECTS)))
def test_the_calls_are_those_that_were_written(data: st.DataObject, calls: list[Written], dialect: str) -> None:
    """For any calls, each dialect and each way to cut the arguments: the same calls, or none that can be read; never
    other ones."""
    write = STREAM_CALLS_DIALECTS[dialect]
    rows = chain.from_iterable(
        write(place, name, data.draw(in_pieces(arguments))) for place, (name, arguments) in enumerate(calls)
    )

    try:
        found = assembled(*rows)
    except AmbiguousCalls:
        return

    assert found == calls


@given(st.data(), CALLS, st.sampled_from(["as OpenAI", "whole", "one index", "the id on each piece"]))
def test_usual_calls_can_always_be_read(data: st.DataObject, calls: list[Written], dialect: str) -> None:
    """What follows the protocol, or nearly, is never ambiguous."""
    write = STREAM_CALLS_DIALECTS[dialect]
    rows = [write(place, name, data.draw(in_pieces(arguments))) for place, (name, arguments) in enumerate(calls)]

    assert assembled(*chain.from_iterable(rows)) == calls


ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 2),
        st.sampled_from(["", "a", "b"]),
        st.sampled_from(["", *NAMES]),
        st.sampled_from(["", "{}", OSLO, *HALVES]),
    ),
    max_size=6,
)


@pytest.mark.slow
@given(ROWS)
def test_nothing_is_made_up(rows: list[Row]) -> None:
    """Whatever comes: each call has the name of a fragment, and no more arguments than were written."""
    try:
        calls = assembled(*rows)
    except AmbiguousCalls:
        return

    assert {name for name, _ in calls} <= {name for *_, name, _ in rows}
    assert len("".join(text for _, text in calls)) <= len("".join(text for *_, text in rows))
