"""Leads one conversation: what the user wants goes in, what happens is shown, what is asked gets an answer.

Ctrl-C cancels what is going on, and the conversation is kept. While that is being cancelled already, Ctrl-C leaves;
where nothing goes on the person decides what it means.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from ....effects.channels.speech.channel import SpeechChannel
from ....engine.conversation import Conversation
from ....states.errors import TurnwiseError
from ....states.events import Resolution
from ....states.states import AwaitingApproval, AwaitingPerson, AwaitingUserResponse, Busy, InDoubt
from ....states.values.messages import ToolCall
from ....states.values.questions import QuestionOption, UserQuestion
from ..output.printable import one_line
from .interrupts import interrupts
from .screen import Screen
from .user_input import OTHER, Answer, Other, UserInput

ALLOW, DENY = "Allow", "Deny"
YES, NO = ("allow", "y", "yes"), ("deny", "n", "no")
"""What allows a call to run, and what denies it, however it is written; any other words deny it and say why."""

WHY_NOT = Other("Deny, and say why", "", ", yes, no, or why not")

RESOLUTIONS: Mapping[str, Resolution] = {"It ran": "ran", "It did not run": "did_not_run", "Run it again": "again"}
"""What can be said of a call that a crash interrupted, by its label."""


def leave_for(call: ToolCall) -> UserQuestion:
    """The question whether a call may run; Enter pressed too early denies it. `Pure.`"""
    allow = QuestionOption(label=ALLOW, description="run it as it stands")
    deny = QuestionOption(label=DENY, description="go on without it")
    text = f"May {call.name} run with {one_line(call.arguments)}?"
    return UserQuestion(question=text, header="Approval", options=(deny, allow))


def leave_in(answer: str) -> tuple[bool, str | None]:
    """Whether an answer to that question allows the call, and the reason that it gives if it does not. `Pure.`"""
    word = answer.strip().casefold()
    return word in YES, None if word in (*YES, *NO) else answer


def doubt_about(call: ToolCall) -> UserQuestion:
    """The question whether a call ran that a crash interrupted. `Pure.`"""
    options = tuple(QuestionOption(label=label) for label in RESOLUTIONS)
    text = f"The program died while {call.name} ran with {one_line(call.arguments)}. Did it run?"
    return UserQuestion(question=text, header="In doubt", options=options)


@asynccontextmanager
async def dialogue(
    conversation: Conversation, screen: Screen, person: UserInput, speech: SpeechChannel | None = None
) -> AsyncIterator[Dialogue]:
    """Show the conversation while the body runs; a person who leaves by Ctrl-C leaves the body. Ctrl-C also cuts
    `speech` off."""
    led = Dialogue(conversation, screen, person, speech)
    try:
        with interrupts(led.interrupt):
            async with asyncio.TaskGroup() as tasks:
                drawing = tasks.create_task(led.draw())
                await led.taken_up()
                yield led
                drawing.cancel()
    except asyncio.CancelledError:
        if not led.left:
            raise
    finally:
        screen.pen.finish()


class Dialogue:
    """A conversation, the screen that shows it, and the person on the other side. Get it from `dialogue`.

    `left` tells that the person left by Ctrl-C.
    """

    def __init__(
        self, conversation: Conversation, screen: Screen, person: UserInput, speech: SpeechChannel | None = None
    ) -> None:
        self.conversation = conversation
        self.screen = screen
        self.person = person
        self._speech = speech
        self.left = False
        self._here = asyncio.current_task()
        self._react: Callable[[], object] = self._leave_unless_by_mistake
        self._cancelling: asyncio.Task[None] | None = None
        self._given: dict[str, dict[str, Answer]] = {}
        self._drawn = -1
        self._progress = asyncio.Condition()

    @property
    def asks(self) -> bool:
        """Whether the person is asked for something: an answer, leave for a tool to run, or whether one ran."""
        return isinstance(self.conversation.state, AwaitingPerson | InDoubt)

    async def hold(self, request: Awaitable[object]) -> None:
        """Make a request, and return when all that it led to is done and shown. Raises what the request raises."""
        with self._on_interrupt(self._cancel):
            try:
                await request
            except TurnwiseError:
                await self._until(lambda: not self._goes_on)
                raise
            await self._all_shown()

    async def follow(self) -> None:
        """Return when what goes on already is done and shown."""
        with self._on_interrupt(self._cancel):
            await self._all_shown()

    async def _all_shown(self) -> None:
        await self._until(lambda: not self._goes_on and self._drawn >= self.conversation.state.book.seq)

    async def ask(self) -> None:
        """Put what is asked to the person, hand in what comes of it, and return as `hold` does.

        Raises EOFError if the person leaves instead, and `Commanded`; asked again, only what is open still is put.
        """
        state = self.conversation.state
        if isinstance(state, AwaitingApproval):
            await self._ask_for_leave(state)
        elif isinstance(state, InDoubt):
            await self._ask_about(state)
        elif isinstance(state, AwaitingUserResponse):
            given = await self._answers(state)
            await self.hold(self.conversation.decline() if given is None else self.conversation.answer(given))

    async def _ask_for_leave(self, state: AwaitingApproval) -> None:
        """A tool that needs leave is put as a question; who does not want to say ends the turn."""
        called = await self._call(state.call.call_id)
        given = await self._answer(leave_for(called), WHY_NOT)
        if given is None:
            await self.hold(self.conversation.cancel())
        else:
            await self.hold(self.conversation.approve(called.call_id, *leave_in(str(given))))

    async def _ask_about(self, state: InDoubt) -> None:
        """What became of a call that a crash interrupted; who does not want to say ends the turn."""
        called = await self._call(state.call.call_id)
        given = await self._answer(doubt_about(called), None)
        if given is None:
            await self.hold(self.conversation.cancel())
        elif (resolution := RESOLUTIONS.get(str(given))) is None:
            self.screen.pen.note(f"  Say one of: {', '.join(RESOLUTIONS)}.")
        else:
            await self.hold(self.conversation.resolve(called.call_id, resolution))

    async def _call(self, call_id: str) -> ToolCall:
        said = await self.conversation.transcript()
        return next(call for message in reversed(said) for call in message.tool_calls if call.call_id == call_id)

    def interrupt(self) -> None:
        """React to Ctrl-C."""
        if self._speech is not None:
            self._speech.stop()
        self._react()

    # --- showing

    async def draw(self) -> None:
        """Show what happens, until the conversation ends or this is cancelled."""
        async for update in self.conversation.updates():
            self.screen.show(update)
            if update.position is not None:
                await self._notice(update.position[0])

    async def taken_up(self) -> None:
        """Return when it is shown how things stand."""
        await self._until(lambda: self._drawn >= 0)

    async def _notice(self, seq: int) -> None:
        async with self._progress:
            self._drawn = seq
            self._progress.notify_all()

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._progress:
            await self._progress.wait_for(condition)

    @property
    def _goes_on(self) -> bool:
        return isinstance(self.conversation.state, Busy) and not self.asks

    # --- asking, and being interrupted

    async def _answers(self, state: AwaitingUserResponse) -> dict[str, Answer] | None:
        """The answers to all questions; those that there are already wait while a command is carried out."""
        given = self._given.setdefault(state.call.call_id, {})
        for question in state.questions:
            if question.question not in given:
                answer = await self._answer(question, OTHER)
                if answer is None:
                    del self._given[state.call.call_id]
                    return None
                given[question.question] = answer
        return self._given.pop(state.call.call_id)

    async def _answer(self, question: UserQuestion, other: Other | None) -> Answer | None:
        asking = asyncio.ensure_future(self.person.answer(question, other))
        try:
            with self._on_interrupt(asking.cancel):
                await asyncio.wait([asking])
        finally:
            asking.cancel()
        return None if asking.cancelled() else asking.result()

    @contextmanager
    def _on_interrupt(self, react: Callable[[], object]) -> Iterator[None]:
        self._react = react
        try:
            yield
        finally:
            self._react = self._leave_unless_by_mistake

    def _cancel(self) -> None:
        self._react = self._leave
        self.person.interrupted()
        self._cancelling = asyncio.ensure_future(self._cancel_turn())

    async def _cancel_turn(self) -> None:
        try:
            await self.conversation.cancel()
        except TurnwiseError as error:
            self.screen.pen.line(error.sentence, "red")

    def _leave_unless_by_mistake(self) -> None:
        """Ctrl-C that came a moment too late for the turn it was meant for is no reason to leave."""
        if self.person.interrupted():
            self._leave()

    def _leave(self) -> None:
        self.left = True
        assert self._here is not None, "a dialogue is led in a task"
        self._here.cancel()
