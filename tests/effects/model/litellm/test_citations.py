"""The sources that a model names, the probabilities of its tokens and what its provider's own tools did: over a real
socket, as each provider writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise import Engine, MessageUpdate, ModelSpec, Policy, Turn, presets, tool
from turnwise.effects.model.openai.citations import citations_in, grounding_citations
from turnwise.states import Citation, Message

from ....support.servers.model_server import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    RESPONSES,
    Answer,
    Data,
    Dialect,
    ModelServer,
    Raw,
    answers,
    call,
    event,
)

URL = "https://example.org/oslo"


@tool(crash="pure")
def note(text: str) -> str:
    """Note it."""
    return "Noted."


def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> Data:
    """Return a chunk of OpenAI's protocol with this delta."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return Data({"id": "c", "object": "chat.completion.chunk", "created": 1, "choices": [choice], **more})


async def told(answer: Answer, dialect: Dialect = OPENAI, **options: Any) -> tuple[list[Message], list[Any], Turn]:
    """Return the transcript of a conversation whose first message is answered so, the bodies of its two requests, and
    its first turn."""
    async with (
        ModelServer([answer, answers("Bye.")], dialect) as server,
        Engine.open("sqlite://", model=server.llm(**options), tools=[note], policy=presets.assistant()) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("The weather?")
        await conversation.send("Thanks.")
        return list(await conversation.transcript()), server.bodies, turn


def block(index: int, block: Mapping[str, Any], *deltas: Mapping[str, Any]) -> list[Raw]:
    """Return the events of a block of Anthropic's."""
    start = {"type": "content_block_start", "index": index, "content_block": block}
    grown = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    stop = {"type": "content_block_stop", "index": index}
    return [Raw(event(one, str(one["type"]))) for one in (start, *grown, stop)]


FOUND = {"type": "web_search_result", "url": URL, "title": "Oslo", "encrypted_content": "c2VjcmV0", "page_age": None}
SEARCHED = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [FOUND]}
CITED = {
    "type": "web_search_result_location",
    "url": URL,
    "title": "Oslo",
    "cited_text": "Rain in Oslo",
    "encrypted_index": "aW5kZXg=",
}
SEARCH = (
    *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "I look. "}),
    *block(
        1,
        SEARCHED,
        {"type": "input_json_delta", "partial_json": '{"query": "os'},
        {"type": "input_json_delta", "partial_json": 'lo"}'},
    ),
    *block(2, RESULT),
    *block(
        3,
        {"type": "text", "text": "", "citations": []},
        {"type": "text_delta", "text": "It rains."},
        {"type": "citations_delta", "citation": CITED},
    ),
)
GROUNDING = {
    "webSearchQueries": ["oslo weather"],
    "groundingChunks": [{"web": {"uri": URL, "title": "Oslo"}}, {"web": {"uri": f"{URL}/2", "title": "More"}}],
    "groundingSupports": [{"segment": {"endIndex": 9, "text": "Ça pleut"}, "groundingChunkIndices": [0]}],
}


class TestCitations:
    """Each provider tells them in its own way."""

    async def test_annotations_of_chat_completions(self) -> None:
        """OpenAI's search models and OpenRouter."""
        given = {
            "type": "url_citation",
            "url_citation": {"url": URL, "title": "Oslo", "start_index": 0, "end_index": 9},
        }
        answer = answers("It rains.", chunk({"annotations": [given]}))

        transcript, _, _ = await told(answer)

        assert transcript[1].citations == (Citation(url=URL, title="Oslo", start=0, end=9, given=given),)

    async def test_addresses_beside_the_answer(self) -> None:
        """Perplexity repeats them with each chunk."""
        more = {"citations": [URL, f"{URL}/2"]}
        answer = answers(chunk({"content": "It "}, **more), chunk({"content": "rains[1]."}, **more))

        transcript, _, _ = await told(answer)

        assert [one.url for one in transcript[1].citations] == [URL, f"{URL}/2"]

    async def test_results_of_a_search_beside_the_answer(self) -> None:
        """They say more than the addresses."""
        more = {"citations": [URL], "search_results": [{"title": "Oslo", "url": URL, "date": "2026-06-01"}]}

        transcript, _, _ = await told(answers(chunk({"content": "It rains."}, **more)))

        assert [(one.url, one.title, one.given.get("date")) for one in transcript[1].citations] == [
            (URL, "Oslo", "2026-06-01")
        ]

    async def test_references_among_the_parts(self) -> None:
        """Mistral."""
        parts = [{"type": "text", "text": "It rains"}, {"type": "reference", "reference_ids": [3]}]

        transcript, _, _ = await told(answers(chunk({"content": parts})))

        assert transcript[1].citations == (Citation(given={"type": "reference", "reference_ids": [3]}),)

    async def test_passages_of_anthropic(self) -> None:
        """Each is for the block of text that it stands in."""
        transcript, _, _ = await told(Answer(SEARCH, "stop"), ANTHROPIC)

        assert transcript[1].text == "I look. It rains."
        assert transcript[1].citations == (
            Citation(url=URL, title="Oslo", quote="Rain in Oslo", start=8, end=17, given=CITED),
        )

    async def test_grounding_of_gemini(self) -> None:
        """Its places count bytes, and a source may be for no part of the text."""
        candidate = {"content": {"role": "model", "parts": [{"text": "Ça pleut à Oslo."}]}, "index": 0}
        answer = answers(Data({"candidates": [{**candidate, "groundingMetadata": GROUNDING}]}))

        transcript, _, _ = await told(answer, GEMINI)

        assert [(one.url, one.title, one.start, one.end) for one in transcript[1].citations] == [
            (URL, "Oslo", 0, 8),
            (f"{URL}/2", "More", None, None),
        ]

    async def test_annotations_of_responses(self) -> None:
        """They come with the item that is done, each with places in its own part."""
        given = {"type": "url_citation", "url": URL, "title": "Oslo", "start_index": 3, "end_index": 8}
        item = {
            "id": "msg",
            "type": "message",
            "content": [{"type": "output_text", "text": "rains.", "annotations": [given]}],
        }
        done = Data({"type": "response.output_item.done", "output_index": 1, "item": item})
        piece = Data({"type": "response.output_text.delta", "output_index": 1, "delta": "rains."})

        transcript, _, _ = await told(answers("It ", piece, done), RESPONSES)

        assert [(one.url, one.start, one.end) for one in transcript[1].citations] == [(URL, 6, 11)]

    async def test_they_are_shown(self) -> None:
        """In the update of the message and in the data of the snapshot, as JSON."""
        answer = answers(chunk({"content": "It rains."}, citations=[URL]))
        async with ModelServer([answer]) as server, Engine.open("sqlite://", model=server.llm()) as engine:
            conversation = await engine.create()
            updates = [one async for one in conversation.stream("The weather?")]
            snapshot = await anext(conversation.updates())

        shown = next(one for one in updates if isinstance(one, MessageUpdate) and one.role == "assistant")
        assert shown.data["citations"] == [{"url": URL}]
        assert snapshot.data["transcript"][1]["citations"] == [{"url": URL}]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "url",
                        "web",
                        "title",
                        "start_index",
                        "segment",
                        "endIndex",
                        "groundingChunks",
                        "groundingSupports",
                        "groundingChunkIndices",
                        "text",
                    ]
                ),
                inner,
            )
        ),
    )
)
def test_whatever_is_told_is_a_citation(told: Any) -> None:
    """No shape of it fails an answer."""
    found = list(citations_in([told], "m"))
    grounded = list(grounding_citations(told, "Ça", "m")) if isinstance(told, dict) else []

    assert len(found) == 1
    assert all(isinstance(one, Citation) for one in (*found, *grounded))


class TestServerTools:
    """What the provider's own tools did is no call of the conversation, and goes back where the provider wants it."""

    async def test_a_search_of_anthropic(self) -> None:
        """Its blocks go back in their order, between the texts, with what is encrypted in them."""
        transcript, bodies, turn = await told(Answer(SEARCH, "stop"), ANTHROPIC)

        assert (turn.status, turn.reply, transcript[1].tool_calls) == ("completed", "I look. It rains.", ())
        assert bodies[1]["messages"][1]["content"] == [
            {"type": "text", "text": "I look. "},
            {**SEARCHED, "input": {"query": "oslo"}},
            RESULT,
            {"type": "text", "text": "It rains."},
        ]

    async def test_a_search_beside_a_call_with_thinking(self) -> None:
        """Sealed thinking stands where it stood, and the call behind all of it."""
        thinking = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = ({"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "c2VhbGVk"})
        pieces = (*block(0, thinking, *deltas), *block(1, SEARCHED), *block(2, RESULT))
        used = {"type": "tool_use", "id": "toolu_1", "name": "note", "input": {}}
        written = {"type": "input_json_delta", "partial_json": '{"text": "rain"}'}

        transcript, bodies, _ = await told(Answer((*pieces, *block(3, used, written)), "calls"), ANTHROPIC)

        kinds = [one["type"] for one in bodies[1]["messages"][1]["content"]]
        assert kinds == ["thinking", "server_tool_use", "web_search_tool_result", "tool_use"]
        assert bodies[1]["messages"][1]["content"][0] == {
            "type": "thinking",
            "thinking": "Hm.",
            "signature": "c2VhbGVk",
        }
        assert [one.name for one in transcript[1].tool_calls] == ["note"]

    async def test_a_paused_answer_is_continued(self) -> None:
        """The provider gets back what it has begun, and all of it is one answer, with what all of it cost."""
        rest = (
            *block(0, {"type": "text", "text": "", "citations": []}, {"type": "text_delta", "text": " All day."}),
            *block(1, {"type": "text", "text": ""}, {"type": "citations_delta", "citation": CITED}),
        )
        script = [Answer(SEARCH, "pause_turn"), Answer(rest, "stop"), answers("Bye.")]
        async with (
            ModelServer(script, ANTHROPIC) as server,
            Engine.open("sqlite://", model=server.llm(), policy=presets.assistant()) as engine,
        ):
            conversation = await engine.create()
            turn = await conversation.send("The weather?")
            await conversation.send("Thanks.")
            transcript = await conversation.transcript()

        begun = server.bodies[1]["messages"][-1]
        assert (begun["role"], [one["type"] for one in begun["content"]][1:3]) == (
            "assistant",
            ["server_tool_use", "web_search_tool_result"],
        )
        assert (turn.reply, turn.usage.input_tokens) == ("I look. It rains. All day.", 20)
        assert [(one.start, one.end) for one in transcript[1].citations] == [(8, 17), (26, 26)]
        sent = server.bodies[2]["messages"][1]["content"]
        assert "".join(one.get("text", "") for one in sent) == "I look. It rains. All day."
        assert RESULT in sent

    async def test_another_family_reads_the_text_alone(self) -> None:
        """What it cannot read is left out."""
        async with (
            ModelServer([Answer(SEARCH, "stop")], ANTHROPIC) as first,
            ModelServer([answers("Bye.")]) as second,
            Engine.open("sqlite://", model=first.llm(), models=[second.llm()]) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("The weather?")
            await conversation.set_policy(Policy(models=(ModelSpec(name="openai/test"),)))
            await conversation.send("Thanks.")

        assert second.bodies[0]["messages"][1] == {"role": "assistant", "content": "I look. It rains."}


class TestLogprobs:
    """The probabilities of tokens."""

    async def test_they_are_kept_as_they_were_written(self) -> None:
        """Those of all chunks together."""
        tokens = [{"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": []} for text in ("It", " rains.")]
        chunks = [
            Data(
                {
                    "object": "chat.completion.chunk",
                    "choices": [
                        {
                            "index": 0,
                            "delta": {"content": one["token"]},
                            "logprobs": {"content": [one], "refusal": None},
                        }
                    ],
                }
            )
            for one in tokens
        ]

        transcript, _, _ = await told(answers(*chunks))

        assert transcript[1].logprobs == {"content": tokens}

    async def test_those_of_responses(self) -> None:
        """They stand beside each piece of the text."""
        token = {"token": "Rain", "logprob": -0.5, "top_logprobs": []}
        piece = Data({"type": "response.output_text.delta", "output_index": 0, "delta": "Rain", "logprobs": [token]})

        transcript, _, _ = await told(answers(piece), RESPONSES)

        assert transcript[1].logprobs == {"content": [token]}

    async def test_they_do_not_tell_what_was_redacted(self) -> None:
        """The tokens make the text."""
        secret = "sk-proj-" + "a1B2c3D4" * 6
        tokens = [{"token": secret[:20], "logprob": -0.5}, {"token": secret[20:], "logprob": -0.5}]
        chunks = [
            Data(
                {
                    "object": "chat.completion.chunk",
                    "choices": [{"index": 0, "delta": {"content": one["token"]}, "logprobs": {"content": [one]}}],
                }
            )
            for one in tokens
        ]
        async with (
            ModelServer([answers(*chunks)]) as server,
            Engine.open("sqlite://", model=server.llm(), policy=Policy(redact=True)) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("Hi")
            transcript = await conversation.transcript()

        assert secret not in transcript[1].text
        assert transcript[1].logprobs is None


@pytest.mark.parametrize("signed", ["text", "empty"])
async def test_the_signature_of_a_text_of_gemini_goes_back(signed: str) -> None:
    """On the text itself or on an empty part behind it, and never a made-up one; within the turn."""
    sealed = {"thoughtSignature": "c2VhbGVk"}
    parts = (
        [{"text": "One moment.", **sealed}] if signed == "text" else [{"text": "One moment."}, {"text": "", **sealed}]
    )
    chunks = [Data({"candidates": [{"content": {"role": "model", "parts": [one]}, "index": 0}]}) for one in parts]

    _, bodies, _ = await told(answers(*chunks, call("note", text="rain")), GEMINI, model="gemini/gemini-3-pro-preview")

    sent = bodies[1]["contents"][1]["parts"]
    assert {"text": "One moment.", **sealed} in sent
    assert "skip_thought_signature_validator" not in str(sent)
