"""A first look: one conversation with two tools and a question, and then what was stored of it.

It runs without a key, without a network and, where nobody sits at a terminal, without a person.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ....engine.conversation import Conversation
from ....engine.watching import history
from ....states.states import Idle
from ....states.values.questions import UserQuestion
from ..chat.dialogue import Dialogue, dialogue
from ..chat.piped_input import asked
from ..chat.session import engine_for, pen_for_stdout, screen_for, speech_for, with_needed_tools
from ..chat.user_input import OTHER, Answer, Commanded, Other, UserInput
from ..configuration.command_lines import command, options_of
from ..configuration.presets import preset_named
from ..configuration.settings import Settings
from ..demo import check_weather, find_table
from ..output.error_messages import INTERRUPTED
from ..output.event_lines import event_lines
from ..output.writer import TerminalWriter
from .replay_results import verdict

MESSAGE = "A table for two tonight, somewhere Japanese, and will I need an umbrella?"

SYSTEM = (
    "You help people to go out. Look for tables, and at the weather if you are asked about it. Where there is more "
    "than one table, let the user choose with ask_user_question; then answer in two or three sentences."
)

NOT_ANSWERED = 1
"""The exit code of a demo that did not come to an answer."""


async def demo(settings: Settings, *, keep: bool) -> int:
    """Hold the conversation and show what it left behind; with `keep` in the database of the settings.

    Returns the exit code. Raises `TurnwiseError` for what cannot be begun.
    """
    settings = with_needed_tools(settings, preset_named(settings.preset))
    with pen_for_stdout() as pen, _database(settings, keep) as settings:
        speech = speech_for(settings, pen)
        async with engine_for(settings, pen, [find_table, check_weather, "ask_user_question"], speech) as engine:
            pen.note(f"A conversation with two tools and a question; the model is {settings.model}.\n")
            conversation = await engine.create(system=SYSTEM)
            person = _person(pen)
            screen = screen_for(conversation, settings, pen, echo=True)
            async with dialogue(conversation, screen, person, speech) as led:
                await _converse(led)
            if led.left:
                return INTERRUPTED
            answered = await _answered(conversation)
            await _look_back(conversation, pen)
    _look_ahead(pen, settings)
    return 0 if answered else NOT_ANSWERED


@contextmanager
def _database(settings: Settings, keep: bool) -> Iterator[Settings]:
    """The settings as they are, or with a database that is removed in the end."""
    if keep:
        yield settings
        return
    with TemporaryDirectory(prefix="turnwise-") as folder:
        yield settings.model_copy(update={"db": str(Path(folder) / "demo.db")})


def _person(pen: TerminalWriter) -> UserInput:
    if not pen.lively:
        return Nobody(pen)
    from ..chat.keyboard import Keyboard

    return Keyboard(pen)


class Nobody:
    """Stands in for a person where there is none: takes the first option, and says so."""

    def __init__(self, pen: TerminalWriter) -> None:
        self.commands: Collection[str] = ()
        self._pen = pen

    async def says(self) -> None:
        """Nothing."""

    async def answer(self, question: UserQuestion, other: Other | None = OTHER) -> Answer:
        """The first option of the question."""
        first = question.options[0].label
        self._pen.line(asked(question))
        self._pen.note(f"  There is no terminal to ask at, so the demo takes the first option: {first}")
        return [first] if question.multi_select else first

    def interrupted(self) -> bool:
        """Nobody stays."""
        return True


async def _converse(led: Dialogue) -> None:
    led.person.commands = {"/quit"}
    await led.hold(led.conversation.send(MESSAGE))
    while led.asks:
        try:
            await led.ask()
        except (EOFError, Commanded):
            return


async def _answered(conversation: Conversation) -> bool:
    return isinstance(conversation.state, Idle) and all(
        turn.status == "completed" for turn in await conversation.turns()
    )


async def _look_back(conversation: Conversation, pen: TerminalWriter) -> None:
    """What the conversation left behind, read from the database."""
    entries = await conversation.events()
    moves = [update.data["type"] for update in history(entries) if update.type == "state_change"]
    pen.heading("The states it went through")
    pen.line(" → ".join(["idle", *moves]))
    pen.heading("The events as stored")
    for line in event_lines(entries):
        pen.row(line)
    report = await conversation.replay()
    pen.heading("The same events, taken through the machine again")
    pen.line(verdict(report.events, report.divergence))


_HERE = "turnwise.hosts.terminal.demo"
TOOLS = f"{_HERE}:find_table,{_HERE}:check_weather,ask_user_question"
"""The tools of the demo, as `--tools` names them."""


def _look_ahead(pen: TerminalWriter, settings: Settings) -> None:
    options = options_of(settings, "preset", "thoughts", "speak")
    pen.heading("What to do next")
    for what, how in {
        "Talk with the rehearsal yourself, about tables and the weather:": command("chat", "--tools", TOOLS, *options),
        "Talk with a real model:": f"OPENAI_API_KEY=… {command('chat', '--model', 'openai/gpt-4.1-mini', *options)}",
        "Or with one that runs on this computer:": command("chat", "--model", "ollama/llama3.2", *options),
    }.items():
        pen.line(what)
        pen.command(f"    {how}")
