"""A voice assistant: it says by tool what the user is to hear, and that is spoken, without markup.

It needs no key, no network and no loudspeaker. `python examples/voice_assistant.py` prints, and speaks into the folder
`spoken`; with `--aloud` it is heard. With a real model: MODEL=openai/gpt-4.1-mini python examples/voice_assistant.py
"""

import asyncio
import logging
import os
import sys

from turnwise import Channel, ConfigurationError, Delivery, Engine, SpeechChannel, TerminalChannel, presets, tool


@tool(crash="pure")
async def read_note(title: str) -> str:
    """Read a note of the user's."""
    return "Buy **rice**, [miso](https://example.com/miso) and tea."


NO_VOICE = (
    "No voice works here, so this is only printed: install the program espeak-ng, or with pip pyttsx3 "
    "(and on Linux espeakng-loader)."
)


def tell(delivery: Delivery, outcome: str) -> None:
    """Say what became of what was spoken. Here an assistant would begin to listen again."""
    if outcome == "failed":
        print(NO_VOICE)
        return
    print(f"({outcome}: delivery {delivery.ordinal} of turn {delivery.turn})")


def speech() -> SpeechChannel | None:
    """What speaks, if anything on this machine can."""
    try:
        return SpeechChannel(into=None if "--aloud" in sys.argv else "spoken", on_end=tell)
    except ConfigurationError as error:
        print(f"This is only printed. {error.sentence}")
        return None


async def main() -> None:
    """Ask for a note to be read. The answer is printed and spoken, once, when the turn has ended."""
    speaking = speech()
    channels: list[Channel] = [TerminalChannel(), *([speaking] if speaking else [])]
    rules = presets.explicit_response()  # the model says when it is done, and that is checked
    tools = ["respond_to_user", "mark_work_complete", read_note]
    model = os.environ.get("MODEL", "rehearsal")
    async with Engine.open("voice.db", model=model, tools=tools, channels=channels, policy=rules) as engine:
        conversation = await engine.create(system="You are spoken to, and heard.")
        turn = await conversation.send('Read my note "groceries"')
        await engine.delivered()  # what is said at the end of a turn is handed over behind it
        if speaking:
            await speaking.drain()
        print(f"The turn is {turn.status}.")


logging.basicConfig(format="%(message)s")  # where no voice works, the log says why
asyncio.run(main())
