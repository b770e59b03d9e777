"""Where an engine may be called: in the event loop, the thread and the process in which it was opened."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from turnwise import Conversation, Engine, EngineClosed, EngineElsewhere, StoreError, tool
from turnwise.engine.home import Home, Homebound
from turnwise.testing import FunctionLlm, ScriptedLlm, call, reply

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

    async def test_every_method_refuses_in_another_thread(self, database: Path) -> None:
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

    def test_every_method_refuses_in_a_second_run(self, database: Path) -> None:
        """A second `asyncio.run` is another event loop; the first one has ended."""

        async def opened() -> tuple[Engine, Conversation]:
            engine = await Engine.open(database, model=Answers)
            return engine, await engine.create()

        held = asyncio.run(opened())

        errors = [refusal(getattr(each, name)) for each in held for name in public_methods(type(each))]

        assert {type(error) for error in errors} == {EngineElsewhere}

    async def test_a_method_that_a_thread_calls_without_an_event_loop(self, database: Path) -> None:
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

    async def test_a_coroutine_may_be_made_anywhere(self, database: Path) -> None:
        """What counts is where it is awaited: `run_coroutine_threadsafe` is the way of asyncio into a loop."""
        async with Engine.open(database, model=Answers) as engine:
            conversation = await engine.create()
            home = asyncio.get_running_loop()

            def ask() -> str | None:
                found = asyncio.run_coroutine_threadsafe(engine.get(conversation.id), home).result(10)
                return asyncio.run_coroutine_threadsafe(found.send("Hello"), home).result(10).reply

            assert await asyncio.to_thread(ask) == "Yes."

    async def test_an_iterator_goes_on_at_home(self, database: Path) -> None:
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

    async def test_the_engine_itself(self, database: Path) -> None:
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

    def test_any_thread_may_call_it(self, database: Path) -> None:
        """That is what the sentence sends people to."""
        with Engine.open_blocking(database, model=Answers) as engine:
            conversation = engine.create()

            assert in_another_thread(lambda: conversation.send("Hello").reply) == "Yes."

    def test_a_tool_of_its_own_does_not_wait_for_it(self, database: Path) -> None:
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

    def test_it_is_open_without_with(self, database: Path) -> None:
        """A module of an application opens it once, and calls `close`, or not."""
        engine = Engine.open_blocking(database, model=Answers)

        assert engine.create().send("Hello").reply == "Yes."

        engine.close()
        engine.close()
        assert not engine.is_open
        with pytest.raises(EngineClosed):
            engine.list()

    @pytest.mark.slow
    def test_it_closes_when_nobody_holds_it(self, database: Path) -> None:
        """A conversation that is held keeps its engine; then the database is free, and nothing runs any more."""
        conversation = Engine.open_blocking(database, model=Answers).create()
        gc.collect()
        assert conversation.send("Hello").reply == "Yes."

        del conversation
        gc.collect()

        with _opened_again(database) as engine:
            assert len(engine.list()) == 1

    @pytest.mark.slow
    def test_it_closes_when_the_process_ends(self, database: Path) -> None:
        """The write-ahead log is merged into the file, as `close` does it; nothing hangs."""
        ended = _program(
            f"engine = Engine.open_blocking({str(database)!r})\nprint(engine.create().send('Hi').status)\n"
        )

        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "completed\n", "")
        assert not Path(f"{database}-wal").exists()


def _opened_again(database: Path) -> Any:
    """Return another engine over the database, once the first one has let go of it."""
    end = time.monotonic() + 20
    while True:
        try:
            return Engine.open_blocking(database, model=Answers)
        except StoreError:
            if time.monotonic() > end:
                raise


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
        Engine.open_blocking(path)
    except StoreError as error:
        print("already open" in str(error), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="There is no fork on this system.")
class TestAfterAFork:
    """A child has the parent's engine in its memory, and neither its threads nor its right to the database."""

    def test_a_blocking_engine_refuses_in_the_child(self, database: Path) -> None:
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

    def test_an_engine_refuses_in_the_child_of_its_coroutine(self, database: Path) -> None:
        """In the parent's event loop, which the child must not close, and in one of its own."""
        ended = _program(f"""{FORK}
path = {str(database)!r}
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

    def test_a_child_opens_an_engine_of_its_own(self, database: Path) -> None:
        """Over another database; what it inherited does not stand in its way."""
        ended = _program(f"""{FORK}
def own():
    with Engine.open_blocking({str(database)!r} + "-child") as mine:
        print(mine.create().send("Hi").status, flush=True)
engine = Engine.open_blocking({str(database)!r})
in_child(own)
print(len(engine.list()))
""")

        assert (ended.stdout, ended.stderr, ended.returncode) == ("completed\nchild 7\n0\n", "", 0)
