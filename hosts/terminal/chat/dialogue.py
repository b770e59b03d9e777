"""Connects one conversation with its user: requests go in, updates are shown, questions are asked.

Ctrl-C cancels the work of the conversation, which itself goes on. While a cancel is under way Ctrl-C leaves; while the
conversation rests, the user input decides what it means. Ctrl-C is a callback in the event loop, instead of an
exception that may be raised anywhere.

Turnwise itself asks about a tool, too: whether it may run, and whether it ran before a crash.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from textwrap import indent
from types import FrameType
from typing import Any

from ....effects.channels.speech import SpeechChannel
from ....effects.context import effect_of_key
from ....effects.files import GivenFile
from ....effects.printable import with_hidden_shown
from ....effects.tools.registry import ToolRegistry
from ....effects.tools.tool import shown_arguments
from ....engine.conversation import Conversation
from ....states.errors import TurnwiseError
from ....states.events import Resolution
from ....states.states import AwaitingApproval, AwaitingSubAgents, Busy, Cancelling, InDoubt, State
from ....states.values.messages import ToolCall
from ....states.values.questions import OpenQuestion, QuestionOption, UserQuestion
from ..output.lines import one_line
from .screen import Screen
from .user_input import OWN_WORDS, Answer, FreeTextOption, UserInput


class _NoLongerAskedError(Exception):
    """Raised when the conversation goes on while the user has not answered."""


@asynccontextmanager
async def open_dialogue(
    conversation: Conversation,
    screen: Screen,
    user_input: UserInput,
    speech: SpeechChannel | None = None,
    tools: ToolRegistry | None = None,
) -> AsyncIterator[Dialogue]:
    """Show the conversation while the body runs. Ctrl-C also silences `speech`. A user who is asked to allow a call
    reads what its tool does, if it is one of these `tools`.

    The body is left early when the user leaves by Ctrl-C; then `user_left` of the dialogue is True.
    """
    dialogue = Dialogue(conversation, screen, user_input, speech, tools)
    try:
        with _interrupts_handled_by(dialogue.interrupt):
            async with asyncio.TaskGroup() as tasks:
                showing = tasks.create_task(dialogue.show_updates())
                await dialogue.wait_for_snapshot()
                yield dialogue
                showing.cancel()
    except asyncio.CancelledError:
        if not dialogue.user_left:
            raise
    finally:
        screen.writer.finish()


class Dialogue:
    """A conversation, the screen that shows it, and the input of its user. Use `open_dialogue` to create one.

    `user_left` says whether the user left by Ctrl-C.
    """

    def __init__(
        self,
        conversation: Conversation,
        screen: Screen,
        user_input: UserInput,
        speech: SpeechChannel | None = None,
        tools: ToolRegistry | None = None,
    ) -> None:
        self.conversation = conversation
        self.screen = screen
        self.user_input = user_input
        self.user_left: bool = False
        self._speech = speech
        self._tools = tools
        self._task = asyncio.current_task()
        self._on_interrupt: Callable[[], object] = self._leave_unless_late
        self._cancelling: asyncio.Task[None] | None = None
        self._partial_answers: dict[str, dict[str, Answer]] = {}
        self._shown_seq = -1
        """The newest step of which, and of all before it, everything is shown."""
        self._progress = asyncio.Event()
        user_input.stop_turn = self._stop_turn

    @property
    def waits_for_user(self) -> bool:
        """Whether the user is asked for an answer, an approval, or the outcome of an interrupted call."""
        return self._asking_call is not None

    @property
    def _asking_call(self) -> str | None:
        """The call about which the user is asked something; None if the conversation waits for no user."""
        state = self.conversation.state
        return state.call.call_id if isinstance(state, InDoubt) else state.waiting_call_id

    async def send(self, text: str, files: Sequence[GivenFile] = ()) -> None:
        """Send a message, and return as `perform` does. One that comes while the conversation is busy, because of a
        message of another agent, waits for the next turn."""
        await self.perform(self.conversation.send(text, files=files, when_busy="queue", wait=False))

    async def next_message(self) -> str | None:
        """Return the next message or command of the user, or None if there will be no more.

        It is empty if the user is asked something in the meantime. That happens in turns that others begin: other
        agents, and other programs.
        """
        reading = asyncio.ensure_future(self.user_input.next_message())
        await self._done_or(reading, lambda: self.waits_for_user)
        return "" if reading.cancelled() else reading.result()

    async def perform(self, request: Awaitable[object]) -> None:
        """Make a request, and return when everything that follows from it is done and shown.

        Raises what the request raises.
        """
        with self._interrupted_by(self._cancel):
            try:
                await request
            except TurnwiseError:
                await self._until(lambda: not self._is_working)
                raise
            await self._until_all_is_shown()

    async def wait_until_shown(self) -> None:
        """Return when the work that is under way is done and shown."""
        with self._interrupted_by(self._cancel):
            await self._until_all_is_shown()

    async def ask(self) -> None:
        """Ask the user what the conversation waits for, hand in the answer, and return as `perform` does.

        A question whose deadline passes meanwhile, or that a sub-agent no longer asks, disappears. Raises EOFError if
        the user leaves, and `CommandEntered`. Called again, it asks only what is still open.
        """
        state = self.conversation.state
        try:
            if isinstance(state, AwaitingApproval):
                await self._ask_for_approval(state)
            elif isinstance(state, InDoubt):
                await self._ask_for_resolution(state)
            elif (question := state.open_question) is not None:
                await self._note_who_asks(state)
                await self._ask_questions(question)
        except _NoLongerAskedError:
            self.screen.writer.defer_note("  This is no longer asked.")
            await self.wait_until_shown()

    def interrupt(self) -> None:
        """Handle Ctrl-C."""
        if self._speech is not None:
            self._speech.stop()
        self._on_interrupt()

    # --- showing

    async def show_updates(self) -> None:
        """Show what happens, until the conversation ends or this is cancelled."""
        async for update in self.conversation.updates(caught_up=self._note_shown):
            self.screen.show(update)

    async def wait_for_snapshot(self) -> None:
        """Return when the state in which the conversation was opened is shown."""
        await self._until(lambda: self._shown_seq >= 0)

    def _note_shown(self, seq: int) -> None:
        self._shown_seq = seq
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    async def _until_all_is_shown(self) -> None:
        await self._until(lambda: not self._is_working and self._shown_seq >= self.conversation.state.book.seq)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds when everything is shown."""
        while not condition():
            await self._progress.wait()

    @property
    def _is_working(self) -> bool:
        return isinstance(self.conversation.state, Busy) and not self.waits_for_user

    # --- asking

    async def _ask_for_approval(self, state: AwaitingApproval) -> None:
        """Ask whether a tool may run. A user who declines to answer cancels the turn."""
        call = await self._call(state.call.call_id)
        tool = None if self._tools is None else self._tools.find(call.name)
        answer = await self._answer(_approval_question(call, tool.description if tool else ""), _REASON_TO_DENY)
        if answer is None:
            await self.perform(self.conversation.cancel(state.turn.number))
        else:
            await self.perform(self.conversation.approve(call.call_id, *_parse_approval(str(answer))))

    async def _ask_for_resolution(self, state: InDoubt) -> None:
        """Ask whether an interrupted call ran. A user who declines to answer cancels the turn."""
        call = await self._call(state.call.call_id)
        answer = await self._answer(_doubt_question(call), None)
        if answer is None:
            await self.perform(self.conversation.cancel(state.turn.number))
        elif (resolution := _RESOLUTIONS.get(str(answer))) is None:
            self.screen.writer.note(f"  Say one of: {', '.join(_RESOLUTIONS)}.")
        else:
            await self.perform(self.conversation.resolve(call.call_id, resolution))

    async def _call(self, call_id: str) -> ToolCall:
        messages = await self.conversation.transcript()
        return next(call for message in reversed(messages) for call in message.tool_calls if call.call_id == call_id)

    async def _note_who_asks(self, state: State) -> None:
        """Name the task of the sub-agent that asks, if one does."""
        if isinstance(state, AwaitingSubAgents) and (asked := state.question) is not None:
            asking = self.conversation.id, asked.effect_id
            titles = [child.title for child in await self.conversation.children() if effect_of_key(child.id) == asking]
            self.screen.writer.note(f"  Asked by a sub-agent: {one_line(' '.join(titles))}")

    async def _ask_questions(self, asked: OpenQuestion) -> None:
        answers = await self._answers(asked)
        if answers is None:
            await self.perform(self.conversation.decline(call_id=asked.call_id))
        else:
            await self.perform(self.conversation.answer(answers, call_id=asked.call_id))

    async def _answers(self, asked: OpenQuestion) -> dict[str, Answer] | None:
        """Return the answers to all questions, or None if the user declines. A command in between keeps those that
        were given already."""
        answers = self._partial_answers.setdefault(asked.call_id, {})
        for question in asked.questions:
            if question.question not in answers:
                answer = await self._answer(question, OWN_WORDS)
                if answer is None:
                    del self._partial_answers[asked.call_id]
                    return None
                answers[question.question] = answer
        return self._partial_answers.pop(asked.call_id)

    async def _answer(self, question: UserQuestion, free_text: FreeTextOption | None) -> Answer | None:
        """Return the answer to a question, or None if the user declines. Raises `_NoLongerAskedError`."""
        call_id = self._asking_call
        asking = asyncio.ensure_future(self.user_input.answer(question, free_text))
        with self._interrupted_by(asking.cancel):
            await self._done_or(asking, lambda: self._asking_call != call_id)
        if asking.cancelled() and self._asking_call != call_id:
            raise _NoLongerAskedError
        return None if asking.cancelled() else asking.result()

    async def _done_or(self, task: asyncio.Future[Any], condition: Callable[[], bool]) -> None:
        """Return when the task has ended. It is cancelled once the condition holds in an update that was shown."""
        holds = asyncio.ensure_future(self._until(condition))
        try:
            await asyncio.wait((task, holds), return_when=asyncio.FIRST_COMPLETED)
        finally:
            holds.cancel()
            task.cancel()
            await asyncio.wait((task, holds))

    # --- being interrupted

    @contextmanager
    def _interrupted_by(self, callback: Callable[[], object]) -> Iterator[None]:
        self._on_interrupt = callback
        try:
            yield
        finally:
            self._on_interrupt = self._leave_unless_late

    def _cancel(self) -> None:
        self._on_interrupt = self._leave
        self.user_input.on_interrupt()
        self._cancelling = asyncio.ensure_future(self._cancel_turn())

    async def _cancel_turn(self) -> None:
        try:
            await self.conversation.cancel()
        except TurnwiseError as error:
            self.screen.writer.line(error.sentence, "red")

    def _stop_turn(self) -> bool:
        """Stop the turn that somebody else began while the user writes, and return whether there is one that is not
        being stopped already."""
        works = self._is_working and not isinstance(self.conversation.state, Cancelling)
        if works:
            self._cancelling = asyncio.ensure_future(self._cancel_turn())
        return works

    def _leave_unless_late(self) -> None:
        """Leave, unless this Ctrl-C stops a turn that somebody else began, or was meant for one that ended a moment
        ago."""
        if not self._stop_turn() and self.user_input.on_interrupt():
            self._leave()

    def _leave(self) -> None:
        self.user_left = True
        assert self._task is not None, "a dialogue is created in a task"
        self._task.cancel()


@contextmanager
def _interrupts_handled_by(callback: Callable[[], None]) -> Iterator[None]:
    """Call `callback` in the event loop at each SIGINT while the body runs. For the main thread only."""
    loop = asyncio.get_running_loop()

    def interrupt(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_ALLOW, _DENY = "Allow", "Deny"
_YES, _NO = ("allow", "y", "yes"), ("deny", "n", "no")
"""The answers that allow and deny a call, in any case; any other answer denies it and is the reason."""

_REASON_TO_DENY = FreeTextOption("Deny, and say why", "", ", yes, no, or why not")

_RESOLUTIONS: Mapping[str, Resolution] = {"It ran": "ran", "It did not run": "did_not_run", "Run it again": "again"}
"""What the user can say about an interrupted call, by its label."""


def _approval_question(call: ToolCall, description: str = "") -> UserQuestion:
    """Ask whether a call may run of a tool with this description. Denying comes first, so that Enter pressed too early
    does not allow it. `Pure.`"""
    allow = QuestionOption(label=_ALLOW, description="run it as it stands")
    deny = QuestionOption(label=_DENY, description="go on without it")
    text = f"May {_with_arguments(call, 'run')}?"
    if description.strip():
        text += f"\n{indent(with_hidden_shown(description.strip()), '  ')}"
    return UserQuestion(question=text, header="Approval", options=(deny, allow))


def _parse_approval(answer: str) -> tuple[bool, str | None]:
    """Return whether an answer allows the call, and the reason that it gives for denying it, if any. `Pure.`"""
    word = answer.strip().casefold()
    return word in _YES, None if word in (*_YES, *_NO) else answer


def _doubt_question(call: ToolCall) -> UserQuestion:
    """Ask whether a call ran that a crash interrupted. `Pure.`"""
    options = tuple(QuestionOption(label=label) for label in _RESOLUTIONS)
    text = f"The program ended while {_with_arguments(call, 'ran')}. Did it run?"
    return UserQuestion(question=text, header="In doubt", options=options)


def _with_arguments(call: ToolCall, verb: str) -> str:
    return f"{with_hidden_shown(call.name)} {verb} with {shown_arguments(call)}"
