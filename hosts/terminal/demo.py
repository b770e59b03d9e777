"""The tools of `turnwise demo`.

They have a short path because users name them on the command line: `--tools turnwise.hosts.terminal.demo:find_table`.
"""

from __future__ import annotations

import asyncio

from ...effects.tools.tool import tool

_DURATION = 0.4
"""How many seconds a tool takes, so that users see it run."""


@tool(crash="pure")
async def find_table(cuisine: str, time: str, party: int) -> list[dict[str, str]]:
    """Look for free tables at restaurants nearby."""
    await asyncio.sleep(_DURATION)
    return [
        {"restaurant": "Kikunoi", "when": "6:30 PM", "seats": f"{party} at the counter"},
        {"restaurant": "Nobu", "when": "8:15 PM", "seats": f"{party} by the window"},
    ]


@tool(crash="pure")
async def check_weather(day: str) -> str:
    """Look up the weather."""
    await asyncio.sleep(_DURATION)
    return f"Rain {day} from 7 PM on, 14 °C."
