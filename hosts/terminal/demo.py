"""`turnwise demo`: a conversation with two tools and a question, and then what was stored of it.

It needs no key and no network, and without a terminal no user. Its tools have a short path because users name them on
the command line: `--tools turnwise.hosts.terminal.demo:find_table`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ...effects.tools.tool import tool
from ...engine.conversation import Conversation
from ...engine.updates import updates_of_log
from ...states.states import Idle
from ...states.values.questions import UserQuestion
from .chat.chat import open_engine, open_writer, screen_for, speech_for, steps_shown
from .chat.dialogue import Dialogue, open_dialogue
from .chat.user_input import (
    NO_COMMANDS,
    OWN_WORDS,
    Answer,
    CommandEntered,
    CommandHelp,
    Commands,
    FreeTextOption,
    UserInput,
    no_turn,
    question_lines,
)
from .commands.database import replay_report
from .configuration import Settings, command_line, options_for, preset_of, with_required_tools
from .output.event_lines import event_lines
from .output.lines import INTERRUPTED
from .output.writer import TerminalWriter

_DURATION = 0.4
"""How many seconds a tool takes, so that users see it run."""


@tool(crash="pure")
async def find_table(cuisine: str, time: str, party: int) -> list[dict[str, str]]:
    """Look for free tables at restaurants nearby."""
    await asyncio.sleep(_DURATION)
    return [
        {"restaurant": "Kikunoi", "when": "6:30 PM", "seats": f"{party} at the counter"},
        {"restaurant": "Nobu", "when": "8:15 PM", "seats": f"{party} by the window"},
    ]


@tool(crash="pure")
async def check_weather(day: str) -> str:
    """Look up the weather."""
    await asyncio.sleep(_DURATION)
    return f"Rain {day} from 7 PM on, 14 °C."


MESSAGE = "A table for two tonight, somewhere Japanese, and will I need an umbrella?"

SYSTEM = (
    "You help people to go out. Look for tables, and at the weather if you are asked about it. Where there is more "
    "than one table, let the user choose with ask_user_question; then answer in two or three sentences."
)

NOT_ANSWERED = 1
"""The exit code of a demo that ended without an answer."""

_MODULE = "turnwise.hosts.terminal.demo"
TOOLS = f"{_MODULE}:find_table,{_MODULE}:check_weather,ask_user_question"
"""The tools of the demo, as `--tools` names them."""


async def demo(settings: Settings, *, keep: bool) -> int:
    """Hold the conversation and show what it left behind. With `keep` it stays in the database of the settings.

    Returns the exit code. Raises `TurnwiseError` if the conversation cannot begin.
    """
    policy = preset_of(settings)
    tools = with_required_tools(settings.tools, policy)
    settings = settings.model_copy(update={"tools": tools})
    with open_writer(settings) as writer, steps_shown(settings, policy, writer), _database(settings, keep) as settings:
        speech = speech_for(settings, writer)
        async with open_engine(settings, writer, [find_table, check_weather, "ask_user_question"], speech) as engine:
            writer.note(f"A conversation with two tools and a question; the model is {settings.model}.\n")
            conversation = await engine.create(system=SYSTEM)
            screen, known = screen_for(conversation, settings, writer, echo=True), engine.choices.tool_registry
            async with open_dialogue(conversation, screen, _user_input(writer), speech, known) as dialogue:
                await _converse(dialogue)
            if dialogue.user_left:
                return INTERRUPTED
            answered = await _is_answered(conversation)
            await _show_log(conversation, writer)
    _suggest(writer, settings)
    return 0 if answered else NOT_ANSWERED


@contextmanager
def _database(settings: Settings, keep: bool) -> Iterator[Settings]:
    """Yield the settings as they are, or with a database that is removed at the end."""
    if keep:
        yield settings
        return
    with TemporaryDirectory(prefix="turnwise-") as folder:
        yield settings.model_copy(update={"db": str(Path(folder) / "demo.db")})


def _user_input(writer: TerminalWriter) -> UserInput:
    if not writer.interactive:
        return FirstOption(writer)
    from .chat.menus import Keyboard

    return Keyboard(writer)


class FirstOption:
    """Stands in for a user where there is no terminal: chooses the first option of each question, and declines to
    answer one without options."""

    def __init__(self, writer: TerminalWriter) -> None:
        self.commands: Commands = NO_COMMANDS
        self.stop_turn: Callable[[], bool] = no_turn
        self._writer = writer

    async def next_message(self) -> None:
        """Return None: there are no messages."""

    async def answer(self, question: UserQuestion, free_text: FreeTextOption | None = OWN_WORDS) -> Answer | None:
        """Return the first option of the question, and write that it was chosen."""
        self._writer.line(question_lines(question))
        if not question.options:
            self._writer.note("  There is no terminal to ask at, so the demo gives no answer.")
            return None
        first = question.options[0].label
        self._writer.note(f"  There is no terminal to ask at, so the demo takes the first option: {first}")
        return [first] if question.multi_select else first

    def on_interrupt(self) -> bool:
        """Leave at once."""
        return True


async def _converse(dialogue: Dialogue) -> None:
    dialogue.user_input.commands = {"/quit": CommandHelp("leave")}
    await dialogue.perform(dialogue.conversation.send(MESSAGE))
    while dialogue.waits_for_user:
        try:
            await dialogue.ask()
        except (EOFError, CommandEntered):
            return


async def _is_answered(conversation: Conversation) -> bool:
    return isinstance(conversation.state, Idle) and all(
        turn.status == "completed" for turn in await conversation.turns()
    )


async def _show_log(conversation: Conversation, writer: TerminalWriter) -> None:
    """Write what was stored: the states, the events, and the outcome of a replay."""
    entries = await conversation.events()
    states = [update.data["type"] for update in updates_of_log(entries) if update.type == "state_change"]
    writer.heading("The states it went through")
    writer.line(" → ".join(["idle", *states]))
    writer.heading("The events as stored")
    for line in event_lines(entries):
        writer.row(line)
    report = await conversation.replay()
    writer.heading("The same events, replayed")
    writer.line(replay_report(report.events, report.divergence))


def _suggest(writer: TerminalWriter, settings: Settings) -> None:
    """Write commands to continue with, under the same preset and with the same display."""
    options = options_for(settings, "preset", "profile", "thoughts", "speak")
    openai = command_line("chat", "--model", "openai/gpt-4.1-mini", *options)
    writer.heading("What to do next")
    for description, command in {
        "Talk to the rehearsal model yourself, about tables and the weather:": command_line(
            "chat", "--tools", TOOLS, *options
        ),
        "Talk to a real model:": f"OPENAI_API_KEY=… {openai}",
        "Or to one that runs on this computer:": command_line("chat", "--model", "ollama/llama3.2", *options),
    }.items():
        writer.line(description)
        writer.copyable(f"    {command}")
