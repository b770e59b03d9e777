"""Tracing: turns, model requests, runs of tools and deliveries as spans of OpenTelemetry, for a host that asks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from tests.support.effect_ids import unmarked
from turnwise import ConfigurationError, Engine, Policy, Retry, Settings, Usage, presets, tool
from turnwise.effects.context import key_of
from turnwise.persistence.opening import open_store
from turnwise.states.effects import AwaitedEffect
from turnwise.testing import ManualClock, RecordingChannel
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, calls, failure, reply

from ..support.engine_scenarios import QUESTION, Gate, answers_after, until

pytest.importorskip("opentelemetry.sdk", reason="the extra `dev` brings the SDK")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
from opentelemetry.trace import NonRecordingSpan, StatusCode, get_current_span

SECRET = "the code is 4711"


class Spans:
    """A tracer provider whose spans a test reads."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> list[ReadableSpan]:
        """Return the spans that have ended, in the order in which they began."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans of this name."""
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of this name."""
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Spans:
    """Spans of the test's own."""
    return Spans()


def told(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    """Return whether the span is a child of the other one."""
    return span.parent is not None and span.parent.span_id == parent.context.span_id


def outcome(span: ReadableSpan) -> tuple[Any, Any, StatusCode]:
    """Return how the span ended: the status, the type of error, and the status code."""
    return told(span).get("turnwise.status"), told(span).get("error.type"), span.status.status_code


COMPLETED = ("completed", None, StatusCode.UNSET)
CANCELLED = ("cancelled", None, StatusCode.UNSET)


@tool(crash="pure")
async def look(where: str) -> str:
    """Look somewhere."""
    return SECRET


@tool(crash="pure")
async def stumble() -> str:
    """Fail."""
    raise ValueError(SECRET)


@asynccontextmanager
async def conversing(database: Path, spans: Spans, llm: Any, *tools: Any, **options: Any) -> AsyncIterator[Any]:
    """Return a new conversation that is traced."""
    policy = options.pop("policy", None)
    async with Engine.open(database, model=llm, tools=tools, tracer_provider=spans.provider, **options) as engine:
        yield await engine.create(policy=policy)


class TestATurn:
    """The spans of one turn."""

    async def test_two_tools(self, database: Path, spans: Spans) -> None:
        """One span holds the turn from its first step to its last; requests and tools are its children, in order."""
        llm = ScriptedLlm(
            [
                calls(call("look", where="here"), call("stumble")),
                reply("Found.", usage=Usage(input_tokens=7, output_tokens=2)),
            ],
            name="openai/gpt",
        )

        async with conversing(database, spans, llm, look, stumble) as conversation:
            await conversation.send("Hi")

        turn = spans.one("invoke_agent")
        assert turn.parent is None
        children = [span for span in spans.all if span is not turn]
        names = ["chat openai/gpt", "execute_tool look", "execute_tool stumble", "chat openai/gpt"]
        assert [span.name for span in children] == names
        assert all(is_child(span, turn) for span in children)
        assert turn.start_time <= children[0].start_time <= children[-1].end_time <= turn.end_time  # type: ignore[operator]
        assert [outcome(span) for span in children] == [
            COMPLETED,
            COMPLETED,
            ("failed", "tool_error", StatusCode.ERROR),
            COMPLETED,
        ]
        assert outcome(turn) == COMPLETED

    async def test_the_names_of_the_conventions(self, database: Path, spans: Spans) -> None:
        """The names of attributes are those of OpenTelemetry's conventions for generative AI."""
        usage = Usage(input_tokens=7, output_tokens=2)
        llm = ScriptedLlm([call("look", where="here"), reply("Found.", usage=usage)], name="gemini/flash")

        async with conversing(database, spans, llm, look) as conversation:
            await conversation.send("Hi")
            made = (await conversation.transcript())[1].tool_calls[0]
            keys = {
                one.effect_id: key_of(conversation.id, one.effect_id, entry.chain)
                for entry in await conversation.events()
                for one in entry.effects
                if isinstance(one, AwaitedEffect)
            }

        ours = {"gen_ai.conversation.id": conversation.id, "turnwise.turn": 1, "turnwise.status": "completed"}
        cost = {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 2}
        assert told(spans.one("invoke_agent")) == {**ours, **cost, "gen_ai.operation.name": "invoke_agent"}
        assert told(spans.named("chat gemini/flash")[1]) == {
            **ours,
            **cost,
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "gcp.gemini",
            "gen_ai.request.model": "gemini/flash",
            "gen_ai.response.finish_reasons": ("stop",),
            "turnwise.effect": "request_llm",
            "turnwise.key": keys[3],
        }
        assert told(spans.one("execute_tool look")) == {
            **ours,
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "look",
            "gen_ai.tool.call.id": made.call_id,
            "turnwise.effect": "execute_tool",
            "turnwise.key": keys[2],
        }

    async def test_nothing_that_was_said_is_told(self, database: Path, spans: Spans) -> None:
        """No span holds what was said: spans go to places where conversations must not go."""
        llm = ScriptedLlm([
            calls(call("look", where=SECRET), call("stumble"), text=SECRET),
            failure("server_error", SECRET),
            failure("authentication", SECRET),
        ])  # fmt: skip
        policy = Policy(retry=Retry(base=0.0))

        async with conversing(database, spans, llm, look, stumble, policy=policy) as conversation:
            turn = await conversation.send(SECRET)

        assert turn.status == "failed"
        assert len(spans.all) == 6
        assert [span.name for span in spans.all if SECRET in span.to_json()] == []

    async def test_a_retry(self, database: Path, spans: Spans) -> None:
        """Each attempt is a span: the failed one says why, and the turn has not failed."""
        llm = ScriptedLlm([failure("rate_limit"), reply("Hello.")])

        async with conversing(database, spans, llm, policy=Policy(retry=Retry(base=0.0))) as conversation:
            await conversation.send("Hi")

        turn = spans.one("invoke_agent")
        first, second = spans.named("chat scripted")
        assert outcome(first) == ("failed", "rate_limit", StatusCode.ERROR)
        assert outcome(second) == outcome(turn) == COMPLETED
        assert is_child(first, turn) and is_child(second, turn)

    async def test_a_failure(self, database: Path, spans: Spans) -> None:
        """A turn that fails is an error of the kind that the failure has."""
        async with conversing(database, spans, ScriptedLlm([failure("authentication")])) as conversation:
            await conversation.send("Hi")

        failed = ("failed", "authentication", StatusCode.ERROR)
        assert outcome(spans.one("invoke_agent")) == outcome(spans.one("chat scripted")) == failed

    async def test_a_deadline(self, database: Path, spans: Spans) -> None:
        """A model that did not answer in time has failed, though its task was only cancelled."""
        silent = FunctionLlm(answers_after(Gate(), "never"), name="scripted")
        options = {"policy": Policy(retry=Retry(attempts=1)), "settings": Settings(llm_chat_timeout_sec=0.01)}

        async with conversing(database, spans, silent, **options) as conversation:
            await conversation.send("Hi")

        assert outcome(spans.one("chat scripted")) == ("failed", "timeout", StatusCode.ERROR)

    async def test_a_cancel(self, database: Path, spans: Spans) -> None:
        """A cancelled turn, and the tool that was running, are not errors."""
        gate = Gate()

        @tool
        async def wait() -> str:
            """Wait."""
            await gate()
            return "done"

        async with conversing(database, spans, ScriptedLlm([call("wait")]), wait) as conversation:
            await conversation.send("Hi", wait=False)
            await gate.arrived.wait()
            await conversation.cancel()
            await until(lambda: conversation.state.type == "idle")

        assert outcome(spans.one("invoke_agent")) == outcome(spans.one("execute_tool wait")) == CANCELLED

    async def test_a_question_belongs_to_one_turn(self, database: Path, spans: Spans) -> None:
        """The span of a turn that waits for a person stays open, and goes on with the answer."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("Booked.")])

        async with conversing(database, spans, llm, "ask_user_question") as conversation:
            await conversation.send("Hi")
            waiting = spans.named("invoke_agent")
            await conversation.answer({"When?": "6:30 PM"})

        assert waiting == []
        turn = spans.one("invoke_agent")
        assert all(is_child(span, turn) for span in spans.all if span is not turn)
        assert len(spans.all) == 4

    async def test_condensing_is_a_request_of_its_own(self, database: Path, spans: Spans) -> None:
        """Every model request is a span; one that no turn asked for belongs to none."""
        llm = ScriptedLlm([reply("Hello."), reply("They greeted each other.")])

        async with conversing(database, spans, llm) as conversation:
            await conversation.send("Hi")
            await conversation.compact()

        condensing = spans.named("chat scripted")[-1]
        assert condensing.parent is None
        assert told(condensing)["turnwise.effect"] == "compact_history"


class TestWhereItBelongs:
    """Spans have the right parents, whichever task works on a conversation."""

    async def test_conversations_side_by_side_do_not_mix(self, database: Path, spans: Spans) -> None:
        """Each span is below the turn of its own conversation, although one event loop runs them all."""
        together = asyncio.Barrier(8)

        @tool(crash="pure")
        async def meet(name: str) -> str:
            """Wait for the others."""
            await together.wait()
            return name

        def answer(request: Any) -> Any:
            last = request.messages[-1]
            return reply("Done.") if last["role"] == "tool" else call("meet", name=last["content"])

        async with Engine.open(
            database, model=FunctionLlm(answer), tools=[meet], tracer_provider=spans.provider
        ) as engine:
            conversations = [await engine.create() for _ in range(8)]
            await asyncio.gather(*(each.send(each.id) for each in conversations))

        roots = {told(span)["gen_ai.conversation.id"]: span for span in spans.named("invoke_agent")}
        assert set(roots) == {each.id for each in conversations}
        below = [span for span in spans.all if span.name != "invoke_agent"]
        assert len(below) == 8 * 3
        assert all(is_child(span, roots[told(span)["gen_ai.conversation.id"]]) for span in below)
        assert all(span.parent is None for span in roots.values())

    async def test_a_turn_belongs_to_the_span_that_asked_for_it(self, database: Path, spans: Spans) -> None:
        """The turn is a child of the span that was current for its sender; the next turn is not."""
        tracer = spans.provider.get_tracer("host")
        async with conversing(database, spans, FunctionLlm(lambda _: reply("Hello."))) as conversation:
            with tracer.start_as_current_span("first"):
                await conversation.send("Hi")
            with tracer.start_as_current_span("second"):
                await conversation.send("Hi")
            await conversation.send("Hi")

        turns = spans.named("invoke_agent")
        assert is_child(turns[0], spans.one("first"))
        assert is_child(turns[1], spans.one("second"))
        assert turns[2].parent is None

    def test_a_program_without_a_loop_asks_in_its_own_thread(self, spans: Spans) -> None:
        """Also where the engine runs in a thread, the current span of the caller is the parent."""
        llm = FunctionLlm(lambda _: reply("Hello."))
        with Engine.open_blocking("sqlite://", model=llm, tracer_provider=spans.provider) as engine:
            conversation = engine.create()
            with spans.provider.get_tracer("host").start_as_current_span("asking"):
                conversation.send("Hi")

        assert is_child(spans.one("invoke_agent"), spans.one("asking"))

    async def test_a_message_that_waited_begins_a_trace(self, database: Path, spans: Spans) -> None:
        """A queued message begins a turn without a parent: its sender has gone on."""
        gate = Gate()
        tracer = spans.provider.get_tracer("host")
        async with conversing(database, spans, FunctionLlm(answers_after(gate, "Hello."))) as conversation:
            with tracer.start_as_current_span("first"):
                await conversation.send("Hi", wait=False)
            with tracer.start_as_current_span("second"):
                await conversation.send("And this", when_busy="queue", wait=False)
            gate.opened.set()
            await until(lambda: len(spans.named("invoke_agent")) == 2)

        first, second = spans.named("invoke_agent")
        assert is_child(first, spans.one("first"))
        assert second.parent is None

    async def test_what_a_tool_traces_stands_below_it(self, database: Path, spans: Spans) -> None:
        """A plain function in a thread, too: the tool's span is the current one."""

        @tool(crash="pure")
        def work() -> str:
            """Work."""
            with spans.provider.get_tracer("host").start_as_current_span("inner"):
                return "done"

        async with conversing(database, spans, ScriptedLlm([call("work"), reply("Done.")]), work) as conversation:
            await conversation.send("Hi")

        assert is_child(spans.one("inner"), spans.one("execute_tool work"))

    async def test_a_delivery(self, database: Path, spans: Spans) -> None:
        """S20: each attempt is a span below the turn that spoke, also when that turn has ended."""
        clock, down = ManualClock(), [True]

        def take(delivery: Any) -> None:
            assert get_current_span().is_recording()
            if down[0]:
                raise ConnectionError(SECRET)

        channel = RecordingChannel(take, name="line")
        llm = FunctionLlm(lambda _: reply(SECRET))
        async with conversing(database, spans, llm, channels=[channel], clock=clock) as conversation:
            await conversation.send("Hi")
            await until(lambda: len(spans.named("deliver line")) == 1)
            down[0] = False
            await conversation.send("And now?")
            await clock.advance(60)
            await until(lambda: len(spans.named("deliver line")) == 3)

        first, second = spans.named("invoke_agent")
        failed, repeated, next_one = spans.named("deliver line")
        assert outcome(failed) == ("failed", "delivery_failed", StatusCode.ERROR)
        assert outcome(repeated) == outcome(next_one) == COMPLETED
        assert is_child(failed, first) and is_child(repeated, first) and is_child(next_one, second)
        key = told(repeated)["turnwise.key"]
        assert unmarked(key) == f"{conversation.id}/2"
        assert told(repeated) == {
            "gen_ai.conversation.id": conversation.id,
            "turnwise.turn": 1,
            "turnwise.channel": "line",
            "turnwise.ordinal": 1,
            "turnwise.key": key,
            "turnwise.status": "completed",
        }
        assert SECRET not in "".join(span.to_json() for span in spans.all)


class TestAfterACrash:
    """Spans end with the process; the conversation does not."""

    async def test_a_turn_goes_on_in_a_span_of_its_own(self, database: Path, spans: Spans) -> None:
        """P27: its span has the ids of the conversation and the turn, and says that it was resumed."""
        silent = FunctionLlm(answers_after(Gate(), "never"), name="scripted")
        async with conversing(database, spans, silent) as conversation:
            await conversation.send("Hi", message_id="m1", wait=False)
            await until(lambda: conversation.state.type == "llm_requesting")
        later = Spans()

        async with Engine.open(
            database, model=ScriptedLlm([reply("Hello.")]), tracer_provider=later.provider
        ) as engine:
            await (await engine.get(conversation.id)).send("Hi", message_id="m1")

        assert outcome(spans.one("invoke_agent")) == ("interrupted", None, StatusCode.UNSET)
        turn = later.one("invoke_agent")
        assert told(turn) == {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": conversation.id,
            "turnwise.turn": 1,
            "turnwise.resumed": True,
            "turnwise.status": "completed",
        }
        assert is_child(later.one("chat scripted"), turn)

    async def test_a_turn_that_ended_elsewhere_is_not_taken_for_the_next(self, spans: Spans) -> None:
        """A turn that another engine has ended is interrupted here; the next one is another span."""
        store = await open_store("sqlite://")
        gate = Gate()
        slow = FunctionLlm(answers_after(gate, "Late."), name="scripted")
        async with (
            Engine.open(store=store, model=slow, tracer_provider=spans.provider) as engine,
            Engine.open(store=store, model=ScriptedLlm([])) as other,
        ):
            conversation = await engine.create()
            waiting = asyncio.ensure_future(conversation.send("Hi", message_id="m1"))
            await gate.arrived.wait()
            await (await other.get(conversation.id)).cancel()
            gate.opened.set()
            assert (await waiting).status == "cancelled"
            await conversation.send("And now?")
        await store.close()

        lost, next_one = spans.named("invoke_agent")
        assert outcome(lost) == ("interrupted", None, StatusCode.UNSET)
        assert (told(next_one)["turnwise.turn"], outcome(next_one)) == (2, COMPLETED)


class Broken(Sampler):
    """A part of a tracer that raises."""

    def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
        """Break."""
        raise RuntimeError("broken")

    def get_description(self) -> str:
        """Say what it is."""
        return "broken"


class BrokenSpans:
    """A tracer provider whose spans raise in the given methods."""

    def __init__(self, breaking: str) -> None:
        self._breaking = breaking

    def get_tracer(self, name: str) -> BrokenSpans:
        """What begins the spans."""
        return self

    def start_span(self, *args: Any, **kwargs: Any) -> Mock:
        """A span that breaks."""
        return Mock(NonRecordingSpan, **{f"{self._breaking}.side_effect": RuntimeError("broken")})


@tool(crash="pure")
async def break_down() -> str:
    """Fail."""
    raise RuntimeError("broken")


@pytest.mark.slow
class TestWhatItCosts:
    """Tracing costs nothing unless it is asked for, and never fails a turn."""

    async def test_a_tracer_that_breaks_breaks_nothing_else(self, database: Path) -> None:
        """The turn ends as it would without tracing."""
        async with conversing(
            database, Spans(sampler=Broken()), ScriptedLlm([call("look", where="x"), reply("Hello.")]), look
        ) as conversation:
            turn = await conversation.send("Hi")

        assert (turn.status, turn.reply) == ("completed", "Hello.")

    @pytest.mark.parametrize("breaking", ["get_span_context", "set_attributes", "set_status", "end"])
    async def test_a_span_that_breaks_breaks_nothing_else(self, breaking: str, database: Path) -> None:
        """The turn and its deliveries end as they would without tracing, and the errors of the tracer are logged."""
        channel = RecordingChannel()
        llm = ScriptedLlm([call("talk", message="Hello."), call("break_down"), reply("Done.")])
        engine = Engine.open(
            database,
            model=llm,
            tools=["talk", break_down],
            channels=[channel],
            policy=presets.talk(),
            tracer_provider=cast(Any, BrokenSpans(breaking)),
        )
        async with engine:
            turn = await (await engine.create()).send("Hi")

        assert (turn.status, turn.reply) == ("completed", "Hello.")
        assert [delivery.text for delivery in channel.deliveries] == ["Hello."]

    def test_who_does_not_ask_for_it_imports_nothing(self, tmp_path: Path) -> None:
        """A whole turn, and OpenTelemetry is not loaded."""
        program = """
            import asyncio, sys
            from turnwise import Engine
            from turnwise.testing.doubles import ScriptedLlm, reply
            async def main():
                async with Engine.open("one.db", model=ScriptedLlm([reply("Hello.")])) as engine:
                    print((await (await engine.create()).send("Hi")).reply)
            asyncio.run(main())
            print(*[name for name in sys.modules if name.partition(".")[0] == "opentelemetry"])
        """

        assert self._printed(program, tmp_path) == "Hello.\n\n"

    def test_where_it_is_not_installed_it_is_refused_in_a_sentence(self, tmp_path: Path) -> None:
        """P33: without the package, the error says what to install."""
        program = """
            import sys
            sys.modules["opentelemetry"] = None
            from turnwise import ConfigurationError, Engine
            try:
                Engine.open("one.db", tracer_provider=object())
            except ConfigurationError as error:
                print(error)
        """

        printed = self._printed(program, tmp_path)
        assert printed == 'Tracing needs the package opentelemetry-api: pip install "turnwise[otel]".\n'

    @pytest.mark.parametrize("provider", [object(), TracerProvider, "otel"])
    def test_what_gives_no_tracers_is_refused_at_once(self, provider: Any, database: Path) -> None:
        """P33: before any database is opened."""
        with pytest.raises(ConfigurationError) as refused:
            Engine.open(database, tracer_provider=provider)

        assert refused.value.sentence == "A tracer provider is an object with the method `get_tracer`."

    @staticmethod
    def _printed(program: str, folder: Path) -> str:
        lines = program.strip("\n").splitlines()
        text = "\n".join(line[12:] for line in lines)
        done = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout
