"""The record of a turn under way, and what is kept of a turn that has ended.

A turn is everything between a message and the next rest: model requests, tools, questions. Its record counts what the
turn has used up, for its limits, and what was said, for its deliveries. Messages that arrive during a turn wait in the
inbox.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Literal

from .acts import Audience
from .messages import NOTHING_SPENT, Heard, Made, Said, Suspect, Usage
from .value import FailureKind, Instant, Record, Text

EndedStatus = Literal["completed", "incomplete", "failed", "cancelled"]
"""How a turn ended: with an answer, without one (a limit, an empty response), by a failure, or cancelled by a
person."""

LimitKind = Literal["requests", "tokens", "cost", "seconds"]
"""The limits of a policy that can end a turn."""


@dataclass(frozen=True, kw_only=True)
class Spoken(Record):
    """A speech that a tool brought. `place` orders speeches by their calls: the step of the response, the place of the
    call in it, the place of the speech in the result."""

    said: Heard
    place: tuple[int, int, int]
    now: bool = False


@dataclass(frozen=True, kw_only=True)
class Delivered(Record):
    """A text that was delivered to the user, and the effect that delivered it. `relayed` marks another agent's message
    that was passed on unchanged."""

    effect_id: int
    said: Said
    relayed: bool = False


@dataclass(frozen=True, kw_only=True)
class TurnRecord(Record):
    """A turn under way.

    `requests`, `tool_calls`, `spent` and `since` count from the last human input, those of a sub-agent from its
    beginning; `usage` and `children`, the number of sub-agents started, are those of the whole turn.
    `model` is the index of the model among those of the profile (`models_of`): a fallback is used until the turn ends.
    """

    number: int
    tries_again: int | None = None
    """The first of the failed turns that this one tries again. It answers what people said then."""

    since: Instant
    model: int = 0
    requests: int = 0
    tool_calls: int = 0
    spent: Usage = NOTHING_SPENT
    usage: Usage = NOTHING_SPENT
    children: int = 0

    profile: str = ""
    memory: Heard | None = None
    """The answer that holds what was recalled."""

    nudge: Made | None = None
    plain: bool = False
    """`nudge` is the reminder in the newest request; `plain` says that the request holds only the system prompt and the
    message."""

    nudges: int = 0
    only_thought: bool = False
    """Whether the newest response held only thinking."""

    worked: bool = False
    """Whether tools have given results."""

    empties: int = 0
    fell_back: bool = False
    plain_retries: int = 0
    """`empties` counts empty responses in a row; `fell_back` and `plain_retries` say how the model was asked again."""

    withheld: tuple[Suspect, ...] = ()
    """What was withheld of the newest request, one after the other, because it was refused for its content."""

    condensed: bool = False
    """Whether the history was compacted for the newest request, or for an earlier one after which the window stayed
    full."""

    cleared: bool = False
    """Whether old results of tools were cleared for the newest request."""

    earlier_calls: tuple[tuple[str, ...], ...] = ()
    """Fingerprints of the calls made, by request, as far back as the policy remembers them."""

    said: tuple[Spoken, ...] = ()
    deliveries: tuple[Delivered, ...] = ()
    relay: tuple[Heard, ...] = ()
    """Messages to pass on to the user: those that earlier turns left to this one, then those that began it."""

    overdue: tuple[Heard, ...] = ()
    """Those that earlier turns left. The model is reminded of them until it says something."""

    internal: bool = False
    """Whether no user waits for an answer: a message of another agent began the turn, for this agent alone or to be
    passed on by its prompt only, and no person has steered it since."""

    speaks: bool = False
    """Whether the newest request offered a tool that speaks to the user."""

    cut_off: bool = False
    """Whether the provider cut off the newest response."""

    final: Heard | None = None
    """The newest text of the model."""

    claim: Heard | None = None
    """The claim that the work is complete."""

    asked_to_speak: bool = False
    """Whether the model was asked for its answer after a claim without one."""

    rejections: int = 0
    """How often the check of a claim failed."""

    rejection: Heard | None = None
    """The answer that says why the check of the newest claim failed."""

    limit: LimitKind | None = None
    """The limit that ends the turn."""

    output_from: int | None = None
    """The step of the newest message of the turn that says which form the answer must have."""

    output: Heard | None = None
    """The typed answer, as JSON, that the newest response gave beside other calls, until these have run."""

    output_failures: int = 0
    output_errors: Heard | None = None
    """How many typed answers were not valid, and what is wrong with the newest one."""


@dataclass(frozen=True, kw_only=True)
class Failure(Record):
    """Why a turn failed or stayed incomplete, in one sentence for people."""

    kind: FailureKind
    sentence: str


@dataclass(frozen=True, kw_only=True)
class TurnEnded(Record):
    """The outcome of a turn. Its texts are references.

    `final_content` is the text to display, `user_response` what was said by tool and delivered to the user, and
    `deliveries` everything that was delivered, in order. A turn is `silent` if nothing was delivered. `limit` is the
    limit of the policy that ended the turn, if one did. `profile` is the profile of the turn, or an empty text if the
    policy has none. `output` is the typed answer, as JSON, if the turn gave one.
    """

    turn: int
    status: EndedStatus
    final_content: Said | None = None
    user_response: tuple[Said, ...] = ()
    deliveries: tuple[Delivered, ...] = ()
    silent: bool = False
    truncated: bool = False
    usage: Usage = NOTHING_SPENT
    failure: Failure | None = None
    limit: LimitKind | None = None
    profile: Text = ""
    output: Heard | None = None


MAX_INBOX = 100
"""How many messages may wait at once. Chosen so that no person reaches it by typing during a turn."""


@dataclass(frozen=True, kw_only=True)
class Waiting(Record):
    """A message in the inbox: the id of its request, and the step where its text is.

    `audience` is set for a message of another agent, and for a wake-up, which is `scheduled`. `origin` is the agent
    that wrote it, to be told if nobody reads it. `output` says that the message names the form of its answer.

    A queued message begins the next turn. A steered message enters this turn before its next model request, or begins
    the next turn if this one ends first. A message of another agent begins a turn of its own, or, if it is silent,
    enters with whatever comes next. A message leaves the inbox by entering the transcript or by being withdrawn, never
    otherwise.
    """

    event_id: str
    seq: int
    steer: bool = False
    audience: Audience | None = None
    silent: bool = False
    scheduled: bool = False
    origin: str = ""
    output: bool = False


@dataclass(frozen=True, kw_only=True)
class BranchPoint(Record):
    """A point in the tree of turns at which a conversation can go on: behind its turn `turn`, or, with `before`, where
    that turn began. Turns are never numbered anew, so a number names a turn in whatever branch it is.

    `window_used` is what the last request had used of the window there, and `clearable` how much of that were old
    results of tools. `again` are the messages of a hidden turn that are answered again, and `said` is a new one behind
    them. Without any message the conversation rests there.
    """

    turn: int
    before: bool = False
    window_used: int = 0
    clearable: int = 0
    again: tuple[Waiting, ...] = ()
    said: Waiting | None = None

    @property
    def messages(self) -> tuple[Waiting, ...]:
        """The messages that begin the next turn there. `Pure.`"""
        return self.again if self.said is None else (*self.again, self.said)


@dataclass(frozen=True, kw_only=True)
class Owed(Record):
    """A message for the user that a turn took up at `since` and that no turn has passed on yet. `origin` is the agent
    that wrote it, to be told if nobody ever does."""

    said: Heard
    since: Instant
    origin: str = ""

    def has_lapsed(self, at: datetime, deadline: float | None) -> bool:
        """Whether it need not be passed on any more, `deadline` seconds after it was taken up. `Pure.`"""
        return deadline is not None and (at - self.since).total_seconds() > deadline


def in_order(inbox: Iterable[Waiting]) -> tuple[Waiting, ...]:
    """These messages in the order in which they came. `Pure.`"""
    return tuple(sorted(inbox, key=attrgetter("seq")))


def first_batch(inbox: tuple[Waiting, ...]) -> tuple[Waiting, ...]:
    """The messages that begin the next turn: the consecutive messages of people together, or one message of another
    agent, either with the silent messages that came before. `Pure.`"""
    batch: list[Waiting] = []
    first: Waiting | None = None
    for waiting in inbox:
        if not waiting.silent:
            if first is not None and (first.audience is not None or waiting.audience is not None):
                break
            first = first or waiting
        batch.append(waiting)
    return tuple(batch)
