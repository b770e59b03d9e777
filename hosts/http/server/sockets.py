"""The sockets that the server listens on, bound before anything else is done: a port in use is known at once."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_address

from ....states.errors import ConfigurationError


def bind(host: str, port: int) -> list[socket.socket]:
    """Return a socket for each address of this host, all with the same port; 0 stands for a free one. Raises
    `ConfigurationError`."""
    bound: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            bound.append(socket.create_server((address, port), family=family, backlog=2048))
            port = port or bound[0].getsockname()[1]
    except (OSError, OverflowError) as error:
        for one in bound:
            one.close()
        raise ConfigurationError(f"The server cannot listen at {host}, port {port}: {_reason(error)}.") from None
    return bound


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _reason(error: Exception) -> str:
    match error:
        case OSError(errno=errno.EADDRINUSE):
            return "another program uses the port"
        case OSError(errno=errno.EACCES):
            return "you may not use this port; choose one above 1023"
        case OSError(errno=errno.EADDRNOTAVAIL):
            return "this machine does not have the address"
        case socket.gaierror():
            return "the name is not known"
        case OverflowError():
            return "a port is a number up to 65535"
        case _:
            return str(getattr(error, "strerror", None) or error)


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can reach the host. A name counts as what it is resolved to. Raises
    `ConfigurationError` for a name that is not known."""
    try:
        return all(ip_address(address.partition("%")[0]).is_loopback for _, address in _addresses(host, 0))
    except OSError:
        raise ConfigurationError(f"The host {host} is not known.") from None


def address_of(host: str, port: int) -> str:
    """Return the address of the page, as one types it into a browser. `Pure.`"""
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
