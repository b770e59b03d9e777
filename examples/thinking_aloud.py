"""Thinks aloud: the text of the model is private, and it talks to its user by tool while it works.

It needs no key and no network. With a real model: MODEL=openai/gpt-4.1-mini python examples/thinking_aloud.py
"""

import asyncio
import os

from turnwise import Engine, TerminalChannel, presets, tool


@tool(crash="pure")
async def find_table(cuisine: str, time: str, party: int) -> list[str]:
    """Look for free tables at restaurants nearby."""
    return [f"Kikunoi, {cuisine}, {party} {time} at 6:30 PM", f"Nobu, {cuisine}, {party} {time} at 8:15 PM"]


async def main() -> None:
    """Ask for a table. What the model says by tool is delivered at once, before the next tool runs; its text is not."""
    model = os.environ.get("MODEL", "rehearsal")
    async with Engine.open("aloud.db", model=model, tools=["talk", find_table], channels=[TerminalChannel()]) as engine:
        conversation = await engine.create(policy=presets.talk(), system="You look for tables.")
        turn = await conversation.send("A table for two, tonight, somewhere Japanese")
        print(f"\nThe user received {len(turn.deliveries)} texts. Not shown to the user: {turn.final_content!r}")


asyncio.run(main())
