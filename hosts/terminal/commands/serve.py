"""`turnwise serve`: the conversations of a database over HTTP, until a signal comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager

from ....engine.engine import Engine
from ....states.errors import ConfigurationError
from ...http.app import create_app
from ...http.demo import demo_engine
from ...http.permissions import PERMISSIONS
from ...http.security import LOCAL_HOSTS, check_hard_to_guess
from ...http.server import ServerLimits, address_of, bind, end_process_in_time, is_loopback
from ...http.server import serve as serve_app
from ..configuration import Settings
from ..output.lines import show_warnings_of
from .worker import engine_of


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
    limits = ServerLimits()
    with ExitStack() as bound:
        sockets = [bound.enter_context(one) for one in bind(settings.host, settings.port)]
        address = address_of(settings.host, sockets[0].getsockname()[1])
        async with _engine(settings, demo) as engine:

            async def stop() -> None:
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
                on_listening=lambda: print(f"turnwise serves {address}", flush=True),
                limits=limits,
            )
    return 0


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
