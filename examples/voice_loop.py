"""A voice assistant with everything that the reply flow has.

Secrets are removed from what you say, a profile is chosen, what you said in an earlier conversation is recalled, a tool
of an MCP server is used, the reply is spoken, and then a window opens in which you need no wake word. Each step is
printed. It needs no key and no loudspeaker: without `--aloud` the replies go to sound files in the folder `spoken`.

    pip install "turnwise[mcp,redact,speech]"
    python examples/voice_loop.py                 # you type; it ends when the input ends
    python examples/voice_loop.py --listen        # you speak: pip install "SpeechRecognition[audio,vosk]"
    MODEL=openai/gpt-4.1-mini python examples/voice_loop.py --aloud
"""

import asyncio
import importlib.util
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

from turnwise import (
    ConfigurationError,
    Delivery,
    Engine,
    McpServer,
    Profile,
    Redaction,
    Settings,
    SpeechChannel,
)
from turnwise.testing import ManualClock

OWNER = "sam"
WAKE_WORD = "computer"
FOLLOW_UP = 8.0  # seconds in which the assistant listens without the wake word
DATABASE = "voice_loop.db"
MODEL = os.environ.get("MODEL", "rehearsal")

PROFILES = [
    Profile(name="companion", description="Conversation about people and everyday life.", prompt="You are warm."),
    Profile(name="guide", description="Travel, places and the weather.", prompt="You are precise."),
]
WEATHER = McpServer(command=sys.executable, args=[str(Path(__file__).with_name("weather_server.py"))], crash="pure")


class FollowUpWindow:
    """The seconds after a spoken reply in which the assistant listens without its wake word."""

    def __init__(self) -> None:
        self._closes = 0.0

    def open(self, delivery: Delivery) -> None:
        """Open it. The speech channel calls this when a turn was spoken to its end."""
        self._closes = monotonic() + FOLLOW_UP
        print(f"  (The follow-up window is open for {FOLLOW_UP:g} seconds.)")

    @property
    def is_open(self) -> bool:
        """Whether it is open."""
        return monotonic() < self._closes


async def typed() -> AsyncIterator[str]:
    """Yield the lines of the standard input."""
    if sys.stdin.isatty():
        print("Say something, such as: What will the weather be like in Turku? Ctrl-D ends the program.")
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str]()

    def read() -> None:
        with suppress(RuntimeError), open(sys.stdin.fileno(), closefd=False) as source:  # the loop may be closed first
            for line in source:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=read, daemon=True).start()  # asyncio.to_thread would keep Ctrl-C from ending the program
    while line := await lines.get():
        if line.strip():
            yield line.strip()


async def heard(window: FollowUpWindow) -> AsyncIterator[str]:
    """Yield what is said into the microphone: behind the wake word, or while the window is open."""
    recognition = importlib.import_module("speech_recognition")
    recognizer = recognition.Recognizer()
    while True:
        with recognition.Microphone() as source:
            sound = await asyncio.to_thread(recognizer.listen, source)
        text = json.loads(await asyncio.to_thread(recognizer.recognize_vosk, sound)).get("text", "")
        if window.is_open or text.startswith(WAKE_WORD):
            yield text.removeprefix(WAKE_WORD).strip()


def inputs(window: FollowUpWindow) -> AsyncIterator[str]:
    """Return what the user says: spoken, where that is wanted and a recognizer is installed, else typed."""
    if "--listen" in sys.argv:
        if importlib.util.find_spec("speech_recognition"):
            return heard(window)
        print('You cannot be heard, so type: pip install "SpeechRecognition[audio,vosk]"')
    return typed()


def speaker(window: FollowUpWindow) -> SpeechChannel | None:
    """Return a channel that speaks, or None if no speech engine is installed."""
    try:
        return SpeechChannel(into=None if "--aloud" in sys.argv else "spoken", on_turn_spoken=window.open)
    except ConfigurationError as error:
        print(f"Nothing is spoken. {error.sentence}")
        return None


async def talk_yesterday() -> None:
    """Hold the conversation that is recalled later, unless it was held in an earlier run."""
    yesterday = ManualClock(datetime.now(UTC) - timedelta(days=1))
    async with Engine.open(DATABASE, clock=yesterday) as engine:
        if not await engine.list(owner=OWNER):
            conversation = await engine.create(owner=OWNER, title="Yesterday")
            await conversation.send("My sister Anna lives in Turku.")
            print("Yesterday you said: My sister Anna lives in Turku.")


async def main() -> None:
    """Answer what the user says until the input ends."""
    end_on_interrupt()
    await talk_yesterday()
    print_steps()
    window, redaction = FollowUpWindow(), Redaction()
    speech = speaker(window)
    async with Engine.open(
        DATABASE,
        model=MODEL,
        profiles=PROFILES,
        redaction=redaction,
        mcps={"weather": WEATHER},
        tools=["recall_conversation"],
        channels=[speech] if speech else [],
        policy=Settings().reply_flow(),
    ) as engine:
        conversation = await engine.create(owner=OWNER)
        async for text in inputs(window):
            if speech:
                speech.stop()  # who speaks interrupts the assistant; then no window opens
            turn = await conversation.send(text)
            print(f"{conversation.profile}: {turn.reply}")
            await engine.delivered()
            if speech and "--listen" not in sys.argv:
                await speech.drain()
        if speech:
            await speech.drain()
    removed = ", ".join(f"{count} of the kind {label}" for label, count in redaction.counts.items())
    print(f"Secrets that were removed: {removed or 'none'}.")


def end_on_interrupt() -> None:
    """Have Ctrl-C cancel this task at once: an event loop that waits does not always notice a signal by itself."""
    task = asyncio.current_task()
    if task and sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)


def print_steps() -> None:
    """Print each step of a turn: a record that names and counts things, and never quotes what was said."""
    logging.basicConfig(stream=sys.stdout, format="  [%(name)s] %(message)s")
    for step in ("profile", "memory", "planning", "voice"):
        logging.getLogger(f"turnwise.{step}").setLevel(logging.INFO)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(main())
