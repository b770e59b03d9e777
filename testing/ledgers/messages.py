"""What became of every message: it entered the transcript, was withdrawn, or waits."""

from __future__ import annotations

from collections import Counter

from ...states.effects import PersistMessage
from ...states.events import AgentMessage, Event, UserMessage, WakeUp
from ...states.step import Step
from ...states.values.messages import Heard


class MessageLedger:
    """The messages of people and other agents that were taken."""

    def __init__(self) -> None:
        self.taken: dict[int, UserMessage | AgentMessage | WakeUp] = {}
        """By the step that took them."""
        self.entered: Counter[int] = Counter()
        """How often each entered the transcript, by that step."""
        self.entering_now: list[int] = []
        """The messages that enter the transcript with the newest step."""
        self.withdrawn: Counter[str] = Counter()
        """How often each was withdrawn, by its id."""

    def add(self, event: Event, step: Step) -> None:
        """Add a step."""
        is_taken = not isinstance(event, WakeUp) or not self._has_wake_up()
        if isinstance(event, UserMessage | AgentMessage | WakeUp) and is_taken:
            self.taken[step.state.book.seq] = event
        self.withdrawn.update(step.withdrawn)
        said = [effect.said for effect in step.effects if isinstance(effect, PersistMessage)]
        self.entering_now = [one.seq for one in said if isinstance(one, Heard) and one.seq in self.taken]
        self.entered.update(self.entering_now)

    def _has_wake_up(self) -> bool:
        """Whether a wake-up waits, which stands for those that come after it."""
        return any(
            isinstance(message, WakeUp) and not self.entered[seq] and not self.withdrawn[message.event_id]
            for seq, message in self.taken.items()
        )
