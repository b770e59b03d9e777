"""`turnwise serve`: the conversations of a database over HTTP, until a signal comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial

from ....engine.engine import Engine
from ....persistence.opening import address_of as database_address_of
from ....states.errors import ConfigurationError
from ...http.app import create_app
from ...http.demo import demo_engine
from ...http.permissions import PERMISSIONS
from ...http.security import LOCAL_HOSTS, check_hard_to_guess
from ...http.server import ServerLimits, address_of, bind, end_process_in_time, is_loopback
from ...http.server import serve as serve_app
from ..configuration import Settings
from ..output.lines import show_warnings_of
from .worker import drain, engine_of, exit_code


async def serve(settings: Settings, *, demo: bool) -> int:
    """Serve until a signal comes, and return the exit code. The address is printed once connections are taken.

    Raises `ConfigurationError` for an address at which it cannot listen, or that other machines can reach and that has
    no token, or one that is easy to guess, and `StoreError`.
    """
    if not is_loopback(settings.host):
        if not settings.token:
            sentence = "A server that other machines can reach needs a token: give --token, or set TURNWISE_TOKEN."
            raise ConfigurationError(sentence)
        check_hard_to_guess(settings.token)
    if not settings.debug:
        show_warnings_of("turnwise.http", "turnwise.postgres")
    limits, left = ServerLimits(), 0
    with ExitStack() as bound:
        sockets = [bound.enter_context(one) for one in bind(settings.host, settings.port)]
        address = address_of(settings.host, sockets[0].getsockname()[1])
        async with _engine(settings, demo) as engine:

            async def stop() -> None:
                nonlocal left
                left = engine.custody_counts.held
                end_process_in_time(limits)
                await engine.close()

            app = create_app(
                engine,
                token=settings.token or None,
                owner=(lambda request: settings.owner) if settings.owner else None,
                allow=PERMISSIONS,  # whoever has the token, or this machine, is no user of an application
                hosts=_hosts(settings),
                origins=settings.origins,
            )
            await serve_app(
                app,
                sockets,
                close_engine=stop,
                drain=partial(drain, engine, settings.drain) if _performs_for_others(settings, demo) else None,
                on_listening=lambda: print(f"turnwise serves {address}", flush=True),
                limits=limits,
            )
    return exit_code(left)


def _performs_for_others(settings: Settings, demo: bool) -> bool:
    """Whether other processes go on with what is under way here: the turns at hand may come to rest before."""
    return settings.worker and not demo and database_address_of(settings.db).is_shared


def _hosts(settings: Settings) -> Sequence[str] | None:
    """Return the names of the server. With a token it has any name, unless some are given."""
    if settings.token and not settings.allow_hosts:
        return None
    return (*LOCAL_HOSTS, settings.host, *settings.allow_hosts)


@asynccontextmanager
async def _engine(settings: Settings, demo: bool) -> AsyncGenerator[Engine]:
    """Yield the engine that is to be served, which is not open yet. Raises `ConfigurationError`."""
    if demo:
        async with demo_engine(settings.model) as engine:
            yield engine
        return
    yield await engine_of(settings, worker=settings.worker)
