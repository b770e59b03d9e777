"""What is said to the user is delivered through channels, and an effect without a performer is answered."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.effect_ids import unmarked
from turnwise import (
    ConfigurationError,
    Delivery,
    Engine,
    Lagged,
    NotTaken,
    Speech,
    StreamChannel,
    SubAgents,
    Subscription,
    TerminalChannel,
    WorkComplete,
    presets,
    tool,
)
from turnwise.effects.channels import delivery
from turnwise.effects.clock import Clock
from turnwise.effects.dispatcher import InProcessDispatcher
from turnwise.engine.composition import Performers
from turnwise.engine.ports import Dispatcher
from turnwise.states import Answer, SpawnSubAgent, Texts, ToolResult
from turnwise.testing import FunctionLlm, RecordingChannel, ScriptedLlm, call, calls, reply

from ...support.engine_scenarios import Gate, Watcher, results, talk
from ...support.engine_scenarios import said as terminal_said


class Wordless(NotTaken):
    """An error whose message cannot be read."""

    def __str__(self) -> str:
        raise AttributeError("reason")


@tool(acts=("speech",))
async def respond(text: str) -> Speech:
    """Say something to the user once the turn has ended."""
    return Speech(text=text)


@tool(acts=("work_complete",))
async def finish(summary: str) -> WorkComplete:
    """Claim that the work is complete."""
    return WorkComplete(summary=summary)


class TestDelivery:
    """Each delivery goes to every channel, in order, and the turn does not depend on it."""

    async def test_a_reply_goes_to_every_channel_once(self, database: Path) -> None:
        """S2, S20: channels need no special case for a turn that answers in text."""
        first, second = RecordingChannel(name="first"), RecordingChannel(name="second")

        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")]), channels=[first, second]) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Hi")

        assert first.deliveries == second.deliveries
        (delivery,) = first.deliveries
        assert delivery == Delivery(text="Hello.", conversation_id=conversation.id, turn=1, ordinal=1, key=delivery.key)
        assert unmarked(delivery.key) == f"{conversation.id}/2"
        assert (turn.reply, turn.deliveries, turn.user_response, turn.silent) == ("Hello.", ("Hello.",), None, False)

    async def test_speech_by_tool_is_delivered_and_the_text_is_not(self, database: Path) -> None:
        """S1, S3: of two speeches the last is delivered, once, apart from `final_content`."""
        channel = RecordingChannel()
        llm = ScriptedLlm([
            calls(call("respond", text="A"), call("respond", text="B"), text="Speaking."),
            calls(call("finish", summary="Said it.")),
        ])  # fmt: skip
        policy = presets.explicit_response().model_copy(update={"verify": 0})

        async with Engine.open(database, model=llm, tools=[respond, finish], channels=[channel]) as engine:
            conversation = await engine.create(policy=policy)
            turn = await conversation.send("Hi")
            said = results(await conversation.transcript())

        assert channel.texts == ["B"]
        assert (turn.status, turn.reply, turn.user_response, turn.final_content) == ("completed", "B", "B", "Speaking.")
        assert json.loads(said[0]) == {"success": True, "message": Texts().recorded_last}

    async def test_what_is_said_now_is_heard_before_the_next_tool_runs(self, database: Path) -> None:
        """B2: the first attempt of a delivery ends before the tool behind it starts, also within one response."""
        happened: list[str] = []

        async def slowly(delivery: Delivery) -> None:
            await asyncio.sleep(0.01)
            happened.append(delivery.text)

        @tool
        async def work() -> str:
            """Do something."""
            happened.append("work")
            return "done"

        llm = ScriptedLlm(
            [calls(call("talk", text="a"), call("work"), call("talk", text="b")), reply("Thinking aloud.")]
        )
        channel = RecordingChannel(slowly)

        async with Engine.open(database, model=llm, tools=[talk, work], channels=[channel]) as engine:
            turn = await (await engine.create(policy=presets.talk())).send("Hi")

        assert happened == ["a", "work", "b"]
        assert turn.reply == "a\n\nb"

    async def test_a_channel_that_raises_delays_nothing(self, database: Path) -> None:
        """B4, S20: the others receive the text, the model has its acknowledgement, and watchers learn of the
        failure."""

        def breaks(delivery: Delivery) -> None:
            raise RuntimeError("no loudspeaker")

        broken, whole = RecordingChannel(breaks, name="speaker"), RecordingChannel()
        llm = ScriptedLlm([call("talk", text="a"), reply("…")])

        async with Engine.open(database, model=llm, tools=[talk], channels=[broken, whole]) as engine:
            conversation = await engine.create(policy=presets.talk())
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            turn = await conversation.send("Hi")
            await watcher.until("delivery_failed")
            await watcher.stop()

        failed = next(update for update in watcher.updates if update.type == "delivery_failed")
        assert failed.data["sentence"] == "The channel speaker failed on a delivery."
        assert (turn.status, whole.texts, len(broken.failed)) == ("completed", ["a"], 1)

    @pytest.mark.parametrize(
        ("error", "sentence"),
        [
            (NotTaken("The mailbox\nis \x1b[31mfull."), "The mailbox is full."),
            (NotTaken(), "The channel recording failed on a delivery."),
            (Wordless(), "The channel recording failed on a delivery."),
        ],
    )
    async def test_a_channel_can_say_why_it_failed(self, database: Path, error: NotTaken, sentence: str) -> None:
        """B4: the message of `NotTaken` is for people; any other error may hold secrets."""

        def refuses(delivery: Delivery) -> None:
            raise error

        channel = RecordingChannel(refuses)
        llm = ScriptedLlm([call("talk", text="a"), reply("…")])
        async with Engine.open(database, model=llm, tools=[talk], channels=[channel]) as engine:
            conversation = await engine.create(policy=presets.talk())
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            await conversation.send("Hi")
            failed = await watcher.until("delivery_failed")
            await watcher.stop()

        assert failed.data["sentence"] == sentence

    async def test_a_channel_that_hangs_delays_by_its_deadline_only(
        self, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An attempt ends after two seconds, whatever the channel does."""
        monkeypatch.setattr(delivery, "ATTEMPT_TIMEOUT", 0.02)
        channel = RecordingChannel(lambda delivery: asyncio.Event().wait())
        llm = ScriptedLlm([call("talk", text="a"), reply("…")])

        async with Engine.open(database, model=llm, tools=[talk], channels=[channel]) as engine:
            turn = await (await engine.create(policy=presets.talk())).send("Hi")

        assert (turn.status, channel.texts) == ("completed", [])

    async def test_a_channel_that_ignores_its_cancel_is_abandoned(
        self, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It delays neither the turn nor the next delivery."""
        monkeypatch.setattr(delivery, "ATTEMPT_TIMEOUT", 0.01)
        monkeypatch.setattr(delivery, "GRACE", 0.01)
        over = asyncio.Event()

        async def holds_on(delivery: Delivery) -> None:
            while not over.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await over.wait()

        stuck, whole = RecordingChannel(holds_on, name="stuck"), RecordingChannel()
        llm = ScriptedLlm([calls(call("talk", text="a"), call("talk", text="b")), reply("…")])

        async with Engine.open(database, model=llm, tools=[talk], channels=[stuck, whole]) as engine:
            turn = await (await engine.create(policy=presets.talk())).send("Hi")
            over.set()

        assert (turn.status, whole.texts) == ("completed", ["a", "b"])

    @pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyboardInterrupt, TimeoutError])
    async def test_any_error_of_a_channel_is_a_failed_attempt(self, database: Path, error: type[BaseException]) -> None:
        """It ends neither the engine nor the other channels, and the next tool still waits for the slow ones."""

        def breaks(delivery: Delivery) -> None:
            raise error

        async def slowly(delivery: Delivery) -> None:
            await asyncio.sleep(0.01)

        broken, slow = RecordingChannel(breaks, name="broken"), RecordingChannel(slowly)
        llm = ScriptedLlm([calls(call("talk", text="a"), call("talk", text="b")), reply("…")])

        async with Engine.open(database, model=llm, tools=[talk], channels=[broken, slow]) as engine:
            conversation = await engine.create(policy=presets.talk())
            watcher = Watcher(conversation)
            await watcher.until("snapshot")
            turn = await conversation.send("Hi")
            await watcher.until("delivery_failed")
            await watcher.stop()

        failed = next(update for update in watcher.updates if update.type == "delivery_failed")
        assert failed.data["sentence"] == "The channel broken failed on a delivery."
        assert (turn.status, slow.texts) == ("completed", ["a", "b"])

    async def test_a_tool_behind_a_delivery_is_cancelled_before_it_starts(self, database: Path) -> None:
        """B8: a cancel is handled while a delivery is under way, and the tool behind it never runs."""
        gate, ran = Gate(), []

        @tool
        async def work() -> str:
            """Do something."""
            ran.append("work")
            return "done"

        channel = RecordingChannel(lambda delivery: gate())
        llm = ScriptedLlm([calls(call("talk", text="a"), call("work"))])

        async with Engine.open(database, model=llm, tools=[talk, work], channels=[channel]) as engine:
            conversation = await engine.create(policy=presets.talk())
            sending = asyncio.create_task(conversation.send("Hi"))
            await gate.arrived.wait()
            await conversation.cancel()
            turn = await sending
            gate.opened.set()
            said = results(await conversation.transcript())

        assert (turn.status, turn.deliveries, ran) == ("cancelled", ("a",), [])
        assert said[1] == "Cancelled by user"

    @pytest.mark.parametrize(
        ("channels", "sentence"),
        [
            ([object()], "A channel is an object with a name and the method `deliver`."),
            (
                [RecordingChannel(name=cast(str, ["a", "list"]))],
                "A channel is an object with a name and the method `deliver`.",
            ),
            ([RecordingChannel], "A channel is an object with a name and the method `deliver`."),
            (
                [RecordingChannel(name="\ud800")],
                "The name of a channel holds half a character (a lone surrogate).",
            ),
            ([RecordingChannel(), RecordingChannel()], "Two channels have the same name."),
        ],
    )
    def test_invalid_channels_are_refused(self, channels: Any, sentence: str) -> None:
        """When the engine is opened, in one sentence."""
        with pytest.raises(ConfigurationError) as refused:
            Engine.open("sqlite://", channels=channels)

        assert refused.value.sentence == sentence


async def nothing(effect: Any, context: Any) -> Any:
    """A performer that is never asked."""


def without_sub_agents(performers: Performers, clock: Clock, answer: Callable[[str, Answer], None]) -> Dispatcher:
    """Return a dispatcher that cannot start sub-agents."""
    known = {kind: one for kind, one in performers.items() if kind is not SpawnSubAgent}
    return InProcessDispatcher(known, clock, answer)


class TestWithoutAPerformer:
    """An effect without a performer is answered by a typed failure that the machine handles."""

    async def test_without_sub_agents_the_call_has_an_error_result(self, database: Path) -> None:
        """P24: the model learns that no sub-agent could be started, and the turn goes on."""

        @tool(acts=("children",), exclusive=True)
        async def spawn(tasks: list[str]) -> SubAgents:
            """Delegate work."""
            return SubAgents(tasks=tuple(tasks))

        llm = ScriptedLlm([call("spawn", tasks=["a", "b"]), reply("Then I do it myself.")])

        async with Engine.open(database, model=llm, tools=[spawn], dispatcher=without_sub_agents) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Hi")
            said = results(await conversation.transcript())

        assert turn.reply == "Then I do it myself."
        assert said[0].count("nothing for this: spawn sub agent") == 2

    async def test_an_act_that_a_tool_does_not_declare_is_not_carried_out(self, database: Path) -> None:
        """The model reads that none of its acts was carried out; nothing is delivered."""
        channel = RecordingChannel()

        @tool
        async def sneak() -> ToolResult:
            """Speak without declaring it."""
            return ToolResult(text="ok", acts=(Speech(text="psst"),))

        llm = ScriptedLlm([call("sneak"), reply("Well.")])

        async with Engine.open(database, model=llm, tools=[sneak], channels=[channel]) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            said = results(await conversation.transcript())

        assert said == ["The tool did something that it does not declare; none of it was carried out."]
        assert channel.texts == ["Well."]


# --- The channel to which parts of the same program subscribe.


def said(number: int, conversation_id: str = "c") -> Delivery:
    """A delivery with this number."""
    return Delivery(f"{number}", conversation_id, 1, number, f"{conversation_id}/{number}")


async def all_of(subscription: Subscription) -> list[str]:
    """All deliveries of a subscription until it ends."""
    return [delivery.text async for delivery in subscription]


async def test_a_subscriber_gets_everything_from_its_start(database: Path) -> None:
    """S20: of all conversations or of one."""
    stream = StreamChannel()
    echo = FunctionLlm(lambda request: reply(f"You said {request.messages[-1]['content']}."))

    async with Engine.open(database, model=echo, channels=[stream]) as engine:
        one, other = await engine.create(), await engine.create()
        everything, only = stream.subscribe(), stream.subscribe(other.id)
        await one.send("a")
        heard = [(await anext(everything)).text]
        late = stream.subscribe()
        await other.send("b")
        heard += [(await anext(everything)).text]
        stream.close()

    assert heard == ["You said a.", "You said b."]
    assert await all_of(only) == await all_of(late) == ["You said b."]
    assert await all_of(everything) == []


async def test_a_subscriber_gets_complete_deliveries(database: Path) -> None:
    """With the key by which a repeated one is recognised."""
    stream = StreamChannel()

    async with Engine.open(database, model=ScriptedLlm([reply("Hello.")]), channels=[stream]) as engine:
        conversation = await engine.create()
        with stream.subscribe() as subscription:
            await conversation.send("Hi")
            delivery = await anext(subscription)

    assert delivery == Delivery("Hello.", conversation.id, turn=1, ordinal=1, key=delivery.key)
    assert unmarked(delivery.key) == f"{conversation.id}/2"


async def test_a_slow_subscriber_delays_nobody() -> None:
    """A subscriber that reads nothing delays neither the deliveries nor other subscribers."""
    stream = StreamChannel()
    quick, still = stream.subscribe(memory=2), stream.subscribe(memory=2)
    heard: list[str] = []

    for number in range(1, 6):
        await stream.deliver(said(number))
        heard.append((await anext(quick)).text)

    assert heard == ["1", "2", "3", "4", "5"]
    still.close()
    with pytest.raises(Lagged):
        await anext(still)
    assert await all_of(still) == ["4", "5"]


async def test_a_slow_subscriber_learns_how_many_it_missed() -> None:
    """Once, with the number and a sentence; then it continues with the rest."""
    stream = StreamChannel()
    slow = stream.subscribe(memory=3)
    for number in range(1, 8):
        await stream.deliver(said(number))

    with pytest.raises(Lagged) as told:
        await anext(slow)

    assert (told.value.missed, told.value.sentence) == (
        4,
        "The subscriber was too slow, and missed 4 of the deliveries.",
    )
    assert [(await anext(slow)).text for _ in range(3)] == ["5", "6", "7"]


async def test_a_subscriber_waits_without_polling() -> None:
    """And can stop waiting without losing a delivery."""
    stream = StreamChannel()
    subscription = stream.subscribe()
    waiting = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    again = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    await stream.deliver(said(1))

    assert (await again).text == "1"


@pytest.mark.slow
async def test_a_closed_subscription_gets_nothing_more() -> None:
    """It ends, and a subscription that is no longer referenced is collected."""
    stream = StreamChannel()
    with stream.subscribe() as left:
        await stream.deliver(said(1))
    dropped = stream.subscribe()
    is_held = weakref.ref(dropped)
    del dropped
    gc.collect()

    await stream.deliver(said(2))

    assert await all_of(left) == ["1"]
    assert is_held() is None


@pytest.mark.parametrize("memory", [0, -1])
async def test_a_memory_without_room_is_refused(memory: int) -> None:
    """In one sentence, when the subscription is made."""
    with pytest.raises(ConfigurationError, match="at least one delivery"):
        StreamChannel().subscribe(memory=memory)


# --- The channel that prints.


EXACT = [
    "He said \"no\" and 'yes', `maybe`.",
    "C:\\new\\table and \\n that is no line break",
    "first line\nsecond line\n\n\tindented",
    "🙂 👩‍👩‍👧‍👦 é — “quoted” … 日本語",
    '{"message": "not JSON, but words", "list": [1, 2, null]}',
    "<message_for_user>& not markup</message_for_user> **nor** this",
    "50% off {name} %s $HOME",
]


async def test_deliveries_are_printed_to_the_byte(database: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """B3, S20: quotes, backslashes, line breaks, emoji and text that looks like JSON, in order; and nothing else, not
    what the model thinks."""
    llm = ScriptedLlm([calls(*(call("talk", text=text) for text in EXACT)), reply("All said.")])

    async with Engine.open(database, model=llm, tools=[talk], channels=[TerminalChannel()]) as engine:
        await (await engine.create(policy=presets.talk())).send("Hi")

    assert capfdbinary.readouterr().out == "".join(f"{text}\n" for text in EXACT).encode()


async def test_it_works_beside_other_channels(database: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """S20: what another channel gets is also displayed, even if that one fails."""

    def breaks(delivery: Delivery) -> None:
        raise RuntimeError("no loudspeaker")

    channels = [RecordingChannel(breaks, name="speaker"), TerminalChannel()]

    async with Engine.open(database, model=ScriptedLlm([reply("Hello.")]), channels=channels) as engine:
        await (await engine.create()).send("Hi")

    assert capfd.readouterr().out == "Hello.\n"


async def test_control_characters_are_left_out() -> None:
    """A model cannot send commands to the terminal."""
    output = io.StringIO()

    await TerminalChannel(output).deliver(terminal_said("\x1b[2J\x1b]0;title\x07red\x1b[31m\x00 \x07plain"))

    assert output.getvalue() == "red plain\n"


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "é 🙂\n"), ("latin-1", "é ?\n"), ("ascii", "? ?\n")])
async def test_a_character_outside_the_encoding_is_a_question_mark(encoding: str, shown: str) -> None:
    """It is not an error: otherwise no later text would ever be delivered."""
    output = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")

    await TerminalChannel(output).deliver(terminal_said("é 🙂"))

    output.seek(0)
    assert output.read() == shown


async def test_an_output_without_an_encoding_takes_any_text() -> None:
    """The output only needs to be writable."""

    class Collector:
        text = ""

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None:
            pass

    output = Collector()

    await TerminalChannel(output).deliver(terminal_said("é 🙂"))  # type: ignore[arg-type]

    assert output.text == "é 🙂\n"


async def test_a_closed_output_fails_the_delivery(database: Path) -> None:
    """B4: the turn goes on, watchers learn of it, and the text stays in the outbox."""
    output = io.StringIO()
    output.close()

    async with Engine.open(
        database, model=ScriptedLlm([reply("Hello.")]), channels=[TerminalChannel(output)]
    ) as engine:
        turn = await (await engine.create()).send("Hi")
        (left,) = await engine.store.outbox(await engine.store.ids())

    assert (turn.status, turn.deliveries, left.target) == ("completed", ("Hello.",), "terminal")
