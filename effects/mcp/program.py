"""The program of a server: it is started with pipes, in a process group of its own, and ended with its children.

A server may start other programs: a browser, a language server, or, as `npx` and `uv run` do, the server itself. They
would outlive it, since nothing tells them that it has ended. So the whole group is ended: when the connection is
left, when it could not be opened, and when the process of the engine exits without having closed it. Only a program
that leaves its group on purpose, as a daemon does, stays. On Windows the SDK does the same by a job object.

What a server prints on its standard error goes to the log, at the level DEBUG. It may print without an end, so lines
are cut, and of many lines in a short time only the first are written.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, TextIO, cast

import anyio
from mcp import StdioServerParameters
from mcp.client.stdio import get_default_environment, stdio_client
from mcp.shared.message import SessionMessage

from ...states.values.value import shortened
from ..logs import performer_logger
from .messages import MAX_MESSAGE, read_messages

GRACE = 2.0
"""Seconds in which a program may end by itself when its standard input has ended, and then again when it was told to
terminate. The specification of MCP wants both; it leaves the times open."""

KILLED = 1.0
"""Seconds until a group that was killed is no longer waited for."""

_AT_EXIT = 1.0
"""Seconds in which programs that were left over may terminate when the process of their engine exits."""

_LAST_WORDS = 0.5
"""Seconds in which what a program wrote before it ended is still read."""

POLL = 0.01
"""Seconds between two looks at a group that is to end."""

_MAX_WAITING = 100
"""Messages that may wait to be taken before nothing more is read from the program."""


def streams_of(program: StdioServerParameters, stderr: TextIO) -> AbstractAsyncContextManager[tuple[Any, Any]]:
    """The streams of messages from and to a program, which runs as long as the context lasts. Raises OSError and
    ValueError, from entering it, if the program cannot be started."""
    if sys.platform == "win32":
        return stdio_client(program, stderr)
    return _piped(program, stderr)


class _ProcessGroup:
    """The processes that a program has started, and itself: the group whose leader has this `pid`."""

    living: ClassVar[set[_ProcessGroup]] = set()
    """The groups of this process that were not ended yet."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._owner = os.getpid()
        self.living.add(self)

    @property
    def is_alive(self) -> bool:
        """Whether there is a process of the group. A child that was forked from the engine's process sees none."""
        return self._send(0)

    def terminate(self) -> None:
        """Ask all of them to end."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End all of them, and forget the group."""
        self._send(signal.SIGKILL)
        self.living.discard(self)

    def reap(self) -> None:
        """Take note that the leader has ended, where no event loop runs that does it."""
        with suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)

    async def ended(self, seconds: float) -> bool:
        """Return whether all have ended, as soon as they have, or after so many seconds."""
        deadline = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() >= deadline:
                return False
            await anyio.sleep(POLL)
        return True

    def _send(self, number: int) -> bool:
        if self._owner != os.getpid() or self not in self.living:
            return False
        try:
            os.killpg(self._pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # some of them changed their user
            return True
        return True


@atexit.register
def _end_what_was_left() -> None:
    """End the groups of engines that were not closed."""
    groups = [group for group in _ProcessGroup.living if group.is_alive]
    for group in groups:
        group.terminate()
    deadline = time.monotonic() + _AT_EXIT
    while groups and time.monotonic() < deadline:
        time.sleep(POLL)
        for group in groups:
            group.reap()
        groups = [group for group in groups if group.is_alive]
    for group in groups:
        group.kill()


class _Pipes(asyncio.SubprocessProtocol):
    """What the event loop tells of a program: the lines that it wrote, and that it takes more, or has ended."""

    def __init__(self) -> None:
        self.has_exited = asyncio.Event()
        self._transport: asyncio.SubprocessTransport | None = None
        self._buffer = bytearray()
        self._lines: list[bytes] = []
        self._has_more = asyncio.Event()
        self._has_ended = False
        self._drops = False
        self._reads = True
        self._may_write = asyncio.Event()
        self._may_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note what controls the program."""
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take what the program wrote. A message without an end ends the connection."""
        if self._drops:
            return
        searched = len(self._buffer)
        self._buffer += data
        if (last := self._buffer.rfind(b"\n", searched)) >= 0:
            self._lines += bytes(self._buffer[:last]).split(b"\n")
            del self._buffer[: last + 1]
            self._has_more.set()
        if len(self._buffer) > MAX_MESSAGE:
            self._end()
        elif len(self._lines) > _MAX_WAITING:
            self._reading.pause_reading()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note that the program reads nothing more, or writes nothing more. What it wrote before is still taken."""
        if fd == 0:
            self._reads = False
        else:
            self._end()

    def process_exited(self) -> None:
        """Note that the program has ended. Its children may go on, and hold its pipes open."""
        self.has_exited.set()
        asyncio.get_running_loop().call_later(_LAST_WORDS, self._end)

    def pause_writing(self) -> None:
        """Wait until the program has read more."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Go on writing."""
        self._may_write.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield each line, until the program ends."""
        while True:
            while self._lines:
                lines, self._lines = self._lines, []
                for line in lines:
                    yield line
            if self._has_ended:
                return
            self._has_more.clear()
            self._reading.resume_reading()
            await self._has_more.wait()

    async def write(self, line: bytes) -> None:
        """Write a line, as soon as the program reads. The connection ends if it reads nothing more."""
        await self._may_write.wait()
        if not self._reads:
            self._end()
        elif not self._has_ended:
            cast(asyncio.WriteTransport, self._pipe(0)).write(line + b"\n")

    def end_input(self) -> None:
        """Write what is left, and let the program see the end. What it still writes is dropped, so that it is not held
        up by it."""
        self._drops = True
        self._end()
        if not self.has_exited.is_set():
            self._reading.resume_reading()
            cast(asyncio.WriteTransport, self._pipe(0)).close()

    def close(self) -> None:
        """Let go of the pipes, even if a process holds their other ends."""
        if self._transport is not None:
            self._transport.close()

    @property
    def _reading(self) -> asyncio.ReadTransport:
        return cast(asyncio.ReadTransport, self._pipe(1))

    def _pipe(self, fd: int) -> asyncio.BaseTransport | None:
        assert self._transport is not None, "the program was started"
        return self._transport.get_pipe_transport(fd)

    def _end(self) -> None:
        self._has_ended = True
        self._buffer.clear()
        self._has_more.set()
        self._may_write.set()


@asynccontextmanager
async def _piped(program: StdioServerParameters, stderr: TextIO) -> AsyncIterator[tuple[Any, Any]]:
    transport, pipes = await asyncio.get_running_loop().subprocess_exec(
        _Pipes,
        *(program.command, *program.args),
        env=get_default_environment() | (program.env or {}),
        cwd=program.cwd,
        stderr=stderr,
        start_new_session=True,
    )
    group = _ProcessGroup(transport.get_pid())
    reading_end, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writing, writing_end = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as pumps, reading_end, reading, writing, writing_end:
            pumps.start_soon(_receive, pipes, reading_end)
            pumps.start_soon(_send, pipes, writing_end)
            try:
                yield reading, writing
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(pipes, group)
                pumps.cancel_scope.cancel()
    finally:
        group.kill()  # also where a second cancellation has come in between
        pipes.close()


async def _receive(pipes: _Pipes, messages: Any) -> None:
    """Pass on each message of the program, and what is no message as the error that it is."""
    async with messages:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for line in pipes.lines():
                try:
                    for message in read_messages(line):
                        await messages.send(SessionMessage(message))
                except ValueError as error:
                    await messages.send(error)


async def _send(pipes: _Pipes, messages: Any) -> None:
    async with messages:
        async for given in messages:
            await pipes.write(given.message.model_dump_json(by_alias=True, exclude_unset=True).encode())


async def _end(pipes: _Pipes, group: _ProcessGroup) -> None:
    """End the program: it may end by itself, then it is told to, and what is left of its group is killed."""
    pipes.end_input()
    with anyio.move_on_after(GRACE):
        await pipes.has_exited.wait()
    group.terminate()
    if not await group.ended(GRACE):
        group.kill()
        with anyio.move_on_after(KILLED):
            await pipes.has_exited.wait()


MAX_LINE = 500
"""The most characters of a line that are written."""

_MAX_LINES = 100
"""The most lines of each `_PERIOD` that are written."""

_PERIOD = 10.0
"""Seconds after which lines are counted anew."""

_LOGGER = performer_logger("turnwise.mcp")


@asynccontextmanager
async def stderr_of(name: str) -> AsyncIterator[TextIO]:
    """A file to which the server called `name` may print, for as long as the context lasts. Nothing is read or kept if
    the log takes no DEBUG."""
    if not _LOGGER.isEnabledFor(logging.DEBUG):
        with Path(os.devnull).open("w") as nowhere:
            yield nowhere
        return
    reading, writing = os.pipe()
    loop = asyncio.get_running_loop()
    with os.fdopen(reading, "rb", buffering=0) as source, os.fdopen(writing, "w") as target:
        transport, _ = await loop.connect_read_pipe(lambda: _Lines(name, loop), source)
        try:
            yield target
        finally:
            transport.close()


class _Lines(asyncio.Protocol):
    """Splits what arrives into lines, and writes them to the log."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._name = name
        self._loop = loop
        self._rest = b""
        self._since = loop.time()
        self._written = 0

    def data_received(self, data: bytes) -> None:
        """Write the lines that are complete. The beginning of a line that does not end is cut off and written."""
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > MAX_LINE:
            lines.append(rest)
            rest = b""
        self._rest = rest
        for line in lines:
            self._write(line)

    def _write(self, line: bytes) -> None:
        if (now := self._loop.time()) - self._since >= _PERIOD:
            self._since, self._written = now, 0
        self._written += 1
        if self._written <= _MAX_LINES:
            _LOGGER.debug("%s: %s", self._name, shortened(line.decode(errors="replace").rstrip(), MAX_LINE))
        elif self._written == _MAX_LINES + 1:
            _LOGGER.debug("%s prints too much; the next lines are left out", self._name)
