"""Secrets on their way through a whole engine: none of them is stored, sent, shown, logged or recalled."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    ConfigurationError,
    DocumentQuery,
    Engine,
    File,
    InvalidInput,
    LiteLlm,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    Policy,
    Profile,
    Question,
    Redaction,
    RedactionRule,
    Refused,
    Retry,
    Settings,
    ToolContext,
    UserQuestion,
    presets,
    tool,
)
from turnwise.effects.redaction.events import NAME_HOLDS_SECRET
from turnwise.engine.redactor import INVALID
from turnwise.persistence.maintenance.export import export_conversation
from turnwise.states.openai_writing import legal_name
from turnwise.states.values.value import MAX_SENTENCE
from turnwise.testing import FunctionLlm, RecordingChannel, ScriptedLlm, call, calls, crash_at_every_boundary, reply

from ..support.fault_profile import LONG
from ..support.secrets import ALL, SECRETS, found_beside, found_in, found_in_record
from ..support.servers.mcp_programs import Program
from ..support.servers.openai_server import OpenAiServer, fails, says
from ..support.servers.openai_server import calls as asks_for

# --- Secrets on their way through a whole engine: none of them is stored, sent, shown, logged or traced.


MAIL = SECRETS["email"]
REDACTS = Policy(redact=True, retry=Retry(base=0.01))
QUESTION = {"question": f"Is {MAIL} right?", "options": [{"label": "Yes"}, {"label": f"No, {SECRETS['phone']}"}]}


class StumbledError(Exception):
    """What a tool raises."""


@tool(crash="pure")
async def lookup(text: str, context: ToolContext) -> dict[str, str]:
    """Return what the arguments are, and secrets of its own."""
    context.progress(f"Looking at {ALL}")
    return {"got": text, "password": SECRETS["password"], "all": ALL}


@tool(crash="pure")
async def stumble() -> str:
    """Fail, with all secrets in the message."""
    raise StumbledError(ALL)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The log, with the records of turnwise's loggers at every level."""
    with caplog.at_level(logging.DEBUG, "turnwise"):
        yield caplog


def secrets_logged(log: pytest.LogCaptureFixture) -> list[tuple[str, list[str]]]:
    """Return each record of turnwise that holds a secret."""
    ours = (record for record in log.records if record.name.startswith("turnwise"))
    return [(record.getMessage(), kinds) for record in ours if (kinds := found_in_record(record))]


async def test_secrets_of_every_kind_end_to_end(database: Path, log: pytest.LogCaptureFixture) -> None:
    """J1: of a person, of the model (text, thinking, arguments), of tools (progress, result, exception) and of answers:
    none is in a request, in the database, its journals, an update, a log record, or the transcript."""
    script = [
        asks_for(("lookup", {"text": ALL}), ("stumble", {}), text=ALL),
        asks_for(("ask_user_question", {"questions": [QUESTION]})),
        says(ALL, thinking=ALL),
    ]
    channel, redaction = RecordingChannel(), Redaction()
    async with OpenAiServer(script) as server:
        model = LiteLlm("openai/test", api_base=server.url, api_key="test")
        tools = [lookup, stumble, "ask_user_question"]
        options: dict[str, Any] = {"tools": tools, "channels": [channel], "policy": REDACTS, "redaction": redaction}
        async with Engine.open(database, model=model, **options) as engine:
            conversation = await engine.create(title=f"About {MAIL}")
            updates = asyncio.ensure_future(stored_updates(conversation))
            asked = await conversation.send(ALL, message_id="m1")
            turn = await conversation.answer({asked.questions[0].question: f"No, {SECRETS['phone']}"})
            await conversation.close()

            assert turn.status == "completed"
            assert found_in(turn.reply) == []
            assert found_in(repr(await conversation.transcript())) == []
            assert found_in(repr(await updates)) == []
            assert list(found_beside(database)) == []
            assert (await conversation.replay()).divergence is None
            assert redaction.counts["EMAIL"] > 5
        bodies = json.dumps(server.requests, ensure_ascii=False)

    assert len(server.requests) == 3
    assert found_in(bodies) == []
    assert bodies.count("[EMAIL]") > 5
    assert [text for text in channel.texts if found_in(text)] == []
    assert list(found_beside(database)) == []
    assert secrets_logged(log) == []
    assert "StumbledError: Write to [EMAIL]." in log.text


async def stored_updates(conversation: Any) -> list[Any]:
    """Return the updates of a conversation until it is closed, but for the tokens of the model, which are its own."""
    return [update async for update in conversation.updates() if update.type != "token"]


async def test_a_provider_that_quotes_the_prompt_puts_no_secret_into_the_log(
    database: Path, log: pytest.LogCaptureFixture
) -> None:
    """J1: neither what the provider quotes of its own answer."""
    async with OpenAiServer([fails(400, f"Refused because of {MAIL}")]) as server:
        model = LiteLlm("openai/test", api_base=server.url, api_key="test")
        async with Engine.open(database, model=model, policy=REDACTS) as engine:
            turn = await (await engine.create()).send("Hello")

    assert turn.status == "failed"
    assert "Refused because of [EMAIL]" in log.text
    assert secrets_logged(log) == []


async def test_spans_hold_no_secret(database: Path) -> None:
    """J1: also those of a tool that raises."""
    pytest.importorskip("opentelemetry.sdk", reason="the extra `dev` brings the SDK")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    llm = ScriptedLlm([calls(call("lookup", text=ALL), call("stumble"), text=ALL), reply(ALL)])
    options: dict[str, Any] = {"tools": [lookup, stumble], "policy": REDACTS, "tracer_provider": provider}
    async with Engine.open(database, model=llm, channels=[RecordingChannel()], **options) as engine:
        await (await engine.create()).send(ALL)

    spans = exporter.get_finished_spans()
    assert len(spans) >= 5
    assert [span.name for span in spans if found_in(span.to_json())] == []


async def looks_up(database: Path) -> None:
    """A turn with secrets everywhere. Each process looks first for what the one before it has left."""
    assert list(found_beside(database)) == []

    def say(request: Any) -> Any:
        assert found_in(json.dumps(request.messages, ensure_ascii=False)) == []
        answers = sum(message["role"] == "assistant" for message in request.messages)
        return [call("lookup", text=ALL), reply(ALL)][answers]

    channels = [RecordingChannel()]
    async with Engine.open(
        database, model=FunctionLlm(say), tools=[lookup], channels=channels, policy=REDACTS
    ) as engine:
        known = await engine.list()
        conversation = await engine.get(known[0].id) if known else await engine.create(title=MAIL)
        turn = await conversation.send(ALL, message_id="m1")
        assert turn.status == "completed", turn
        while await engine.store.outbox(await engine.store.ids()):
            await asyncio.sleep(0.005)
        assert list(found_beside(database)) == []
        assert [text for text in channels[0].texts if found_in(text)] == []


@pytest.mark.slow
@pytest.mark.faults
def test_no_crash_leaves_a_secret_behind() -> None:
    """J1: a process that is killed at any boundary has written none to any file."""
    Redaction().redact("")  # so that the copies of this process need not load the rules

    report = crash_at_every_boundary(looks_up, every=1 if LONG else 3)

    assert report.kills >= (15 if LONG else 5)


class TestRequests:
    """A request that is sent again is the same request, with or without its secrets."""

    @pytest.mark.parametrize(("before", "after"), [(True, True), (False, True), (True, False), (False, False)])
    async def test_a_message_that_is_sent_again(self, database: Path, before: bool, after: bool) -> None:
        """Also where the rule was switched on or off in between, and after a restart."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create(policy=REDACTS.replace(redact=before))
            first = await conversation.send(ALL, message_id="m1")
            await conversation.set_policy(REDACTS.replace(redact=after))
            again = await conversation.send(ALL, message_id="m1")
            conversation_id = conversation.id
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            restarted = await (await engine.get(conversation_id)).send(ALL, message_id="m1")

        assert first.number == again.number == restarted.number == 1

    async def test_another_message_under_the_same_id_is_refused(self) -> None:
        """It differs in more than its secrets."""
        async with Engine.open("sqlite://", model=ScriptedLlm([reply("Hello.")]), policy=REDACTS) as engine:
            conversation = await engine.create()
            await conversation.send(f"I am {MAIL}", message_id="m1")

            with pytest.raises(Refused):
                await conversation.send(f"I was {MAIL}", message_id="m1")

    async def test_what_cannot_be_used_without_its_secrets_is_refused(self) -> None:
        """In one sentence, and nothing happens."""
        image = "https://shop.test/a.png?X-Amz-Signature=fe5f80f77d5fa3beca038a248ff027d0445342fe"
        async with Engine.open("sqlite://", model=ScriptedLlm([]), policy=REDACTS) as engine:
            conversation = await engine.create()

            with pytest.raises(InvalidInput, match=INVALID):
                await conversation.send("Look", files=[image])
            assert conversation.state.type == "idle"

    async def test_arguments_too_deep_to_be_looked_at_are_refused(self) -> None:
        """Rather than stored without a look."""

        @tool(approval=True)
        async def keep(value: list[Any]) -> str:
            """Keep anything."""
            return "Kept."

        deep: list[Any] = [MAIL]
        for _ in range(200):
            deep = [deep]
        llm = ScriptedLlm([call("keep", value=[]), reply("Done.")])
        async with Engine.open("sqlite://", model=llm, tools=[keep], policy=REDACTS) as engine:
            conversation = await engine.create()
            waiting = await conversation.send("Go")

            with pytest.raises(InvalidInput):
                await conversation.approve(str(waiting.call_id), allowed=True, arguments={"value": deep})
            assert conversation.state.type == "awaiting_approval"


async def test_a_long_message_holds_up_nobody() -> None:
    """It is redacted in a thread, in its turn: what is sent after it is handled after it."""
    llm = ScriptedLlm([reply("One."), reply("Two.")])
    async with Engine.open("sqlite://", model=llm, policy=REDACTS.replace(when_busy="queue")) as engine:
        conversation = await engine.create()
        first = asyncio.ensure_future(conversation.send("word " * 12_000 + ALL))
        second = asyncio.ensure_future(conversation.send(f"and {MAIL}"))

        assert [(await first).reply, (await second).reply] == ["One.", "Two."]
        assert found_in(repr(await conversation.transcript())) == []


async def test_an_answer_that_cannot_be_used_is_a_failed_call() -> None:
    """Two questions that differ only in their secrets: the call fails, and the turn goes on."""

    @tool(acts=["question"], exclusive=True)
    async def ask() -> Question:
        """Ask two questions."""
        return Question([UserQuestion(question=f"Is it {name}@posti.example?") for name in ("anna", "otto")])

    llm = ScriptedLlm([call("ask"), reply("Never mind.")])
    async with Engine.open("sqlite://", model=llm, tools=[ask], policy=REDACTS) as engine:
        turn = await (await engine.create()).send("Hello")

    assert turn.reply == "Never mind."
    assert INVALID in json.dumps(llm.requests[1].messages)


async def test_the_rule_can_be_switched_on_in_mid_conversation(database: Path) -> None:
    """From then on nothing new is stored; what was stored before stays."""
    async with Engine.open(database, model=ScriptedLlm([reply("One."), reply("Two.")])) as engine:
        conversation = await engine.create()
        await conversation.send(f"I am {MAIL}")
        await conversation.set_policy(REDACTS)
        await conversation.send(f"Call me at {SECRETS['phone']}")

        texts = [message.text for message in await conversation.transcript() if message.role == "user"]
        assert texts == [f"I am {MAIL}", "Call me at [PHONE]"]
        assert (await conversation.replay()).divergence is None


async def test_a_result_is_redacted_before_it_is_cut(database: Path) -> None:
    """Half of a secret would not be recognised."""

    @tool(crash="pure")
    async def dump() -> str:
        """Return a long text with a secret in the middle of where it is cut."""
        return "x " * 45 + SECRETS["openai"] + " y" * 600

    llm = ScriptedLlm([call("dump"), reply("Done.")])
    settings = Settings(max_stored_result=300)
    async with Engine.open(database, model=llm, tools=[dump], policy=REDACTS, settings=settings) as engine:
        await (await engine.create()).send("Go")

    result = llm.requests[1].messages[-1]["content"]
    assert "sk-" not in result
    assert "[API_KEY]" in result


async def test_an_exception_is_redacted_before_it_is_cut() -> None:
    """J1: half of the number of a card in the message of an exception would not be recognised."""

    @tool(crash="pure", errors="message")
    async def fail() -> str:
        """Fail with a long message."""
        raise StumbledError(f"{'so it was ' * (MAX_SENTENCE // 10 - 3)} 4111 1111 1111 1111")

    llm = ScriptedLlm([call("fail"), reply("Done.")])
    async with Engine.open("sqlite://", model=llm, tools=[fail], policy=REDACTS) as engine:
        await (await engine.create()).send("Go")

    assert "4111 1" not in llm.requests[1].messages[-1]["content"]


async def test_progress_of_any_type_is_redacted() -> None:
    """J1: a tool may show a value that is no text."""

    @tool(crash="pure")
    async def report(context: ToolContext) -> str:
        """Show what was found."""
        context.progress({"found": [MAIL]})  # type: ignore[arg-type]
        return "Done."

    llm = ScriptedLlm([call("report"), reply("Done.")])
    async with Engine.open("sqlite://", model=llm, tools=[report], policy=REDACTS) as engine:
        conversation = await engine.create()
        shown = [update async for update in conversation.stream("Go") if update.type == "tool_progress"]

    assert shown and MAIL not in repr(shown)


class TestOpening:
    """The first event of a conversation."""

    async def test_a_history_is_redacted(self, database: Path) -> None:
        """J1: its messages, its system prompt, its tool calls, and the title."""
        call_made = {
            "id": "c1",
            "type": "function",
            "function": {"name": "mail", "arguments": json.dumps({"to": MAIL})},
        }
        messages = [
            {"role": "system", "content": f"You work for {MAIL}."},
            {"role": "user", "content": ALL},
            {"role": "assistant", "content": ALL, "tool_calls": [call_made]},
            {"role": "tool", "tool_call_id": "c1", "content": ALL},
        ]
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")]), policy=REDACTS) as engine:
            conversation = await engine.create(messages=messages, title=MAIL)
            await conversation.send("Hello")

            assert conversation.title == "[EMAIL]"
            assert found_in(repr(await conversation.messages())) == []
            assert list(found_beside(database)) == []

    async def test_what_the_application_says_for_itself_stays(self) -> None:
        """Its system prompt, its owner and its metadata."""
        llm = ScriptedLlm([reply("Hello.")])
        async with Engine.open("sqlite://", model=llm, policy=REDACTS) as engine:
            conversation = await engine.create(system=f"Help is at {MAIL}.", owner=MAIL, metadata={"to": MAIL})
            await conversation.send("Hello")

            assert (conversation.owner, conversation.metadata) == (MAIL, {"to": MAIL})
        assert llm.requests[0].messages[0]["content"] == f"Help is at {MAIL}."


class TestConfiguration:
    """What an engine needs for the rule."""

    async def test_without_the_extra_the_rule_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By `create` and by `set_policy`, with the name of the extra."""
        monkeypatch.setattr("turnwise.effects.redaction.redaction.find_spec", lambda name: None)
        async with Engine.open("sqlite://", model=ScriptedLlm([])) as engine:
            with pytest.raises(ConfigurationError, match=r'pip install "turnwise\[redact\]"'):
                await engine.create(policy=REDACTS)
            conversation = await engine.create()
            with pytest.raises(ConfigurationError, match=r'pip install "turnwise\[redact\]"'):
                await conversation.set_policy(REDACTS)

    async def test_a_stored_conversation_takes_nothing_without_the_extra(
        self, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rather than store a secret."""
        async with Engine.open(database, model=ScriptedLlm([]), policy=REDACTS) as engine:
            conversation_id = (await engine.create()).id
        monkeypatch.setattr("turnwise.effects.redaction.redaction.find_spec", lambda name: None)
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.get(conversation_id)

            with pytest.raises(ConfigurationError, match=r'pip install "turnwise\[redact\]"'):
                await conversation.send(ALL)
        assert list(found_beside(database)) == []

    async def test_an_application_adds_its_rules(self) -> None:
        """They are counted with the others."""
        redaction = Redaction(extra_rules=[RedactionRule("BADGE", r"B-[0-9]{6}")])
        llm = ScriptedLlm([reply("Hello.")])
        async with Engine.open("sqlite://", model=llm, policy=presets.reply_flow(), redaction=redaction) as engine:
            await (await engine.create()).send(f"B-123456 is {MAIL}")

        assert "[BADGE] is [EMAIL]" in str(llm.requests[0].messages[-1]["content"])
        assert dict(redaction.counts) == {"BADGE": 1, "EMAIL": 1}


class TestNamesThatOthersInvent:
    """J1: a model, a provider or a server may put a secret into what is called a name."""

    async def test_nothing_of_them_is_kept(
        self, database: Path, tmp_path_factory: pytest.TempPathFactory, log: pytest.LogCaptureFixture
    ) -> None:
        """In the name of an unknown tool, the id of a call, the name of an argument, a finish reason, the profile of a
        sub-agent and of a transfer, its tools, and the tool of a server: none is in the database, an export, an update,
        a log record or the next request. Each call has one result, and the replay is exact."""
        server = Program(tmp_path_factory.mktemp("server"), ["echo", MAIL])
        task = {"text": "Look", "profile": MAIL, "tools": [MAIL]}
        invented = (
            ModelCall(MAIL, f"mail_{MAIL}", json.dumps({MAIL: MAIL})),
            ModelCall(MAIL, "lookup", json.dumps({MAIL: 1})),
            ModelCall(MAIL, legal_name(f"files:{MAIL}")),
        )
        more = [ModelCall("t", "transfer_to", json.dumps({"profile": MAIL}))]
        spawned = [ModelCall("s", "spawn_agents", json.dumps({"tasks": [task]}))]
        requests: list[Any] = []
        answers = [ModelAnswer(tool_calls=invented, finish_reason=MAIL, model=MAIL)]
        answers += [ModelAnswer(tool_calls=tuple(each), finish_reason=MAIL) for each in (more, spawned)]

        def answer(request: Any) -> ModelAnswer:
            requests.append(request)
            return answers[len(requests) - 1] if len(requests) <= len(answers) else reply("Done.")

        options: dict[str, Any] = {"tools": [lookup, "transfer_to", "spawn_agents"], "mcps": {"files": server.server()}}
        async with Engine.open(database, model=FunctionLlm(answer), policy=REDACTS, **options) as engine:
            conversation = await engine.create()
            updates = asyncio.ensure_future(stored_updates(conversation))
            turn = await conversation.send("Hello")
            messages = await conversation.transcript()
            exported = await export_conversation(engine.store, conversation.id)
            await conversation.close()

            assert turn.reply == "Done."
            assert (await conversation.replay()).divergence is None
            assert found_in(repr(await updates)) == []

        made = [one for message in messages for one in message.tool_calls]
        assert [one.name for one in made] == ["[EMAIL]", "lookup", "files:[EMAIL]", "transfer_to", "spawn_agents"]
        assert NAME_HOLDS_SECRET in [message.text for message in messages if message.role == "tool"]
        assert sorted(one.call_id for one in made) == sorted(
            one.tool_call_id or "" for one in messages if one.tool_call_id
        )
        assert found_in("".join(exported)) == []
        assert list(found_beside(database)) == []
        assert found_in(json.dumps([request.messages for request in requests])) == []
        assert secrets_logged(log) == []

    async def test_what_a_request_names_and_nobody_has_is_not_kept(self, database: Path) -> None:
        """The ids in a request are left alone, because the request is refused if there is nothing of that id."""
        secret = SECRETS["hex"]
        async with Engine.open(database, model=ScriptedLlm([]), policy=REDACTS) as engine:
            conversation = await engine.create()
            for refused in (
                partial(conversation.withdraw, secret),
                partial(conversation.approve, secret, True),
                partial(conversation.answer, {"Or?": "Yes"}, call_id=secret),
                partial(conversation.resolve, secret, "ran"),
                partial(conversation.transfer_to, secret),
            ):
                with pytest.raises((Refused, InvalidInput)):
                    await refused()

        assert list(found_beside(database)) == []

    async def test_a_span_holds_no_finish_reason_with_a_secret(self, database: Path) -> None:
        """The provider gives it, and the name of the model that answered."""
        pytest.importorskip("opentelemetry.sdk", reason="the extra `dev` brings the SDK")
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        llm = ScriptedLlm([ModelAnswer("Hello.", finish_reason=MAIL, model=MAIL)])
        async with Engine.open(database, model=llm, policy=REDACTS, tracer_provider=provider) as engine:
            await (await engine.create()).send("Hi")

        assert [span.name for span in exporter.get_finished_spans() if found_in(span.to_json())] == []


# --- What conversations without the rule `redact` have stored, in a conversation of the same owner that has the rule.


CARD = "4111 1111 1111 1111"
HALF = "4111 1111"


def filled(length: int) -> str:
    """Return innocent words of this length."""
    return ("so it was " * length)[:length]


@pytest.mark.slow
@pytest.mark.parametrize("before", [0, 455, 465])
async def test_no_secret_crosses_over(database: Path, before: int) -> None:
    """J1: neither the router, nor the model, nor a tool gets a secret, nor half of one where a text is cut."""
    seen: list[str] = []

    @tool(crash="pure")
    async def look_back(context: ToolContext) -> str:
        """Look at what was said."""
        assert context.memory is not None
        seen.extend(found.text for found in await context.memory.search(["sushi"]))
        return "Seen."

    def answer(request: ModelRequest) -> Any:
        if request.purpose == "route":
            return json.dumps({"profile": "b"})
        if request.purpose == "enrich":
            return json.dumps({"keywords": ["sushi"], "from": None, "to": None})
        return "Noted." if request.messages[-1]["role"] == "tool" else call("look_back")

    def documents(query: DocumentQuery) -> str:
        return f"{filled(13_250 + before)} {CARD} {filled(20_000)}"

    model = FunctionLlm(answer)
    profiles = [Profile(name="a"), Profile(name="b")]
    async with Engine.open(database, model=model, tools=[look_back], profiles=profiles, documents=documents) as engine:
        told = await engine.create(owner="anna", policy=Policy())
        await told.send(f"{filled(before)} {CARD} sushi {filled(600)}")
        asked = len(model.requests)
        conversation = await engine.create(owner="anna", policy=presets.reply_flow())
        await conversation.send("More sushi?")

    requests = model.requests[asked:]
    assert {request.purpose for request in requests} == {"route", "enrich", "converse"}
    assert seen and all("[CARD]" in text for text in seen)
    assert not [request.purpose for request in requests if HALF in str(request.messages)]


class TestFiles:
    """What a text file holds is looked into before it is stored; other files are not."""

    async def test_a_text_file_is_stored_without_its_secrets(self, database: Path) -> None:
        """Its digest is that of what is stored, and so it is the same file when it is sent again."""
        llm = ScriptedLlm([reply("Read.")])
        async with Engine.open(database, model=llm, policy=REDACTS) as engine:
            conversation = await engine.create()
            file = File(f"Write to {MAIL}.".encode(), "note.txt")
            turns = [await conversation.send(files=[file], message_id="m1") for _ in range(2)]
            (stored,) = (await conversation.transcript())[0].files
            data = await engine.store.files.read(conversation.id, stored.sha256)

            assert data == b"Write to [EMAIL]."
            assert turns[0] == turns[1]
            assert list(found_beside(database)) == []
        assert found_in(json.dumps(llm.requests[0].messages)) == []
