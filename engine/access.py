"""Creates, finds and lists conversations, as an engine offers it to applications."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..states.policy import Policy
from ..states.roles import Role
from ..states.values.messages import Usage
from .choices.choices import Choices, GivenTools
from .choices.given_history import GivenMessages
from .choices.offered_tools import OfferedTool, offered_tools
from .choices.opening import ChosenOpening
from .choices.roles import GivenConversation
from .choices.schedules import GivenInterval
from .choices.selection import checked_owner, checked_selection
from .conversation import Conversation
from .conversations.creation import Creation
from .conversations.registry import ConversationRegistry
from .handles.awaiting import must_be_awaited
from .lifetime import Homebound
from .projections.tree_feed import TreeFeed
from .projections.updates.tree import TreeUpdate
from .requests import checked_id

if TYPE_CHECKING:
    from ..persistence.ports import Store
    from ..persistence.summaries import Summary


class ConversationAccess(Homebound):
    """The conversations of an engine, which fills in what this needs of it."""

    _creation: Creation
    _registry: ConversationRegistry
    _tree: TreeFeed

    @property
    @abstractmethod
    def store(self) -> Store:
        """The open store. Raises `EngineClosed`."""

    @property
    @abstractmethod
    def choices(self) -> Choices:
        """What the conversations of this engine may choose."""

    @property
    @abstractmethod
    def channel_names(self) -> tuple[str, ...]:
        """The names of the channels. Everything that is said to users goes out through each of them."""

    @abstractmethod
    def check_may_write(self) -> None:
        """Raise `Refused` with `read_only` if the engine was opened for reading only."""

    @abstractmethod
    def spent_on(self, conversation_id: str) -> Usage:
        """Return about what has been spent on the answers of this conversation that are under way here."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the current time, by the clock of the engine."""

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names of the models that a conversation may choose. The first one is asked by those that choose none."""
        return tuple(self.choices.models.specs)

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        """The tools that a conversation may choose, in the order in which they were given; those of MCP servers while
        they are connected."""
        return offered_tools(self.choices.registry)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools that a conversation may choose."""
        return tuple(tool.name for tool in self.tools)

    @must_be_awaited("A conversation is created with `await`: write `conversation = await engine.create()`.")
    async def create(
        self,
        *,
        role: Role = "foreground",
        works_for: GivenConversation | None = None,
        policy: Policy | None = None,
        system: str = "",
        model: str | None = None,
        tools: GivenTools | None = None,
        messages: GivenMessages | None = None,
        owner: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        marks: Mapping[str, str] | None = None,
        every: GivenInterval | None = None,
        cron: str | None = None,
        zone: str = "UTC",
        task: str | None = None,
        conversation_id: str | None = None,
    ) -> Conversation:
        """Create a conversation. `system` is its system prompt, `policy` its rules.

        A conversation with the role "foreground" has a user. One with the role "background" works for the agent of
        another conversation, `works_for` (a handle or an id), and has its owner; without a `policy` it has the rules of
        the engine, but for what concerns a user. Which built-in tools it may call follows from its role.

        `model` is the name of a model that the engine was opened with: it is asked first, then the engine's fallback
        models. Without it the models of the policy are asked, or those of the engine if the policy names none; only a
        conversation that chose no models follows when the engine is opened with others. `tools` are the tools that the
        conversation may use: names, or functions that the engine was opened with; None stands for all of them. `owner`,
        `title` and `metadata` (JSON) are the application's own, and `Engine.list` finds conversations by them. `marks`
        are those of a host program, which finds by them what it has made for itself: `marks={"completion": "kept"}`
        stands in the metadata as `turnwise.completion`, a name that no metadata can have otherwise. It stays as long as
        the conversation, which can be neither forked nor imported.

        With `every` (seconds, or a `timedelta`) or a `cron` expression in the time zone `zone` it wakes up by itself,
        reads `task` and begins a turn, as `Conversation.set_schedule` says.

        It may begin with `messages` that were said elsewhere, in OpenAI's chat format: they stand in front of
        everything that is said here. What no provider would accept in them is repaired: a call without a result gets
        one that says so, a repeated id becomes another one. `Conversation.repairs` tells what was done. System messages
        at the beginning become the system prompt, unless `system` is given.

        With a `conversation_id` of the application's own (up to 100 letters, digits and `._:@~-`) it is created once: a
        call that is repeated, because no answer came, returns it as it is by now. If it was created with other
        arguments, or is a copy, `Refused` with `event_id_reused` is raised; a policy and a model that are left out do
        not count.

        Raises `ConfigurationError` for a model or a tool that the engine does not have, for a rule that it cannot carry
        out and for another role; `InvalidInput` for what is no list of messages, or too long, for what is no schedule,
        and for an owner other than that of the conversation that is worked for. If that conversation is not stored, it
        raises `UnknownConversation`, and if it is closed, `Refused` with `closed`.
        """
        chosen = ChosenOpening(
            role=role,
            works_for=works_for,
            policy=policy,
            system=system,
            model=model,
            tools=tools,
            messages=messages,
            owner=owner,
            title=title,
            metadata=metadata,
            marks=marks,
            every=every,
            cron=cron,
            zone=zone,
            task=task,
        )
        self.check_may_write()
        return Conversation(self, await self._creation.begin(chosen, conversation_id))

    @must_be_awaited("A conversation is read with `await`: write `conversation = await engine.get(conversation_id)`.")
    async def get(self, conversation_id: str) -> Conversation:
        """Return a handle on a conversation. Nothing in it changes by that. Raises `UnknownConversation`."""
        return Conversation(self, await self._registry.read(checked_id(conversation_id)))

    async def list(
        self,
        *,
        owner: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        state: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        role: Role | None = None,
        parent: str | None = None,
        works_for: str | None = None,
    ) -> tuple[Summary, ...]:
        """Return a page of conversations, the one that changed last first: summaries with `id`, `title`, `owner`,
        `metadata`, `state`, `busy`, `updated_at`, `origin`, `role`, `parent`, `works_for` and `wakes_at`.

        `owner`, `state` (such as `"idle"`) and `metadata` select: `metadata={"tenant": "a"}` those whose metadata has
        this value under this name. Values are compared as JSON: 1 is neither "1" nor true. `role` selects, too; so do
        `parent`, the id of the conversation that started sub-agents, and `works_for`, the id of the one that background
        agents work for. `limit` is the size of the page, and `before` the `cursor` of the last conversation of the page
        before, which holds although that one is deleted, or its id. Raises `InvalidInput`, and `UnknownConversation`
        for an id that is not stored.
        """
        selection = checked_selection(owner, metadata, state, limit, before, role, parent, works_for)
        return await self.store.list(**selection)

    def updates(self, *, owner: str | None = None) -> AsyncGenerator[TreeUpdate, None]:
        """Return an iterator over the updates of all conversations of this owner, or of everybody: for programs that
        show a tree of agents.

        First comes a `tree_snapshot` with the conversations as they are; then the updates of each, in order, as
        `Conversation.updates` has them; `conversation_opened` and `conversation_deleted` for those that begin and end.
        A watcher that falls far behind gets another snapshot, which replaces everything before it, so a slow one costs
        no memory. Steps that another engine stores are shown once this engine has read them.

        It ends when the engine is closed, and can be ended before with `aclose()`. Raises `InvalidInput` and
        `EngineClosed`.
        """
        wanted, _ = checked_owner(owner), self.store
        return self._tree.updates(wanted, self._listed, self._registry.streaming)

    async def _listed(self, owner: str | None) -> Sequence[Summary]:
        return await self.store.list(owner=owner)

    def note_copy(self) -> None:
        """Note that a conversation was copied: those who watch a tree read the list again."""
        self._tree.begin_again()
