"""A process that shares a PostgreSQL database: `python -m tests.support.http.shared_server web URL` takes requests and
performs nothing, and with `worker` it also performs. Prints the address at which it serves.

The model writes the words of the message back one by one, each after a call of a tool where the word is `look`, so
that a turn has many steps and tokens, and takes a while.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

from turnwise import Engine, tool
from turnwise.effects.model.port import Token
from turnwise.engine.settings import Settings
from turnwise.hosts.http import create_app, server
from turnwise.testing import call, calls, reply

QUESTION = {"question": "When?", "header": "Time", "options": [{"label": "6:30 PM"}, {"label": "8:15 PM"}]}

PAUSE = 0.02
"""Seconds between two words."""


@tool(crash="pure")
async def look(place: str) -> str:
    """Look something up."""
    return f"found {place}"


class WritesWords:
    """The model. `look 3 say A B` looks three times, and then says two words; `ask` asks a question first."""

    name = "words"

    async def complete(self, request: Any, show: Any) -> Any:
        """Do what the newest message of the user says."""
        roles = [message["role"] for message in request.messages]
        newest = len(roles) - 1 - roles[::-1].index("user")
        order, _, said = str(request.messages[newest]["content"]).partition("say")
        done = roles[newest:].count("assistant")
        if order.startswith("ask") and not done:
            return call("ask_user_question", questions=[QUESTION])
        if order.startswith("look") and done < int(order.removeprefix("look")):
            return calls(call("look", place=f"place {done}"), text=f"Looking {done}.")
        for word in (words := said.strip()).split(" "):
            await asyncio.sleep(PAUSE)
            show(Token(f"{word} "))
        return reply(f"{words} ")


async def serve(url: str, *, worker: bool) -> None:
    """Serve until SIGTERM."""
    engine = Engine.open(
        url,
        worker=worker,
        model=WritesWords(),
        tools=[look, "ask_user_question"],
        settings=Settings(lease=5.0, database_connections=4),
    )
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    app = create_app(engine)
    await server.serve(app, [listening], close_engine=engine.close, on_listening=lambda: print(address, flush=True))


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[2], worker=sys.argv[1] == "worker"))
