"""Stands between a store and its server, and loses what the server answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psycopg


class LossyProxy:
    """Forwards connections to the server of the database at `url`; its own URL is `proxied`.

    While `loses` is set, the server receives what holds these bytes, such as a COMMIT, and carries it out, and the
    connection ends before its answer arrives; anything holds no bytes. `lost` counts the connections.
    """

    def __init__(self, url: str) -> None:
        self._target = psycopg.conninfo.conninfo_to_dict(url)
        self.loses: bytes | None = None
        self.lost = 0
        self._server: asyncio.Server
        self._tasks = set[asyncio.Task[None]]()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()

    @property
    def proxied(self) -> str:
        """The URL of the database through this proxy."""
        port = self._server.sockets[0].getsockname()[1]
        user, name = quote(str(self._target.get("user", "postgres"))), self._target["dbname"]
        return f"postgresql://{user}@127.0.0.1:{port}/{name}?sslmode=disable&gssencmode=disable"

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server, to_server = await self._connect()
        lost = asyncio.Event()
        answering = asyncio.ensure_future(self._answer(server, to_client, lost))
        try:
            while data := await client.read(65536):
                if self.loses is not None and self.loses in data:
                    lost.set()
                to_server.write(data)
        except (asyncio.CancelledError, OSError):
            pass  # the test is over, or one of the two is gone
        finally:
            answering.cancel()
            with suppress(Exception):
                to_client.close()
                to_server.close()
            self._tasks.discard(task)

    async def _answer(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter, lost: asyncio.Event) -> None:
        while data := await server.read(65536):
            if lost.is_set():
                self.lost += 1
                break
            to_client.write(data)
        to_client.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = str(self._target.get("host", "127.0.0.1")), int(self._target.get("port", 5432))
        if host.startswith("/"):
            return await asyncio.open_unix_connection(Path(host) / f".s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)
