"""A program that serves the conversations of `asking`, for tests that kill it.

python -m tests.support.browser.asking_server DATABASE PORT
"""

from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn

from turnwise.hosts.http import create_app

from .asking import asking_engine


async def serve(database: str, port: int) -> None:
    """Serve this database at this port, 0 for a free one, and print the address."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen()  # so that the address may be used once it is printed
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(create_app(asking_engine(database)), lifespan="on", log_config=None)
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
