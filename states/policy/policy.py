"""The rules that a host chooses for a conversation.

How often a failed request is tried again, what a cancel does to a question, how many tools run at once: systems differ
here, so the rules are data. They are stored in the log, so a conversation that is replayed years later is replayed
under the rules that held.

Seeds and cases are numbers of turnwise's own requirements, which its tests quote.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..values.value import Seconds, Text
from .rules import Rules
from .texts import Texts

WhenBusy = Literal["refuse", "queue", "steer"]
"""What becomes of a message that comes during a turn."""


class ModelSpec(Rules):
    """A model that may be asked, by the name under which the host knows it."""

    name: Text = Field(min_length=1)
    """As litellm has it, or the `name` of the host's own model."""

    window: int | None = Field(default=None, ge=1)
    """How many tokens it takes in; None if that is not known, and then nothing is condensed before the model has said
    that a request was too long."""


class Questions(Rules):
    """How questions to a person are handled."""

    alongside: Literal["in_order", "alone"] = "in_order"
    """A question beside other calls: in_order, it waits for those before it and those behind it wait for the answer;
    alone, every call of that response gets an error result and the model is asked again."""

    answer: Literal["json", "readable"] = "json"
    """How the model reads an answer: as JSON, or as text with previews and notes."""

    cancel: Literal["idle", "resume"] = "idle"
    """A cancelled question ends the turn, or lets the model go on by its own judgment."""

    partial: bool = False
    """Whether answers with unknown, missing or too many choices are taken as given instead of refused."""

    deadline: Seconds | None = None
    """How many seconds a question waits before the model goes on without an answer; None waits for ever."""


class Limits(Rules):
    """What one turn may use up. None is no limit. Counted anew with every message and answer of a person."""

    requests: int = Field(default=50, ge=1)
    """Model requests; a retry of a failed request is the same request."""

    last: Literal["answer_now", "plain"] = "answer_now"
    """The last request allowed: answer_now goes out without tools, plain is a request like any other."""

    tool_calls: int | None = Field(default=None, ge=0)
    """Tool calls that run."""

    tokens: int | None = Field(default=None, ge=1)
    """Tokens of all requests, sent and received."""

    cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """US dollars."""

    seconds: Annotated[Seconds, Field(gt=0)] | None = None
    """Wall-clock time, without the time spent waiting for people."""


class Retry(Rules):
    """When a request that failed for a passing reason is sent again."""

    attempts: int = Field(default=3, ge=1)
    """Attempts per model, the first included."""

    base: Seconds = 1.0
    """Seconds before the second attempt; each further wait is `factor` times as long, `cap` at the most."""

    factor: float = Field(default=2.0, ge=1, allow_inf_nan=False)
    """How many times as long each wait is as the one before it."""

    cap: Seconds = 60.0
    """The longest wait, in seconds. A provider that asks (Retry-After) for more is not waited for: the next model is
    tried."""

    def wait(self, attempt: int, retry_after: float | None) -> float | None:
        """Seconds to wait after the failed `attempt` (1 is the first), or None to give this model up. `Pure.`"""
        if attempt >= self.attempts or (retry_after or 0.0) > self.cap:
            return None
        try:
            backoff = min(self.cap, self.base * self.factor ** (attempt - 1))
        except OverflowError:
            backoff = self.cap
        return max(backoff, retry_after or 0.0)


class SpeechRules(Rules):
    """What becomes of speech that a tool brings for the end of the turn; speech for now is always delivered."""

    keep: Literal["last", "each"] = "last"
    """Of several, the last in call order, or each in call order."""

    empty: Literal["error", "deliver"] = "error"
    """Speech without text is refused, or delivered like any other."""

    never_fail: bool = False
    """Whether bad arguments of a speaking tool are acknowledged all the same: a number is said as it reads, and without
    any text nothing is delivered. For the tools that come with turnwise."""


class Repeats(Rules):
    """Calls that were made before: same tool, same arguments, the order of their keys aside."""

    window: int = Field(default=0, ge=0)
    """Over how many requests of the turn a call is remembered; 0 lets every call run. Calls that act (speak, ask,
    claim, write, spawn) always run."""


class Empty(Rules):
    """What becomes of a response without text and calls."""

    in_a_row: int = Field(default=1, ge=1)
    """After tool results: how many in a row until the model is given the fallback prompt, once; where a turn ends by a
    claim it is reminded of that at once."""


class Recovery(Rules):
    """How a turn survives the death of its process."""

    resumes: int = Field(default=2, ge=0)
    """How often a turn is taken up without progress before it fails. Waits for people are not counted."""


class Recent(Rules):
    """Requests hold only what was said lately, in whatever conversation of the owner."""

    seconds: Annotated[Seconds, Field(gt=0)] = 300.0
    """How many seconds back a request looks; a message that is just this old is still in."""


class Profile(Rules):
    """A way for the model to behave, chosen for each turn."""

    name: Text = Field(min_length=1)
    """Under which it is chosen."""

    prompt: Text = ""
    """What the system message says in its turns, behind the conversation's own system prompt."""

    tools: tuple[Text, ...] | None = None
    """The tools that may be called; None allows all. Nothing holds a call to it yet."""

    recall: bool = True
    """Whether older conversations may be searched for this profile."""

    guidance: bool = True
    """Whether the system message tells how to reach the user, where there is a tool for it."""


class Policy(Rules):
    """All rules of one conversation. The engine fills in `models` with what it was opened with."""

    models: tuple[ModelSpec, ...] = Field(default=(ModelSpec(name="default"),), min_length=1)
    """The model to ask, then those to fall back to, in order."""

    profiles: tuple[Profile, ...] = ()
    """The first is the one to fall back to. Fewer than two, and nothing is chosen."""

    text: Literal["reply", "fallback", "thought"] = "reply"
    """Is the model's text shown? Always, only if nothing was said by tool, or never."""

    speech: SpeechRules = SpeechRules()
    """What becomes of what is said by tool."""

    ends_on: Literal["text", "work_complete"] = "text"
    """What ends a turn: text without calls, or the claim that the work is complete."""

    nudges: int = Field(default=2, ge=0)
    """How often in a turn the model is reminded of what the rules ask for, before the turn ends as it is."""

    silent: Literal["allow", "nudge", "fallback"] = "allow"
    """A turn in which nothing would reach the user: let it be, remind the model, or deliver its text."""

    verify: int = Field(default=0, ge=0)
    """How often in a turn the check of a claim may fail before the turn ends as incomplete; 0 checks nothing."""

    summarize: bool = False
    """Whether a summary of a turn that ended well is written for display; it never changes what was said."""

    questions: Questions = Questions()
    """How the model's questions to a person are handled."""

    approval_deadline: Seconds | None = None
    """How many seconds a call waits for a person to allow it before it is denied; None waits for ever."""

    sub_agent_deadline: Seconds | None = 1800.0
    """How many seconds a turn waits for its sub-agents; None waits for ever."""

    parallel: int = Field(default=1, ge=1)
    """How many tools may run at once; their results always stand in call order."""

    repeats: Repeats = Repeats()
    """What becomes of a call that was made before."""

    limits: Limits = Limits()
    """What one turn may use up."""

    empty: Empty = Empty()
    """What becomes of a response with nothing in it."""

    plain_retry: int = Field(default=0, ge=0)
    """How often a turn without an answer is asked once more with the bare system prompt and message."""

    when_busy: WhenBusy = "refuse"
    """A message during a turn: refused, queued for the next turn, or steered into this one. A message may say otherwise
    for itself."""

    retry: Retry = Retry()
    """When a model request that failed is sent again."""

    on_failure: Literal["fail", "reply"] = "fail"
    """A turn that cannot go on rests in Failed, or ends with a reply that says why."""

    dialogue: Literal["transcript"] | Recent = "transcript"
    """What of the past a request holds: all of it, condensed when it fills the window, or the last minutes only."""

    window: float = Field(default=0.9, gt=0, le=1)
    """The share of a model's window that counts as full."""

    recall: bool = False
    """Whether older conversations are searched for each turn."""

    route: bool = False
    """Whether a profile is chosen for each turn."""

    fresh_context: bool = False
    """Whether requests tell the time and the place. Nothing tells them yet."""

    transcription_note: bool = False
    """Whether the model is told that messages were spoken and may be misheard. Nothing tells it yet."""

    redact: bool = False
    """Whether secrets are taken out of messages before anything else sees them. The engine has nothing that does it
    yet, and warns where a conversation asks for it."""

    marker: Text | None = None
    """A word of the model's tool protocol: lines of a reply that begin with it are not for people."""

    relay: Literal["nudge_then_deliver", "prompt_only"] = "nudge_then_deliver"
    """A message for the user that a turn was to pass on, and did not: remind the model, then deliver it as it is, or
    leave it to the prompt."""

    cancel_deadline: Seconds = 5.0
    """How many seconds a cancelled tool may take to stop before the turn ends without it."""

    recovery: Recovery = Recovery()
    """How a turn survives the death of its process."""

    texts: Texts = Texts()
    """The words that the machine itself uses."""
