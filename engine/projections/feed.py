"""The newest updates of a conversation, for any number of watchers at their own pace.

A watcher that falls behind the oldest update kept reads what it missed from the log. While nobody watches nothing is
kept, so a watcher that resumes from before that time reads the log, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...states.states import State, pending
from .kept_updates import KeptUpdates
from .updates.live import TokenUpdate
from .updates.streamed_text import StreamedText
from .updates.update import Update

CAPACITY = 1024
"""How many updates are kept, live ones included: several long streamed answers."""


class Feed(KeptUpdates[Update]):
    """The updates of one conversation.

    `streamed` is the text of the tokens among them that belong to the model request under way. It always includes the
    newest one, so a watcher that begins at `end` shows it and misses nothing.
    """

    __slots__ = ("streamed",)

    def __init__(self, capacity: int = CAPACITY) -> None:
        super().__init__(capacity)
        self.streamed = StreamedText()

    def publish(self, *updates: Update) -> None:
        """Show updates to whoever watches."""
        for update in updates:
            if isinstance(update, TokenUpdate):
                self.streamed.add(update)
        if self.is_watched:
            self.keep(updates)
        else:
            self.skip()

    def rest(self) -> None:
        """Nothing is under way: let go of the updates unless somebody watches. Whoever asks for them later reads them
        from the log."""
        if not self.is_watched:
            self.forget()

    def follow(self, updates: Sequence[Update] | None, state: State) -> None:
        """Show the updates of a step that was stored, and that led to this state. None if nobody here knows the
        updates: whoever watches reads them from the log."""
        if self.streamed.has_text:
            self.streamed.keep_only(pending(state))
        if updates is None:
            self.skip()
        else:
            self.publish(*updates)
