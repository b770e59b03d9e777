"""A receiver of webhooks to test against: a real server on a real socket, in a thread of its own, so that it outlives
the sender. It checks signatures by the standard, without code of turnwise."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aiohttp import web

KEY = bytes(range(32))
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
CERTIFICATE = Path(__file__).parents[2] / "fixtures" / "certificate-of-127.0.0.1.pem"
"""A certificate that nobody has signed, valid for 100 years, and its key."""


def signature(key: bytes, headers: Mapping[str, str], body: bytes) -> str:
    """Return the signature that the header must have."""
    signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


@dataclass(frozen=True)
class Post:
    """One post, and the status that it was answered with."""

    headers: Mapping[str, str]
    body: bytes
    status: int

    @property
    def id(self) -> str:
        """The id by which a repeated post is recognised."""
        return self.headers["webhook-id"]

    @property
    def data(self) -> dict[str, Any]:
        """The data in the body."""
        data: dict[str, Any] = json.loads(self.body)["data"]
        return data


@dataclass
class Receiver:
    """Answers each post with the next of `answers` while there are any, and then with 204. A number is a status; None
    is never answered. A post that is not signed with the key gets a 401. With `https` the server shows
    `CERTIFICATE`."""

    answers: list[int | None] = field(default_factory=list)
    https: bool = False
    posts: list[Post] = field(default_factory=list)

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("webhook-signature") != signature(KEY, request.headers, body):
            status: int | None = 401
        else:
            status = self.answers.pop(0) if self.answers else 204
        self.posts.append(Post(dict(request.headers), body, status or 0))
        if status is None:
            await asyncio.Event().wait()
        return web.Response(status=status or 500, headers={"location": "/elsewhere"} if status == 307 else {})

    @property
    def taken(self) -> dict[str, str]:
        """The texts that were accepted, by id: the first post of each."""
        taken: dict[str, str] = {}
        for post in self.posts:
            if 200 <= post.status < 300:
                taken.setdefault(post.id, post.data["text"])
        return taken

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve(ready)))
        self._thread.start()
        ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self, ready: threading.Event) -> None:
        app = web.Application()
        app.router.add_post("/hook", self._receive)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        encryption = None
        if self.https:
            encryption = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            encryption.load_cert_chain(CERTIFICATE)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=encryption)
        await site.start()
        self.url = f"{'https' if self.https else 'http'}://127.0.0.1:{runner.addresses[0][1]}/hook"
        ready.set()
        await self._over.wait()
        await runner.cleanup()
