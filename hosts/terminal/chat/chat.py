"""`turnwise chat`: holds a conversation, at a terminal or through a pipe, until the user leaves.

Beside messages a user can enter commands, such as /state or /fork. What a chat needs is made first: the writer, the
speech, the engine and the screen, each as the settings and the policy of the conversation ask for it. Other commands
that hold a conversation make it by the same functions.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ....effects.channels.port import Delivery
from ....effects.channels.speech import Outcome, SpeechChannel
from ....effects.files import GivenFile, prepare
from ....effects.tools.registry import ToolRegistry
from ....engine.conversation import Conversation
from ....engine.engine import Engine
from ....persistence.ports import Store
from ....persistence.summaries import ConversationFilter, Summary, details_of
from ....states.errors import ConfigurationError, TurnwiseError
from ....states.events import HistoryCompacted
from ....states.policy import ModelSpec, Policy, Recent
from ....states.states import AwaitingUserResponse, Failed, Idle
from ....states.values.files import labels
from ....states.values.messages import Message, Usage
from ..configuration import (
    ModelChoice,
    Settings,
    check_rules,
    is_left_to_workers,
    missing_tools,
    open_for_writing,
    owner_of,
    preset_of,
    resolve_id,
    resume_hint,
    tools_named,
    with_chosen_profile,
    with_required_tools,
)
from ..output.event_lines import event_lines
from ..output.lines import INTERRUPTED, counted, one_line, print_notice, steps_shown_by
from ..output.writer import DIM, TerminalWriter
from .dialogue import Dialogue, open_dialogue
from .screen import ReplyHeader, Screen, is_of_user
from .user_input import CommandEntered, CommandHelp, Commands, PipedInput, UserInput, command_in, echo_disabled

_FAILED = 1
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
            _newest(await store.list(ConversationFilter(role="foreground", limit=1)))
            if given_id is None
            else await resolve_id(store, given_id)
        )
        context = (await store.load(conversation_id)).context
        chosen = context.policy.models[0].name if context.chose_models and not model_given else None
        return await _chat(settings, context.policy, _Past(store, conversation_id, chosen))


class _Past(NamedTuple):
    """A stored conversation that is resumed: its open store, its id, and the model that it keeps, if one was chosen."""

    store: Store
    conversation_id: str
    model: str | None


async def _chat(settings: Settings, policy: Policy, past: _Past | None = None) -> int:
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
            session = Session(conversation, settings, model, engine.choices.tool_registry)
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
            writer.line(one_line(details_of(await self.conversation.events()).shown_title), "bold")
        if missing := missing_tools(self.tools, self.settings.mcps, messages):
            names = ", ".join(missing)
            writer.note(f"Tools that this conversation used are missing now: {names}. Name them with --tools.")
        if self.conversation.role != "foreground":
            writer.note("No user reads what this agent says; its text is shown with --thoughts.")
        user_input = self._user_input(writer, messages, speech)
        screen = screen_for(self.conversation, self.settings, writer)
        async with open_dialogue(self.conversation, screen, user_input, speech, self.tools) as dialogue:
            await _Chat(dialogue, self.settings, self.model, self.tools).run()
        return self._leave(dialogue)

    def _hint(self) -> str:
        return resume_hint(self.conversation.id, self.settings, self.model)

    def _user_input(
        self, writer: TerminalWriter, messages: Iterable[Message], speech: SpeechChannel | None
    ) -> UserInput:
        if writer.interactive:
            from .menus import Keyboard

            writer.note(f"The model is {one_line(self.model.names[0])}.")
            writer.note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.")
            history = [message.text for message in messages if is_of_user(message) and message.text]
            return Keyboard(writer, history, speech)
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
        return _FAILED if isinstance(state, Failed) else 0


class _Chat:
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
            await self._dialogue.send(text, self._commands.take_attached())

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


_LOOKS_LIKE_A_COMMAND = re.compile(r"/[a-z]+")

Run = Callable[[str], Awaitable[None]]
"""Executes a command; its argument is the text behind the name of the command, empty if there is none."""


class Command(NamedTuple):
    """A command, and what users are told of it."""

    run: Run
    help: CommandHelp


class ChatCommands:
    """Executes the commands that a user enters. `user_quits` says whether one of them was to leave."""

    def __init__(self, dialogue: Dialogue, settings: Settings, model: ModelChoice, tools: ToolRegistry) -> None:
        self.user_quits: bool = False
        self._attached: list[GivenFile] = []
        self._dialogue = dialogue
        self._settings = settings
        self._model_choice = model
        self._tool_registry = tools
        self._conversation = dialogue.conversation
        self._writer = dialogue.screen.writer
        self._commands = {
            "/state": Command(self._state, CommandHelp("show the state of the conversation")),
            "/events": Command(self._events, CommandHelp("list the stored events")),
            "/model": Command(
                self._model, CommandHelp("show the models, or change to one of them", "[NAME]", lambda: model.names)
            ),
            "/tools": Command(self._tools, CommandHelp("list the tools that the model may use")),
            "/usage": Command(self._usage, CommandHelp("show how many tokens were used, and what they cost")),
            "/title": Command(self._title, CommandHelp("show the title of the conversation, or change it", "[TEXT]")),
            "/attach": Command(self._attach, CommandHelp("send a file with your next message", "PATH")),
            "/retry": Command(self._retry, CommandHelp("try a failed turn again, or have the last one answered anew")),
            "/edit": Command(self._edit, CommandHelp("say something else in place of your last message", "TEXT")),
            "/branches": Command(self._branches, CommandHelp("list what was left by /retry and /edit")),
            "/switch": Command(self._switch, CommandHelp("return to one of these branches", "NUMBER")),
            "/compact": Command(self._compact, CommandHelp("condense what was said, to make room for more")),
            "/fork": Command(self._fork, CommandHelp("copy the conversation up to here, and stay in the original")),
            "/help": Command(self._help, CommandHelp("show this list")),
            "/quit": Command(self._quit, CommandHelp("leave; the conversation is kept")),
        }

    @property
    def help(self) -> Commands:
        """What users are told of the commands."""
        return {name: command.help for name, command in self._commands.items()}

    def are_in(self, line: str) -> bool:
        """Return whether this line is meant as a command, be there such a command or not."""
        return bool(command_in(line, self._commands) or _LOOKS_LIKE_A_COMMAND.fullmatch(line.strip()))

    async def execute(self, line: str) -> None:
        """Execute a line that is meant as a command. Raises `TurnwiseError`."""
        name, _, argument = line.strip().partition(" ")
        command = self._commands.get(name)
        if command is None:
            self._writer.line("There is no such command; /help lists the commands.", "red")
        elif argument.strip() and not command.help.argument:
            self._writer.line(f"{name} takes no arguments.", "red")
        else:
            await command.run(argument.strip())

    def take_attached(self) -> list[GivenFile]:
        """Return the files that go with the next message, and forget them: if it is refused because of one, the next
        message is not."""
        attached, self._attached = self._attached, []
        return attached

    # --- the conversation

    async def _attach(self, path: str) -> None:
        unquoted = path[1:-1] if len(path) > 1 and path[0] == path[-1] and path[0] in "'\"" else path
        if not unquoted:
            self._writer.line("/attach takes the path of a file.", "red")
            return
        file = unquoted if unquoted.startswith("https://") else Path(unquoted)
        if isinstance(file, Path):
            with suppress(RuntimeError):  # ~ of nobody is what it is
                file = file.expanduser()
        attached = [*self._attached, file]
        prepared = await prepare(attached, self._conversation.policy.files)
        self._attached = attached
        self._writer.note(f"With your next message: {one_line(labels([one.reference for one in prepared]))}")

    async def _state(self, _: str) -> None:
        state = self._conversation.state
        turns, events = counted(state.book.turn, "turn"), counted(state.book.seq, "event")
        self._writer.line(f"{state.type}, after {turns} and {events}")

    async def _events(self, _: str) -> None:
        for line in event_lines(await self._conversation.events()):
            self._writer.row(line)

    async def _usage(self, _: str) -> None:
        self._writer.line(usage_line(await self._conversation.usage()))

    async def _title(self, text: str) -> None:
        if text:
            await self._conversation.set_title(one_line(text))
        title = details_of(await self._conversation.events()).shown_title
        self._writer.line(one_line(title) or "The conversation has no title yet.")

    async def _retry(self, _: str) -> None:
        if isinstance(self._conversation.state, Failed):
            await self._dialogue.perform(self._conversation.retry())
        elif isinstance(self._conversation.state, Idle):
            await self._dialogue.perform(self._conversation.regenerate())
        else:
            self._writer.line("There is no failed turn to try again.", "red")

    async def _edit(self, text: str) -> None:
        said = [one for one in await self._conversation.transcript() if one.role == "user" and one.audience is None]
        own = [one.message_id for one in said if one.message_id]
        if not text or not own:
            self._writer.line("There is no message to edit." if text else "/edit takes the new text.", "red")
            return
        await self._dialogue.perform(self._conversation.edit(own[-1], text))

    async def _branches(self, _: str) -> None:
        branches = await self._conversation.branches()
        for branch in branches:
            self._writer.row(f"{branch.number}  {counted(len(branch.turns), 'turn')}: {one_line(branch.text)}")
        if not branches:
            self._writer.line("Nothing was left: there is one branch.")

    async def _switch(self, number: str) -> None:
        if not number.isascii() or not number.isdecimal():
            self._writer.line("/switch takes the number of a branch; /branches lists them.", "red")
            return
        await self._dialogue.perform(self._conversation.switch(int(number[:9])))

    async def _compact(self, _: str) -> None:
        await self._dialogue.perform(self._conversation.compact())
        newest = (await self._conversation.events())[-1].event
        done = isinstance(newest, HistoryCompacted)
        self._writer.note("Condensed; the log keeps everything." if done else "Stopped; nothing was condensed.")

    async def _fork(self, _: str) -> None:
        copy = await self._conversation.fork()
        self._writer.line(f"Forked at step {copy.state.book.seq}.")
        self._writer.copyable(resume_hint(copy.id, self._settings, self._model_choice, name="the copy"), DIM)

    # --- models and tools

    async def _model(self, name: str) -> None:
        if not name:
            for index, each in enumerate(self._model_choice.names):
                self._writer.line(f"{'*' if index == 0 else ' '} {one_line(each)}")
            return
        policy = self._conversation.policy
        await self._conversation.set_policy(policy.replace(models=(ModelSpec(name=name),)))
        self._model_choice.chosen = name
        self._writer.line(f"The model is {one_line(name)} from the next turn on.")

    async def _tools(self, _: str) -> None:
        definitions = self._tool_registry.definitions()
        for tool in definitions:
            summary = str(tool["function"].get("description", "")).partition("\n")[0]
            self._writer.row(f"{tool['function']['name']}  {summary}")
        if not definitions:
            self._writer.line("There are no tools.")

    # --- the chat itself

    async def _help(self, _: str) -> None:
        for name, (_run, help_) in self._commands.items():
            self._writer.row(f"{f'{name} {help_.argument}':<16}{help_.description}")
        self._writer.line("Anything else is a message to the model.")

    async def _quit(self, _: str) -> None:
        self.user_quits = True


def usage_line(usage: Usage) -> str:
    """Return what a conversation has used so far, as a sentence. `Pure.`"""
    cached = f" ({usage.cached_tokens:,} from the cache)" if usage.cached_tokens else ""
    thinking = f" ({usage.reasoning_tokens:,} for thinking)" if usage.reasoning_tokens else ""
    cost = "" if usage.cost is None else f"; {usage.cost:.4f} US dollars"
    return f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} tokens out{thinking}{cost}"


@contextmanager
def open_writer(settings: Settings) -> Iterator[TerminalWriter]:
    """Open the writer for stdout. It is interactive if stdin and stdout are a terminal that can move its cursor, and
    then renders Markdown unless the settings say otherwise."""
    streams = (sys.stdin, sys.stdout)
    if not all(stream is not None and stream.isatty() for stream in streams) or os.environ.get("TERM") == "dumb":
        yield TerminalWriter(interactive=False)
        return
    writer = TerminalWriter(interactive=True, markdown=_renders_markdown(settings))
    with echo_disabled():
        try:
            yield writer
        finally:
            writer.finish()


def _renders_markdown(settings: Settings) -> bool:
    """Return whether to render Markdown. A log on the same terminal would be written between what is drawn again."""
    logs_here = (settings.debug or settings.voice_debug) and sys.stderr is not None and sys.stderr.isatty()
    return not settings.plain and not logs_here


def speech_for(settings: Settings, writer: TerminalWriter) -> SpeechChannel | None:
    """Return the speech channel if the settings ask for one. Its first failure is noted.

    Raises `ConfigurationError` if no speech engine is installed.
    """
    failed: list[Delivery] = []
    why = "the log says why" if settings.debug else "with --debug the log says why"

    def note_failure(delivery: Delivery, outcome: Outcome) -> None:
        if outcome == "failed":
            failed.append(delivery)
            if len(failed) == 1:
                writer.defer_note(f"This could not be spoken: no voice works here; {why}.")

    if settings.speak and not settings.tts_enabled:
        print_notice("Nothing is spoken, because the settings say that tts_enabled is false.")
    return SpeechChannel(on_end=note_failure) if settings.speak and settings.tts_enabled else None


def screen_for(conversation: Conversation, settings: Settings, writer: TerminalWriter, *, echo: bool = False) -> Screen:
    """Return the screen for a conversation; `echo` as for `Screen`.

    Where the policy keeps the model's text from the user, the user is reached by tool; where that depends on the tools,
    each update tells. Where it removes something from answers, they are not streamed to an output that cannot take
    anything back.
    """
    policy = conversation.policy
    return Screen(
        writer,
        thoughts=settings.thoughts,
        echo=echo,
        by_tool=policy.text in ("fallback", "thought"),
        whole=(policy.redact or policy.marker is not None) and not writer.takes_back,
        header=ReplyHeader(writer, lambda: conversation.profile) if _has_steps(policy) else None,
    )


def steps_shown(settings: Settings, policy: Policy, writer: TerminalWriter) -> AbstractContextManager[None]:
    """Return a context in which each step of a turn under this policy is a short line on stdout. With `voice_debug` the
    steps are written to stderr instead."""
    return steps_shown_by(writer.step) if _has_steps(policy) and not settings.voice_debug else nullcontext()


def _has_steps(policy: Policy) -> bool:
    """Return whether more happens in a turn than requests and tools. Then a header sets the reply apart."""
    return policy.route or policy.recall or policy.documents or isinstance(policy.dialogue, Recent)


@asynccontextmanager
async def open_engine(
    settings: Settings,
    writer: TerminalWriter,
    tools: Iterable[Any] = (),
    speech: SpeechChannel | None = None,
    store: Store | None = None,
) -> AsyncIterator[Engine]:
    """Open an engine with these settings, and with `tools` before those that the settings name.

    It works over `store` if that is given, which stays open, else over the database of the settings, which is created
    only if the engine can do what the preset asks for. Where workers look after the database it only takes requests.
    Checks that its model can be asked. Speech that has begun ends before the engine is closed. Raises
    `ConfigurationError` and `StoreError`.
    """
    settings, policy = with_chosen_profile(settings), preset_of(settings)
    by_workers = await is_left_to_workers(settings)
    named = [tool for tool in tools_named(settings.tools) if tool not in tools]
    engine = Engine.open(
        settings.db if store is None else None,
        store=store,
        worker=not by_workers,
        model=settings.model,
        models=settings.models,
        tools=[*tools, *named],
        policy=policy,
        settings=settings,
        channels=[speech] if speech else [],
    )
    writer.spin(f"loading {', '.join(engine.loading)}" if engine.loading else "getting ready")
    if store is None:
        check_rules(engine, policy)
    await engine.check(servers=False)
    async with engine:
        writer.finish()
        for sentence in engine.server_faults:
            writer.note(sentence)
        if by_workers:
            writer.note("Workers look after this database: their models, tools and channels count.")
        yield engine
        if speech:
            await _finish_speaking(engine, speech)


async def _finish_speaking(engine: Engine, speech: SpeechChannel) -> None:
    """Return when everything that was said is spoken. Ctrl-C silences it."""
    try:
        await engine.delivered()
        await speech.drain()
    except asyncio.CancelledError:
        speech.stop()
        raise
