"""The sub-agents of a call: what each may use, what became of it, and what it asks.

A sub-agent is started by an effect of its own. After a crash the same effect is asked for again, so a state keeps
everything that the effect says.
"""

from __future__ import annotations

from datetime import datetime

from .messages import Heard, Made
from .part import Part
from .questions import QuestionSet
from .value import Instant, sooner


class Share(Part):
    """What a sub-agent may use up: its share of what its parent had left. None means no limit."""

    requests: int
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


class Child(Part):
    """A sub-agent that the call `call_id` started, with its status and outcome once it has ended.

    `profile`, `tools`, `share`, `due` and `seconds` say how it works: see `SpawnSubAgent`.
    """

    effect_id: int
    call_id: str
    task: Heard
    status: str = ""
    outcome: Heard | Made | None = None
    profile: str = ""
    tools: tuple[str, ...] | None = None
    share: Share | None = None
    due: Instant | None = None
    seconds: float | None = None

    def set_right(self, at: datetime) -> Child:
        """This sub-agent as of the moment `at`: it is due no later than agreed, counted from there. `Pure.`"""
        return self if self.due is None else self.replace(due=sooner(self.due, at, self.seconds))


class ChildQuestion(Part):
    """What the sub-agent `effect_id` asks the user of its parent, by its call `call_id`, since the moment `since`.

    `seq` is the step that took the report of it. A question that has its answer, or was declined, is `settled`; it is
    kept until the sub-agent asks something else, asks nothing or ends, because it may be reported again.
    """

    effect_id: int
    call_id: str
    questions: QuestionSet
    seq: int
    since: Instant | None = None
    settled: bool = False

    @property
    def shown_call_id(self) -> str:
        """The id under which a person answers. The ids of the calls of two sub-agents may be the same, this one
        differs. `Pure.`"""
        return f"{self.effect_id}.{self.call_id}"
