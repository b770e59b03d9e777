"""Where a PostgreSQL database is: its URL, which turnwise never shows again, because it may hold a password.

    postgresql://user@db.example.com:5432/dinner
    postgresql://user@/dinner?host=/run/postgresql          a socket of this machine
    postgresql://db.example.com/dinner?schema=turnwise      tables beside those of another program
    postgresql://pooler:6432/dinner?direct_host=db&direct_port=5432
    postgresql://one,two/dinner                             the one of these that takes writes

What a URL leaves out, libpq takes from where all of its programs do: `PGHOST` and the like, `~/.pgpass`, a service
file. A password in one of these is not seen by whoever lists the processes of the machine. `schema`, `direct_host` and
`direct_port` are options of turnwise; all others are libpq's, such as `sslmode=verify-full`.

A pooler in transaction mode, such as PgBouncer, lends a connection for one transaction only. The tables can be used
through it, but nothing that belongs to a session: whoever listens for notices (LISTEN) hears nothing there. So the two
options name the server itself, for the few connections that need a session; without them the other processes are asked
for news every second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...states.errors import StoreError
from ..opening import POSTGRESQL

if TYPE_CHECKING:
    from ..ports import FileStore
    from .store import PostgresStore

_OWN_OPTIONS = ("schema", "direct_host", "direct_port")
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

_INVALID = "The address of the database is not a URL that PostgreSQL knows: postgresql://user@host:port/database"

_UNESCAPED = (
    "The address of the database has an @ or a / too many: in a password, write @ as %40 and / as %2F,"
    " as in postgresql://user:password@host:port/database"
)

_PARAMETERS: Mapping[str, str] = {
    "application_name": "turnwise",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""What libpq is told unless the URL says otherwise: a server that is gone without a word is noticed within half a
minute. Seconds, but for the last one, which is in milliseconds."""


@dataclass(frozen=True)
class PostgresAddress:
    """Implements the port `DatabaseAddress`. Made by `of`.

    `name` is the URL without its user, password and options. `schema` holds the tables; None is the first one of the
    search path.
    """

    name: str
    url_without_password: str
    schema: str | None
    _parameters: Mapping[str, str] = field(repr=False)
    _direct: Mapping[str, str] = field(repr=False)

    is_in_memory = False
    is_shared = True

    @classmethod
    def of(cls, url: str) -> PostgresAddress:
        """Parse a URL. Raises `StoreError` for one that is invalid, and without the extra `postgres`."""
        psycopg = _psycopg()
        own, rest = _own_options(url)
        try:
            parameters = psycopg.conninfo.conninfo_to_dict(rest)
        except (psycopg.Error, UnicodeError):
            raise StoreError(_INVALID) from None  # the driver's error may quote a part of the password
        if _is_torn(parameters, url):
            raise StoreError(_UNESCAPED)
        schema = own.get("schema")
        if schema is not None and not _SCHEMA.fullmatch(schema):
            raise StoreError("The schema of the database must be a name of up to 63 letters, digits and underscores.")
        direct = {name.removeprefix("direct_"): value for name, value in own.items() if name != "schema"}
        given = {name: str(value) for name, value in parameters.items()}
        if "," in given.get("host", ""):
            given.setdefault("target_session_attrs", "read-write")
        every = {**_PARAMETERS, **given, "client_encoding": "UTF8"}
        return cls(_name(given), _without_password(url), schema, every, direct)

    @property
    def conninfo(self) -> str:
        """What a driver connects with. It may hold the password: it must never be shown. The schema is not in it, since
        a pooler refuses it; `search_path` sets it in a transaction."""
        return str(_psycopg().conninfo.make_conninfo("", **self._parameters))

    @property
    def direct_conninfo(self) -> str:
        """The same for a connection that needs a session, and therefore leads around a pooler. It sees the schema."""
        parameters = {**self._parameters, **self._direct}
        if self.schema is not None:
            options = (parameters.get("options", ""), f'-csearch_path="{self.schema}"')
            parameters["options"] = " ".join(filter(None, options))
        return str(_psycopg().conninfo.make_conninfo("", **parameters))

    @property
    def search_path(self) -> str:
        """The statement that lets a transaction see the tables; empty if it sees them anyway."""
        return "" if self.schema is None else f'SET LOCAL search_path = "{self.schema}"'

    async def open(
        self, *, read_only: bool, create: bool, connections: int, file_store: FileStore | None = None
    ) -> PostgresStore:
        """Open the store; `open_store` says the rest."""
        from .store import PostgresStore

        return await PostgresStore.open(
            self, connections=connections, read_only=read_only, create=create, file_store=file_store
        )

    async def is_in_use(self) -> bool:
        """Whether some worker of the database has given a sign of life not long ago."""
        from .database import PostgresDatabase
        from .job_tables import JobTables

        database = await PostgresDatabase.open(self, connections=1, read_only=True)
        try:
            return await database.read(lambda driver: JobTables.found(driver).are_served(driver))
        finally:
            await database.close()

    def missing_marks(self) -> tuple[str, ...]:
        """Nothing: there is no file."""
        return ()

    def set_marks(self) -> None:
        """Nothing is missing, so nothing is done."""


def _psycopg() -> Any:
    """Return the driver. Raises `StoreError` where it is not installed."""
    try:
        import psycopg.conninfo
    except ImportError as error:  # also where it finds no libpq
        raise StoreError('PostgreSQL needs the extra "postgres": pip install "turnwise[postgres]"') from error
    return psycopg


def _own_options(url: str) -> tuple[dict[str, str], str]:
    """Return the options in a URL that are of turnwise, and the URL without them, as libpq takes it."""
    scheme, _, rest = url.partition("://")
    if scheme not in POSTGRESQL or "\0" in url:
        raise StoreError(_INVALID)
    place, _, query = rest.partition("?")
    options = [option for option in query.split("&") if option]
    own = {
        name: unquote(value) for name, _, value in (option.partition("=") for option in options) if name in _OWN_OPTIONS
    }
    others = "&".join(option for option in options if option.partition("=")[0] not in _OWN_OPTIONS)
    return own, f"postgresql://{place}" + (f"?{others}" if others else "")


def _is_torn(parameters: Mapping[str, Any], url: str) -> bool:
    """Whether a part of the password is taken for a host or a database, because it holds an @ or a / as it is. Messages
    would show it."""
    hosts = str(parameters.get("host", "")).split(",")
    database = str(parameters.get("dbname", ""))
    return any("@" in host[1:] for host in hosts) or ("@" in database and f"/{database}" in url)


def _without_password(url: str) -> str:
    """Return a URL without the password in it, wherever that stands."""
    scheme, slashes, rest = url.partition("://")
    whole, _, query = rest.partition("?")
    login, at, place = whole.rpartition("@")
    options = "&".join(each for each in query.split("&") if "password" not in unquote(each.partition("=")[0]))
    return f"{scheme}{slashes}{login.partition(':')[0]}{at}{place}{'?' if options else ''}{options}"


def _name(parameters: Mapping[str, str]) -> str:
    """Return what messages call a database: without user, password and options."""
    hosts, ports = parameters.get("host", "").split(","), parameters.get("port", "").split(",")
    if len(ports) < len(hosts):
        ports = ports[:1] * len(hosts)
    if hosts[0].startswith(("/", "@")):
        port = f"&port={ports[0]}" if ports[0] else ""
        return f"postgresql:///{parameters.get('dbname', '')}?host={hosts[0]}{port}"
    places = ",".join(
        (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
        for host, port in zip(hosts, ports, strict=False)
    )
    return f"postgresql://{places}/{parameters.get('dbname', '')}"
