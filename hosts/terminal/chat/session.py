"""What a conversation at a terminal begins with: an engine made from the settings, and a look at where it runs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from ....effects.channels.port import Delivery
from ....effects.channels.speech.channel import Outcome, SpeechChannel
from ....engine.conversation import Conversation
from ....engine.engine import Engine
from ....states.policy.policy import Policy
from ..configuration.presets import preset_named
from ..configuration.settings import Settings
from ..configuration.tools import tools_for, tools_named
from ..output.writer import TerminalWriter
from .screen import Screen


@contextmanager
def pen_for_stdout() -> Iterator[TerminalWriter]:
    """What to write with: lively where a person sits at a terminal that can move its cursor, else plain."""
    ends = (sys.stdin, sys.stdout)
    if not all(end is not None and end.isatty() for end in ends) or os.environ.get("TERM") == "dumb":
        yield TerminalWriter(lively=False)
        return
    from .typeahead import hushed

    pen = TerminalWriter(lively=True)
    with hushed():
        try:
            yield pen
        finally:
            pen.finish()


def with_needed_tools(settings: Settings, policy: Policy) -> Settings:
    """The settings, with the tools that a conversation under these rules needs to reach its user by. Raises
    `ConfigurationError`."""
    return settings.model_copy(update={"tools": tools_for(policy, settings.tools)})


def speech_for(settings: Settings, pen: TerminalWriter) -> SpeechChannel | None:
    """What speaks, if that is wanted; that it could not is noted once. Raises `ConfigurationError` if there is nothing
    to speak with."""
    failed: list[Delivery] = []
    why = "the log says why" if settings.debug else "with --debug the log says why"

    def note(delivery: Delivery, outcome: Outcome) -> None:
        if outcome == "failed":
            failed.append(delivery)
            if len(failed) == 1:
                pen.aside(f"This could not be spoken: no voice works here; {why}.")

    return SpeechChannel(on_end=note) if settings.speak else None


def screen_for(conversation: Conversation, settings: Settings, pen: TerminalWriter, *, echo: bool = False) -> Screen:
    """What shows this conversation; `echo` as for `Screen`. Where its rules keep the model's text from the user, the
    user is reached by tool (case B12)."""
    return Screen(pen, thoughts=settings.thoughts, echo=echo, by_tool=conversation.policy.text != "reply")


@asynccontextmanager
async def engine_for(
    settings: Settings, pen: TerminalWriter, tools: Iterable[Any] = (), speech: SpeechChannel | None = None
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
