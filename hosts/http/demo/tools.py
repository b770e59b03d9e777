"""The tools of the demonstration: a travel desk whose trains and weather are made up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from ....effects.tools.context import ToolContext
from ....effects.tools.tool import tool

BUILT_IN = ("ask_user_question", "spawn_agents", "send_user_message", "send_agent_message")

TRAINS = (
    {"train": "RJX 163", "when": "8:40 to 16:30", "changes": "no change", "price": "€ 84"},
    {"train": "NJ 467", "when": "20:40 to 7:55", "changes": "no change, with a bed", "price": "€ 129"},
    {"train": "EC 191", "when": "10:33 to 19:21", "changes": "one change", "price": "€ 61"},
)

WEATHER = {
    "Vienna": "sunny, with rain from 4 PM on, 17 °C",
    "Prague": "rain all day, 12 °C",
    "Rome": "rain in the morning, 16 °C",
}


class TravelTools:
    """What a travel desk can do. `delay` is how many seconds each step takes, so that visitors see the tools run."""

    def __init__(self, delay: float = 0.5) -> None:
        self._delay = delay

    @property
    def tools(self) -> list[Callable[..., Any] | str]:
        """These tools and the built-in ones beside them, for `Engine.open`."""
        return [self.find_train, self.check_weather, self.book_train, *BUILT_IN]

    @tool(crash="pure")
    async def find_train(self, destination: str, day: str, context: ToolContext) -> list[dict[str, str]]:
        """Look for a train to a city on a day."""
        for railway in ("ÖBB", "SBB", "DB"):
            context.progress(f"Asking {railway} about {destination}, {day} …")
            await asyncio.sleep(self._delay)
        return [*TRAINS]

    @tool(crash="pure")
    async def check_weather(self, city: str, day: str) -> str:
        """Look up the weather."""
        await asyncio.sleep(self._delay)
        return f"{city}, {day}: {WEATHER.get(city, 'clouds and sun, 15 °C')}."

    @tool(crash="idempotent", approval=True)
    async def book_train(
        self, train: str, seats: int, travel_class: Literal["first", "second"] = "second", window: bool = False
    ) -> str:
        """Book seats on a train. Somebody has to allow it first."""
        await asyncio.sleep(self._delay)
        return f"Booked: {seats} × {train}, {travel_class} class{', at the window' if window else ''}."
