"""What a transition may read besides the state and the event."""

from __future__ import annotations

from collections.abc import Sequence

from .events import DetailsChanged, Event, Opened, PolicyChanged, ScheduleChanged, ToolsChanged
from .header import Setup
from .policy import output_of
from .roles import Caller
from .values.turn import TurnRecord
from .values.value import Text, Value

CHANGES_CONTEXT = (Opened, PolicyChanged, ToolsChanged, DetailsChanged, ScheduleChanged)
"""The events that change the context. To compute the context of a log, all other events can be left out."""

_CHANGES = frozenset(CHANGES_CONTEXT)


class NextTools(Value):
    """The tools that a conversation may use from the turn `from_turn` on; None stands for all that its engine has."""

    tools: tuple[Text, ...] | None
    from_turn: int


class Context(Setup):
    """What holds for the whole conversation: its header and its rules, as they are now.

    `tools` are those of the turns before `next_tools`; ask `tools_in`.
    """

    next_tools: NextTools | None = None

    @property
    def caller(self) -> Caller:
        """The agent of this conversation, as far as the tools that it may call depend on it. `Pure.`"""
        return Caller(self.role, self.depth, self.policy.sub_agents)

    @property
    def has_one_task(self) -> bool:
        """Whether this is a sub-agent that closes when the turn of its task has ended. Its limits are a share of those
        of its parent. `Pure.`"""
        return self.role == "sub_agent"

    def tools_in(self, turn: int) -> tuple[str, ...] | None:
        """The names of the tools that the conversation may use in this turn, which is the newest one or one to come.
        None stands for all that its engine has. `Pure.`"""
        changed = self.next_tools
        return changed.tools if changed is not None and turn >= changed.from_turn else self.tools

    def wants_output(self, turn: TurnRecord) -> bool:
        """Whether the answer of this turn must have a form. `Pure.`"""
        if turn.output_from is not None or self.output is not None:
            return True
        return bool(turn.profile) and output_of(self.policy, turn.profile) is not None

    def after(self, event: Event) -> Context:
        """The context after this event. This is the only place where a context changes.

        When a log is folded, call this beside `transition`; `transition` takes the context from *before* the event.
        `Pure.`
        """
        # Asked of every event. The instance checks of pydantic's classes take many times as long.
        return self._changed_by(event) if type(event) in _CHANGES else self

    def _changed_by(self, event: Event) -> Context:
        match event:
            case Opened():
                return Context.opened(event)
            case PolicyChanged(policy=policy, chose_models=chose_models, chose_profiles=chose_profiles):
                return self.replace(policy=policy, chose_models=chose_models, chose_profiles=chose_profiles)
            case ToolsChanged(tools=tools, from_turn=from_turn):
                # The turn under way is the one before `from_turn`: the state refuses any other.
                changed = NextTools(tools=tools, from_turn=from_turn)
                return self.replace(tools=self.tools_in(from_turn - 1), next_tools=changed)
            case DetailsChanged(title=title, metadata=metadata, system=system):
                renamed = self.with_details(title, metadata)
                return renamed if system is None else renamed.replace(system=system)
            case ScheduleChanged(schedule=schedule):
                return self.replace(schedule=schedule)
            case _:
                return self

    @classmethod
    def opened(cls, event: Opened) -> Context:
        """The context of a conversation that begins with this event. `Pure.`"""
        return cls.model_construct(**{name: getattr(event, name) for name in Setup.model_fields})


def are_among(tools: Sequence[str] | None, of: Sequence[str] | None) -> bool:
    """Whether whoever may use the tools `of` may use these. None stands for all tools, and `files:*` for every tool of
    the server `files`. `Pure.`"""
    if of is None:
        return True
    servers = tuple(name.removesuffix("*") for name in of if name.endswith(":*"))
    return tools is not None and all(name in of or name.startswith(servers) for name in tools)
