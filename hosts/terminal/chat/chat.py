"""A conversation at a terminal, or through a pipe: one message after the other, until the user leaves."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ....effects.channels.speech.channel import SpeechChannel
from ....engine.conversation import Conversation
from ....engine.engine import Engine
from ....engine.projection import ConversationProjection
from ....persistence.records.summary import Summary
from ....states.errors import ConfigurationError, TurnwiseError
from ....states.events import HistoryCompacted
from ....states.policy.policy import Policy
from ....states.states import Failed
from ....states.values.messages import Message
from ..configuration.command_lines import way_back
from ..configuration.databases import store_to_change
from ..configuration.presets import preset_named
from ..configuration.settings import Settings
from ..configuration.tools import tools_missing
from ..output.error_messages import INTERRUPTED
from ..output.event_lines import event_lines
from ..output.printable import counted, one_line
from ..output.writer import DIM, TerminalWriter
from .dialogue import Dialogue, dialogue
from .session import engine_for, pen_for_stdout, screen_for, speech_for, with_needed_tools
from .user_input import Commanded, UserInput, command_in

FAILED = 1
"""The exit code of a chat through a pipe that ends with a turn that failed."""

_LIKE_A_COMMAND = re.compile(r"/[a-z]+")


async def chat(settings: Settings, conversation_id: str | None, resume: bool) -> int:
    """Hold a conversation: a new one, the one with this id, or with `resume` the one that moved last.

    Returns the exit code. Raises `TurnwiseError` for what cannot be begun.
    """
    policy = preset_named(settings.preset)
    if resume or conversation_id is not None:
        conversation_id, policy = await _stored(settings, conversation_id)
    equipped = with_needed_tools(settings, policy)
    with pen_for_stdout() as pen:
        speech = speech_for(settings, pen)
        async with engine_for(equipped, pen, speech=speech) as engine:
            conversation = await _conversation(engine, settings, conversation_id)
            return await _hold(conversation, settings, equipped.tools, pen, speech)


async def _stored(settings: Settings, conversation_id: str | None) -> tuple[str, Policy]:
    """The id of a stored conversation, with None of the one that moved last, and its rules: an engine must have the
    tools that these need before it takes the conversation up."""
    async with store_to_change(settings) as store:
        if conversation_id is None:
            conversation_id = _newest(await store.list())
        loaded = await store.load(conversation_id)
    return conversation_id, ConversationProjection(loaded.state, loaded.entries).context.policy


def _newest(summaries: Iterable[Summary]) -> str:
    for summary in summaries:
        return summary.id
    raise ConfigurationError("There is no conversation to go on with.")


async def _conversation(engine: Engine, settings: Settings, conversation_id: str | None) -> Conversation:
    if conversation_id is None:
        return await engine.create(system=settings.system)
    return await engine.get(conversation_id)


async def _hold(
    conversation: Conversation,
    settings: Settings,
    tools: Iterable[str],
    pen: TerminalWriter,
    speech: SpeechChannel | None,
) -> int:
    said = await conversation.transcript()
    back = way_back(conversation.id, settings)
    if not pen.lively:  # a script must know it whatever happens next; a person reads it when it is of use
        pen.command(back, DIM)
    if missing := tools_missing(tools, said):
        pen.note(f"Tools that this conversation used are missing now: {', '.join(missing)}. Name them with --tools.")
    person = _person(conversation, pen, said, speech)
    async with dialogue(conversation, screen_for(conversation, settings, pen), person, speech) as led:
        await Chat(led, settings).run()
    return _part(conversation, led, back)


def _part(conversation: Conversation, led: Dialogue, back: str) -> int:
    """The last words, and the exit code."""
    pen, in_the_middle = led.screen.pen, led.left and conversation.state.works
    if in_the_middle:
        pen.note("You left in the middle of a turn; it goes on when you come back.")
    if pen.lively:
        pen.command(back, DIM)
        return INTERRUPTED if in_the_middle else 0
    if led.left:
        return INTERRUPTED
    return FAILED if isinstance(conversation.state, Failed) else 0


def _person(
    conversation: Conversation, pen: TerminalWriter, said: Iterable[Message], speech: SpeechChannel | None
) -> UserInput:
    if pen.lively:
        from .keyboard import Keyboard

        pen.note(f"The model is {one_line(conversation.policy.models[0].name)}.")
        pen.note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.")
        lines = [message.text for message in said if message.role == "user" and message.text]
        return Keyboard(pen, lines, speech)
    from .piped_input import Lines

    return Lines(pen)


class Chat:
    """What the user types, until there is no more of it: messages, answers, commands."""

    def __init__(self, led: Dialogue, settings: Settings) -> None:
        self._led = led
        self._settings = settings
        self._conversation = led.conversation
        self._pen = led.screen.pen
        self._ended = False
        self._commands: Mapping[str, Callable[[], Awaitable[None]]] = {
            "/state": self._state,
            "/events": self._events,
            "/retry": self._retry,
            "/compact": self._compact,
            "/fork": self._fork,
            "/help": self._help,
            "/quit": self._quit,
        }
        led.person.commands = self._commands.keys()

    async def run(self) -> None:
        """Go on until the user leaves; what goes on already, after a crash, comes first."""
        await self._led.follow()
        while not self._ended:
            try:
                await self._go_on()
            except TurnwiseError as error:
                self._pen.line(error.sentence, "red")

    async def _go_on(self) -> None:
        if self._led.asks:
            await self._ask()
            return
        if isinstance(self._conversation.state, Failed):
            self._pen.note("/retry tries again; a message goes on from here.")
        text = await self._led.person.says()
        if text is None:
            self._ended = True
        elif command_in(text, self._commands) or _LIKE_A_COMMAND.fullmatch(text.strip()):
            await self._obey(text.strip())
        else:
            await self._led.hold(self._conversation.send(text))

    async def _ask(self) -> None:
        try:
            await self._led.ask()
        except Commanded as command:
            await self._obey(command.line.strip())
        except EOFError:
            self._ended = True
        if self._ended:
            self._pen.note("The question stays open.")

    # --- commands

    async def _obey(self, line: str) -> None:
        command = self._commands.get(line)
        if command is not None:
            await command()
        elif known := command_in(line, self._commands):
            self._pen.line(f"{known} takes nothing behind it.", "red")
        else:
            self._pen.line("There is no such command; /help lists those that there are.", "red")

    async def _state(self) -> None:
        """where the conversation rests"""
        state = self._conversation.state
        turns, events = counted(state.book.turn, "turn"), counted(state.book.seq, "event")
        self._pen.line(f"{state.type}, after {turns} and {events}")

    async def _events(self) -> None:
        """what happened, as it is stored"""
        for line in event_lines(await self._conversation.events()):
            self._pen.row(line)

    async def _retry(self) -> None:
        """try a turn again that failed"""
        if not isinstance(self._conversation.state, Failed):
            self._pen.line("There is no failed turn to try again.", "red")
            return
        await self._led.hold(self._conversation.retry())

    async def _compact(self) -> None:
        """condense what was said, to make room for more"""
        await self._led.hold(self._conversation.compact())
        newest = (await self._conversation.events())[-1].event
        done = isinstance(newest, HistoryCompacted)
        self._pen.note("Condensed; the log keeps everything." if done else "Stopped; nothing was condensed.")

    async def _fork(self) -> None:
        """copy the conversation up to here; this one goes on"""
        copy = await self._conversation.fork()
        self._pen.line(f"Forked at step {copy.state.book.seq}.")
        self._pen.command(way_back(copy.id, self._settings, called="the copy"), DIM)

    async def _help(self) -> None:
        """this list"""
        for name, command in self._commands.items():
            self._pen.line(f"{name:<10}{command.__doc__}")
        self._pen.line("Anything else is said to the model.")

    async def _quit(self) -> None:
        """leave; the conversation is kept"""
        self._ended = True
