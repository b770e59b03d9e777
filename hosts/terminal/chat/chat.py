"""`turnwise chat`: holds a conversation, at a terminal or through a pipe, until the user leaves."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ....effects.channels.speech.channel import SpeechChannel
from ....engine.conversation import Conversation
from ....engine.engine import Engine
from ....persistence.ports import Store
from ....persistence.records.summary import Summary
from ....states.errors import ConfigurationError, TurnwiseError
from ....states.events import HistoryCompacted
from ....states.policy.policy import Policy
from ....states.states import Failed
from ....states.values.messages import Message
from ..configuration.command_lines import resume_hint
from ..configuration.conversation_ids import resolve_id
from ..configuration.databases import open_for_writing
from ..configuration.presets import preset_named
from ..configuration.settings import Settings
from ..configuration.tools import missing_tools, with_required_tools
from ..output.error_messages import INTERRUPTED
from ..output.event_lines import event_lines
from ..output.printable import counted, one_line
from ..output.writer import DIM, TerminalWriter
from .dialogue import Dialogue, open_dialogue
from .session import open_engine, open_writer, screen_for, speech_for
from .user_input import CommandEntered, UserInput, command_in

FAILED = 1
"""The exit code of a chat through a pipe whose last turn failed."""

_LOOKS_LIKE_A_COMMAND = re.compile(r"/[a-z]+")


async def chat(settings: Settings, given_id: str | None, resume: bool) -> int:
    """Hold a conversation: a new one, the one with this id, or with `resume` the one that changed last.

    Returns the exit code. Raises `TurnwiseError` if the conversation cannot begin.
    """
    if given_id is None and not resume:
        return await _chat(settings, preset_named(settings.preset))
    async with open_for_writing(settings) as store:
        conversation_id = _newest(await store.list(limit=1)) if given_id is None else await resolve_id(store, given_id)
        loaded = await store.load(conversation_id)
        return await _chat(settings, loaded.context.policy, store, conversation_id)


async def _chat(
    settings: Settings, policy: Policy, store: Store | None = None, conversation_id: str | None = None
) -> int:
    """Hold a new conversation under this policy, or the one with this id in the open store.

    The engine needs the tools that the policy requires before it opens the conversation.
    """
    tools = with_required_tools(settings.tools, policy)
    with open_writer(settings) as writer:
        speech = speech_for(settings, writer)
        equipped = settings.model_copy(update={"tools": tools})
        async with open_engine(equipped, writer, speech=speech, store=store) as engine:
            conversation = await _open(engine, settings, conversation_id)
            return await _converse(conversation, settings, tools, writer, speech)


def _newest(summaries: Iterable[Summary]) -> str:
    for summary in summaries:
        return summary.id
    raise ConfigurationError("There is no conversation to resume.")


async def _open(engine: Engine, settings: Settings, conversation_id: str | None) -> Conversation:
    if conversation_id is None:
        return await engine.create(system=settings.system)
    return await engine.get(conversation_id)


async def _converse(
    conversation: Conversation,
    settings: Settings,
    tools: Iterable[str],
    writer: TerminalWriter,
    speech: SpeechChannel | None,
) -> int:
    messages = await conversation.transcript()
    hint = resume_hint(conversation.id, settings)
    if not writer.interactive:  # a script may end at any moment, so it gets the hint first; users get it at the end
        writer.copyable(hint, DIM)
    if missing := missing_tools(tools, messages):
        names = ", ".join(missing)
        writer.note(f"Tools that this conversation used are missing now: {names}. Name them with --tools.")
    user_input = _user_input(conversation, writer, messages, speech)
    screen = screen_for(conversation, settings, writer)
    async with open_dialogue(conversation, screen, user_input, speech) as dialogue:
        await Chat(dialogue, settings).run()
    return _leave(dialogue, hint)


def _user_input(
    conversation: Conversation, writer: TerminalWriter, messages: Iterable[Message], speech: SpeechChannel | None
) -> UserInput:
    if writer.interactive:
        from .keyboard import Keyboard

        writer.note(f"The model is {one_line(conversation.policy.models[0].name)}.")
        writer.note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.")
        history = [message.text for message in messages if message.role == "user" and message.text]
        return Keyboard(writer, history, speech)
    from .piped_input import PipedInput

    return PipedInput(writer)


def _leave(dialogue: Dialogue, hint: str) -> int:
    """Say how to resume the conversation, and return the exit code."""
    state, writer = dialogue.conversation.state, dialogue.screen.writer
    in_a_turn = dialogue.user_left and state.works
    if in_a_turn:
        writer.note("You left during a turn; it continues when you resume the conversation.")
    if writer.interactive:
        writer.copyable(hint, DIM)
        return INTERRUPTED if in_a_turn else 0
    if dialogue.user_left:
        return INTERRUPTED
    return FAILED if isinstance(state, Failed) else 0


class Chat:
    """Handles what the user enters, until there is no more: messages, answers and commands."""

    def __init__(self, dialogue: Dialogue, settings: Settings) -> None:
        self._dialogue = dialogue
        self._settings = settings
        self._conversation = dialogue.conversation
        self._writer = dialogue.screen.writer
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
        dialogue.user_input.commands = self._commands.keys()

    async def run(self) -> None:
        """Return when the user leaves. A turn that a crash interrupted is shown to its end first."""
        await self._dialogue.wait_until_shown()
        while not self._ended:
            try:
                await self._step()
            except TurnwiseError as error:
                self._writer.line(error.sentence, "red")

    async def _step(self) -> None:
        if self._dialogue.waits_for_user:
            await self._ask()
            return
        if isinstance(self._conversation.state, Failed):
            self._writer.note("/retry tries again; a message continues from here.")
        text = await self._dialogue.user_input.next_message()
        if text is None:
            self._ended = True
        elif command_in(text, self._commands) or _LOOKS_LIKE_A_COMMAND.fullmatch(text.strip()):
            await self._execute(text.strip())
        else:
            await self._dialogue.perform(self._conversation.send(text))

    async def _ask(self) -> None:
        try:
            await self._dialogue.ask()
        except CommandEntered as command:
            await self._execute(command.line.strip())
        except EOFError:
            self._ended = True
        if self._ended:
            self._writer.note("The question stays open.")

    # --- commands; their docstrings are the text of /help

    async def _execute(self, line: str) -> None:
        command = self._commands.get(line)
        if command is not None:
            await command()
        elif known := command_in(line, self._commands):
            self._writer.line(f"{known} takes no arguments.", "red")
        else:
            self._writer.line("There is no such command; /help lists the commands.", "red")

    async def _state(self) -> None:
        """show the state of the conversation"""
        state = self._conversation.state
        turns, events = counted(state.book.turn, "turn"), counted(state.book.seq, "event")
        self._writer.line(f"{state.type}, after {turns} and {events}")

    async def _events(self) -> None:
        """list the stored events"""
        for line in event_lines(await self._conversation.events()):
            self._writer.row(line)

    async def _retry(self) -> None:
        """try a failed turn again"""
        if not isinstance(self._conversation.state, Failed):
            self._writer.line("There is no failed turn to try again.", "red")
            return
        await self._dialogue.perform(self._conversation.retry())

    async def _compact(self) -> None:
        """condense what was said, to make room for more"""
        await self._dialogue.perform(self._conversation.compact())
        newest = (await self._conversation.events())[-1].event
        done = isinstance(newest, HistoryCompacted)
        self._writer.note("Condensed; the log keeps everything." if done else "Stopped; nothing was condensed.")

    async def _fork(self) -> None:
        """copy the conversation up to here, and stay in the original"""
        copy = await self._conversation.fork()
        self._writer.line(f"Forked at step {copy.state.book.seq}.")
        self._writer.copyable(resume_hint(copy.id, self._settings, name="the copy"), DIM)

    async def _help(self) -> None:
        """show this list"""
        for name, command in self._commands.items():
            self._writer.line(f"{name:<10}{command.__doc__}")
        self._writer.line("Anything else is a message to the model.")

    async def _quit(self) -> None:
        """leave; the conversation is kept"""
        self._ended = True
