"""The channel that posts, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnwise import ConfigurationError, Delivery, Engine, WebhookChannel, presets
from turnwise.effects.channels import delivery
from turnwise.effects.channels.port import NotTaken
from turnwise.effects.channels.webhook import WebhookSecret
from turnwise.effects.retry_queues import FIRST_WAIT
from turnwise.testing import (
    FunctionLlm,
    ManualClock,
    RecordingChannel,
    ScriptedLlm,
    call,
    calls,
    crash_at_every_boundary,
    reply,
)

from ...support.cases import holds_for
from ...support.engine_scenarios import Watcher, talk, until
from ...support.servers.webhook_receiver import CERTIFICATE, KEY, SECRET, Receiver, signature
from .test_delivery import EXACT

OTHER_SECRET = f"whsec_{base64.b64encode(bytes(32)).decode()}"
HELLO = Delivery("Hello.", "c", turn=1, ordinal=1, key="c/2")


def test_the_signature_is_that_of_the_standard() -> None:
    """The example with which the standard's own libraries are tested: id, time, body, secret and signature."""
    secret = WebhookSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    headers = secret.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_a_delivery_is_posted_and_signed() -> None:
    """S20: as JSON, byte for byte (B3), with an id made from its key; id, time and body are signed."""
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    delivery = Delivery("\n".join(EXACT), "a.b\r\nx: y", turn=3, ordinal=2, key="a.b\r\nx: y/7", origin="other")
    with Receiver() as receiver:
        await WebhookChannel(receiver.url, SECRET, clock=ManualClock(noon)).deliver(delivery)

    (post,) = receiver.posts
    assert json.loads(post.body) == {"type": "delivery", "data": vars(delivery)}
    assert (post.headers["Content-Type"], post.status) == ("application/json", 204)
    assert (post.id, post.headers["webhook-timestamp"]) == ("a%2Eb%0D%0Ax%3A%20y/7", str(int(noon.timestamp())))
    assert post.headers["webhook-signature"] == signature(KEY, post.headers, post.body)


async def test_a_receiver_with_another_secret_refuses() -> None:
    """The refusal is a failed delivery."""
    with Receiver() as receiver, pytest.raises(NotTaken, match=r"^The channel webhook got the answer 401\.$"):
        await WebhookChannel(receiver.url, OTHER_SECRET).deliver(HELLO)

    assert receiver.taken == {}


@pytest.mark.parametrize("status", [307, 404, 410, 429, 500, 503])
async def test_any_answer_but_2xx_is_a_failure(status: int) -> None:
    """Redirects are not followed: a post signed for one receiver goes to no other."""
    with Receiver([status]) as receiver, pytest.raises(NotTaken, match=str(status)):
        await WebhookChannel(receiver.url, SECRET).deliver(HELLO)

    assert len(receiver.posts) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"content-length: 9\r\n\r\nno end",
        b"content-encoding: gzip\r\ncontent-length: 6\r\n\r\nno zip",
        b"transfer-encoding: chunked\r\n\r\nno chunk\r\n",
    ],
    ids=["no end", "not packed", "no chunk"],
)
async def test_an_answer_of_2xx_is_a_success_whatever_its_body(answer: bytes) -> None:
    """Otherwise a receiver whose body is broken would get the delivery for ever. The body is not read, as it may be
    long."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + answer)
        await reader.read()  # which returns nothing, once the sender has gone
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        fault = await delivery.attempt(WebhookChannel(f"http://127.0.0.1:{port}/", SECRET), HELLO)

    assert fault is None


async def test_a_password_in_the_url_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It is sent as Basic authentication; httpx logs the URL."""
    caplog.set_level("DEBUG")
    caplog.set_level("DEBUG", "httpx")  # whatever litellm has set in this process
    with Receiver([500]) as receiver:
        url = receiver.url.replace("http://", "http://j%C3%B6rg:open%3Asesame@")
        await delivery.attempt(WebhookChannel(url, SECRET), HELLO)
        await delivery.attempt(WebhookChannel(url, SECRET), HELLO)

    login = base64.b64encode("jörg:open:sesame".encode()).decode()
    assert [post.headers["Authorization"] for post in receiver.posts] == [f"Basic {login}"] * 2
    assert "HTTP Request" in caplog.text and "sesame" not in caplog.text and login not in caplog.text


async def test_a_refused_connection_is_an_error() -> None:
    """The error of httpx means that it was not delivered."""
    with Receiver() as receiver:
        pass

    with pytest.raises(httpx.ConnectError):
        await WebhookChannel(receiver.url, SECRET).deliver(HELLO)


async def test_it_is_posted_again_until_it_is_taken(database: Path) -> None:
    """B4, S20: a 500 is shown to watchers, and the post is repeated with the same id; later texts wait behind it, while
    another channel has them already; the turn does not wait."""
    clock = ManualClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    other = RecordingChannel()
    llm = ScriptedLlm([calls(call("talk", text="a"), call("talk", text="b")), reply("…")])
    with Receiver([500, 204, 503]) as receiver:
        channels = [WebhookChannel(receiver.url, SECRET), other]
        async with Engine.open(database, model=llm, tools=[talk], channels=channels, clock=clock) as engine:
            conversation = await engine.create(policy=presets.talk())
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            turn = await conversation.send("Hi")
            failed = await watcher.until("delivery_failed")
            known = (turn.status, other.texts, dict(receiver.taken))
            for posts in (3, 4):  # "a" again and "b", which fails; "b" again
                await clock.until_asleep()
                await clock.advance(FIRST_WAIT)
                await until(lambda posts=posts: len(receiver.posts) == posts)
            await watcher.stop()

    assert failed.data["sentence"] == "The channel webhook got the answer 500."
    assert known == ("completed", ["a", "b"], {})
    assert [post.data["text"] for post in receiver.posts] == ["a", "a", "b", "b"]
    assert list(receiver.taken.values()) == ["a", "b"]


async def test_a_receiver_that_does_not_answer_times_out(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn does not wait for it, and the delivery stays in the outbox."""
    monkeypatch.setattr(delivery, "ATTEMPT_TIMEOUT", 0.3)
    with Receiver([None]) as receiver:
        channel = WebhookChannel(receiver.url, SECRET)
        llm = ScriptedLlm([call("talk", text="a"), reply("…")])
        async with Engine.open(database, model=llm, tools=[talk], channels=[channel]) as engine:
            turn = await (await engine.create(policy=presets.talk())).send("Hi")
            await engine.delivered()
            (left,) = await engine.store.outbox(await engine.store.ids())

    assert (turn.status, left.target, left.attempts) == ("completed", "webhook", 1)


async def test_the_next_process_posts_what_was_not_taken(database: Path) -> None:
    """S13, B9: with the same id, once; a delivery that was taken is not posted again."""
    with Receiver([204, 500]) as receiver:
        channel = WebhookChannel(receiver.url, SECRET)
        llm = ScriptedLlm([calls(call("talk", text="a"), call("talk", text="b")), reply("…")])
        async with Engine.open(database, model=llm, tools=[talk], channels=[channel]) as engine:
            await (await engine.create(policy=presets.talk())).send("Hi")
        before = [post.id for post in receiver.posts]

        channel = WebhookChannel(receiver.url, SECRET)
        async with Engine.open(database, model=ScriptedLlm([]), tools=[talk], channels=[channel]):
            await until(lambda: len(receiver.posts) > 2)

    assert [post.data["text"] for post in receiver.posts] == ["a", "b", "b"]
    assert [post.id for post in receiver.posts] == [*before, before[1]]


@pytest.mark.slow
@pytest.mark.faults
def test_a_killed_process_loses_no_post() -> None:
    """S13, B9, S20: the process is killed at each boundary, with a real receiver that stays: everything that was said
    arrives in order, each text with its own id; a repeated post has the id of the first."""
    said = [call("talk", text="a"), call("talk", text="a"), reply("…")]

    def say(request: Any) -> Any:
        return said[sum(message["role"] == "assistant" for message in request.messages)]

    with Receiver() as receiver:

        async def scenario(path: Path) -> None:
            channel = WebhookChannel(receiver.url, SECRET)
            async with Engine.open(path, model=FunctionLlm(say), tools=[talk], channels=[channel]) as engine:
                known = await engine.list()
                conversation = await engine.get(known[0].id) if known else await engine.create(policy=presets.talk())
                await conversation.send("Hi", message_id="m1")
                while await engine.store.outbox(await engine.store.ids()):
                    await asyncio.sleep(0.005)

        report = crash_at_every_boundary(scenario, every=2)

    by_conversation: dict[str, list[str]] = {}
    for id_, text in receiver.taken.items():
        by_conversation.setdefault(id_.partition("/")[0], []).append(text)
    assert report.kills >= 8
    assert set(map(tuple, by_conversation.values())) == {("a", "a")}  # B10
    assert len(receiver.posts) > len(receiver.taken), "no process died between a post and its receipt"


@holds_for(
    "url",
    [
        "",
        "example.com/hook",
        "ftp://example.com",
        "https://",
        "http://x:port/",
        "http://127.0.0.1\n/hook",
        " http://127.0.0.1/",
        "http://127.0.0.1/a\x00",
        f"http://127.0.0.1/{'a' * 70_000}",
        None,
        7,
    ],
)
def test_an_invalid_url_is_refused(url: Any) -> None:
    """In one sentence, when the channel is made."""
    with pytest.raises(ConfigurationError, match="begins with https:// or http://"):
        WebhookChannel(url, SECRET)


@holds_for(
    "secret",
    [
        "",
        "whsec_",
        "whsec_c2hvcnQ=",
        SECRET.removeprefix("whsec_"),
        "whsec_not base64!",
        f"whsec_{'A' * 400}",
        None,
        b"",
    ],
)
def test_an_invalid_secret_is_refused(secret: Any) -> None:
    """In one sentence that does not repeat it."""
    with pytest.raises(ConfigurationError) as refused:
        WebhookChannel("https://example.com/", secret)

    assert refused.value.sentence == "The secret of a webhook is whsec_ and base64 of 24 to 64 bytes."


async def test_an_untrusted_certificate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is posted over https to a server that cannot prove its identity."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with Receiver(https=True) as receiver, pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        await WebhookChannel(receiver.url, SECRET).deliver(HELLO)

    assert receiver.posts == []


async def test_a_trusted_certificate_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual environment variable names additional authorities."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with Receiver(https=True) as receiver:
        await WebhookChannel(receiver.url.replace("https:", "HTTPS:"), SECRET).deliver(HELLO)

    assert [post.status for post in receiver.posts] == [204]
