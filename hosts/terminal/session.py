"""What a conversation at a terminal begins with: an engine made from the settings, and a look at where it runs."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from shutil import which
from typing import Any

from ...effects.channels.port import Delivery
from ...effects.channels.speech import Outcome, SpeechChannel
from ...engine.conversation import Conversation
from ...engine.engine import Engine
from ...persistence.address import Address
from .lookup import preset_named, tools_for, tools_named
from .pen import Pen
from .screen import Screen
from .settings import Settings, settings_of_the_directory

NAME = "turnwise"


@contextmanager
def pen_for_stdout() -> Iterator[Pen]:
    """What to write with: lively where a person sits at a terminal that can move its cursor, else plain."""
    ends = (sys.stdin, sys.stdout)
    if not all(end is not None and end.isatty() for end in ends) or os.environ.get("TERM") == "dumb":
        yield Pen(lively=False)
        return
    from .typeahead import hushed

    pen = Pen(lively=True)
    with hushed():
        try:
            yield pen
        finally:
            pen.finish()


def with_needed_tools(settings: Settings) -> Settings:
    """The settings, with the tools that their preset needs to reach the user by."""
    return settings.model_copy(update={"tools": tools_for(settings.preset, settings.tools)})


def speech_for(settings: Settings, pen: Pen) -> SpeechChannel | None:
    """What speaks, if that is wanted; that it could not is noted once. Raises `ConfigurationError` if there is nothing
    to speak with."""
    failed: list[Delivery] = []

    def note(delivery: Delivery, outcome: Outcome) -> None:
        if outcome == "failed":
            failed.append(delivery)
            if len(failed) == 1:
                pen.note("This could not be spoken: no voice works here. With --debug it is shown why.")

    return SpeechChannel(on_end=note) if settings.speak else None


def screen_for(conversation: Conversation, settings: Settings, pen: Pen, *, echo: bool = False) -> Screen:
    """What shows this conversation; `echo` as for `Screen`. Where its rules keep the model's text from the user, the
    user is reached by tool (case B12)."""
    return Screen(pen, thoughts=settings.thoughts, echo=echo, by_tool=conversation.policy.text != "reply")


@asynccontextmanager
async def engine_for(
    settings: Settings, pen: Pen, tools: Iterable[Any] = (), speech: SpeechChannel | None = None
) -> AsyncIterator[Engine]:
    """An engine with these settings, and with `tools` before those that the settings name; its model can be asked. When
    it is closed, what is being spoken is heard to its end first.

    Raises `ConfigurationError` and `StoreError`.
    """
    named = [tool for tool in tools_named(settings.tools) if tool not in tools]
    engine = Engine.open(
        settings.db,
        model=settings.model,
        tools=[*tools, *named],
        policy=preset_named(settings.preset),
        channels=[speech] if speech else [],
    )
    pen.wait_for("getting ready")
    await engine.check()
    async with engine:
        pen.finish()
        yield engine
        if speech:
            await _hear_out(engine, speech)


async def _hear_out(engine: Engine, speech: SpeechChannel) -> None:
    """Return when everything that was said is spoken; Ctrl-C cuts it off."""
    try:
        await engine.delivered()
        await speech.drain()
    except asyncio.CancelledError:
        speech.stop()
        raise


def way_back(conversation_id: str, settings: Settings, called: str = "this conversation") -> str:
    """How to take a conversation up again, in a line that needs nothing of this environment; `called` is how it is
    spoken of."""
    if Address.of(settings.db).path is None:
        return f"There is no way back to {called}: it is held in memory only."
    usual = settings_of_the_directory()
    options = [
        ("--db", settings.db, usual.db),
        ("--model", settings.model, usual.model),
        ("--tools", ",".join(settings.tools), ",".join(usual.tools)),
    ]
    given = [part for option, value, default in options if value != default for part in (option, value)]
    return f"To come back to {called}: {own_name()} {shlex.join(['chat', conversation_id, *given])}"


def own_name() -> str:
    """What to type for this command: its name where the shell finds it, else its path."""
    called, found = Path(sys.argv[0]), which(NAME)
    if called.stem != NAME or (found is not None and Path(found).samefile(called)):
        return NAME
    return str(called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called)
