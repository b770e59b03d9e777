"""A conversation at a terminal, or through a pipe: one message after the other, until the user leaves."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ...engine.conversation import Conversation
from ...engine.engine import Engine
from ...states.errors import ConfigurationError, TurnwiseError
from ...states.messages import Message
from ...states.states import Failed
from .dialogue import Dialogue, dialogue
from .event_lines import event_lines
from .faults import INTERRUPTED
from .pen import Pen
from .person import Person
from .screen import Screen
from .session import engine_for, pen_for_stdout, way_back
from .settings import Settings

FAILED = 1
"""The exit code of a chat through a pipe that ends with a turn that failed."""

_COMMAND = re.compile(r"/[a-z]+")


async def chat(settings: Settings, conversation_id: str | None, resume: bool) -> int:
    """Hold a conversation: a new one, the one with this id, or with `resume` the one that moved last.

    Returns the exit code. Raises `TurnwiseError` for what cannot be begun.
    """
    with pen_for_stdout() as pen:
        async with engine_for(settings, pen) as engine:
            conversation = await _conversation(engine, settings, conversation_id, resume)
            return await _hold(conversation, settings, pen)


async def _conversation(engine: Engine, settings: Settings, conversation_id: str | None, resume: bool) -> Conversation:
    if conversation_id is None and not resume:
        return await engine.create(system=settings.system)
    if conversation_id is None:
        conversation_id = await _newest(engine)
    return await engine.get(conversation_id)


async def _newest(engine: Engine) -> str:
    for summary in await engine.list():
        return summary.id
    raise ConfigurationError("There is no conversation to go on with.")


async def _hold(conversation: Conversation, settings: Settings, pen: Pen) -> int:
    back = way_back(conversation.id, settings)
    pen.note(back)
    person = _person(pen, await conversation.transcript())
    async with dialogue(conversation, Screen(pen, thoughts=settings.thoughts), person) as led:
        await Chat(led, settings).run()
    return _part(conversation, led, back)


def _part(conversation: Conversation, led: Dialogue, back: str) -> int:
    """The last words, and the exit code."""
    pen = led.screen.pen
    if led.left and conversation.state.works:
        pen.note("You left in the middle of a turn; it goes on when you come back.")
    if pen.lively and not (led.left and conversation.state.works):
        pen.note(back)
        return 0
    if led.left:
        return INTERRUPTED
    return FAILED if isinstance(conversation.state, Failed) else 0


def _person(pen: Pen, said: Iterable[Message]) -> Person:
    if pen.lively:
        from .keyboard import Keyboard

        pen.note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.")
        return Keyboard(pen, [message.text for message in said if message.role == "user" and message.text])
    from .lines import Lines

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
        elif _COMMAND.fullmatch(text.strip()):
            await self._commands.get(text.strip(), self._unknown)()
        else:
            await self._led.hold(self._conversation.send(text))

    async def _ask(self) -> None:
        try:
            await self._led.ask()
        except EOFError:
            self._ended = True
            self._pen.note("The question stays open.")

    # --- commands

    async def _state(self) -> None:
        """where the conversation rests"""
        state = self._conversation.state
        self._pen.line(f"{state.type}, after {state.book.turn} turns and {state.book.seq} events")

    async def _events(self) -> None:
        """what happened, as it is stored"""
        for line in event_lines(await self._conversation.events()):
            self._pen.row(line)

    async def _retry(self) -> None:
        """try a turn again that failed"""
        await self._led.hold(self._conversation.retry())

    async def _compact(self) -> None:
        """condense what was said, to make room for more"""
        await self._led.hold(self._conversation.compact())

    async def _fork(self) -> None:
        """copy the conversation up to here; this one goes on"""
        copy = await self._conversation.fork()
        self._pen.line(f"Forked at step {copy.state.book.seq}.")
        self._pen.note(way_back(copy.id, self._settings, called="the copy"))

    async def _help(self) -> None:
        """this list"""
        for name, command in self._commands.items():
            self._pen.line(f"{name:<10}{command.__doc__}")
        self._pen.line("Anything else is said to the model.")

    async def _quit(self) -> None:
        """leave; the conversation is kept"""
        self._ended = True

    async def _unknown(self) -> None:
        self._pen.line("There is no such command; /help lists those that there are.", "red")
