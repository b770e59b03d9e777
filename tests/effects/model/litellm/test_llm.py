"""Models are asked through litellm, over a real socket, and whatever goes wrong comes back as one typed failure."""

import asyncio
import copy
import logging
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from turnwise.effects.model.failures import SENTENCES
from turnwise.effects.model.litellm.library import load_litellm
from turnwise.effects.model.litellm.llm import LiteLlm
from turnwise.effects.model.port import Llm, LlmFailure, ModelAnswer, ModelRequest, Token
from turnwise.states.errors import ConfigurationError
from turnwise.states.values.failures import FailureKind
from turnwise.states.values.messages import Usage

from ....support.openai_server import (
    OpenAiServer,
    Reply,
    breaks_off_after,
    calls,
    drops_after,
    fails,
    hangs,
    has_no_choices,
    says,
    sends,
    streams,
)

KEY = "sk-live-0123456789abcdef"

WEATHER = {
    "type": "function",
    "function": {
        "name": "check_weather",
        "description": "Say what the weather will be.",
        "parameters": {"type": "object", "properties": {"day": {"type": "string"}}},
    },
}

STRICT = {"type": "object", "properties": {}, "additionalProperties": False}


def request(*tools: dict[str, Any], tool_choice: Any = "auto") -> ModelRequest:
    """A short request."""
    return ModelRequest("openai/test", ({"role": "user", "content": "Hello"},), tools, tool_choice)


def model_at(server: OpenAiServer, name: str = "openai/test", **options: Any) -> LiteLlm:
    """A model that this server plays."""
    return LiteLlm(name, api_base=server.url, api_key=KEY, **options)


async def ask(reply: Reply, name: str = "openai/test", **options: Any) -> tuple[ModelAnswer, list[Token]]:
    """What a model makes of this reply: the answer, and the tokens shown on the way."""
    shown: list[Token] = []
    async with OpenAiServer([reply]) as server:
        answer = await model_at(server, name, **options).complete(request(WEATHER), shown.append)
    return answer, shown


async def failure_after(reply: Reply, **options: Any) -> LlmFailure:
    """The failure that this reply ends in."""
    async with OpenAiServer([reply]) as server:
        with pytest.raises(LlmFailure) as caught:
            await model_at(server, **options).complete(request(WEATHER), lambda _: None)
        assert len(server.requests) == 1, "litellm tried again"
    return caught.value


class TestAnAnswer:
    """What a model says arrives whole, and piece by piece before that."""

    async def test_a_plain_answer_is_its_text(self) -> None:
        """One piece, one token, one text."""
        answer, shown = await ask(says("Hello."))

        assert (answer.content, answer.finish_reason, answer.model) == ("Hello.", "stop", "openai/test")
        assert shown == [Token("Hello.")]

    async def test_a_streamed_answer_is_shown_as_it_comes_and_put_together(self) -> None:
        """The tokens shown, joined, are the text."""
        answer, shown = await ask(says("Hel", "lo, ", "you."))

        assert shown == [Token("Hel"), Token("lo, "), Token("you.")]
        assert answer.content == "Hello, you."

    async def test_thinking_is_kept_apart_from_the_text(self) -> None:
        """Thoughts are shown as thoughts and are no part of what is said."""
        answer, shown = await ask(says("Yes.", thinking="Hm, is it?"))

        assert (answer.thinking, answer.content) == ("Hm, is it?", "Yes.")
        assert shown == [Token("Hm, is it?", "thinking"), Token("Yes.")]

    async def test_sealed_thinking_blocks_come_through_unchanged(self) -> None:
        """What a provider signed must go back to it as it was, though litellm repeats the text beside the seal."""
        first, second = ({"type": "thinking", "thinking": text} for text in ("Hm, ", "is it?"))
        seal = {"type": "thinking", "thinking": "Hm, is it?", "signature": "c2VhbA=="}
        unseen = {"type": "thinking", "thinking": "", "signature": "dW5zZWVu"}
        hidden = {"type": "redacted_thinking", "data": "aGlkZGVu"}

        answer, _ = await ask(
            streams(
                {"reasoning_content": "Hm, ", "thinking_blocks": [first]},
                {"reasoning_content": "is it?", "thinking_blocks": [second]},
                {"content": "Yes.", "thinking_blocks": [seal, unseen, hidden]},
            )
        )

        assert answer.opaque == (seal, unseen, hidden)

    async def test_calls_are_put_together_from_fragments(self) -> None:
        """Names, ids and arguments of several calls, beside a text."""
        answer, _ = await ask(
            calls(("find_table", {"party": 2}), ("check_weather", {"day": "today"}), text="Let me see.")
        )

        made = [(call.id, call.name, call.arguments) for call in answer.tool_calls]
        assert made == [
            ("call_0", "find_table", '{"party": 2}'),
            ("call_1", "check_weather", '{"day": "today"}'),
        ]
        assert (answer.content, answer.finish_reason) == ("Let me see.", "tool_calls")

    @pytest.mark.parametrize("ids", [("", ""), ("same", "same"), ("", "b")])
    async def test_no_call_is_lost_whatever_its_id(self, ids: tuple[str, str]) -> None:
        """P29: the provider repeats call ids, or leaves them empty."""
        answer, _ = await ask(calls(("a", {"x": 1}), ("b", {"y": 2}), ids=ids))

        made = [(call.id, call.name, call.arguments) for call in answer.tool_calls]
        assert made == [(ids[0], "a", '{"x": 1}'), (ids[1], "b", '{"y": 2}')]

    async def test_calls_under_one_index_are_told_apart_by_their_ids(self) -> None:
        """P29: some providers number every call 0."""
        answer, _ = await ask(calls(("a", {"x": 1}), ("b", {"y": 2}), indexes=(0, 0)))

        assert [(call.name, call.arguments) for call in answer.tool_calls] == [("a", '{"x": 1}'), ("b", '{"y": 2}')]

    async def test_broken_arguments_arrive_as_they_are(self) -> None:
        """P5: whether they are valid is for the tool registry to say; none at all are an empty object."""
        answer, _ = await ask(calls(("a", '{"party": '), ("b", "")))

        assert [call.arguments for call in answer.tool_calls] == ['{"party": ', "{}"]

    async def test_an_answer_that_was_cut_off_says_so(self) -> None:
        """P41: finish_reason="length" reaches the machine."""
        answer, _ = await ask(says("Once upon a", finish_reason="length"))

        assert (answer.content, answer.finish_reason) == ("Once upon a", "length")

    async def test_usage_is_what_the_provider_counted(self) -> None:
        """Tokens in and out; no cost where litellm knows no price."""
        answer, _ = await ask(says("Hi", tokens=(120, 7)))

        assert answer.usage == Usage(input_tokens=120, output_tokens=7, cost=None)

    async def test_the_cost_is_known_for_a_model_with_a_price(self) -> None:
        """US dollars, from litellm's own price list."""
        answer, _ = await ask(says("Hi", tokens=(1_000_000, 1_000_000)), name="openai/gpt-4.1-mini")

        assert answer.usage.cost == pytest.approx(2.0)


class TestARequest:
    """What goes over the wire."""

    async def test_it_is_sent_once_as_a_stream_with_its_tools(self) -> None:
        """Messages and tools as they were built, and usage asked for."""
        async with OpenAiServer([says("Hi")]) as server:
            await model_at(server, temperature=0.5).complete(request(WEATHER, tool_choice="none"), lambda _: None)

        (sent,) = server.requests
        assert sent["messages"] == [{"role": "user", "content": "Hello"}]
        assert (sent["tools"], sent["tool_choice"], sent["temperature"]) == ([WEATHER], "none", 0.5)
        assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})

    async def test_without_tools_there_is_no_word_of_a_tool_choice(self) -> None:
        """P35: providers refuse a choice among nothing."""
        async with OpenAiServer([says("Hi")]) as server:
            await model_at(server).complete(request(tool_choice="none"), lambda _: None)

        assert server.requests[0].keys().isdisjoint({"tools", "tool_choice"})

    async def test_it_is_not_changed_by_being_sent(self) -> None:
        """litellm rewrites tools in place for some providers, and they are everybody's."""
        tool = {**WEATHER, "function": {**WEATHER["function"], "parameters": STRICT}}
        asked, before = request(tool), copy.deepcopy(tool)

        async with OpenAiServer([says("Hi")]) as server:
            await model_at(server, "hosted_vllm/test").complete(asked, lambda _: None)

        assert server.requests[0]["tools"] != [before]
        assert asked.tools == (before,)

    async def test_tools_work_without_the_mcp_package_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Some versions of litellm need the package `mcp` for any call with tools; the one in use must not."""
        for name in {"mcp", *(name for name in sys.modules if name.startswith("mcp."))}:
            monkeypatch.setitem(sys.modules, name, None)

        answer, _ = await ask(calls(("check_weather", {"day": "today"})))

        assert [call.name for call in answer.tool_calls] == ["check_weather"]

    async def test_nothing_is_printed(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither by an answer nor by a failure, where no log is set up: the terminal belongs to the host."""
        monkeypatch.setattr(logging.getLogger(), "handlers", [])

        await ask(says("Hi"))
        await failure_after(fails(500))
        await failure_after(drops_after("Hi"))
        logging.getLogger("LiteLLM").error("What litellm has to say.")

        assert capfd.readouterr() == ("", "")

    def test_it_is_a_model(self) -> None:
        """LiteLlm fills the port."""
        assert isinstance(LiteLlm("openai/test"), Llm)

    def test_importing_it_does_not_import_litellm(self) -> None:
        """A program pays for litellm with its first model call."""
        program = "import sys, turnwise.effects.model.litellm.llm; sys.exit('litellm' in sys.modules)"

        done = subprocess.run([sys.executable, "-c", program])

        assert done.returncode == 0


REPLIES_THAT_FAIL: list[tuple[str, Reply, FailureKind]] = [
    ("400", fails(400), "invalid_request"),
    ("401", fails(401), "authentication"),
    ("401 as OpenAI words it", fails(401, "no key", kind="invalid_request_error"), "authentication"),
    ("402", fails(402), "authentication"),
    ("403", fails(403), "authentication"),
    ("403 as OpenAI words it", fails(403, "not for you", kind="invalid_request_error"), "authentication"),
    ("404", fails(404), "unknown_model"),
    ("404 as OpenAI words it", fails(404, code="model_not_found", kind="invalid_request_error"), "unknown_model"),
    ("408", fails(408), "timeout"),
    ("409", fails(409), "server_error"),
    ("413", fails(413), "context_window"),
    ("418", fails(418), "invalid_request"),
    ("422", fails(422), "invalid_request"),
    ("429", fails(429), "rate_limit"),
    ("500", fails(500), "server_error"),
    ("502", fails(502), "server_error"),
    ("503", fails(503), "server_error"),
    ("504", fails(504), "timeout"),
    ("529", fails(529), "server_error"),
    (
        "the window is full",
        fails(400, "This model's maximum context length is 8192 tokens.", code="context_length_exceeded"),
        "context_window",
    ),
    (
        "the content is refused",
        fails(400, "Rejected.", code="content_policy_violation", kind="invalid_request_error"),
        "content_filter",
    ),
    ("the answer is filtered away", says("Well", finish_reason="content_filter"), "content_filter"),
    ("the connection drops", drops_after("Once upon a"), "network"),
    ("the connection drops before the first word", drops_after(), "network"),
    ("the stream ends in the middle", breaks_off_after("Once upon a"), "network"),
    ("the stream is empty", breaks_off_after(), "malformed_response"),
    ("there are no choices", has_no_choices(), "malformed_response"),
    ("a web page", sends("<html>Welcome</html>", "text/html"), "malformed_response"),
    ("broken JSON", sends("{nope"), "malformed_response"),
    ("broken JSON in a stream", sends("data: {nope\n\n", "text/event-stream"), "malformed_response"),
    (
        "an error in a stream",
        sends('data: {"error": {"message": "overloaded"}}\n\n', "text/event-stream"),
        "server_error",
    ),
]


class TestAFailure:
    """P11: whatever goes wrong has one kind and one sentence."""

    @pytest.mark.parametrize(
        ("reply", "kind"), [r[1:] for r in REPLIES_THAT_FAIL], ids=[r[0] for r in REPLIES_THAT_FAIL]
    )
    async def test_it_has_its_kind_after_exactly_one_request(self, reply: Reply, kind: FailureKind) -> None:
        """P11: by what the provider did, and litellm does not try again by itself (`failure_after` counts)."""
        failure = await failure_after(reply)

        assert (failure.kind, failure.sentence) == (kind, SENTENCES[kind])

    async def test_nobody_there_is_a_network_failure(self) -> None:
        """A server that has gone refuses the connection."""
        async with OpenAiServer() as server:
            model = model_at(server)

        with pytest.raises(LlmFailure) as caught:
            await model.complete(request(), lambda _: None)

        assert caught.value.kind == "network"

    async def test_the_wait_that_the_provider_asks_for_is_kept(self) -> None:
        """Retry-After in seconds."""
        failure = await failure_after(fails(429, retry_after=7))

        assert (failure.kind, failure.retry_after) == ("rate_limit", 7.0)

    async def test_the_wait_may_be_a_date(self) -> None:
        """Retry-After as an HTTP date is a wait until then."""
        later = datetime.now(UTC) + timedelta(seconds=90)

        failure = await failure_after(fails(503, retry_after=format_datetime(later, usegmt=True)))

        assert failure.retry_after == pytest.approx(90, abs=5)

    async def test_the_provider_s_words_go_to_the_log_without_the_key(self, caplog: pytest.LogCaptureFixture) -> None:
        """P33: people read one sentence of ours; the log says more, but never a key."""
        failure = await failure_after(fails(400, f"The prompt 'my secret diary' of {KEY} is wrong."))

        (record,) = [record for record in caplog.records if record.name == "turnwise.model"]
        assert failure.sentence == "The model's provider refused the request as invalid."
        assert (record.levelno, "my secret diary" in record.getMessage()) == (logging.WARNING, True)
        assert KEY not in caplog.text


class TestTime:
    """A request ends when it must, and its connection with it."""

    @pytest.mark.parametrize("pieces", [(), ("Once upon",)], ids=["before the answer", "in the middle of it"])
    async def test_a_cancel_closes_the_connection(self, pieces: tuple[str, ...]) -> None:
        """P8: the provider sees that nobody listens any more."""
        heard = asyncio.Event()
        async with OpenAiServer([hangs(*pieces)]) as server:
            task = asyncio.create_task(model_at(server).complete(request(), lambda _: heard.set()))
            await (heard.wait() if pieces else server.asked())

            task.cancel()

            with pytest.raises(asyncio.CancelledError):
                await task
            await server.left()
        assert server.disconnects == 1

    async def test_a_fault_on_this_side_closes_the_connection(self) -> None:
        """Whoever shows the pieces may fail; the provider is not kept waiting for that."""

        def break_down(_: Token) -> None:
            raise ZeroDivisionError

        async with OpenAiServer([hangs("Once upon")]) as server:
            with pytest.raises(LlmFailure) as caught:
                await model_at(server).complete(request(), break_down)

            await server.left()
        assert caught.value.kind == "internal"

    @pytest.mark.parametrize("pieces", [(), ("Once upon",)], ids=["before the answer", "in the middle of it"])
    async def test_silence_is_a_timeout(self, pieces: tuple[str, ...]) -> None:
        """A provider that goes quiet is not waited for, and its connection is closed."""
        load_litellm()
        async with OpenAiServer([hangs(*pieces)]) as server:
            with pytest.raises(LlmFailure) as caught:
                await model_at(server, timeout=1.0).complete(request(), lambda _: None)

            await server.left()
        assert (caught.value.kind, len(server.requests)) == ("timeout", 1)

    async def test_requests_do_not_wait_for_each_other(self) -> None:
        """One conversation's slow answer is nobody else's."""
        async with OpenAiServer([hangs(), says("Quick.")]) as server:
            slow = asyncio.create_task(model_at(server).complete(request(), lambda _: None))
            await server.asked()
            quick = await model_at(server).complete(request(), lambda _: None)
            server.release()
            await slow

        assert quick.content == "Quick."

    def test_one_model_serves_one_event_loop_after_another(self) -> None:
        """A host without a loop of its own starts several in a row."""

        async def talk() -> str:
            answer, _ = await ask(says("Hi"))
            return answer.content

        assert [asyncio.run(talk()) for _ in range(3)] == ["Hi"] * 3


class TestCheck:
    """What can be known to fail without asking anybody fails at once, in one sentence."""

    @pytest.mark.parametrize("name", ["nobody/knows-this", "unknown", ""])
    def test_an_unknown_provider_is_named(self, name: str) -> None:
        """P33: with an example of how a model is named."""
        with pytest.raises(ConfigurationError) as caught:
            LiteLlm(name).check()

        assert caught.value.sentence == (
            f"The model '{name}' is not known: name provider and model, as in openai/gpt-4.1-mini."
        )

    def test_what_is_not_a_hosts_to_choose_is_refused(self) -> None:
        """P33: it would be left out in silence."""
        with pytest.raises(ConfigurationError) as caught:
            LiteLlm("openai/gpt-4.1-mini", stream=False, num_retries=3, temperature=0.0)

        assert caught.value.sentence == "LiteLlm chooses by itself what litellm gets as num_retries and stream."

    def test_a_missing_key_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The sentence says which environment variable to set."""
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)

        with pytest.raises(ConfigurationError) as caught:
            LiteLlm("openai/gpt-4.1-mini").check()

        assert caught.value.sentence == "There is no key for the model 'openai/gpt-4.1-mini': set OPENAI_API_KEY."

    @pytest.mark.parametrize(
        "model",
        [LiteLlm("openai/gpt-4.1-mini", api_key=KEY), LiteLlm("ollama/llama3")],
        ids=lambda model: model.name,
    )
    def test_a_model_that_may_work_passes(self, model: LiteLlm, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a key, or of a provider that needs none."""
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)

        model.check()

    def test_a_key_in_the_environment_will_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As the provider's own client would find it."""
        monkeypatch.setenv("OPENAI_API_KEY", KEY)

        LiteLlm("openai/gpt-4.1-mini").check()
