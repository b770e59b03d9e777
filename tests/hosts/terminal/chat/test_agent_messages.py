"""A chat in which something happens while its prompt waits: other agents write, and questions come and go."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from turnwise import Clock, Conversation, Engine, Llm, Policy, Questions, SubAgentRules, presets, tool
from turnwise.effects.model.rehearsal import RehearsalLlm
from turnwise.hosts.terminal.chat.dialogue import Dialogue, open_dialogue
from turnwise.hosts.terminal.chat.screen import Screen
from turnwise.hosts.terminal.chat.user_input import NO_COMMANDS, OWN_WORDS, Answer, Commands, FreeTextOption
from turnwise.hosts.terminal.output.writer import TerminalWriter
from turnwise.states import AgentMessage
from turnwise.states.values.questions import UserQuestion
from turnwise.testing import ManualClock, ScriptedLlm, call, reply

OPTIONS = [{"label": "Now"}, {"label": "Later"}]
ASKS = call("ask_user_question", questions=[{"question": "When?", "options": OPTIONS}])


class TypingUser:
    """A user who types what a test puts into `lines`, and notes what is asked."""

    def __init__(self) -> None:
        self.commands: Commands = NO_COMMANDS
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self.asked: asyncio.Queue[str] = asyncio.Queue()

    async def next_message(self) -> str | None:
        """Return the next line."""
        return await self.lines.get()

    async def answer(self, question: UserQuestion, free_text: FreeTextOption | None = OWN_WORDS) -> Answer | None:
        """Return the next line."""
        self.asked.put_nowait(question.question)
        return await self.lines.get()

    def on_interrupt(self) -> bool:
        """Nobody presses Ctrl-C."""
        return False


class Chatting:
    """A chat with a model of fixed answers."""

    def __init__(self, conversation: Conversation, dialogue: Dialogue, user: TypingUser) -> None:
        self.conversation = conversation
        self.dialogue = dialogue
        self.user = user

    async def agent_writes(self, text: str, number: int = 1) -> None:
        """Another agent has something for the user."""
        fields = {"event_id": f"mail-{number}", "at": datetime.now(UTC), "origin": "builder", "audience": "user"}
        await self.conversation.dispatch(AgentMessage(text=text, **fields))


@asynccontextmanager
async def chatting(
    llm: Llm,
    policy: Policy | None = None,
    clock: Clock | None = None,
    *,
    tools: Iterable[Any] = (),
    thoughts: bool = False,
) -> AsyncIterator[Chatting]:
    """Open a chat over a database in memory. What it shows goes to stdout."""
    user, screen = TypingUser(), Screen(TerminalWriter(interactive=False), thoughts=thoughts)
    used = ["ask_user_question", *tools]
    async with Engine.open("sqlite://", model=llm, tools=used, clock=clock or ManualClock()) as engine:
        conversation = await engine.create(policy=policy or presets.assistant())
        async with open_dialogue(conversation, screen, user) as dialogue:
            yield Chatting(conversation, dialogue, user)


class TestWhileThePromptWaits:
    """D7, D12: the user sees what the model says, and can be asked."""

    async def test_what_the_model_makes_of_a_message_is_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Apart from what was shown before; the message itself is for the model."""
        async with chatting(ScriptedLlm([reply("Your files are ready.")])) as chat:
            await chat.agent_writes("3 files: a, b, c")
            await chat.conversation.wait()
            await chat.dialogue.wait_until_shown()

        assert capsys.readouterr().out == "\nYour files are ready.\n"

    async def test_with_the_thoughts_the_message_is_shown_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        """With the agent that wrote it."""
        async with chatting(ScriptedLlm([reply("Your files are ready.")]), thoughts=True) as chat:
            await chat.agent_writes("3 files")
            await chat.conversation.wait()
            await chat.dialogue.wait_until_shown()

        assert capsys.readouterr().out == "\n  builder: 3 files\nYour files are ready.\n"

    async def test_a_question_ends_the_prompt(self) -> None:
        """The user is asked; what is typed afterwards is the answer."""
        async with chatting(ScriptedLlm([ASKS, reply("Now, then.")])) as chat:
            reading = asyncio.create_task(chat.dialogue.next_message())
            await chat.agent_writes("Your files are ready.")

            assert await reading == ""
            chat.user.lines.put_nowait("Now")
            await chat.dialogue.ask()
            (turn,) = await chat.conversation.turns()
            assert turn.reply == "Now, then."

    async def test_a_message_of_the_user_waits_for_the_turn_of_an_agents_message(self) -> None:
        """Also where the rules refuse messages during a turn: the user cannot know of that turn."""
        async with chatting(ScriptedLlm([reply("Your files are ready."), reply("You are welcome.")])) as chat:
            await chat.agent_writes("3 files")

            await chat.dialogue.send("Thank you")

            assert [turn.reply for turn in await chat.conversation.turns()] == [
                "Your files are ready.",
                "You are welcome.",
            ]

    async def test_a_question_that_comes_before_the_message_is_asked_first(self) -> None:
        """The message waits behind it, and the chat does not wait for the message."""
        async with chatting(ScriptedLlm([ASKS, reply("Now, then."), reply("Hello!")])) as chat:
            await chat.agent_writes("3 files")

            await chat.dialogue.send("Hello")
            chat.user.lines.put_nowait("Now")
            await chat.dialogue.ask()

            assert [turn.reply for turn in await chat.conversation.turns()] == ["Now, then.", "Hello!"]


class TestAQuestionThatIsNoLongerAsked:
    """The menu disappears, and nothing is answered or cancelled."""

    async def test_it_disappears_at_its_deadline(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The model goes on without an answer."""
        clock, policy = ManualClock(), Policy(questions=Questions(deadline=60))
        async with chatting(ScriptedLlm([ASKS, reply("I choose myself.")]), policy, clock) as chat:
            await chat.dialogue.send("Hello")
            asking = asyncio.create_task(chat.dialogue.ask())
            assert await chat.user.asked.get() == "When?"

            await clock.until_asleep()
            await clock.advance(60)
            await asking

            (turn,) = await chat.conversation.turns()
            assert (turn.status, turn.reply) == ("completed", "I choose myself.")
        assert sorted(capsys.readouterr().out.splitlines()) == ["  This is no longer asked.", "I choose myself."]


async def test_a_request_that_shows_nothing_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    """A new title changes nothing that is shown, also while a question waits, and the chat goes on."""
    async with asyncio.timeout(20), chatting(ScriptedLlm([ASKS, reply("Now, then.")])) as chat:
        await chat.dialogue.perform(chat.conversation.set_title("Tables"))
        await chat.dialogue.send("Hello")
        await chat.dialogue.perform(chat.conversation.set_title("Chairs"))
        chat.user.lines.put_nowait("Now")
        await chat.dialogue.ask()

        assert chat.conversation.title == "Chairs"
    assert capsys.readouterr().out == "Now, then.\n"


@tool(crash="pure")
async def find_paper(topic: str) -> list[str]:
    """Look for papers on a topic."""
    return [f"{topic} and the Moon", f"{topic} in harbours"]


async def test_questions_of_sub_agents_are_asked_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    """P20: each with the task of the sub-agent that asks, and each answer goes to that one."""
    rules = Policy(sub_agents=SubAgentRules(questions="ask_user"))
    async with chatting(RehearsalLlm(delay=0), rules, tools=[find_paper, "spawn_agents"]) as chat:
        await chat.dialogue.send("Look for a paper on: Tides and Winds")
        while chat.dialogue.waits_for_user:
            chat.user.lines.put_nowait("My own choice")
            await chat.dialogue.ask()

    shown = capsys.readouterr().out
    asked = re.findall("Asked by a sub-agent: Look for a paper on: (\\w+)", shown)
    assert (sorted(asked), chat.user.asked.qsize()) == (["Tides", "Winds"], 2)
    assert "Tides: You chose My own choice.\nWinds: You chose My own choice." in shown
