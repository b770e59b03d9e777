"""A program that serves an engine with a tool that waits: it goes on once the file `go` is there.

The arguments are a port, and how many seconds the engine may take to close, which it never does if the file `stuck` is
there.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from turnwise import Engine, tool
from turnwise.hosts.http import create_app
from turnwise.hosts.http.server import ServerLimits, address_of, bind, serve
from turnwise.testing import FunctionLlm, call


@tool(crash="pure")
async def look() -> str:
    """Look out of the window."""
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "a bird"


async def main() -> None:
    """Serve until a signal comes."""
    sockets = bind("127.0.0.1", int(sys.argv[1]))
    model = FunctionLlm(lambda request: "It is a bird." if request.messages[-1]["role"] == "tool" else call("look"))
    engine = Engine.open("served.db", model=model, tools=[look])

    async def close() -> None:
        if Path("stuck").exists():
            print("stopping", flush=True)
            await asyncio.Event().wait()
        await engine.close()

    await serve(
        create_app(engine),
        sockets,
        close_engine=close,
        on_listening=lambda: print(address_of("127.0.0.1", sockets[0].getsockname()[1]), flush=True),
        limits=ServerLimits(engine_seconds=float(sys.argv[2]), stream_seconds=0.5),
    )
    print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
