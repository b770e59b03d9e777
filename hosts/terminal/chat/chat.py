"""`turnwise chat`: holds a conversation, at a terminal or through a pipe, until the user leaves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ....effects.channels.speech import SpeechChannel
from ....effects.tools.registry import ToolRegistry
from ....engine.conversation import Conversation
from ....persistence.ports import Store
from ....persistence.summaries import Summary, details_of
from ....states.errors import ConfigurationError, TurnwiseError
from ....states.policy import Policy
from ....states.states import AwaitingUserResponse, Failed
from ....states.values.messages import Message
from ..configuration.command_lines import resume_hint
from ..configuration.conversation_ids import resolve_id
from ..configuration.databases import open_for_writing
from ..configuration.model_choice import ModelChoice
from ..configuration.owner import owner_of
from ..configuration.presets import preset_of
from ..configuration.settings import Settings
from ..configuration.tools import missing_tools, with_required_tools
from ..output.error_messages import INTERRUPTED
from ..output.printable import one_line
from ..output.writer import DIM, TerminalWriter
from .commands import ChatCommands
from .dialogue import Dialogue, open_dialogue
from .message_lines import is_of_user
from .session import open_engine, open_writer, screen_for, speech_for, steps_shown
from .user_input import CommandEntered, UserInput

FAILED = 1
"""The exit code of a chat through a pipe whose last turn failed."""


async def chat(settings: Settings, given_id: str | None, resume: bool, *, model_given: bool) -> int:
    """Hold a conversation: a new one, the one with this id, or with `resume` the one that changed last.

    With `model_given` its next turn asks the model of the settings, else the models that it has chosen. Returns the
    exit code. Raises `TurnwiseError` if the conversation cannot begin.
    """
    if given_id is None and not resume:
        return await _chat(settings, preset_of(settings))
    async with open_for_writing(settings) as store:
        conversation_id = (
            _newest(await store.list(role="foreground", limit=1))
            if given_id is None
            else await resolve_id(store, given_id)
        )
        context = (await store.load(conversation_id)).context
        chosen = context.policy.models[0].name if context.chose_models and not model_given else None
        return await _chat(settings, context.policy, Past(store, conversation_id, chosen))


class Past(NamedTuple):
    """A stored conversation that is resumed: its open store, its id, and the model that it keeps, if one was chosen."""

    store: Store
    conversation_id: str
    model: str | None


async def _chat(settings: Settings, policy: Policy, past: Past | None = None) -> int:
    """Hold a new conversation under this policy, or go on with a past one.

    The engine needs the tools that the policy requires before it opens the conversation.
    """
    tools = with_required_tools(settings.tools, policy)
    model = ModelChoice(settings, past and past.model)
    equipped = settings.model_copy(update={"tools": tools, "models": tuple(model.names)})
    with open_writer(settings) as writer, steps_shown(settings, policy, writer):
        speech = speech_for(settings, writer)
        async with open_engine(equipped, writer, speech=speech, store=past and past.store) as engine:
            if past is None:
                conversation = await engine.create(system=settings.system, owner=owner_of(settings, policy))
            else:
                conversation = await engine.get(past.conversation_id)
            session = Session(conversation, settings, model, engine.choices.checks.tools)
            return await session.hold(writer, speech)


def _newest(summaries: Iterable[Summary]) -> str:
    for summary in summaries:
        return summary.id
    raise ConfigurationError("There is no conversation to resume.")


@dataclass(frozen=True)
class Session:
    """One run of a chat: the conversation, the settings, the models to choose from, and the tools of the engine, among
    them those of MCP servers."""

    conversation: Conversation
    settings: Settings
    model: ModelChoice
    tools: ToolRegistry

    async def hold(self, writer: TerminalWriter, speech: SpeechChannel | None) -> int:
        """Hold the conversation until the user leaves, and return the exit code."""
        messages = await self.conversation.transcript()
        if not writer.interactive:  # a script may end at any moment, so it gets the hint first; users get it at the end
            writer.copyable(self._hint(), DIM)
        elif messages:
            writer.line(one_line(details_of(await self.conversation.events()).title), "bold")
        if missing := missing_tools(self.tools, self.settings.mcps, messages):
            names = ", ".join(missing)
            writer.note(f"Tools that this conversation used are missing now: {names}. Name them with --tools.")
        if self.conversation.role != "foreground":
            writer.note("No user reads what this agent says; its text is shown with --thoughts.")
        user_input = self._user_input(writer, messages, speech)
        screen = screen_for(self.conversation, self.settings, writer)
        async with open_dialogue(self.conversation, screen, user_input, speech, self.tools) as dialogue:
            await Chat(dialogue, self.settings, self.model, self.tools).run()
        return self._leave(dialogue)

    def _hint(self) -> str:
        return resume_hint(self.conversation.id, self.settings, self.model)

    def _user_input(
        self, writer: TerminalWriter, messages: Iterable[Message], speech: SpeechChannel | None
    ) -> UserInput:
        if writer.interactive:
            from .keyboard import Keyboard

            writer.note(f"The model is {one_line(self.model.names[0])}.")
            writer.note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.")
            history = [message.text for message in messages if is_of_user(message) and message.text]
            return Keyboard(writer, history, speech)
        from .piped_input import PipedInput

        return PipedInput(writer)

    def _leave(self, dialogue: Dialogue) -> int:
        """Say how to resume the conversation, and return the exit code."""
        state, writer = self.conversation.state, dialogue.screen.writer
        in_a_turn = dialogue.user_left and state.works
        if in_a_turn:
            writer.note("You left during a turn; it continues when you resume the conversation.")
        if writer.interactive:
            writer.copyable(self._hint(), DIM)
            return INTERRUPTED if in_a_turn else 0
        if dialogue.user_left:
            return INTERRUPTED
        return FAILED if isinstance(state, Failed) else 0


class Chat:
    """Handles what the user enters, until there is no more: messages, answers and commands."""

    def __init__(self, dialogue: Dialogue, settings: Settings, model: ModelChoice, tools: ToolRegistry) -> None:
        self._dialogue = dialogue
        self._conversation = dialogue.conversation
        self._writer = dialogue.screen.writer
        self._commands = ChatCommands(dialogue, settings, model, tools)
        self._ended = False
        dialogue.user_input.commands = self._commands.help

    async def run(self) -> None:
        """Return when the user leaves. A turn that a crash interrupted is shown to its end first."""
        await self._dialogue.wait_until_shown()
        while not self._ended and not self._commands.user_quits:
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
        text = await self._dialogue.next_message()
        if text is None:
            self._ended = True
        elif not text:
            return  # the user is asked something
        elif self._commands.are_in(text):
            await self._commands.execute(text)
        else:
            await self._dialogue.send(text)

    async def _ask(self) -> None:
        try:
            await self._dialogue.ask()
        except CommandEntered as command:
            await self._commands.execute(command.line)
        except EOFError:
            self._ended = True
        if self._ended or self._commands.user_quits:
            state = self._conversation.state
            ends = isinstance(state, AwaitingUserResponse) and state.suspends
            self._writer.note("The call that asks is interrupted." if ends else "The question stays open.")
