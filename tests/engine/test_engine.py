"""The engine: many conversations over one store, where it may be called, how it begins and how it ends."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import nullcontext, suppress
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from turnwise import (
    ConfigurationError,
    Conversation,
    Engine,
    EngineClosed,
    EngineElsewhere,
    InvalidInput,
    LiteLlm,
    ModelAnswer,
    ModelRequest,
    Policy,
    Profile,
    Questions,
    Refused,
    Settings,
    StateChangeUpdate,
    StoreError,
    Token,
    UnknownConversation,
    presets,
    tool,
)
from turnwise.effects.tools.tool import AnyTool
from turnwise.engine.home import Home, Homebound
from turnwise.engine.registry import RECENT
from turnwise.persistence.codec import EncodedStep
from turnwise.persistence.errors import Damaged
from turnwise.states import UserCancel, UserMessage
from turnwise.states.errors import EngineNotOpen
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, failure, reply

from ..support.databases import BOTH_STORES, Database, change, everything_in, out_of_order
from ..support.engine_scenarios import QUESTION, Gate, Watcher, answers_after, until
from ..support.servers.openai_server import OpenAiServer, says

pytestmark = BOTH_STORES

# --- The engine over its store: many conversations, full disks, bad configuration, blocking programs.


class TestTheStoreBelow:
    """One database, many conversations."""

    async def test_a_second_engine_on_the_file_is_refused(self, database_file: Path) -> None:
        """P42: a second engine is refused in one sentence, and the first one goes on."""
        async with Engine.open(database_file, model=ScriptedLlm([reply("Still here.")])) as engine:
            conversation = await engine.create()

            with pytest.raises(StoreError) as refused:
                await Engine.open(database_file, model=ScriptedLlm([]))

            assert "\n" not in refused.value.sentence
            assert (await conversation.send("Hi")).reply == "Still here."

    async def test_an_answer_that_cannot_be_stored_at_all_leaves_nobody_waiting(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """P27: a fault in the program: callers that wait get an error, and the conversation goes on once it is loaded
        again."""
        made = EncodedStep.of

        def breaks(event: Any, step: Any) -> EncodedStep:
            if event.type == "llm_response":
                monkeypatch.setattr(EncodedStep, "of", made)
                raise UnicodeEncodeError("utf-8", "", 0, 1, "a fault")
            return made(event, step)

        async with Engine.open(database, model=FunctionLlm(lambda _: reply("Hello."))) as engine:
            conversation = await engine.create()
            monkeypatch.setattr(EncodedStep, "of", breaks)
            with pytest.raises(StoreError, match="ask for the conversation again"):
                await conversation.send("Hi", message_id="m1")
            again = await engine.get(conversation.id)
            turn = await again.send("Hi", message_id="m1")

            assert (turn.reply, turn.number) == ("Hello.", 1)
            assert (await again.replay()).divergence is None

    async def test_an_unknown_conversation(self, database: Database) -> None:
        """Bad input: an unknown id."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            with pytest.raises(UnknownConversation):
                await engine.get("nobody")
            with pytest.raises(UnknownConversation):
                await engine.delete("nobody")

    async def test_delete_really_deletes(self, database: Database) -> None:
        """After a deletion neither a file nor a table holds what was said."""
        async with Engine.open(database, model=ScriptedLlm([reply("Noted.")])) as engine:
            conversation = await engine.create()
            await conversation.send("my secret is xyzzy-4711")
            await engine.delete(conversation.id)

            assert await engine.list() == ()
            with pytest.raises(UnknownConversation):
                await engine.get(conversation.id)
        assert "xyzzy-4711" not in everything_in(database)

    async def test_conversations_are_listed_newest_first(self, database: Database) -> None:
        """Summaries have an id, a state and the time of the last step."""
        async with Engine.open(database, model=FunctionLlm(lambda request: "Hello.")) as engine:
            first, second = await engine.create(), await engine.create()
            await first.send("Hi")
            listed = await engine.list()

        assert [summary.id for summary in listed] == [first.id, second.id]
        assert listed[0].updated_at > listed[1].updated_at

    async def test_the_list_has_pages_and_filters(self, database: Database) -> None:
        """A page begins after the last conversation of the page before."""
        async with Engine.open(database, model=FunctionLlm(lambda request: "Hello.")) as engine:
            conversations = [await engine.create() for _ in range(5)]
            await conversations[0].close()
            everything = [summary.id for summary in await engine.list()]
            page = await engine.list(limit=2, before=everything[1])
            idle = await engine.list(state="idle")

            assert [summary.id for summary in page] == everything[2:4]
            assert [summary.id for summary in idle] == everything[1:]
            assert await engine.list(owner="anna") == ()
            with pytest.raises(InvalidInput):
                await engine.list(limit=-1)
            with pytest.raises(UnknownConversation):
                await engine.list(before="nobody")

    async def test_conversations_run_side_by_side(self, database: Database) -> None:
        """One conversation handles one event at a time; conversations run concurrently."""

        async def answer(request: Any) -> str:
            await asyncio.sleep(0)
            return f"You said {request.messages[-1]['content']}"

        async with Engine.open(database, model=FunctionLlm(answer)) as engine:
            many = [await engine.create() for _ in range(20)]
            turns = await asyncio.gather(*(c.send(f"I am {n}") for n, c in enumerate(many)))

        assert [turn.reply for turn in turns] == [f"You said I am {n}" for n in range(20)]

    async def test_a_stored_conversation_replays_without_divergence(self, database: Database) -> None:
        """The stored log replays to the same steps."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), failure("authentication"), reply("Ok.")])

        async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            await conversation.send("A table")
            await conversation.answer({"When?": "6:30 PM"})
            await conversation.retry()
            report = await conversation.replay()

        assert (report.events, report.divergence) == (8, None)

    async def test_other_models_are_adopted_at_rest(self, database: Database) -> None:
        """With other models in the engine, the conversation changes to them, in the log, before its next turn."""
        async with Engine.open(database, model=ScriptedLlm([reply("One.")], name="first")) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")

        async with Engine.open(database, model=ScriptedLlm([reply("Two.")], name="second")) as engine:
            again = await engine.get(conversation.id)
            turn = await again.send("Hi again")
            types = [entry.event.type for entry in await again.events()]
            divergence = (await again.replay()).divergence

        assert turn.reply == "Two."
        assert types[3:5] == ["policy_changed", "user_message"]
        assert divergence is None

    async def test_rules_change_between_turns(self, database: Database) -> None:
        """A policy holds from the next turn on; to set one is refused during a turn."""
        async with Engine.open(database, model=ScriptedLlm([reply("x", finish_reason="length"), reply("")])) as engine:
            conversation = await engine.create()
            first = await conversation.send("Hi")
            changed = presets.assistant().model_copy(
                update={"texts": presets.assistant().texts.model_copy(update={"ending": "Nothing comes to mind."})}
            )
            await conversation.set_policy(changed)
            second = await conversation.send("Hi")

        assert first.truncated
        assert (second.status, second.reply) == ("incomplete", "Nothing comes to mind.")


class TestWhenTheStoreFails:
    """P28: memory equals store, the caller gets a typed error, and the conversation goes on afterwards."""

    async def test_a_request_that_cannot_be_stored_is_refused(self, database: Database) -> None:
        """P28: a request that cannot be stored is refused as "storage" and changes nothing; sent again, it works."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            before = conversation.state
            async with out_of_order(engine, database):
                with pytest.raises(Refused) as refused:
                    await conversation.send("Hi", message_id="m1")
                assert conversation.state == before
            turn = await conversation.send("Hi", message_id="m1")

            assert refused.value.code == "storage"
            assert turn.reply == "Hello."
            assert (await conversation.replay()).divergence is None

    async def test_an_answer_that_cannot_be_stored_is_kept_and_tried_again(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        """P28: the answer stays at the head of its mailbox, and requests are refused until it is stored."""
        gate = Gate()
        llm = FunctionLlm(answers_after(gate, "Kept."))

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await gate.arrived.wait()
            async with out_of_order(engine, database):
                gate.opened.set()
                await until(lambda: "An answer could not be stored" in caplog.text)
                with pytest.raises(Refused) as refused:
                    await conversation.cancel()
                assert conversation.state.type == "llm_requesting"

            assert refused.value.code == "storage"
            assert (await turn).reply == "Kept."
            assert len(llm.requests) == 1
            assert (await conversation.replay()).divergence is None


class TestConfiguration:
    """Invalid configuration is reported before it is used."""

    def test_a_tool_without_types_is_refused_at_once(self, database: Database) -> None:
        """Bad input: a tool function without types, in one sentence that names it."""

        def guess(what):  # type: ignore[no-untyped-def]
            return what

        with pytest.raises(ConfigurationError) as refused:
            Engine.open(database, model=ScriptedLlm([]), tools=[guess])

        assert "guess" in refused.value.sentence
        assert "what" in refused.value.sentence

    async def test_an_unknown_model_is_found_before_anybody_is_asked(self, database: Database) -> None:
        """Bad input: a model that litellm does not know."""
        async with Engine.open(database, model="no-such-provider/no-such-model") as engine:
            with pytest.raises(ConfigurationError) as refused:
                await engine.check()

        assert "no-such-provider/no-such-model" in refused.value.sentence

    async def test_a_provider_without_a_key_is_found_before_it_is_asked(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Bad input: no key for a real provider."""
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        async with Engine.open(database, model="openai/gpt-4.1-mini") as engine:
            with pytest.raises(ConfigurationError) as refused:
                await engine.check()

        assert "OPENAI_API_KEY" in refused.value.sentence

    async def test_events_of_a_hosts_own_making(self, database: Database) -> None:
        """`dispatch` takes any event and returns its step."""
        gate = Gate()

        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "never"))) as engine:
            conversation = await engine.create()
            at = engine.now()
            step = await conversation.dispatch(UserMessage(event_id="a", at=at, text="Hi"))
            stopped = await conversation.dispatch(UserCancel(event_id="b", at=at))

            await conversation.wait()
            at_rest = conversation.state

        assert step.state.type == "llm_requesting"
        assert stopped.state.type == "cancelling"
        assert at_rest.type == "idle"


class TestWithoutAnEventLoop:
    """The engine without an event loop."""

    def test_the_blocking_engine_is_the_same(self, database: Database) -> None:
        """`open_blocking`: the same calls, without await."""
        llm = ScriptedLlm([call("ask_user_question", questions=[QUESTION]), reply("Booked.")])

        with Engine.open_blocking(database, model=llm, tools=["ask_user_question"]) as engine:
            conversation = engine.create(system="You book tables.")
            asked = conversation.send("A table")
            seen = next(iter(conversation.updates()))
            turn = conversation.answer({asked.questions[0].question: "6:30 PM"})

            assert asked.status == "awaiting_user"
            assert seen.type == "snapshot"
            assert turn.reply == "Booked."
            assert conversation.state.type == "idle"
            assert [summary.id for summary in engine.list()] == [conversation.id]

    def test_it_takes_what_the_other_takes(self) -> None:
        """Every parameter of `open`, so that type checkers know them."""
        blocking, other = signature(Engine.open_blocking), signature(Engine.open)

        assert blocking.parameters == other.parameters


class TestADamagedDatabase:
    """A database that cannot be read."""

    async def test_one_damaged_conversation_does_not_hold_up_the_others(self, database: Database) -> None:
        """An engine opens although a conversation cannot be read; reading that one raises Damaged with one sentence."""
        policy = Policy(questions=Questions(deadline=3600))
        asking = ScriptedLlm([call("ask_user_question", questions=[QUESTION])] * 2)
        async with Engine.open(database, model=asking, tools=["ask_user_question"], policy=policy) as engine:
            broken, whole = await engine.create(), await engine.create()
            for conversation in (broken, whole):
                await conversation.send("A table")
        damage = "UPDATE events SET payload = replace(payload, 'table', 'chair') WHERE seq = 2 AND conversation = "
        change(database, f"{damage} (SELECT key FROM conversations WHERE id = ?)", broken.id)

        answering = ScriptedLlm([reply("Booked.")])
        async with Engine.open(database, model=answering, tools=["ask_user_question"]) as engine:
            turn = await (await engine.get(whole.id)).answer({"When?": "6:30 PM"})
            with pytest.raises(Damaged) as refused:
                await (await engine.get(broken.id)).transcript()

        assert turn.reply == "Booked."
        assert "\n" not in refused.value.sentence


# --- Where an engine may be called: in the event loop, the thread and the process in which it was opened.


Answers = FunctionLlm(lambda _: "Yes.")


def public_methods(kind: type) -> list[str]:
    """Return the names of the public methods of a class that are called on an object of it: not the doors that open
    another engine."""
    members = inspect.getmembers(kind, inspect.isfunction)
    return [name for name, _ in members if not name.startswith(("_", "open_blocking"))]


def arguments_of(method: Callable[..., Any]) -> list[Any]:
    """Return something for each argument that a method needs."""
    parameters = inspect.signature(method).parameters.values()
    needed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return ["x" for each in parameters if each.default is inspect.Parameter.empty and each.kind in needed]


async def used(method: Callable[..., Any]) -> Any:
    """Call a method, await what must be awaited, and ask an iterator for its first value."""
    result = method(*arguments_of(method))
    if isinstance(result, AsyncGenerator):
        return await anext(result)
    return await result if inspect.isawaitable(result) else result


def refusal(method: Callable[..., Any]) -> Exception:
    """Return what a method raises in an event loop of its own, within a second."""
    try:
        asyncio.run(asyncio.wait_for(used(method), timeout=1))
    except Exception as error:
        return error
    raise AssertionError(f"{method.__qualname__} was not refused")


def in_another_thread(work: Callable[[], Any]) -> Any:
    """Return what `work` returns in a thread without an event loop."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


class TestElsewhere:
    """An engine that is called from another event loop refuses with one sentence, and nothing changes."""

    async def test_every_method_refuses_in_another_thread(self, database: Database) -> None:
        """Whatever an engine and its conversations offer, another thread's event loop gets `EngineElsewhere`, which
        names `open_blocking`; and the conversation goes on in its own loop as if nothing had been asked."""
        async with Engine.open(database, model=Answers) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            before = await conversation.events()
            methods = [getattr(held, name) for held in (engine, conversation) for name in public_methods(type(held))]

            errors = await asyncio.to_thread(lambda: {each.__qualname__: refusal(each) for each in methods})

            assert len(errors) >= 50
            assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(errors, EngineElsewhere)
            assert all("open_blocking" in str(error) for error in errors.values())
            assert await conversation.events() == before
            assert (await conversation.send("And now?")).reply == "Yes."

    def test_every_method_refuses_in_a_second_run(self, database_file: Path) -> None:
        """A second `asyncio.run` is another event loop; the first one has ended."""

        async def opened() -> tuple[Engine, Conversation]:
            engine = await Engine.open(database_file, model=Answers)
            return engine, await engine.create()

        held = asyncio.run(opened())

        errors = [refusal(getattr(each, name)) for each in held for name in public_methods(type(each))]

        assert {type(error) for error in errors} == {EngineElsewhere}

    async def test_a_method_that_a_thread_calls_without_an_event_loop(self, database: Database) -> None:
        """A Flask view that forgets that the methods are coroutines, and one that hands an iterator on, are told."""
        async with Engine.open(database) as engine:
            conversation = await engine.create()
            send = partial(conversation.send, "Hello")

            def ask() -> list[type]:
                found = []
                for use in (conversation.updates, engine.updates, engine.now, lambda: send().send(None)):
                    with pytest.raises(EngineElsewhere) as caught:
                        use()
                    found.append(type(caught.value))
                return found

            assert await asyncio.to_thread(ask) == [EngineElsewhere] * 4

    async def test_a_coroutine_may_be_made_anywhere(self, database: Database) -> None:
        """What counts is where it is awaited: `run_coroutine_threadsafe` is the way of asyncio into a loop."""
        async with Engine.open(database, model=Answers) as engine:
            conversation = await engine.create()
            home = asyncio.get_running_loop()

            def ask() -> str | None:
                found = asyncio.run_coroutine_threadsafe(engine.get(conversation.id), home).result(10)
                return asyncio.run_coroutine_threadsafe(found.send("Hello"), home).result(10).reply

            assert await asyncio.to_thread(ask) == "Yes."

    async def test_an_iterator_goes_on_at_home(self, database: Database) -> None:
        """Updates that another event loop asks for, or wants to end, stay whole for the loop in which they began."""
        async with Engine.open(database, model=Answers) as engine:
            conversation = await engine.create()
            updates = conversation.updates()
            assert (await anext(updates)).type == "snapshot"
            calls = (
                updates.__anext__,
                updates.aclose,
                lambda: updates.asend(None),
                lambda: updates.athrow(ValueError()),
            )

            errors = await asyncio.to_thread(lambda: [type(refusal(call)) for call in calls])
            await conversation.send("Hello")

            assert errors == [EngineElsewhere] * 4
            assert (await anext(updates)).type == "message"
            await updates.aclose()

    async def test_the_engine_itself(self, database: Database) -> None:
        """It is neither entered nor closed elsewhere, and works on."""
        async with Engine.open(database, model=Answers) as engine:
            uses = (engine.__aenter__, lambda: engine.__aexit__(None, None, None), engine.close)

            errors = await asyncio.to_thread(lambda: [type(refusal(use)) for use in uses])

            assert errors == [EngineElsewhere] * 3
            assert engine.is_open
            assert (await (await engine.create()).send("Hello")).reply == "Yes."

    def test_a_method_of_a_subclass_checks_too(self) -> None:
        """The check stands in front of whatever a class defines, so none can be forgotten."""

        class Held(Homebound):
            def look(self) -> str:
                return "looked"

        held = Held(asyncio.run(_home()))

        with pytest.raises(EngineElsewhere):
            held.look()


async def _home() -> Home:
    return Home(asyncio.get_running_loop())


class TestABlockingEngine:
    """The twin for programs with threads."""

    def test_any_thread_may_call_it(self, database: Database) -> None:
        """That is what the sentence sends people to."""
        with Engine.open_blocking(database, model=Answers) as engine:
            conversation = engine.create()

            assert in_another_thread(lambda: conversation.send("Hello").reply) == "Yes."

    def test_a_tool_of_its_own_does_not_wait_for_it(self, database: Database) -> None:
        """An asynchronous tool runs in the event loop that would have to do what the tool waits for."""
        caught: list[str] = []

        @tool(crash="pure")
        async def look() -> str:
            """Look into the engine."""
            try:
                engine.list()
            except EngineElsewhere as error:
                caught.append(str(error))
            return "seen"

        engine = Engine.open_blocking(database, model=ScriptedLlm([call("look"), reply("Done.")]), tools=[look])
        with engine:
            engine.create().send("Look")

        assert len(caught) == 1 and "wait for itself" in caught[0]

    def test_it_is_open_without_with(self, database: Database) -> None:
        """A module of an application opens it once, and calls `close`, or not."""
        engine = Engine.open_blocking(database, model=Answers)

        assert engine.create().send("Hello").reply == "Yes."

        engine.close()
        engine.close()
        assert not engine.is_open
        with pytest.raises(EngineClosed):
            engine.list()

    @pytest.mark.slow
    def test_it_closes_when_nobody_holds_it(self, database: Database) -> None:
        """A conversation that is held keeps its engine; then the database is free, and nothing runs any more."""
        conversation = Engine.open_blocking(database, model=Answers).create()
        gc.collect()
        assert conversation.send("Hello").reply == "Yes."

        del conversation
        gc.collect()

        with _opened_again(database) as engine:
            assert len(engine.list()) == 1
        _wait_until(lambda: not any(thread.name.startswith("turnwise") for thread in threading.enumerate()))

    @pytest.mark.slow
    def test_it_closes_when_the_process_ends(self, database: Database) -> None:
        """The write-ahead log is merged into the file, as `close` does it; nothing hangs."""
        ended = _program(
            f"engine = Engine.open_blocking({str(database)!r})\nprint(engine.create().send('Hi').status)\n"
        )

        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "completed\n", "")
        assert not Path(f"{database}-wal").exists()
        with Engine.open_blocking(database, model=Answers) as engine:
            (summary,) = engine.list()
            engine.get(summary.id).send("Again")
            assert "resumed" not in [entry.event.type for entry in engine.get(summary.id).events()]


def _opened_again(database: Database) -> Any:
    """Return another engine over the database, once the first one has let go of it."""
    end = time.monotonic() + 20
    while True:
        try:
            return Engine.open_blocking(database, model=Answers)
        except StoreError:
            if time.monotonic() > end:
                raise


def _wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def _program(text: str) -> subprocess.CompletedProcess[str]:
    """Run a program that uses engines, for at most a minute."""
    text = f"import asyncio, os, sys\nfrom turnwise import Engine, EngineElsewhere, StoreError\n{text}"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)


FORK = """
def in_child(work):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        work()
        sys.exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("child", status)

def refused(call):
    try:
        call()
    except EngineElsewhere as error:
        print("forked" in str(error), "open_blocking" in str(error), flush=True)

def second(path):
    try:
        Engine.open_blocking(path).close()
        print(path.startswith("postgresql:"), flush=True)
    except StoreError as error:
        print("already open" in str(error), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="There is no fork on this system.")
class TestAfterAFork:
    """A child has the parent's engine in its memory, and neither its threads nor its right to the database."""

    def test_a_blocking_engine_refuses_in_the_child(self, database: Database) -> None:
        """At once, with a sentence; the child leaves the `with` block and ends without hanging, and the parent's engine
        keeps its lock and goes on."""
        ended = _program(f"""{FORK}
path = {str(database)!r}
with Engine.open_blocking(path) as engine:
    conversation = engine.create()
    print(conversation.send("Hi").status)
    in_child(lambda: (refused(engine.list), refused(lambda: conversation.send("x")), refused(engine.close)))
    second(path)
    print(conversation.send("Again").status, conversation.replay().divergence)
print(os.path.exists(path + "-wal"))
""")

        expected = "completed\nTrue True\nTrue True\nTrue True\nchild 7\nTrue\ncompleted None\nFalse\n"
        assert (ended.stdout, ended.stderr, ended.returncode) == (expected, "", 0)

    def test_an_engine_refuses_in_the_child_of_its_coroutine(self, database_file: Path) -> None:
        """In the parent's event loop, which the child must not close, and in one of its own."""
        ended = _program(f"""{FORK}
path = {str(database_file)!r}
loop = asyncio.new_event_loop()
async def begin():
    engine = await Engine.open(path)
    return engine, await engine.create()
engine, conversation = loop.run_until_complete(begin())
in_child(lambda: (refused(lambda: loop.run_until_complete(engine.list())), os._exit(7)))
in_child(lambda: (refused(lambda: asyncio.run(conversation.send("x"))), os._exit(7)))
second(path)
print(loop.run_until_complete(conversation.send("Hi")).status)
loop.run_until_complete(engine.close())
""")

        expected = "True True\nchild 7\nTrue True\nchild 7\nTrue\ncompleted\n"
        assert (ended.stdout, ended.stderr, ended.returncode) == (expected, "", 0)

    def test_a_child_opens_an_engine_of_its_own(self, database: Database) -> None:
        """Over another database, if this is a file; what it inherited does not stand in its way."""
        ended = _program(f"""{FORK}
def own():
    with Engine.open_blocking({str(database)!r} + {"-child" if isinstance(database, Path) else ""!r}) as mine:
        print(mine.create().send("Hi").status, flush=True)
engine = Engine.open_blocking({str(database)!r})
in_child(own)
print(len(engine.list()))
""")

        listed = 0 if isinstance(database, Path) else 1
        assert (ended.stdout, ended.stderr, ended.returncode) == (f"completed\nchild 7\n{listed}\n", "", 0)


# --- Conversations and engines that end, and what is left of them.


class TestClosing:
    """The end of a conversation, of an engine, of a process."""

    async def test_a_closed_conversation_takes_nothing_and_can_be_read(self, database: Database) -> None:
        """P31: closed: requests are refused, watchers end, and what was said can still be read."""
        async with Engine.open(database, model=ScriptedLlm([reply("Bye.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.close()
            await asyncio.wait_for(watcher.collecting, 60)

            with pytest.raises(Refused) as refused:
                await conversation.send("Hello?")
            assert refused.value.code == "closed"
            assert [message.text for message in await conversation.transcript()] == ["Hi", "Bye."]
            assert [summary.state for summary in await engine.list()] == ["closed"]

    async def test_a_closed_conversation_ends_with_its_engine(self, database: Database) -> None:
        """A handle raises EngineClosed afterwards, also for a conversation that was closed before."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create()
            await conversation.close()

        with pytest.raises(EngineClosed):
            await conversation.send("Hello?")

    async def test_closing_stops_what_runs(self, database: Database) -> None:
        """P31: a conversation closed while a tool runs cancels it first."""
        gate = Gate()

        @tool
        async def waits() -> None:
            """Wait."""
            await gate()

        async with Engine.open(database, model=ScriptedLlm([call("waits")]), tools=[waits]) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Go"))
            await gate.arrived.wait()
            await conversation.close()

            assert conversation.state.type == "closed"
            assert (await turn).status == "cancelled"

    @pytest.mark.slow
    async def test_the_memory_of_a_closed_conversation_is_freed(self, database: Database) -> None:
        """P31: once nobody holds a handle, neither a task nor a loop of it remains."""
        async with Engine.open(database, model=ScriptedLlm([reply("Bye.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            await conversation.close()
            del conversation
            await until(lambda: gc.collect() >= 0 and engine.in_memory == 0)
            if isinstance(database, Path):  # over PostgreSQL an engine listens, and looks for work
                await until(lambda: len(asyncio.all_tasks()) == 1)  # it may still look for schedules in its store

    @pytest.mark.slow
    async def test_memory_does_not_grow_with_the_database(self, database: Database) -> None:
        """Of conversations at rest without a handle, only the most recent ones stay in memory."""
        async with Engine.open(database, model=FunctionLlm(lambda request: "Hello.")) as engine:
            ids = [(await engine.create()).id for _ in range(RECENT + 10)]
            for conversation_id in ids:
                await (await engine.get(conversation_id)).send("Hi")
            await until(lambda: gc.collect() >= 0 and engine.in_memory <= RECENT)

            assert engine.in_memory == RECENT

    async def test_an_engine_closes_in_the_middle_of_a_turn_and_keeps_what_was_stored(self, database: Database) -> None:
        """P31: whatever was acknowledged is there when it is opened again; callers that wait get EngineClosed."""
        gate = Gate()

        engine = await Engine.open(database, model=FunctionLlm(answers_after(gate, "never")))
        conversation = await engine.create()
        turn = asyncio.ensure_future(conversation.send("Hi"))
        await gate.arrived.wait()
        await engine.close()
        await engine.close()

        with pytest.raises(EngineClosed):
            await turn
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")], name="function")) as engine:
            again = await engine.get(conversation.id)
            await until(lambda: again.state.type == "idle")
            assert [message.text for message in await again.transcript()] == ["Hi", "Hello."]


def payment(begun: asyncio.Event, says: str = "paid", *, stubborn: bool = True) -> AnyTool:
    """A tool that runs until it is cancelled; a stubborn one then finishes."""

    @tool
    async def pay() -> str:
        """Pay."""
        begun.set()
        with suppress(asyncio.CancelledError) if stubborn else nullcontext():
            await asyncio.Event().wait()
        await asyncio.sleep(0.05)
        return says

    return pay


class TestWhatFinishesAllTheSame:
    """A tool that finishes although its engine closes: its result is stored."""

    @pytest.mark.parametrize("says", ["paid", ""])
    async def test_its_result_is_kept(self, says: str, database: Database) -> None:
        """P28: a payment that was made is not in doubt: the next process shows its result to the model; nothing that
        follows from it starts in this one."""
        begun = asyncio.Event()
        pay = payment(begun, says)
        llm = ScriptedLlm([call("pay")])
        engine = await Engine.open(database, model=llm, tools=[pay])
        conversation = await engine.create()
        sending = asyncio.ensure_future(conversation.send("Pay, please"))
        await begun.wait()
        await engine.close()
        with pytest.raises(EngineClosed):
            await sending

        model = ScriptedLlm([reply("It is paid.")])
        async with Engine.open(database, model=model, tools=[pay]) as engine:
            again = await engine.get(conversation.id)
            await until(lambda: again.state.type == "idle")
            assert [message.text for message in await again.transcript()][2:] == [says, "It is paid."]

    async def test_one_that_is_cut_off_is_in_doubt(self, database: Database) -> None:
        """A tool that stops is in doubt, as after a crash."""
        begun = asyncio.Event()
        pay = payment(begun, stubborn=False)
        engine = await Engine.open(database, model=ScriptedLlm([call("pay")]), tools=[pay])
        conversation = await engine.create()
        await conversation.send("Pay, please", wait=False)
        await begun.wait()
        await engine.close()

        async with Engine.open(database, model=ScriptedLlm([]), tools=[pay]) as engine:
            again = await engine.get(conversation.id)
            await until(lambda: again.state.type == "in_doubt")
            assert [summary.state for summary in await engine.list()] == ["in_doubt"]

    async def test_of_a_deleted_conversation_nothing_is_kept(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        """If the disk takes nothing either, the result is lost and the engine closes without an error."""
        begun = asyncio.Event()
        pay = payment(begun)
        async with Engine.open(database, model=ScriptedLlm([call("pay")]), tools=[pay]) as engine:
            conversation = await engine.create()
            await conversation.send("Pay, please", wait=False)
            await begun.wait()
            await engine.delete(conversation.id)

        assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


class TestClosingWhileSomethingBegins:
    """An engine may be closed at any moment; afterwards nothing runs, and the file is unlocked."""

    @pytest.mark.parametrize("steps", [*range(0, 24, 3), 1000])
    async def test_an_engine_that_is_still_opening(self, steps: int, database: Database) -> None:
        """P31: opening raises EngineClosed if the engine is closed meanwhile."""
        engine = Engine.open(database, model=ScriptedLlm([]))
        opening = asyncio.ensure_future(engine.__aenter__())
        for _ in range(steps):
            await asyncio.sleep(0)
        await engine.close()

        (opened,) = await asyncio.gather(opening, return_exceptions=True)
        assert opened is engine or isinstance(opened, EngineClosed)
        with pytest.raises(EngineClosed):
            await engine.list()
        async with Engine.open(database, model=ScriptedLlm([])):
            pass

    @pytest.mark.parametrize("steps", range(6))
    async def test_a_conversation_that_is_being_read(self, steps: int, database: Database) -> None:
        """P31: a load that is under way raises EngineClosed; nobody waits for ever."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation_id = (await engine.create()).id
        engine = await Engine.open(database, model=FunctionLlm(lambda _: reply("Hello."), name="scripted"))

        async def say_something() -> None:
            await (await engine.get(conversation_id)).send("Hi")

        saying = asyncio.ensure_future(say_something())
        for _ in range(steps):
            await asyncio.sleep(0)
        await engine.close()

        with pytest.raises((EngineClosed, StoreError)):
            await asyncio.wait_for(saying, 60)

    async def test_a_conversation_that_is_being_made(self, database: Database) -> None:
        """P31: a conversation that is created meanwhile may be stored, but nobody gets a handle on it."""
        engine = await Engine.open(database, model=ScriptedLlm([]))
        making = asyncio.ensure_future(engine.create())
        await asyncio.sleep(0)
        await engine.close()

        with pytest.raises(EngineClosed):
            await making

    def test_an_engine_that_was_opened_before(self) -> None:
        """It is opened once, whether in the same event loop or in another one, and the sentence says what to do."""
        engine = Engine.open("sqlite://")

        async def sentence() -> str:
            try:
                async with engine:
                    pass
                async with engine:
                    return ""
            except (EngineClosed, EngineElsewhere) as refused:
                return refused.sentence

        assert "opened before; make a new one" in asyncio.run(sentence())
        assert "opened before; make a new one" in asyncio.run(sentence())

    async def test_an_engine_that_is_open_may_be_entered(self) -> None:
        """An engine is not opened a second time: one in memory would be another database."""
        engine = await Engine.open("sqlite://", model=ScriptedLlm([]))
        conversation = await engine.create()

        async with engine:
            assert [summary.id for summary in await engine.list()] == [conversation.id]

        with pytest.raises(EngineClosed):
            await engine.list()


# --- Models that load something before their first request, as those of litellm do.


PROFILES = [Profile(name="clerk", prompt="Be exact."), Profile(name="chef", prompt="Cook.")]
HURRIED = Settings(llm_profile_select_timeout_sec=0.001, llm_tools_timeout_sec=0.001)
"""Far less than a model in these tests takes to load, and enough for an answer that waits for nothing."""

NO_TIME = 0.05
"""Seconds by which these deadlines are long over."""


class Loading(FunctionLlm):
    """A model that can take requests once its gate is open, and chooses the chef."""

    def __init__(self) -> None:
        super().__init__(self._choose, name="slow")
        self.gate = Gate()

    async def ready(self) -> None:
        """Wait for the gate."""
        await self.gate()

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer once the gate is open."""
        await self.gate()
        return await super().complete(request, show)

    def _choose(self, request: ModelRequest) -> Any:
        answers = {"route": '{"profile": "chef"}', "enrich": '{"keywords": ["sushi"]}'}
        return reply(answers.get(request.purpose, "Yes."))


class GatedLiteLlm(LiteLlm):
    """A model of litellm that is imported once the gate is open."""

    gate: Gate

    async def ready(self) -> None:
        """Wait for the gate, and for litellm."""
        await self.gate()
        await super().ready()


def left_out(updates: list[Any]) -> list[tuple[str, ...]]:
    """What turns went on without, by the updates that say so."""
    return [one.state.left_out for one in updates if isinstance(one, StateChangeUpdate) and one.state.left_out]


async def updates_of_turn(conversation: Conversation, text: str) -> list[Any]:
    """Send a message, and return the updates of its turn."""
    return [update async for update in conversation.stream(text)]


class TestDeadlines:
    """They begin when the model is ready."""

    async def test_a_first_turn_keeps_its_profile_and_its_memory(self, database: Database) -> None:
        """However long the model takes to load: the choice of a profile and the search for older conversations have
        their whole time afterwards."""
        quick = FunctionLlm(lambda _: "Sushi on Friday.", name="slow")
        async with Engine.open(database, model=quick) as engine:
            await (await engine.create(owner="anna")).send("Where is the sushi?")
        model = Loading()
        async with Engine.open(database, model=model, profiles=PROFILES, settings=HURRIED) as engine:
            conversation = await engine.create(owner="anna", policy=Policy(route=True, recall=True))
            sending = asyncio.ensure_future(updates_of_turn(conversation, "Sushi again?"))
            await model.gate.arrived.wait()
            await asyncio.sleep(NO_TIME)
            model.gate.opened.set()
            updates = await sending
            request = model.requests[-1]

        assert left_out(updates) == []
        assert updates[-1].profile == "chef"
        assert [one.purpose for one in model.requests] == ["route", "enrich", "converse"]
        assert "Sushi on Friday." in request.messages[-1]["content"]

    async def test_of_litellm_over_a_socket(self) -> None:
        """The import of litellm is not counted either."""
        async with OpenAiServer([says('{"profile": "chef"}'), says("Here you are.")]) as server:
            model = GatedLiteLlm("openai/test", api_base=server.url, api_key="test")
            model.gate = Gate()
            settings = Settings(llm_profile_select_timeout_sec=10)
            async with Engine.open("sqlite://", model=model, profiles=PROFILES, settings=settings) as engine:
                conversation = await engine.create(policy=Policy(route=True))
                sending = asyncio.ensure_future(conversation.send("Hello"))
                await model.gate.arrived.wait()
                assert server.requests == []
                model.gate.opened.set()
                turn = await sending

        assert (turn.reply, turn.profile) == ("Here you are.", "chef")


class TestOpening:
    """An engine begins to load its models when it opens, and does not wait for them."""

    async def test_it_does_not_wait(self) -> None:
        """Neither for the model that is asked first nor for others; a model that never loads ends with the engine."""
        first, other = Loading(), Loading()
        other.name = "other"
        async with Engine.open("sqlite://", model=first, models=[other]) as engine:
            await first.gate.arrived.wait()
            assert engine.is_open
            first.gate.opened.set()
            await other.gate.arrived.wait()

    async def test_one_that_cannot_load_is_told_to_who_asks_it(self, caplog: pytest.LogCaptureFixture) -> None:
        """The engine opens all the same, and the turn fails with the reason."""

        class Broken(Loading):
            async def ready(self) -> None:
                raise ImportError("no such library")

        caplog.set_level(logging.WARNING)
        async with Engine.open("sqlite://", model=Broken()) as engine:
            turn = await (await engine.create()).send("Hello")

        assert turn.status == "failed"
        assert "A model could not be loaded ahead." in caplog.text


# --- A mistake of callers that begin: an engine that was never opened.


NOT_OPEN = "The engine is not open: use `async with Engine.open(...)` or `await Engine.open(...)`."


class TestAnEngineThatWasNeverOpened:
    """Making an engine does not open it."""

    @pytest.mark.parametrize(
        "use",
        [
            lambda engine: engine.create(),
            lambda engine: engine.get("c-1"),
            lambda engine: engine.list(),
            lambda engine: engine.delete("c-1"),
            lambda engine: engine.refresh("c-1"),
            lambda engine: engine.delivered(),
        ],
    )
    async def test_every_method_says_how_it_is_opened(self, use: Callable[[Engine], Awaitable[Any]]) -> None:
        """It is an `EngineClosed`, so a program that handles that handles this too."""
        with pytest.raises(EngineClosed) as caught:
            await use(Engine.open("sqlite://"))

        assert (type(caught.value), caught.value.sentence) == (EngineNotOpen, NOT_OPEN)

    async def test_one_that_was_closed_is_closed(self) -> None:
        """Whether it was open before or not."""
        engine = Engine.open("sqlite://")
        await engine.close()

        with pytest.raises(EngineClosed) as caught:
            await engine.list()

        assert caught.value.sentence == "The engine is closed."


# --- What a developer sees who prints an engine or a conversation.


async def test_a_conversation_says_its_id_its_state_and_its_turns(tmp_path: Path) -> None:
    """As they are at that moment."""
    async with Engine.open(tmp_path / "dinner.db", model=FunctionLlm(lambda _: "Hello.")) as engine:
        conversation = await engine.create(conversation_id="dinner")
        before = repr(conversation)
        await conversation.send("Hi")

        assert before == "<Conversation 'dinner': idle, 0 turns>"
        assert repr(conversation) == "<Conversation 'dinner': idle, 1 turn>"


async def test_an_engine_says_its_database_and_what_it_holds(tmp_path: Path) -> None:
    """Also when it has closed."""
    path = tmp_path / "dinner.db"
    engine = Engine.open(path, model=FunctionLlm(lambda _: "Hello."))
    async with engine:
        conversation = await engine.create()

        assert repr(engine) == f"<Engine {path}: open, 1 conversation in memory>"
        assert conversation.id
    assert repr(engine) == f"<Engine {path}: not open, 0 conversations in memory>"


def test_those_without_an_event_loop_say_the_same(tmp_path: Path) -> None:
    """With their own names."""
    path = tmp_path / "dinner.db"
    with Engine.open_blocking(path, model=FunctionLlm(lambda _: "Hello.")) as engine:
        conversation = engine.create(conversation_id="dinner")

        assert repr(conversation) == "<BlockingConversation 'dinner': idle, 0 turns>"
        assert repr(engine) == f"<BlockingEngine {path}: open, 1 conversation in memory>"
