"""litellm as a model: what is sent, with which settings, and what comes back over a socket."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine, LlmFailure, ModelRequest, ModelSettings, OpenAICompatible, Policy, Profile, Retry
from turnwise.effects.model.keys import without_keys
from turnwise.effects.model.litellm.llm import LiteLlm
from turnwise.effects.model.litellm.loading import load_litellm
from turnwise.effects.model.openai.senses import Senses
from turnwise.effects.model.port import SENTENCES, Llm, ModelAnswer, Token
from turnwise.effects.model.written_messages import request_digest
from turnwise.states.errors import ConfigurationError
from turnwise.states.values.messages import Usage
from turnwise.states.values.value import FailureKind
from turnwise.testing import FunctionLlm, reply

from ....engine.test_litellm import model_at as request_settings_model_at
from ....support.cases import holds_for
from ....support.servers.clients import served_model
from ....support.servers.model_server import (
    DIALECTS,
    GEMINI,
    OPENAI,
    Answer,
    Data,
    ModelServer,
    Raw,
    answers,
    call,
    thinks,
)
from ....support.servers.model_server import fails as model_server_fails
from ....support.servers.openai_server import (
    Body,
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

# --- Models are asked through litellm, over a real socket, and every error becomes one typed failure.
#
# What refusals teach of whether a model takes images.


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

WITHOUT_MCP = """
import asyncio, sys
sys.modules["mcp"] = sys.modules["mcp_types"] = None
from turnwise import LiteLlm, ModelRequest

request = ModelRequest("openai/test", ({{"role": "user", "content": "Hello"}},), ({tool!r},), "auto")
model = LiteLlm("openai/test", api_base={url!r}, api_key="test")
answer = asyncio.run(model.complete(request, lambda token: None))
print(*(call.name for call in answer.tool_calls))
"""
"""A program that asks for an answer with tools where the package `mcp` cannot be imported."""


def request(*tools: dict[str, Any], tool_choice: Any = "auto") -> ModelRequest:
    """A short request."""
    return ModelRequest("openai/test", ({"role": "user", "content": "Hello"},), tools, tool_choice)


def model_at(server: OpenAiServer, name: str = "openai/test", **options: Any) -> LiteLlm | OpenAICompatible:
    """A model whose provider is this server."""
    return served_model(server.url, name, KEY, **options)


async def ask(reply: Reply, name: str = "openai/test", **options: Any) -> tuple[ModelAnswer, list[Token]]:
    """The answer that a model makes of this reply, and the tokens that it shows."""
    shown: list[Token] = []
    async with OpenAiServer([reply]) as server:
        answer = await model_at(server, name, **options).complete(request(WEATHER), shown.append)
    return answer, shown


async def failure_after(reply: Reply, **options: Any) -> LlmFailure:
    """The failure that this reply leads to."""
    async with OpenAiServer([reply]) as server:
        with pytest.raises(LlmFailure) as caught:
            await model_at(server, **options).complete(request(WEATHER), lambda _: None)
        assert len(server.requests) == 1, "litellm tried again"
    return caught.value


@pytest.mark.usefixtures("each_client")
class TestAnswers:
    """An answer arrives complete, and is shown piece by piece before that."""

    async def test_a_plain_answer_is_its_text(self) -> None:
        """A reply of one piece is one token."""
        answer, shown = await ask(says("Hello."))

        assert (answer.content, answer.finish_reason, answer.model) == ("Hello.", "stop", "openai/test")
        assert shown == [Token("Hello.")]

    async def test_a_streamed_answer_is_shown_and_assembled(self) -> None:
        """The tokens, joined, are the content."""
        answer, shown = await ask(says("Hel", "lo, ", "you."))

        assert shown == [Token("Hel"), Token("lo, "), Token("you.")]
        assert answer.content == "Hello, you."

    async def test_thinking_is_kept_apart_from_the_text(self) -> None:
        """It is shown as thinking, and is not part of the content."""
        answer, shown = await ask(says("Yes.", thinking="Hm, is it?"))

        assert (answer.thinking, answer.content) == ("Hm, is it?", "Yes.")
        assert shown == [Token("Hm, is it?", "thinking"), Token("Yes.")]

    @holds_for(
        "fields",
        [
            {"reasoning_content": "Hm."},
            {"reasoning": "Hm."},
            {"thinking": "Hm."},
            {"reasoning_text": "Hm."},
            {"thought": "Hm."},
            {"thinking": "Hm.", "reasoning": "Hm.", "reasoning_content": None},
            {"thinking": [{"type": "text", "text": "Hm."}]},
            {"reasoning": None, "thinking": {"type": "thinking", "thinking": "Hm."}},
            {"thinking": "Hm.", "content": [{"type": "text", "text": ""}]},
        ],
    )
    async def test_thinking_is_read_whatever_its_field_is_called(self, fields: dict[str, Any]) -> None:
        """J10: servers name it as they like; it is never lost, never text, and told twice it is read once."""
        answer, shown = await ask(streams(fields, {"content": "Yes."}))

        assert (answer.thinking, answer.content) == ("Hm.", "Yes.")
        assert shown == [Token("Hm.", "thinking"), Token("Yes.")]

    async def test_a_field_of_such_a_name_may_be_something_else(self) -> None:
        """A switch, a number or an object without text is no thinking, and nothing fails."""
        answer, _ = await ask(
            streams({"thinking": True}, {"reasoning": {"effort": 3}}, {"thought": 7, "content": "Yes."})
        )

        assert (answer.thinking, answer.content) == ("", "Yes.")

    async def test_sealed_thinking_blocks_come_through_unchanged(self) -> None:
        """The provider wants back exactly what it signed, although litellm repeats the text beside the signature."""
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

    async def test_calls_are_assembled_from_fragments(self) -> None:
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
        """P29: a provider may repeat the ids of calls or leave them empty."""
        answer, _ = await ask(calls(("a", {"x": 1}), ("b", {"y": 2}), ids=ids))

        made = [(call.id, call.name, call.arguments) for call in answer.tool_calls]
        assert made == [(ids[0], "a", '{"x": 1}'), (ids[1], "b", '{"y": 2}')]

    async def test_calls_under_one_index_are_separated_by_their_ids(self) -> None:
        """P29: some providers give every call the index 0."""
        answer, _ = await ask(calls(("a", {"x": 1}), ("b", {"y": 2}), indexes=(0, 0)))

        assert [(call.name, call.arguments) for call in answer.tool_calls] == [("a", '{"x": 1}'), ("b", '{"y": 2}')]

    async def test_malformed_arguments_are_passed_on(self) -> None:
        """P5: the tool registry decides whether they are valid. Missing arguments are an empty object."""
        answer, _ = await ask(calls(("a", '{"party": '), ("b", "")))

        assert [call.arguments for call in answer.tool_calls] == ['{"party": ', "{}"]

    async def test_a_truncated_answer_says_so(self) -> None:
        """P41: finish_reason="length" reaches the machine."""
        answer, _ = await ask(says("Once upon a", finish_reason="length"))

        assert (answer.content, answer.finish_reason) == ("Once upon a", "length")

    async def test_usage_is_what_the_provider_counted(self) -> None:
        """Tokens in and out; without a known price there is no cost."""
        answer, _ = await ask(says("Hi", tokens=(120, 7)))

        assert answer.usage == Usage(input_tokens=120, output_tokens=7, cost=None)

    async def test_usage_has_the_details_that_the_provider_tells(self) -> None:
        """Cached tokens are a part of the input tokens, and reasoning tokens of the output tokens."""
        answer, _ = await ask(says("Hi", tokens=(120, 70), details=(100, 64)))

        assert answer.usage == Usage(input_tokens=120, output_tokens=70, cached_tokens=100, reasoning_tokens=64)


class TestRequests:
    """What is sent over the wire."""

    async def test_the_cost_is_known_for_a_model_with_a_price(self) -> None:
        """In US dollars, from litellm's own price list."""
        answer, _ = await ask(says("Hi", tokens=(1_000_000, 1_000_000)), name="openai/gpt-4.1-mini")

        assert answer.usage.cost == pytest.approx(2.0)

    async def test_it_is_sent_once_as_a_stream(self) -> None:
        """With its messages and tools unchanged, and with a request for the usage."""
        async with OpenAiServer([says("Hi")]) as server:
            await model_at(server, temperature=0.5).complete(request(WEATHER, tool_choice="none"), lambda _: None)

        (sent,) = server.requests
        assert sent["messages"] == [{"role": "user", "content": "Hello"}]
        assert (sent["tools"], sent["tool_choice"], sent["temperature"]) == ([WEATHER], "none", 0.5)
        assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})

    async def test_without_tools_no_tool_choice_is_sent(self) -> None:
        """P35: providers refuse a choice among no tools."""
        async with OpenAiServer([says("Hi")]) as server:
            await model_at(server).complete(request(tool_choice="none"), lambda _: None)

        assert server.requests[0].keys().isdisjoint({"tools", "tool_choice"})

    async def test_it_is_not_changed_by_being_sent(self) -> None:
        """litellm changes tools in place for some providers, and later requests share them."""
        tool = {**WEATHER, "function": {**WEATHER["function"], "parameters": STRICT}}
        asked, before = request(tool), copy.deepcopy(tool)

        async with OpenAiServer([says("Hi")]) as server:
            await model_at(server, "hosted_vllm/test").complete(asked, lambda _: None)

        assert server.requests[0]["tools"] != [before]
        assert asked.tools == (before,)

    @pytest.mark.slow
    async def test_tools_work_without_the_mcp_package_installed(self) -> None:
        """Some versions of litellm need the package `mcp` for any call with tools; the installed one must not. The
        process is a new one, in which nothing has imported the package before it is hidden."""
        async with OpenAiServer([calls(("check_weather", {"day": "today"}))]) as server:
            program = WITHOUT_MCP.format(url=server.url, tool=WEATHER)
            done = await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True
            )

        assert (done.returncode, done.stdout) == (0, "check_weather\n"), done.stderr

    async def test_nothing_is_printed(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither for an answer nor for a failure, also if logging is not set up: the terminal belongs to the
        application."""
        monkeypatch.setattr(logging.getLogger(), "handlers", [])

        await ask(says("Hi"))
        await failure_after(fails(500))
        await failure_after(drops_after("Hi"))
        logging.getLogger("LiteLLM").error("What litellm has to say.")

        assert capfd.readouterr() == ("", "")

    def test_it_fills_the_port(self) -> None:
        """A LiteLlm is an Llm."""
        assert isinstance(LiteLlm("openai/test"), Llm)

    @pytest.mark.slow
    def test_importing_it_does_not_import_litellm(self) -> None:
        """litellm is imported at the first request."""
        program = "import sys, turnwise.effects.model.litellm.llm; sys.exit('litellm' in sys.modules)"

        done = subprocess.run([sys.executable, "-c", program])

        assert done.returncode == 0


REPLIES_THAT_FAIL: list[tuple[str, Reply, FailureKind]] = [
    ("400", fails(400), "invalid_request"),
    ("401", fails(401), "authentication"),
    ("401 as OpenAI words it", fails(401, "no key", kind="invalid_request_error"), "authentication"),
    ("402", fails(402), "no_credit"),
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


@pytest.mark.usefixtures("each_client")
class TestFailures:
    """P11: every error has one kind and one sentence."""

    @pytest.mark.slow
    @holds_for(("reply", "kind"), [r[1:] for r in REPLIES_THAT_FAIL])
    async def test_each_reply_has_its_kind_after_one_request(self, reply: Reply, kind: FailureKind) -> None:
        """P11: litellm does not retry by itself (`failure_after` counts the requests)."""
        failure = await failure_after(reply)

        assert (failure.kind, failure.sentence) == (kind, SENTENCES[kind])

    async def test_a_refused_connection_is_a_network_failure(self) -> None:
        """The server is gone."""
        async with OpenAiServer() as server:
            model = model_at(server)

        with pytest.raises(LlmFailure) as caught:
            await model.complete(request(), lambda _: None)

        assert caught.value.kind == "network"

    async def test_a_failure_has_the_wait_that_the_provider_asks_for(self) -> None:
        """In seconds, from the header `retry-after`."""
        failure = await failure_after(fails(429, retry_after=7))

        assert (failure.kind, failure.retry_after) == ("rate_limit", 7.0)

    async def test_the_wait_may_be_a_date(self) -> None:
        """The wait then lasts until that date."""
        later = datetime.now(UTC) + timedelta(seconds=90)

        failure = await failure_after(fails(503, retry_after=format_datetime(later, usegmt=True)))

        assert failure.retry_after == pytest.approx(90, abs=5)

    async def test_the_provider_s_message_is_logged_without_the_key(self, caplog: pytest.LogCaptureFixture) -> None:
        """P33: people read turnwise's own sentence; the log has the message of the provider, but never a key."""
        failure = await failure_after(fails(400, f"The prompt 'my secret diary' of {KEY} is wrong."))

        (record,) = [record for record in caplog.records if record.name == "turnwise.model"]
        assert failure.sentence == "The model's provider refused the request as invalid."
        assert (record.levelno, "my secret diary" in record.getMessage()) == (logging.WARNING, True)
        assert KEY not in caplog.text


@pytest.mark.usefixtures("each_client")
class TestEnding:
    """A request ends when it must, and so does its connection."""

    @pytest.mark.parametrize("pieces", [(), ("Once upon",)], ids=["before the answer", "in the middle of it"])
    async def test_a_cancel_closes_the_connection(self, pieces: tuple[str, ...]) -> None:
        """P8: the provider sees that nobody reads any more."""
        heard = asyncio.Event()
        async with OpenAiServer([hangs(*pieces)]) as server:
            task = asyncio.create_task(model_at(server).complete(request(), lambda _: heard.set()))
            await (heard.wait() if pieces else server.asked())

            task.cancel()

            with pytest.raises(asyncio.CancelledError):
                await task
            await server.left()
        assert server.disconnects == 1

    async def test_an_error_in_show_closes_the_connection(self) -> None:
        """Whatever the function raises that shows the tokens."""

        def break_down(_: Token) -> None:
            raise ZeroDivisionError

        async with OpenAiServer([hangs("Once upon")]) as server:
            with pytest.raises(LlmFailure) as caught:
                await model_at(server).complete(request(), break_down)

            await server.left()
        assert caught.value.kind == "internal"

    @pytest.mark.parametrize("pieces", [(), ("Once upon",)], ids=["before the answer", "in the middle of it"])
    async def test_silence_is_a_timeout(self, pieces: tuple[str, ...]) -> None:
        """If the provider sends nothing for the given time, the request fails and its connection is closed."""
        load_litellm()
        async with OpenAiServer([hangs(*pieces)]) as server:
            with pytest.raises(LlmFailure) as caught:
                await model_at(server, timeout=1.0).complete(request(), lambda _: None)

            await server.left()
        assert (caught.value.kind, len(server.requests)) == ("timeout", 1)

    async def test_requests_do_not_wait_for_each_other(self) -> None:
        """A slow answer delays no other conversation."""
        async with OpenAiServer([hangs(), says("Quick.")]) as server:
            slow = asyncio.create_task(model_at(server).complete(request(), lambda _: None))
            await server.asked()
            quick = await model_at(server).complete(request(), lambda _: None)
            server.release()
            await slow

        assert quick.content == "Quick."

    def test_one_model_serves_one_event_loop_after_another(self) -> None:
        """An application may run several loops in a row."""

        async def talk() -> str:
            answer, _ = await ask(says("Hi"))
            return answer.content

        assert [asyncio.run(talk()) for _ in range(3)] == ["Hi"] * 3


class TestCheck:
    """Faults that can be found without a request are reported at once, in one sentence."""

    @pytest.mark.parametrize("name", ["nobody/knows-this", "unknown", ""])
    def test_an_unknown_provider_is_named(self, name: str) -> None:
        """P33: the sentence has an example of how a model is named."""
        with pytest.raises(ConfigurationError) as caught:
            LiteLlm(name).check()

        assert caught.value.sentence == (
            f"The model '{name}' is not known: name provider and model, as in openai/gpt-4.1-mini."
        )

    def test_reserved_options_are_refused(self) -> None:
        """P33: they would be ignored silently."""
        with pytest.raises(ConfigurationError) as caught:
            LiteLlm("openai/gpt-4.1-mini", stream=False, num_retries=3, temperature=0.0)

        assert (
            caught.value.sentence
            == "These options of litellm are set by turnwise and cannot be given: num_retries, stream."
        )

    def test_a_missing_key_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The sentence says which environment variable to set."""
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)

        with pytest.raises(ConfigurationError) as caught:
            LiteLlm("openai/gpt-4.1-mini").check()

        assert caught.value.sentence == "There is no key for the model 'openai/gpt-4.1-mini': set OPENAI_API_KEY."

    async def test_what_a_request_is_for_is_not_sent(self) -> None:
        """Neither its purpose nor its conversation: the provider learns nothing of either."""
        async with OpenAiServer([says("Hello.")]) as server:
            asked = replace(request(), purpose="check", conversation_id="conversation-7")
            await model_at(server).complete(asked, lambda token: None)

        assert "conversation-7" not in json.dumps(server.requests)
        assert "check" not in json.dumps(server.requests)

    @pytest.mark.parametrize("blank", ["", " "])
    def test_a_blank_key_is_missing(self, blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """In the environment and as an option; a file of variables often has lines without a value. The environment of
        the process is as before."""
        monkeypatch.setenv("OPENAI_API_KEY", blank)

        for model in (LiteLlm("openai/gpt-4.1-mini"), LiteLlm("openai/gpt-4.1-mini", api_key=blank)):
            with pytest.raises(ConfigurationError, match=r"set OPENAI_API_KEY\.$"):
                model.check()
        assert os.environ["OPENAI_API_KEY"] == blank

    async def test_a_blank_key_ends_a_request_as_a_missing_one_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before anything is sent. Once the key is set, the same model can be asked."""
        monkeypatch.setenv("OPENAI_API_KEY", "")
        async with OpenAiServer([says("Hello.")]) as server:
            model = LiteLlm("openai/test", api_base=server.url)

            with pytest.raises(LlmFailure) as caught:
                await model.complete(request(), lambda token: None)
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            answer = await model.complete(request(), lambda token: None)

        assert (caught.value.kind, answer.content, len(server.requests)) == ("authentication", "Hello.", 1)

    def test_one_of_several_variables_is_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another of them may be blank."""
        monkeypatch.setenv("GOOGLE_API_KEY", "")
        monkeypatch.setenv("GEMINI_API_KEY", KEY)

        LiteLlm("gemini/gemini-2.5-flash").check()

    @pytest.mark.parametrize(
        "model",
        [LiteLlm("openai/gpt-4.1-mini", api_key=KEY), LiteLlm("ollama/llama3")],
        ids=lambda model: model.name,
    )
    def test_a_model_that_may_work_passes(self, model: LiteLlm, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a key, or with a provider that needs none."""
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)

        model.check()

    def test_a_key_in_the_environment_is_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The provider's own client would find it too."""
        monkeypatch.setenv("OPENAI_API_KEY", KEY)

        LiteLlm("openai/gpt-4.1-mini").check()


class TestNames:
    """What conversations call a model, and what litellm calls it."""

    async def test_one_model_has_two_settings_under_two_names(self, tmp_path: Path) -> None:
        """Each conversation asks by its own name; the provider gets its own, with the options of each."""
        async with OpenAiServer([says("Hello."), says("Hello.")]) as server:
            careful = model_at(server, "careful", model="openai/test", temperature=0)
            lively = model_at(server, "lively", model="openai/test", temperature=1)
            async with Engine.open(tmp_path / "names.db", model=careful, models=[lively]) as engine:
                for name in ("careful", "lively"):
                    turn = await (await engine.create(model=name)).send("Hi")
                    assert turn.reply == "Hello."

        assert [(body["model"], body["temperature"]) for body in server.requests] == [("test", 0), ("test", 1)]


LOOK = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
SEEING = ModelRequest("openai/m", ({"role": "user", "content": [LOOK]},), (), "auto")
READING = ModelRequest("openai/m", ({"role": "user", "content": "Hi"},), (), "auto")
REFUSED = LlmFailure("unsupported_content", "No images.")


def test_one_refusal_teaches_nothing() -> None:
    """It may have been about one image, or may have been misread."""
    sight = Senses()
    sight.note_failure(SEEING, REFUSED)
    sight.note_failure(READING, REFUSED)
    sight.note_answer(READING)

    assert sight.takes("image") is None


def test_two_in_a_row_teach_that_there_is_no_sight() -> None:
    """Requests without images in between say nothing."""
    sight = Senses()
    sight.note_failure(SEEING, REFUSED)
    sight.note_answer(READING)
    sight.note_failure(SEEING, REFUSED)

    assert sight.takes("image") is False


def test_an_image_that_is_taken_shows_that_there_is_sight() -> None:
    """Also where a request that was under way is answered after refusals."""
    sight = Senses()
    for _ in range(2):
        sight.note_failure(SEEING, REFUSED)
    sight.note_answer(SEEING)
    for _ in range(2):
        sight.note_failure(SEEING, REFUSED)

    assert sight.takes("image") is True


def test_each_kind_is_learned_by_itself() -> None:
    """Where a request shows files of several kinds, nobody knows which was refused."""
    document = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}}
    both = ModelRequest("openai/m", ({"role": "user", "content": [LOOK, document]},), (), "auto")
    senses = Senses({"audio": False})
    for _ in range(2):
        senses.note_failure(both, REFUSED)

    assert [senses.takes(kind) for kind in ("image", "document", "audio")] == [None, None, False]


# --- Settings of a profile over litellm and a real socket, also those that a model does not take.


NAMES = set(ModelSettings.model_fields)
POLICY = Policy(retry=Retry(attempts=1))


def profile(**settings: Any) -> Profile:
    """Return a profile with these settings."""
    return Profile(name="cook", settings=ModelSettings(**settings))


def sent(body: Body) -> dict[str, Any]:
    """Return the settings that a request holds."""
    return {name: value for name, value in body.items() if name in NAMES}


class TestSending:
    """What a request holds of the settings."""

    async def test_those_that_are_given_are_sent(self, database: Path) -> None:
        """And no others; without settings there are none."""
        given = {"temperature": 0.0, "max_tokens": 50, "top_p": 0.5, "seed": 7}
        async with OpenAiServer([says("One."), says("Two.")]) as server:
            for profiles in ([profile(**given)], []):
                async with Engine.open(
                    database, model=request_settings_model_at(server), profiles=profiles, policy=POLICY
                ) as engine:
                    await (await engine.create()).send("Hi")

        assert [sent(body) for body in server.requests] == [given, {}]

    async def test_they_go_with_the_profile_of_the_turn(self) -> None:
        """To every `Llm`, and only with the turn's own requests."""
        seen: list[tuple[str, ModelSettings]] = []

        def note(request: Any) -> Any:
            seen.append((request.purpose, request.settings))
            return reply("clerk")

        profiles = [profile(temperature=1), Profile(name="clerk", settings=ModelSettings(temperature=0))]
        options: dict[str, Any] = {"profiles": profiles, "policy": Policy(route=True)}
        async with Engine.open("sqlite://", model=FunctionLlm(note), **options) as engine:
            await (await engine.create()).send("Hi")

        assert seen == [("route", ModelSettings()), ("converse", ModelSettings(temperature=0))]

    async def test_they_are_part_of_the_digest(self) -> None:
        """Requests that differ in a setting alone are two requests; one without settings has the digest that it had
        before there were any."""
        requests: list[Any] = []

        def note(request: Any) -> Any:
            requests.append(request)
            return reply("Done.")

        digests = []
        for profiles in ([], [profile()], [profile(seed=1)], [profile(seed=2)]):
            async with Engine.open("sqlite://", model=FunctionLlm(note, name="it"), profiles=profiles) as engine:
                conversation = await engine.create()
                await conversation.send("Hi")
                digests += [
                    entry.event.digest for entry in await conversation.events() if hasattr(entry.event, "digest")
                ]

        assert digests == [request_digest(request) for request in requests]
        assert digests[0] == digests[1]
        assert len(set(digests)) == 3


class TestRefused:
    """A model that does not take a setting is asked without it."""

    async def test_the_one_that_the_error_names_is_left_out_from_then_on(
        self, database: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The turn goes on, it is logged once, and the next request is sent without it at once."""
        caplog.set_level(logging.WARNING, "turnwise.model")

        def answer(body: Body) -> Any:
            if "temperature" in body:
                return fails(400, "`temperature` is deprecated for this model.")
            return says("Done.")

        options: dict[str, Any] = {"profiles": [profile(temperature=0.2, seed=7)], "policy": POLICY}
        async with (
            OpenAiServer(answer) as server,
            Engine.open(database, model=request_settings_model_at(server), **options) as engine,
        ):
            conversation = await engine.create()
            turns = [await conversation.send("Hi") for _ in range(2)]

        assert [turn.reply for turn in turns] == ["Done.", "Done."]
        assert [sent(body) for body in server.requests] == [{"temperature": 0.2, "seed": 7}, {"seed": 7}, {"seed": 7}]
        assert [record.getMessage() for record in caplog.records] == [
            "The model openai/test does not take temperature, so its requests are sent without."
        ]

    async def test_what_litellm_knows_to_be_unsupported_is_not_sent(self, database: Path) -> None:
        """It says so before it sends anything."""
        options: dict[str, Any] = {"profiles": [profile(reasoning_effort="low", seed=7)], "policy": POLICY}
        async with (
            OpenAiServer([says("Done.")]) as server,
            Engine.open(database, model=request_settings_model_at(server, "openai/gpt-4.1-mini"), **options) as engine,
        ):
            turn = await (await engine.create()).send("Hi")

        assert turn.reply == "Done."
        assert [sent(body) for body in server.requests] == [{"seed": 7}]

    async def test_an_error_about_something_else_stays_one(self, database: Path) -> None:
        """A refused request that names no setting fails; nothing is sent twice."""
        options: dict[str, Any] = {"profiles": [profile(temperature=0.2)], "policy": POLICY}
        async with (
            OpenAiServer([fails(400, "The messages are wrong.")]) as server,
            Engine.open(database, model=request_settings_model_at(server), **options) as engine,
        ):
            turn = await (await engine.create()).send("Hi")

        assert turn.status == "failed"
        assert len(server.requests) == 1

    async def test_what_is_only_quoted_is_not_left_out(self, database: Path) -> None:
        """An error that only quotes the name of a setting refuses nothing, so nothing is tried."""
        quoting = fails(400, 'Bad message: "what temperature is it?"')
        options: dict[str, Any] = {"profiles": [profile(temperature=0.2)], "policy": POLICY}
        async with (
            OpenAiServer([quoting, says("Done.")]) as server,
            Engine.open(database, model=request_settings_model_at(server), **options) as engine,
        ):
            conversation = await engine.create()
            first = await conversation.send("Hi")
            second = await conversation.send("Hi again")

        assert (first.status, second.reply) == ("failed", "Done.")
        assert [sent(body) for body in server.requests] == [{"temperature": 0.2}, {"temperature": 0.2}]


# --- The scripted servers speak the protocols of their providers: litellm alone reads each of them.


MESSAGES = [{"role": "user", "content": "Weather?"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]


async def read(server: ModelServer, **options: Any) -> Any:
    """Return the chunks that litellm reads, joined to an answer."""
    litellm = load_litellm()
    asked = {"model": server.dialect.model, "messages": MESSAGES, "tools": TOOLS, "stream": True, **options}
    stream = await litellm.acompletion(**asked, api_base=server.url, api_key="test", num_retries=0, max_retries=0)
    return litellm.stream_chunk_builder([chunk async for chunk in stream]) if asked["stream"] else stream


def text_of(answer: Any) -> str:
    """Return the text of an answer, whose content may be parts."""
    content = answer.choices[0].message.content or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "parts"])
class TestEachDialect:
    """What a script says in neutral terms arrives."""

    async def test_text(self, dialect: str) -> None:
        """The pieces of a text, and why it ended."""
        async with ModelServer([answers("It ", "rains.")], DIALECTS[dialect]) as server:
            answer = await read(server)

        assert (text_of(answer), answer.choices[0].finish_reason) == ("It rains.", "stop")
        assert any(server.bodies[0].get(name) for name in ("messages", "contents", "input"))

    async def test_thinking(self, dialect: str) -> None:
        """Thinking apart from the text."""
        async with ModelServer([answers(thinks("Hm", "."), "It rains.")], DIALECTS[dialect]) as server:
            answer = await read(server)

        assert (answer.choices[0].message.reasoning_content, text_of(answer)) == ("Hm.", "It rains.")

    async def test_calls(self, dialect: str) -> None:
        """Calls with their arguments."""
        script = [answers("Wait.", call("weather", city="Oslo"))]
        async with ModelServer(script, DIALECTS[dialect]) as server:
            answer = await read(server)

        calls = [(c.function.name, c.function.arguments) for c in answer.choices[0].message.tool_calls]
        assert calls == [("weather", '{"city": "Oslo"}')]
        assert answer.choices[0].finish_reason == "tool_calls"

    async def test_usage(self, dialect: str) -> None:
        """The tokens of the request and of the answer."""
        async with ModelServer([answers("It rains.")], DIALECTS[dialect]) as server:
            usage = (await read(server, stream_options={"include_usage": True})).usage

        assert (usage.prompt_tokens, usage.completion_tokens) == (10, 5)

    async def test_failure(self, dialect: str) -> None:
        """A status with its body."""
        async with ModelServer(
            [model_server_fails(429, {"error": {"message": "Slow down"}})], DIALECTS[dialect]
        ) as server:
            with pytest.raises(Exception, match="RateLimitError"):
                await read(server)


async def test_sealed_thinking() -> None:
    """A signature seals a block of Anthropic's thinking."""
    sealed = answers(thinks("Hm.", signature="c2VhbGVk"), "Fine.")
    async with ModelServer([sealed], DIALECTS["anthropic"]) as server:
        answer = await read(server)

    assert answer.choices[0].message.thinking_blocks[0]["signature"] == "c2VhbGVk"


async def test_a_sealed_call() -> None:
    """A signature seals a call of Gemini's."""
    sealed = answers(replace(call("weather", city="Oslo"), signature="c2VhbGVk"))
    async with ModelServer([sealed], GEMINI) as server:
        answer = await read(server)

    fields = answer.choices[0].message.tool_calls[0].provider_specific_fields
    assert fields["thought_signature"] == "c2VhbGVk"


async def test_a_sequence_of_answers_ends_with_the_last() -> None:
    """The last answer of a script is given again."""
    async with ModelServer([answers("One"), answers("Two")]) as server:
        found = [text_of(await read(server)) for _ in range(3)]

    assert found == ["One", "Two", "Two"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (answers("One", Raw(b": comment\n\n"), "Two"), "OneTwo"),
        (Answer(("Three",), "stop", usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}), "Three"),
        (answers(Data({"id": "c", "choices": [{"index": 0, "delta": {"content": "Four"}}]})), "Four"),
    ],
)
async def test_what_has_no_neutral_terms(answer: Answer, expected: str) -> None:
    """Bytes and events of the dialect's own, and a usage in whatever naming."""
    async with ModelServer([answer], OPENAI) as server:
        found = text_of(await read(server))

    assert found == expected


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "ollama"])
async def test_json_in_one_piece(dialect: str) -> None:
    """A server that does not stream."""
    script = [answers(thinks("Hm."), "Wait.", call("weather", city="Oslo"), is_plain=True)]
    async with ModelServer(script, DIALECTS[dialect]) as server:
        message = (await read(server, stream=False)).choices[0].message

    assert (message.reasoning_content, message.content) == ("Hm.", "Wait.")
    assert [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls] == [
        ("weather", {"city": "Oslo"})
    ]


# --- No secret reaches the log with an error message.


def test_secrets_are_found_by_value_and_by_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those given, those in the environment, and everything that looks like a key."""
    monkeypatch.setenv("ACME_API_KEY", "open-sesame")

    text = without_keys("open-sesame, hush-hush, sk-proj-abcdefgh1234, sk-***********5678, Bearer x.y-z", ["hush-hush"])

    assert text == "***, ***, ***, ***, ***"
