"""A research team: one agent talks to the user, two work in the background, and those hand their tasks to sub-agents.

The reader does what it is sent. The scout wakes every morning at eight. What they find reaches the user's phone through
the desk, the only agent that the user knows, in its words. It needs no key and no network, and it does not wait until
the morning: its clock is moved by hand. It needs the extra `cron`, which `make demo` installs. Each run hires a team,
which is stored in research_team.db and outlives the program.

    python examples/research_team.py
    MODEL=openai/gpt-4.1-mini python examples/research_team.py
"""

import asyncio
import os
from datetime import UTC, datetime

from turnwise import Conversation, Delivery, Engine, Summary, presets, tool
from turnwise.testing import ManualClock

DATABASE = "research_team.db"
MODEL = os.environ.get("MODEL", "rehearsal")
OWNER = "ada"

PAPERS = {
    "coral": "Reefs that grow back, 14 pages",
    "kelp": "Forests under water, 9 pages",
    "tides": "The pull of the Moon, 12 pages",
    "winds": "Why sails are curved, 8 pages",
}


@tool(crash="pure")
async def find_paper(topic: str) -> str:
    """Look for a paper on a topic."""
    return PAPERS.get(topic.lower(), "none yet")


class Phone:
    """Where the user receives what is said."""

    name = "phone"

    def __init__(self) -> None:
        self._received = asyncio.Queue[str]()

    async def deliver(self, delivery: Delivery) -> None:
        """Receive a text. The engine calls this once the text is stored."""
        self._received.put_nowait(delivery.text)

    async def show_next(self) -> None:
        """Wait for the next text, for five minutes at most, and show it."""
        text = await asyncio.wait_for(self._received.get(), timeout=300)
        print(f"The phone of {OWNER} says:\n    " + text.replace("\n", "\n    "))


def open_engine(phone: Phone, clock: ManualClock) -> Engine:
    """Return the engine of the team."""
    return Engine.open(
        DATABASE,
        model=MODEL,
        tools=[find_paper, "spawn_agents", "send_user_message", "send_agent_message"],
        channels=[phone],
        clock=clock,
    )


async def hire(engine: Engine) -> tuple[Conversation, Conversation]:
    """Create the team, and return the desk and the reader."""
    desk = await engine.create(
        policy=presets.foreground(), system="You are the desk of a research team.", owner=OWNER, title="Desk"
    )
    reader = await engine.create(
        role="background", works_for=desk, system="You read what you are sent, and report it.", title="Reader"
    )
    await engine.create(
        role="background",
        works_for=desk,
        system="You look for news, and report it.",
        title="Scout",
        cron="0 8 * * *",
        task="Look for a paper on: Tides and Winds",
    )
    return desk, reader


async def show_tree(engine: Engine, agent: Summary, depth: int = 0) -> None:
    """Print an agent, and below it the agents that work for it and those that it started."""
    print(f"{'    ' * depth}{agent.title} ({agent.role}, {agent.state})")
    below = (*await engine.list(works_for=agent.id), *await engine.list(parent=agent.id))
    for each in sorted(below, key=lambda one: one.title):
        await show_tree(engine, each, depth + 1)


async def main() -> None:
    """Let the team work for a day, and three days later for another one."""
    phone, clock = Phone(), ManualClock(datetime(2026, 6, 1, 7, 55, tzinfo=UTC))
    async with open_engine(phone, clock) as engine:
        await engine.check()  # a real model needs a key
        desk, reader = await hire(engine)

        await desk.send("Good morning!")
        await phone.show_next()

        await reader.send("Look for a paper on: Coral and Kelp")
        await phone.show_next()

        await clock.advance(5 * 60)  # it is eight o'clock, and the scout wakes
        await phone.show_next()

        agents = await engine.list(owner=OWNER, role="foreground")
        await show_tree(engine, next(agent for agent in agents if agent.id == desk.id))

    print("Three days later:")
    async with open_engine(phone, ManualClock(datetime(2026, 6, 4, 12, tzinfo=UTC))):
        await phone.show_next()  # three mornings were missed, and the scout was woken once


asyncio.run(main())
