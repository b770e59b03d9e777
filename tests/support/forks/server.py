"""A process that has imported what the command needs, and forks a copy of itself for each start of Python.

    python server.py SOCKET          serves until its stdin ends

To import litellm takes seconds, and turnwise with its terminal most of one, so hundreds of tests that start a process
would spend their time on that. A copy begins as `python ARGUMENTS` does: with the arguments, the environment, the
working directory and the three standard streams of the program that asks for it. It ends as Python does, too.

The server itself has a single thread and imports nothing that starts one: a process may be forked safely only then.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from turnwise.effects.model.litellm.loading import load_litellm

IMPORTED = (
    "turnwise.effects.mcp.servers",
    "turnwise.effects.model.rehearsal",
    "turnwise.effects.tools.builtin",
    "turnwise.effects.tools.builtin",
    "turnwise.engine.blocking",
    "turnwise.hosts.terminal.chat.chat",
    "turnwise.hosts.terminal.chat.menus",
    "turnwise.hosts.terminal.chat.menus",
    "turnwise.hosts.terminal.chat.screen",
    "turnwise.hosts.terminal.commands.app",
    "turnwise.hosts.terminal.commands.database",
    "turnwise.hosts.terminal.demo",
    "turnwise.hosts.terminal.commands.database",
    "turnwise.hosts.terminal.configuration",
    "turnwise.hosts.terminal.output.lines",
    "turnwise.persistence.sqlite.store",
    "turnwise.testing",
)
"""What most of the processes need. Everything else they import themselves."""


class Request:
    """What a program asks for: the JSON of its arguments, environment and working directory, and three streams."""

    def __init__(self, connection: socket.socket) -> None:
        text, self.streams, _, _ = socket.recv_fds(connection, 65536, 3)
        while more := connection.recv(65536):
            text += more
        given: dict[str, Any] = json.loads(text)
        self.arguments: list[str] = given["arguments"]
        self.environment: dict[str, str] = given["environment"]
        self.folder: str = given["folder"]

    def become(self) -> None:
        """Let this process be what was asked for."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
        for stream in self.streams:
            os.close(stream)
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        time.tzset()
        sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = sys.__stdout__ = self.writer(1, "strict")
        sys.stderr = sys.__stderr__ = self.writer(2, "backslashreplace")

    @staticmethod
    def writer(number: int, errors: str) -> Any:
        """Return a stream as Python makes it at its start."""
        is_line_buffered = number == 2 or os.isatty(number)
        buffering = 1 if is_line_buffered else -1
        return open(number, "w", buffering, encoding="utf-8", errors=errors, closefd=False)

    def run(self) -> None:
        """Run the module or the file that the arguments name."""
        path = [each for each in self.environment.get("PYTHONPATH", "").split(os.pathsep) if each not in sys.path]
        sys.path[1:1] = path
        if self.arguments[0] == "-m":
            sys.path[0], sys.argv = self.folder, self.arguments[1:]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = self.arguments
            sys.path[0] = os.path.dirname(os.path.join(self.folder, sys.argv[0]))  # noqa: PTH118, PTH120
            runpy.run_path(sys.argv[0], run_name="__main__")


class Server:
    """Forks a process for each request, and tells how it has ended."""

    def __init__(self, path: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(64)
        self.events = select.poll()
        self.events.register(self.listener, select.POLLIN)
        self.events.register(0, select.POLLIN)
        self.processes: dict[int, tuple[int, socket.socket]] = {}
        """Each process, by a descriptor of it, and the connection to the program that asked for it."""
        self.connections: dict[int, int] = {}
        """The processes by the descriptors of the connections."""

    def serve(self) -> Request | None:
        """Answer programs until stdin ends. Returns in each process that was forked for one, with what it has to run
        and nothing else."""
        while True:
            for number, _ in self.events.poll():
                if number == 0:
                    return None
                if number == self.listener.fileno():
                    if request := self.fork():
                        return request
                elif number in self.processes:
                    self.tell(number)
                elif number in self.connections:  # the program is gone
                    os.kill(self.connections[number], signal.SIGKILL)
                    self.events.unregister(number)

    def fork(self) -> Request | None:
        """Fork a process for the next program. Returns its request in that process."""
        connection, _ = self.listener.accept()
        request = Request(connection)
        process = os.fork()
        if process == 0:
            for number in (self.listener.fileno(), connection.fileno(), *self.processes, *self.connections):
                os.close(number)
            request.become()
            return request
        for stream in request.streams:
            os.close(stream)
        connection.sendall(f"{process}\n".encode())
        number = os.pidfd_open(process)
        self.processes[number] = process, connection
        self.connections[connection.fileno()] = process
        self.events.register(number, select.POLLIN)
        self.events.register(connection, 0)  # tells only of its end
        return None

    def tell(self, number: int) -> None:
        """Tell the program how its process has ended."""
        process, connection = self.processes.pop(number)
        status = os.waitpid(process, 0)[1]
        self.events.unregister(number)
        os.close(number)
        if self.connections.pop(connection.fileno(), None):
            with suppress(KeyError):
                self.events.unregister(connection)
            with suppress(OSError):
                connection.sendall(str(status).encode())
        connection.close()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which Python leaves out where a shell starts it with `&`
    load_litellm()
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    if asked := Server(sys.argv[1]).serve():
        asked.run()
