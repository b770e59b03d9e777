"""Books a table: a host program in which the model uses a tool and asks the user. It needs no key and no network."""

import asyncio

from turnwise import Engine, presets, tool


@tool(crash="pure")
async def find_table(cuisine: str, time: str, party: int) -> list[str]:
    """Look for free tables at restaurants nearby."""
    return [f"Kikunoi, {cuisine}, {party} at 6:30 PM", f"Nobu, {cuisine}, {party} at 8:15 PM"]


async def main() -> None:
    """Ask for a table, answer what is asked, print the reply."""
    async with Engine.open("dinner.db", model="rehearsal", tools=[find_table, "ask_user_question"]) as engine:
        conversation = await engine.create(policy=presets.assistant(), system="You book tables.")
        turn = await conversation.send("A table for two, tonight, somewhere Japanese")
        while turn.status == "awaiting_user":  # the model asked something
            turn = await conversation.answer({q.question: q.options[0].label for q in turn.questions})
        print(turn.reply)  # what the user receives


asyncio.run(main())
