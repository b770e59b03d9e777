"""Conversations that the real machine makes step by step, for tests that store them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from turnwise.persistence.sqlite.store import SqliteLog, SqliteStore
from turnwise.states import (
    Answer,
    AskUserQuestionPending,
    Context,
    Event,
    LlmResponse,
    Opened,
    Policy,
    QuestionOption,
    Request,
    State,
    Step,
    ToolCall,
    ToolComplete,
    ToolResult,
    UserMessage,
    UserQuestion,
    WhenBusy,
    begin,
    pending,
    transition,
)

NOON = datetime(2025, 6, 1, 12, 0, 0, 123_456, tzinfo=UTC)
WHEN = UserQuestion(question="When?", options=(QuestionOption(label="6:30 PM"), QuestionOption(label="8:15 PM")))


class Walk:
    """A conversation on its way through the machine, a second between two events. `steps` is what a store is given, and
    `opened_with` are further fields of the first event."""

    def __init__(self, name: str = "walk", policy: Policy | None = None, **opened_with: Any) -> None:
        chosen = {"system": "You book tables.", "policy": policy or Policy(), **opened_with}
        opened = Opened(event_id=f"{name}-1", at=NOON, **chosen)
        self.name = name
        self.steps: list[tuple[Event, Step]] = [(opened, begin(opened))]
        self.context = Context().after(opened)

    @property
    def state(self) -> State:
        """Where the conversation rests."""
        return self.steps[-1][1].state

    def request(self, kind: type[Request], /, **fields: Any) -> Walk:
        """A person wants something."""
        return self.take(kind(event_id=f"{self.name}-{len(self.steps) + 1}", at=self._now(), **fields))

    def answer(self, kind: type[Answer], /, **fields: Any) -> Walk:
        """The oldest effect that is awaited gets its answer."""
        return self.take(kind(effect_id=min(pending(self.state)), at=self._now(), **fields))

    def take(self, event: Event) -> Walk:
        """Take an event, which must neither be refused nor ignored."""
        step = transition(self.state, event, self.context)
        assert not step.ignored
        self.steps.append((event, step))
        self.context = self.context.after(event)
        return self

    def _now(self) -> datetime:
        return NOON + timedelta(seconds=len(self.steps))

    def say(self, text: str = "A table for two?", when_busy: WhenBusy | None = None) -> Walk:
        """A person says something; the model is asked."""
        return self.request(UserMessage, text=text, when_busy=when_busy)

    def reply(self, text: str) -> Walk:
        """The model answers."""
        return self.answer(LlmResponse, content=text)

    def call(self, name: str) -> Walk:
        """The model wants a tool, which starts to run."""
        made = ToolCall(call_id=f"{self.name}-call-{len(self.steps)}", name=name, exclusive=True, acts=("question",))
        return self.answer(LlmResponse, tool_calls=(made,), finish_reason="tool_calls")

    def turn(self, text: str = "A table for two?") -> Walk:
        """A whole turn: a message, a tool, an answer."""
        self.say(text).call("find_table")
        self.answer(ToolComplete, result=ToolResult(text=f"Found for {text}: Sakura, 寿司, 6:30 PM"))
        return self.answer(LlmResponse, content=f"About {text}: Sakura has one.")

    def question(self) -> Walk:
        """The model asks its user something, and the conversation waits."""
        return self.say().call("ask_user_question").answer(AskUserQuestionPending, questions=(WHEN,))

    async def into(self, store: SqliteStore, conversation_id: str | None = None) -> SqliteLog:
        """Store all of it."""
        opened, step = self.steps[0]
        assert isinstance(opened, Opened)
        log = await store.create(conversation_id or self.name, opened, step)
        for event, following in self.steps[1:]:
            await log.append(event, following)
        return log
