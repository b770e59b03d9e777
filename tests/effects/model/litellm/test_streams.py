"""Streams are read as servers really write them, over a real socket: an answer arrives whole, or is asked for again."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from turnwise import LlmFailure, ModelAnswer, ModelRequest, Token
from turnwise.effects.model.litellm.loading import load_litellm
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

    async def test_what_the_server_has_counted_is_spent(self) -> None:
        """Although nothing of the answer came, it has read the request."""
        counted = chunk(usage={"prompt_tokens": 7, "completion_tokens": 0})

        with pytest.raises(LlmFailure) as caught:
            await ask(bare(counted, Data({"error": {"message": "overloaded", "code": 503}})))

        assert (caught.value.usage.input_tokens, caught.value.usage.estimated) == (7, False)

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
