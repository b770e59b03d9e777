"""What happens in the conversations that an engine carried out: `assistant.db` and `speech.db`.

Each scene has an engine of its own, whose model follows the scene's script, and a clock that stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from turnwise import Conversation, Engine, Policy, presets
from turnwise.effects.channels.port import Delivery
from turnwise.states.policy import Limits, Questions, Retry
from turnwise.testing import ManualClock, RecordingChannel, ScriptedLlm, call, calls, failure, verdict

from ..support.pictures import GIF
from .participants import TOOLS

ASSISTANT = presets.assistant()


class Stage:
    """A database on which scenes are played, one after the other. Each conversation has its title as its id."""

    def __init__(self, database: Path) -> None:
        self.database = database
        self.clock = ManualClock()
        self.phone: Callable[[Delivery], Any] = lambda delivery: None

    @asynccontextmanager
    async def engine(self, *script: Any, **options: Any) -> AsyncIterator[Engine]:
        """An engine whose model gives these answers."""
        llm = ScriptedLlm(script, name="default")
        channels = [RecordingChannel(name="screen"), RecordingChannel(lambda each: self.phone(each), name="phone")]
        given: dict[str, Any] = {"model": llm, "tools": TOOLS, "channels": channels, "clock": self.clock, **options}
        async with Engine.open(self.database, **given) as engine:
            yield engine
        llm.assert_finished()

    @asynccontextmanager
    async def scene(self, title: str, *script: Any, policy: Policy = ASSISTANT, **chosen: Any) -> AsyncIterator[Any]:
        """A new conversation, in an engine whose model gives these answers."""
        async with self.engine(*script) as engine:
            yield await engine.create(conversation_id=id_of(title), title=title, policy=policy, **chosen)

    async def passes(self, seconds: float) -> None:
        """Let a deadline come."""
        await self.clock.until_asleep()
        await self.clock.advance(seconds)


def id_of(title: str) -> str:
    """The id of a conversation with this title."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in title.lower()).split())


async def until(conversation: Conversation, *states: str) -> None:
    """Wait until the conversation is in one of these states."""
    while conversation.state.type not in states:
        await asyncio.sleep(0.01)


async def never(request: Any) -> Any:
    """An answer that does not come."""
    await asyncio.Event().wait()


def ask(*questions: str) -> Any:
    """The model asks its user, with two answers to choose from."""
    options = [{"label": label, "description": "At the bar"} for label in ("6:30 PM", "8:15 PM")]
    asked = [{"question": each, "header": "Time", "options": options, "multiSelect": False} for each in questions]
    return call("ask_user_question", questions=asked)


# --- assistant.db


async def plain_turns(stage: Stage) -> None:
    """Copies of a conversation, one of which goes on."""
    async with stage.scene("Plain turns", "Good evening.", "So it is.", "In that case, no.") as conversation:
        await conversation.send("Hello")
        await conversation.send("It rains")
        await conversation.fork(request_id="copy")
        await (await conversation.fork(at=3, request_id="copy of the first turn")).send("Does it rain?")


async def tools(stage: Stage) -> None:
    """In a row, and side by side; one fails."""
    script = call("look", where="by the river"), call("taste"), call("note", text="hot"), "Done."
    async with stage.scene("Tools, one after the other", *script) as conversation:
        await conversation.send("Find a table")
    together = calls(call("look"), call("show_menu"), call("note", text="寿司"), call("taste"), text="Wait.")
    policy = ASSISTANT.replace(parallel=3)
    async with stage.scene("Tools, side by side", together, "Here.", policy=policy) as conversation:
        await conversation.send("All at once")


async def questions(stage: Stage) -> None:
    """Answered, declined, not answered in time, and left open."""
    script = ask("When?", "When else?"), "Booked.", ask("Again?")
    async with stage.scene("Questions, answered and declined", *script) as conversation:
        await conversation.send("A table")
        await conversation.answer({"When?": "6:30 PM", "When else?": "8:15 PM"})
        await conversation.send("And tomorrow")
        await conversation.decline()
    policy = ASSISTANT.replace(questions=Questions(deadline=60))
    async with stage.scene("Nobody answers in time", ask("When?"), "Another day.", policy=policy) as conversation:
        await conversation.send("A table")
        await stage.passes(60)
        await conversation.wait()
    async with stage.scene("A question that is still open", ask("When?")) as conversation:
        await conversation.send("A table")


async def approvals(stage: Stage) -> None:
    """Given, changed, denied, too late, and left open."""
    script = call("order", dish="soup"), "It comes.", call("order", dish="ice"), "It does not.", call("order", dish="x")
    async with stage.scene("Approvals, changed and denied", *script, "It comes, too.") as conversation:
        for arguments, allowed in (({"dish": "tea"}, True), (None, False), (None, True)):
            await conversation.send("Order something")
            call_id = conversation.state.call.call_id
            await conversation.approve(call_id, allowed, note="It is hot.", arguments=arguments)
    policy = ASSISTANT.replace(approval_deadline=60)
    script = call("order", dish="soup"), "Nobody allowed it."
    async with stage.scene("Nobody allows it in time", *script, policy=policy) as conversation:
        await conversation.send("Order something")
        await stage.passes(60)
        await conversation.wait()
    async with stage.scene("An approval that is still open", call("order", dish="soup")) as conversation:
        await conversation.send("Order something")


async def ends(stage: Stage) -> None:
    """Cancels, failures, limits, and what follows from them."""
    async with stage.scene("Cancelled, at every moment", _hangs(), ask("When?"), call("order", dish="soup")) as it:
        sending = asyncio.create_task(it.send("Wait"))
        await until(it, "llm_requesting")
        await it.cancel()
        await sending
        for _ in range(2):
            await it.send("Ask")
            await it.cancel()
    broken = failure("rate_limit", retry_after=5), failure("authentication"), "At last."
    async with stage.scene("Failed, and tried again", *broken, policy=ASSISTANT.replace(retry=Retry())) as it:
        sending = asyncio.create_task(it.send("Hello"))
        await stage.passes(60)
        await sending
        await it.retry()
    async with stage.scene("Failed, and left so", failure("no_credit")) as it:
        await it.send("Hello")
    policy = ASSISTANT.replace(limits=Limits(requests=2, tool_calls=1))
    script = call("look"), call("look"), ""
    async with stage.scene("At the limits, and without an answer", *script, policy=policy) as it:
        for text in ("Search", "Say nothing"):
            await it.send(text)
    options = {"fallback_models": [ScriptedLlm(["I stand in."], name="second")]}
    async with stage.engine(failure("authentication"), **options) as engine:
        it = await engine.create(conversation_id="fallback", title="Another model stands in")
        await it.send("Hello")


def _hangs() -> Awaitable[Any]:
    return never(None)


async def messages(stage: Stage) -> None:
    """During a turn, and with images."""
    gate = asyncio.Event()

    async def held() -> Any:
        await gate.wait()
        return call("look")

    async with stage.scene("Messages during a turn", held(), "Both.", "The third.") as it:
        tasks = [asyncio.create_task(it.send("One"))]
        await until(it, "llm_requesting")
        for text, way in (("Two", "steer"), ("Three", "queue"), ("Four", "queue")):
            tasks.append(asyncio.create_task(it.send(text, message_id=text, when_busy=way)))
            while text not in {waiting.event_id for waiting in it.state.inbox}:
                await asyncio.sleep(0.01)
        await it.withdraw("Four")
        gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
    async with stage.scene("Images", "A bowl.", call("show_menu"), "A menu.") as it:
        await it.send("What is this?", files=[GIF])
        await it.send("And the menu?")


async def changes(stage: Stage) -> None:
    """Condensed, and other rules on the way."""
    full = failure("context_window")
    script = "A long story.", "They talked.", "It went on.", full, "They talked on.", "Briefly."
    async with stage.scene("Condensed, by hand and for lack of room", *script) as it:
        await it.send("Tell")
        await it.compact()
        await it.send("Go on")
        await it.send("And then?")
    async with stage.scene("Changed on the way", "One.", "Two.", owner="Ada", metadata={"table": 7}) as it:
        await it.send("Hello")
        await it.set_policy(ASSISTANT.replace(when_busy="queue", parallel=2))
        await it.set_tools(["look"])
        await it.set_title("Changed, and changed again")
        await it.set_metadata({"table": 8, "late": True})
        await it.set_schedule(cron="0 9 * * *", zone="Europe/Berlin", task="Look again.")
        await it.send("Hello again")
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Before"},
        {"role": "assistant", "content": "That was elsewhere."},
    ]
    async with stage.scene("It began elsewhere", "Yes.", messages=history) as it:
        await it.send("Do you remember?")


async def closings(stage: Stage) -> None:
    """Closed, deleted, and never spoken to."""
    async with stage.scene("Closed at rest", "Bye.") as it:
        await it.send("Goodbye")
        await it.close()
    async with stage.scene("Closed while the model was asked", _hangs(), policy=presets.foreground()) as it:
        sending = asyncio.gather(it.send("Wait"), return_exceptions=True)
        await until(it, "llm_requesting")
        await it.close()
        await sending
    async with stage.engine("Yes.") as engine:
        original = await engine.create(conversation_id="original")
        await original.send("Hello")
        await original.fork(request_id="what outlived it")
        await engine.delete("original")
        await engine.create(conversation_id="silent", title="Never spoken to")


async def agents(stage: Stage) -> None:
    """Agents that write to each other, and sub-agents."""
    script = call("delegate", tasks=["Look north", "Look south"]), "Nothing.", "A table.", "South it is."
    async with stage.scene("Sub-agents, that found something", *script, policy=presets.foreground()) as it:
        await it.send("Look everywhere")
    async with stage.engine(call("write", target="reads", text="Done."), "", "I hear.") as engine:
        reads = await engine.create(conversation_id="reads", title="Reads mail", policy=presets.foreground())
        writes = await engine.create(
            role="background", works_for="reads", conversation_id="writes", title="Writes mail", owner=reads.owner
        )
        await writes.send("Build it")
        while (await reads.updated_at()) and len(await reads.events()) < 3:
            await asyncio.sleep(0.01)
        await until(reads, "idle")
        await engine.delivered()


# --- speech.db


async def speeches(stage: Stage) -> None:
    """What the user hears: at once, at the end, checked, summarized."""
    script = call("talk", message="One moment."), call("look"), call("talk", message="Here."), "They are pleased."
    async with stage.scene("Talk: heard at once", *script, policy=presets.talk()) as it:
        await it.send("A table")
    explicit = presets.explicit_response()
    claim, says = call("mark_work_complete", summary="Booked."), call("respond_to_user", text="Booked for 6:30 PM.")
    script = says, claim, verdict(False, "No table was looked for."), call("look"), says, claim, verdict(True)
    async with stage.scene("Explicit: the check fails, then passes", *script, policy=explicit) as it:
        await it.send("A table")
    script = "I think so.", says, claim, verdict(True)
    async with stage.scene("Explicit: the model is nudged", *script, policy=explicit) as it:
        await it.send("A table")
    policy = explicit.replace(summarize=True, verify=0)
    async with stage.scene("Explicit: summarized for display", says, claim, "A table.", policy=policy) as it:
        await it.send("A table")
    flow = presets.reply_flow()
    async with stage.scene(
        "Reply flow: no router and no memory", "TOOL\nHello.", "weather", "It rains.", policy=flow
    ) as it:
        await it.send("Hello, my key is sk-0123456789abcdef0123456789abcdef0123456789abcdef")
        await it.send("And the weather?")
    async with stage.scene("Reply flow: a reply whatever fails", failure("authentication"), policy=flow) as it:
        await it.send("Hello")


async def deliveries(stage: Stage) -> None:
    """What the phone took, and what it did not: it lies in the outbox."""
    taken: list[Delivery] = []

    def once(delivery: Delivery) -> None:
        if taken:
            raise ConnectionError("The line is dead.")
        taken.append(delivery)

    stage.phone = once
    texts = [call("talk", message=text) for text in ("One.", "Two.", "Three.")]
    title = "In the outbox: the phone took the first of three"
    async with stage.scene(title, *texts, "That was all.", policy=presets.talk()) as it:
        await it.send("Count")
    lost = RecordingChannel(_refuse, name="retired")
    async with stage.engine("Hello?", channels=[lost]) as engine:
        it = await engine.create(conversation_id="retired", title="In the outbox: for a channel that is gone")
        await it.send("Hello")


def _refuse(delivery: Delivery) -> None:
    raise ConnectionError("Nobody is there.")


SCENES = {
    "assistant": (plain_turns, tools, questions, approvals, ends, messages, changes, closings, agents),
    "speech": (speeches, deliveries),
}
"""The scenes of each database."""


async def play(name: str, database: Path) -> None:
    """Write the database of this name."""
    stage = Stage(database)
    for scene in SCENES[name]:
        await scene(stage)
