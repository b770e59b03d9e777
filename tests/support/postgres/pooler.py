"""A PgBouncer before a server, in transaction mode: it lends each transaction another connection."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

from turnwise.testing.postgres_server import PostgresServer, server_user

from ..programs.missing import missing

SETTINGS = """
[databases]
* = host={server.folder} port={server.port} user=postgres

[pgbouncer]
listen_addr =
listen_port = {server.port}
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = 4
server_login_retry = 1
logfile = {folder}/log
"""


@asynccontextmanager
async def pooler(server: PostgresServer) -> AsyncIterator[str]:
    """Start a PgBouncer before this server, and yield the URL of the database `postgres` through it; other databases
    are reached in the same way. Skips the test if it is not installed, but fails it where `CI` is set."""
    command = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if command is None:
        missing("PgBouncer was not found: `make services` installs it.")
    folder = Path(tempfile.mkdtemp(prefix="turnwise-pooler-", dir="/tmp"))
    user = server_user()
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    (folder / "pgbouncer.ini").write_text(SETTINGS.format(server=server, folder=folder))
    as_user = () if user is None else ("-u", user.pw_name)
    process = await asyncio.create_subprocess_exec(command, "-q", *as_user, str(folder / "pgbouncer.ini"))
    url = f"postgresql://postgres@/postgres?host={folder}&port={server.port}"
    try:
        await until_it_answers(url)
        yield url
    finally:
        process.terminate()
        await process.wait()
        shutil.rmtree(folder)


async def until_it_answers(url: str) -> None:
    """Wait until a database can be reached."""
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                await connection.execute("SELECT 1")
                return
        except psycopg.OperationalError:
            await asyncio.sleep(0.05)
