"""A conversation, as a host program holds it: it makes requests, and reads what became of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..states.dialogue import usage
from ..states.openai_writing import openai_messages, repairs_of
from ..states.transcript import transcript
from ..states.values.messages import Message, Usage
from .handles.children import children_of
from .handles.conversation_requests import ConversationRequests
from .handles.handle import HandleHost, new_id
from .handles.inspection import Inspection
from .handles.turn_streams import TurnStreams
from .projections.projection import ConversationProjection
from .projections.turn import EndedTurn
from .projections.updates.update import Update
from .requests import checked_request_id

if TYPE_CHECKING:
    from ..persistence.maintenance.replay import ReplayReport
    from ..persistence.records import StoredEntry
    from ..persistence.summaries import Summary
    from .loop import Loop


class ConversationHost(HandleHost, Protocol):
    """What a conversation needs from its engine."""

    async def get(self, conversation_id: str) -> Conversation:
        """Return a handle on a conversation."""
        ...


class Conversation(TurnStreams, ConversationRequests, Inspection):
    """A handle on one conversation of an engine; get it from `Engine.create` or `Engine.get`.

    Any number of handles may exist. Each remembers the question that it has last seen, so a late answer never applies
    to the next one. Every method that requests something raises `Refused` if the conversation does not take it now;
    then nothing has changed.
    """

    def __init__(self, host: ConversationHost, loop: Loop) -> None:
        super().__init__(host, loop)
        self._get = host.get

    def updates(
        self, after: str | None = None, *, caught_up: Callable[[int], object] | None = None
    ) -> AsyncGenerator[Update, None]:
        """Return an iterator over the updates as they happen: first a snapshot, or with `after` (the id of an update)
        all updates since then.

        It ends when the conversation or its engine is closed, and can be ended before with `aclose()`. A slow watcher
        misses nothing that is stored. Raises `InvalidInput` for a malformed id; the iterator raises it for an id that
        no update of this conversation has had yet.

        A model that fails in the middle of its answer writes it again. So a client that shows the tokens of an answer
        discards them at a token of another `(request, attempt)`, and at a `state_change` whose state has another one.
        In the middle of an answer a snapshot has the text so far as `streaming`; with `after` it comes as one token of
        each kind, `from_start`, which replaces what is shown.

        A step may have no updates. A client that has to know whether it shows everything passes `caught_up`: it is
        called in the event loop, with the number of the newest step (`state.book.seq`), each time the client has taken
        the updates of all steps and asks for more.
        """
        return self._noted(self._watcher(after, caught_up).updates())

    async def transcript(self) -> tuple[Message, ...]:
        """Return what was said, oldest first."""
        return transcript(await self.events())

    async def messages(self) -> list[dict[str, Any]]:
        """Return what was said as messages in OpenAI's chat format, oldest first: the system prompt, the history that
        the conversation began with, as it was given but for its repairs, and everything since.

        A new conversation can begin with them: `engine.create(messages=await conversation.messages())`. A call that has
        no result yet has one that says so; what a model thought, and what was delivered, is not part of the format.
        """
        return openai_messages(await self.events())

    async def repairs(self) -> tuple[str, ...]:
        """Return what was repaired in the history that the conversation began with, a sentence for each repair."""
        return repairs_of(await self._read_entries(0, 1))

    async def events(self) -> tuple[StoredEntry, ...]:
        """Return the log as stored, one entry for each step."""
        return await self._read_entries()

    async def turns(self) -> tuple[EndedTurn, ...]:
        """Return the turns that have ended, oldest first."""
        projection = ConversationProjection(self._loop.state, self._loop.projection.context, self._read_entries)
        await projection.read()
        return tuple(projection.turns.values())

    async def usage(self) -> Usage:
        """Return what the conversation has cost so far: all its turns, also those that failed or are under way, and its
        compactions. A copy that `fork` made begins with what the original had cost by then."""
        return usage(await self.events())

    async def children(self) -> tuple[Summary, ...]:
        """Return the sub-agents that the turns of this conversation have started, as `Engine.list` describes them, the
        first one first. `Engine.get` opens each by its id."""
        return await children_of(self._host.store, self.id)

    async def replay(self) -> ReplayReport:
        """Replay the stored log, and compare every step with what was stored."""
        from ..persistence.maintenance.replay import replay_conversation

        return await replay_conversation(self._host.store, self.id)

    async def fork(
        self, at: int | None = None, *, keeps_rules: bool = False, request_id: str | None = None
    ) -> Conversation:
        """Return a new conversation that begins as a copy of this one up to the step `at`; None stands for the newest
        step, without a turn that is under way.

        A copy ends at a rest, a state in which nothing is under way, or between two turns of which one ended and a
        message that waited began the other; the messages that waited there are withdrawn from the copy. Within a turn
        it cannot end, because something would be lost: raises `CannotForkThere`, whose `steps` are the nearest ones
        that are possible. `InvalidInput` is raised if there is no such step.

        This conversation is not changed, and may be busy; deliveries that are still due stay with it alone, and so does
        its schedule, which one step more takes away from the copy. Deleting it does not delete the copy.

        The copy has the policy, the tools, the profile and the metadata of that step; with `keeps_rules` those of this
        conversation now, so that a user who copies it does not go back behind what its application has changed.

        With a `request_id` the copy is made once: a call that is repeated, because no answer came, returns it as it is
        by now. If it was made up to another step, `Refused` with `event_id_reused` is raised.
        """
        from ..persistence.maintenance.fork import fork, fork_once

        self._host.check_may_write()
        store, now = self._host.store, self._host.now()
        if request_id is None:
            copy_id = new_id()
            await fork(store, self.id, copy_id, at, now, keeps_rules=keeps_rules)
        else:
            made_once = checked_request_id(request_id)
            copy_id = await fork_once(store, self.id, made_once, at, now, keeps_rules=keeps_rules)
        self._host.note_copy()
        return await self._get(copy_id)
