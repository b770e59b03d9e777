"""A voice assistant: the model answers its user by tool, and the answer is printed and spoken without markup.

It needs no key, no network and no loudspeaker: speech goes to sound files in the folder `spoken`. With `--aloud` it
goes to the loudspeaker. With a real model: MODEL=openai/gpt-4.1-mini python examples/voice_assistant.py
"""

import asyncio
import logging
import os
import sys
from typing import Any

from turnwise import (
    Channel,
    ConfigurationError,
    Delivery,
    Engine,
    SpeechChannel,
    TerminalChannel,
    Tool,
    presets,
    tool,
)


@tool(crash="pure")
async def read_note(title: str) -> str:
    """Read a note of the user's."""
    return "Buy **rice**, [miso](https://example.com/miso) and tea."


NO_VOICE = (
    "No voice works here, so this is only printed: install the program espeak-ng, or with pip pyttsx3 "
    "(and on Linux espeakng-loader)."
)


def print_outcome(delivery: Delivery, outcome: str) -> None:
    """Print the outcome of a spoken text. An assistant would begin to listen again here."""
    if outcome == "failed":
        print(NO_VOICE)
        return
    print(f"({outcome}: delivery {delivery.ordinal} of turn {delivery.turn})")


def speech() -> SpeechChannel | None:
    """Return a channel that speaks, or None if no speech engine is installed."""
    try:
        return SpeechChannel(into=None if "--aloud" in sys.argv else "spoken", on_end=print_outcome)
    except ConfigurationError as error:
        print(f"This is only printed. {error.sentence}")
        return None


async def main() -> None:
    """Ask for a note to be read. The answer is printed and spoken once, when the turn has ended."""
    speaking = speech()
    channels: list[Channel] = [TerminalChannel(), *([speaking] if speaking else [])]
    policy = presets.explicit_response()  # the model says when it is done, and its claim is checked
    tools: list[Tool[..., Any] | str] = ["respond_to_user", "mark_work_complete", read_note]
    model = os.environ.get("MODEL", "rehearsal")
    async with Engine.open("voice.db", model=model, tools=tools, channels=channels, policy=policy) as engine:
        conversation = await engine.create(system="The user speaks to you, and hears your answers.")
        turn = await conversation.send('Read my note "groceries"')
        await engine.delivered()  # the answer is delivered after the turn has ended
        if speaking:
            await speaking.drain()
        print(f"The turn is {turn.status}.")


logging.basicConfig(format="%(message)s")  # if no voice works, the log says why
asyncio.run(main())
