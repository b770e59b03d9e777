"""An HTTP server on a real socket, in a thread of its own, that answers as a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answering = Callable[[BaseHTTPRequestHandler], None]
"""Writes the answer to a request: status, headers and body."""


def body(content: bytes, status: int = 200, **headers: str) -> Answering:
    """Return what answers with this body."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


class Served:
    """A server that runs: its URL, and the paths that were asked for."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.paths: list[str] = []


@contextmanager
def serving(answer: Answering) -> Iterator[Served]:
    """Run a server that answers each GET request in this way."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer the request."""
            served.paths.append(self.path)
            answer(self)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that goes away is no error here."""

    server = Server(("127.0.0.1", 0), Handler)
    served = Served(f"http://127.0.0.1:{server.server_address[1]}/")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
