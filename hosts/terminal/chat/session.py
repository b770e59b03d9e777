"""Creates what a conversation at a terminal needs: the engine, the writer, the screen and the speech."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Any

from ....effects.channels.port import Delivery
from ....effects.channels.speech import Outcome, SpeechChannel
from ....engine.conversation import Conversation
from ....engine.engine import Engine
from ....persistence.ports import Store
from ....states.policy import Policy, Recent
from ..configuration.presets import check_rules, preset_of
from ..configuration.profiles import with_chosen_profile
from ..configuration.settings import Settings
from ..configuration.tools import tools_named
from ..output.notices import print_notice
from ..output.step_lines import steps_shown_by
from ..output.writer import TerminalWriter
from .reply_header import ReplyHeader
from .screen import Screen


@contextmanager
def open_writer(settings: Settings) -> Iterator[TerminalWriter]:
    """Open the writer for stdout. It is interactive if stdin and stdout are a terminal that can move its cursor, and
    then renders Markdown unless the settings say otherwise."""
    streams = (sys.stdin, sys.stdout)
    if not all(stream is not None and stream.isatty() for stream in streams) or os.environ.get("TERM") == "dumb":
        yield TerminalWriter(interactive=False)
        return
    from .typeahead import echo_disabled

    writer = TerminalWriter(interactive=True, markdown=_renders_markdown(settings))
    with echo_disabled():
        try:
            yield writer
        finally:
            writer.finish()


def _renders_markdown(settings: Settings) -> bool:
    """Return whether to render Markdown. A log on the same terminal would be written between what is drawn again."""
    logs_here = (settings.debug or settings.voice_debug) and sys.stderr is not None and sys.stderr.isatty()
    return not settings.plain and not logs_here


def speech_for(settings: Settings, writer: TerminalWriter) -> SpeechChannel | None:
    """Return the speech channel if the settings ask for one. Its first failure is noted.

    Raises `ConfigurationError` if no speech engine is installed.
    """
    failed: list[Delivery] = []
    why = "the log says why" if settings.debug else "with --debug the log says why"

    def note_failure(delivery: Delivery, outcome: Outcome) -> None:
        if outcome == "failed":
            failed.append(delivery)
            if len(failed) == 1:
                writer.defer_note(f"This could not be spoken: no voice works here; {why}.")

    if settings.speak and not settings.tts_enabled:
        print_notice("Nothing is spoken, because the settings say that tts_enabled is false.")
    return SpeechChannel(on_end=note_failure) if settings.speak and settings.tts_enabled else None


def screen_for(conversation: Conversation, settings: Settings, writer: TerminalWriter, *, echo: bool = False) -> Screen:
    """Return the screen for a conversation; `echo` as for `Screen`.

    Where the policy keeps the model's text from the user, the user is reached by tool; where that depends on the tools,
    each update tells. Where it removes something from answers, they are not streamed to an output that cannot take
    anything back.
    """
    policy = conversation.policy
    return Screen(
        writer,
        thoughts=settings.thoughts,
        echo=echo,
        by_tool=policy.text in ("fallback", "thought"),
        whole=(policy.redact or policy.marker is not None) and not writer.takes_back,
        header=ReplyHeader(writer, lambda: conversation.profile) if _has_steps(policy) else None,
    )


def steps_shown(settings: Settings, policy: Policy, writer: TerminalWriter) -> AbstractContextManager[None]:
    """Return a context in which each step of a turn under this policy is a short line on stdout. With `voice_debug` the
    steps are written to stderr instead."""
    return steps_shown_by(writer.step) if _has_steps(policy) and not settings.voice_debug else nullcontext()


def _has_steps(policy: Policy) -> bool:
    """Return whether more happens in a turn than requests and tools. Then a header sets the reply apart."""
    return policy.route or policy.recall or policy.documents or isinstance(policy.dialogue, Recent)


@asynccontextmanager
async def open_engine(
    settings: Settings,
    writer: TerminalWriter,
    tools: Iterable[Any] = (),
    speech: SpeechChannel | None = None,
    store: Store | None = None,
) -> AsyncIterator[Engine]:
    """Open an engine with these settings, and with `tools` before those that the settings name.

    It works over `store` if that is given, which stays open, else over the database of the settings, which is created
    only if the engine can do what the preset asks for. Checks that its model can be asked. Speech that has begun ends
    before the engine is closed. Raises `ConfigurationError` and `StoreError`.
    """
    settings, policy = with_chosen_profile(settings), preset_of(settings)
    named = [tool for tool in tools_named(settings.tools) if tool not in tools]
    engine = Engine.open(
        settings.db if store is None else None,
        store=store,
        model=settings.model,
        models=settings.models,
        tools=[*tools, *named],
        policy=policy,
        settings=settings,
        channels=[speech] if speech else [],
    )
    writer.spin("getting ready")
    if store is None:
        check_rules(engine, policy)
    await engine.check(servers=False)
    async with engine:
        writer.finish()
        for sentence in engine.server_faults:
            writer.note(sentence)
        yield engine
        if speech:
            await _finish_speaking(engine, speech)


async def _finish_speaking(engine: Engine, speech: SpeechChannel) -> None:
    """Return when everything that was said is spoken. Ctrl-C silences it."""
    try:
        await engine.delivered()
        await speech.drain()
    except asyncio.CancelledError:
        speech.stop()
        raise
