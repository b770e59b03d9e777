"""Who asked for what in a simulation, and what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

from ...states.errors import CompactionFailed, EngineClosed, Refused
from ...states.events import Event
from ...states.step import Step
from .story import Story

Told = Literal["waits", "told", "refused", "left", "closed", "broken"]
"""What became of somebody who asked: `left` did not wait for it, `closed` asked an engine that was being closed."""


@dataclass(eq=False)
class Asked:
    """A request at the door of the engine, and the step or the refusal that came of it."""

    event: Event
    told: Told = "waits"
    step: Step | None = None

    @property
    def ignored(self) -> bool:
        """Whether it was told that nothing was to be done."""
        return self.step is not None and self.step.ignored


@dataclass(eq=False)
class Call:
    """What somebody called, and what came back."""

    who: str
    what: str
    told: Told = "waits"
    result: Any = None


@dataclass
class CallRecorder:
    """All requests and all calls, in order."""

    story: Story
    asked: list[Asked] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    async def door(self, event: Event, asking: Awaitable[Step]) -> Step:
        """Let a request pass, and note what comes of it."""
        asked = Asked(event)
        self.asked.append(asked)
        try:
            asked.step = await asking
        except Refused:
            asked.told = "refused"
            raise
        except BaseException as error:
            asked.told = _how(error)
            raise
        asked.told = "told"
        return asked.step

    async def call(self, who: str, what: str, calling: Coroutine[Any, Any, Any]) -> None:
        """Call something, and note what comes back, whatever it is."""
        call = Call(who, what)
        self.calls.append(call)
        self.story.tell(who, what)
        try:
            call.result = await calling
            call.told = "told"
            self.story.tell(who, f"{what}: told {_short(call.result)}")
        except (Refused, CompactionFailed) as error:
            call.told, call.result = "refused", error
            why = error.code if isinstance(error, Refused) else error.sentence
            self.story.tell(who, f"{what}: refused, {why}")
        except BaseException as error:
            call.told = _how(error)
            self.story.tell(who, f"{what}: {call.told}, {type(error).__name__}")
            if call.told == "broken":
                self.story.blame(f"{who}, {what}: got {type(error).__name__}: {error}")


def _how(error: BaseException) -> Told:
    if isinstance(error, asyncio.CancelledError):
        return "left"
    return "closed" if isinstance(error, EngineClosed) else "broken"


def _short(result: object) -> str:
    status = getattr(result, "status", None)
    if status is not None:
        return f"turn {getattr(result, 'number', '')} {status}"
    if isinstance(result, Step):
        return "ignored" if result.ignored else f"step {result.state.book.seq}"
    return str(result)
