"""The URL of a PostgreSQL database, and that its password is shown nowhere."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from psycopg.conninfo import conninfo_to_dict

from turnwise.persistence.errors import StoreError
from turnwise.persistence.opening import address_of
from turnwise.persistence.postgres.address import PostgresAddress


def parameters(url: str, *, direct: bool = False) -> dict[str, object]:
    """Return what libpq is told for this URL."""
    address = PostgresAddress.of(url)
    return dict(conninfo_to_dict(address.direct_conninfo if direct else address.conninfo))


class TestUrls:
    """What libpq understands is understood here, and a few options more."""

    @pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
    def test_all_its_schemes_lead_to_the_same(self, scheme: str) -> None:
        """The last one is SQLAlchemy's."""
        found = parameters(f"{scheme}://ada@db.example.com:5433/dinner")

        assert (found["user"], found["host"], found["port"], found["dbname"]) == (
            *("ada", "db.example.com", "5433", "dinner"),
        )

    def test_a_socket_of_this_machine(self) -> None:
        """Its folder is a parameter, or stands where the host does, escaped."""
        assert parameters("postgresql:///dinner?host=/run/postgresql")["host"] == "/run/postgresql"
        assert parameters("postgresql://%2Frun%2Fpostgresql/dinner")["host"] == "/run/postgresql"

    def test_options_of_libpq_are_passed_on(self) -> None:
        """And are stronger than what turnwise would choose."""
        found = parameters("postgresql://h/d?sslmode=verify-full&connect_timeout=3&application_name=a%20b")

        assert (found["sslmode"], found["connect_timeout"], found["application_name"]) == ("verify-full", "3", "a b")
        assert found["keepalives_idle"] == "10"

    def test_several_hosts(self) -> None:
        """Each with its port; the one is meant that takes writes, unless the URL says otherwise."""
        address = PostgresAddress.of("postgresql://one:5432,two:5433/dinner")

        assert address.name == "postgresql://one:5432,two:5433/dinner"
        found = conninfo_to_dict(address.conninfo)
        assert (found["host"], found["target_session_attrs"]) == ("one,two", "read-write")
        assert parameters("postgresql://one,two/d?target_session_attrs=any")["target_session_attrs"] == "any"
        assert "target_session_attrs" not in parameters("postgresql://one/d")

    def test_a_schema(self) -> None:
        """A transaction sets it, since a pooler refuses it in a connection; a session has it from the start."""
        url = "postgresql://h/d?schema=turnwise&options=-cjit%3Doff"

        assert PostgresAddress.of(url).search_path == 'SET LOCAL search_path = "turnwise"'
        assert parameters(url)["options"] == "-cjit=off"
        assert parameters(url, direct=True)["options"] == '-cjit=off -csearch_path="turnwise"'

    def test_a_way_around_the_pooler(self) -> None:
        """It leads to the same database, as the same user."""
        url = "postgresql://ada:secret@pooler:6432/d?direct_host=db&direct_port=5432"

        assert (parameters(url)["host"], parameters(url)["port"]) == ("pooler", "6432")
        direct = parameters(url, direct=True)
        assert (direct["host"], direct["port"], direct["password"]) == ("db", "5432", "secret")

    @pytest.mark.parametrize(
        ("url", "name"),
        [
            ("postgresql://ada:secret@h/d?sslmode=require", "postgresql://h/d"),
            ("postgres://ada:secret@[::1]:5433/d", "postgresql://[::1]:5433/d"),
            ("postgresql://ada:secret@/d?host=/run/pg&port=5433", "postgresql:///d?host=/run/pg&port=5433"),
            ("postgresql://ada:secret@h", "postgresql://h/"),
            ("postgresql://ada:s%40e%2Fcret@h/a%40b", "postgresql://h/a@b"),
            ("postgresql://ada:secret@/d?host=@turnwise", "postgresql:///d?host=@turnwise"),
            ("postgresql://", "postgresql:///"),
        ],
    )
    def test_its_name_in_messages(self, url: str, name: str) -> None:
        """It says where the database is, and not who uses it."""
        assert PostgresAddress.of(url).name == name

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("postgresql://me:se%40cret@db:5432/d?sslmode=require", "postgresql://me@db:5432/d?sslmode=require"),
            ("postgresql://me:secret@one:1,two:2/d", "postgresql://me@one:1,two:2/d"),
            ("postgresql:///d?host=/run/pg&password=secret", "postgresql:///d?host=/run/pg"),
            ("postgresql://db/d?sslpassword=secret", "postgresql://db/d"),
            ("postgresql://db/d?passw%6Frd=secret&schema=s", "postgresql://db/d?schema=s"),
            ("postgresql://db/d", "postgresql://db/d"),
            ("postgresql://:secret@db/d", "postgresql://@db/d"),
        ],
    )
    def test_what_opens_it_again(self, url: str, shown: str) -> None:
        """It has no password in it, wherever that stood."""
        assert PostgresAddress.of(url).url_without_password == shown


class TestInvalidUrls:
    """One sentence, which repeats nothing of the URL."""

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql+asyncpg://ada:secret@h/d",
            "mysql://ada:secret@h/d",
            "postgresql:ada:secret@h/d",
            "postgresql://ada:sec%zzret@h/d",
            "postgresql://ada:secret@[::1/d",
            "postgresql://h/d?pasword=secret",
            "postgresql://h/d?password=secret&=",
            "postgresql://h/d\0secret",
            "postgresql://ada:secret\ud800@h/d",
            "postgresql://ada:se@secret@h/d",
            "postgresql://ada:@@secret@h/d",
            "postgresql://ada:secret/word@h/d",
            "postgresql://ada:12/secret@h:5432/d?sslmode=require",
            "postgresql://ada:se@secret@h,i/d",
        ],
    )
    @pytest.mark.parametrize("parse", [PostgresAddress.of, address_of])
    def test_a_password_is_not_repeated(self, parse: Callable[[str], object], url: str) -> None:
        """Neither by the error nor by what caused it."""
        with pytest.raises(StoreError) as refused:
            parse(url)

        assert "secret" not in str(refused.value)
        assert "ret@" not in str(refused.value)
        assert refused.value.__cause__ is None
        assert refused.value.__suppress_context__ or refused.value.__context__ is None

    @pytest.mark.parametrize("password", ["se@cret", "se/cret", "12/cret"])
    def test_what_to_write_in_a_password_is_said(self, password: str) -> None:
        """Passwords that are drawn by lot hold these characters."""
        with pytest.raises(StoreError, match="write @ as %40 and / as %2F"):
            PostgresAddress.of(f"postgresql://ada:{password}@h/d")

    @pytest.mark.parametrize("schema", ["", 'a"b', "a b", "a;b", "ä", "a" * 64])
    def test_a_schema_that_would_have_to_be_quoted(self, schema: str) -> None:
        """It is written into statements, so it is a plain name."""
        with pytest.raises(StoreError, match="schema of the database must be a name"):
            PostgresAddress.of(f"postgresql://h/d?schema={schema}")

    def test_without_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The sentence says what to install."""
        monkeypatch.setitem(sys.modules, "psycopg", None)
        monkeypatch.setitem(sys.modules, "psycopg.conninfo", None)

        with pytest.raises(StoreError, match=r'needs the extra "postgres": pip install "turnwise\[postgres\]"$'):
            PostgresAddress.of("postgresql://h/d")


class TestSchemes:
    """Which store a URL belongs to."""

    @pytest.mark.parametrize("url", ["postgresql+asyncpg://ada:secret@h/d", "postgres+psycopg2://ada:secret@h/d"])
    def test_another_driver_is_refused_by_this_store(self, url: str) -> None:
        """SQLite would say that it does not know PostgreSQL."""
        with pytest.raises(StoreError, match="is not a URL that PostgreSQL knows"):
            address_of(url)

    @pytest.mark.parametrize(
        "url", ["postgresql:/ada:secret@h/d", "postgres:ada:secret@h/d", "Postgres://a:secret@h/d"]
    )
    def test_a_mistyped_one_is_no_path(self, url: str) -> None:
        """Else a file would be made that has the password for a name."""
        with pytest.raises(StoreError, match="is not a URL that PostgreSQL knows"):
            address_of(url)

    @pytest.mark.parametrize(
        "address",
        [
            "host=db dbname=dinner user=ada password=secret",
            "password='se cret' host = db",
            r"user=ada password=se\ cret dbname=dinner",
            "dbname=dinner",
            "service=dinner",
        ],
    )
    def test_the_other_form_of_an_address_is_no_path(self, address: str) -> None:
        """libpq knows both forms. A file would be made that is named after the password."""
        with pytest.raises(StoreError) as refused:
            address_of(address)

        assert str(refused.value) == (
            "The address of a database in PostgreSQL is a URL here: postgresql://user@host:port/database"
        )

    @pytest.mark.parametrize("path", ["user=ada.db", "a b=c.db", "dbname.db", "turns=3/host.db"])
    def test_a_path_may_hold_an_equals_sign(self, path: str) -> None:
        """It names a file."""
        assert address_of(path).name == path


def test_a_file_may_have_the_name_of_a_scheme() -> None:
    """Only a colon makes a URL of it."""
    assert not address_of("postgres").is_shared


class TestThePassword:
    """It is in what the driver is given, and nowhere else."""

    def test_it_is_in_no_representation(self) -> None:
        """An address may be logged."""
        address = PostgresAddress.of("postgresql://ada:secret@h/d?sslpassword=secret")

        assert "secret" not in f"{address} {address!r} {address.name}"
        assert "secret" in address.conninfo
