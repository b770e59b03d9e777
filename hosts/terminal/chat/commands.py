"""The commands of a chat: what users can enter beside messages."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ....effects.tools.registry import ToolRegistry
from ....persistence.summaries import details_of
from ....states.events import HistoryCompacted
from ....states.policy import ModelSpec
from ....states.states import Failed
from ....states.values.messages import Usage
from ..configuration import ModelChoice, resume_hint
from ..output.event_lines import event_lines
from ..output.lines import counted, one_line
from ..output.writer import DIM
from ..settings import Settings
from .dialogue import Dialogue
from .user_input import CommandHelp, Commands, command_in

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
        self.user_quits = False
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
            "/retry": Command(self._retry, CommandHelp("try a failed turn again")),
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

    # --- the conversation

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
        if not isinstance(self._conversation.state, Failed):
            self._writer.line("There is no failed turn to try again.", "red")
            return
        await self._dialogue.perform(self._conversation.retry())

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
