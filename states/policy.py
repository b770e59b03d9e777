"""The rules that a host chooses for a conversation.

How often a failed request is tried again, what a cancel does to a question, how many tools run at once: systems
differ here, so the rules are data. They are stored in the log, so a conversation that is replayed years later is
replayed under the rules that held.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .value import Seconds, Text, Value

WhenBusy = Literal["refuse", "queue", "steer"]
"""What becomes of a message that comes during a turn."""


class ModelSpec(Value):
    """A model that may be asked, by the name under which the host knows it."""

    name: Text = Field(min_length=1)


class Questions(Value):
    """How questions to a person are handled (seed 002)."""

    alongside: Literal["in_order", "alone"] = "in_order"
    """A question beside other calls: in_order, it waits for those before it and those behind it wait for the
    answer; alone, every call of that response gets an error result and the model is asked again."""

    answer: Literal["json", "readable"] = "json"
    """How the model reads an answer: as JSON, or as text with previews and notes."""

    cancel: Literal["idle", "resume"] = "idle"
    """A cancelled question ends the turn, or lets the model go on by its own judgment."""

    partial: bool = False
    """Whether answers with unknown, missing or too many choices are taken as given instead of refused."""

    deadline: Seconds | None = None
    """How long a question waits before the model goes on without an answer; None waits for ever."""


class Limits(Value):
    """What one turn may use up. None is no limit. Counted anew with every message and answer of a person."""

    requests: int = Field(default=50, ge=1)
    """Model requests; a retry of a failed request is the same request."""

    last: Literal["answer_now", "plain"] = "answer_now"
    """The last request allowed: answer_now goes out without tools, plain is a request like any other."""

    tool_calls: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=1)
    cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """US dollars."""

    seconds: Annotated[Seconds, Field(gt=0)] | None = None
    """Wall-clock time, without the time spent waiting for people."""


class Retry(Value):
    """When a request that failed for a passing reason is sent again."""

    attempts: int = Field(default=3, ge=1)
    """Attempts per model, the first included."""

    base: Seconds = 1.0
    """The wait before the second attempt; each further one is `factor` times as long, `cap` at the most."""

    factor: float = Field(default=2.0, ge=1, allow_inf_nan=False)
    cap: Seconds = 60.0
    """A provider that asks (Retry-After) for more than this is not waited for: the next model is tried."""

    def wait(self, attempt: int, retry_after: float | None) -> float | None:
        """Seconds to wait after the failed `attempt` (1 is the first), or None to give this model up. `Pure.`"""
        if attempt >= self.attempts or (retry_after or 0.0) > self.cap:
            return None
        try:
            backoff = min(self.cap, self.base * self.factor ** (attempt - 1))
        except OverflowError:
            backoff = self.cap
        return max(backoff, retry_after or 0.0)


class Texts(Value):
    """The words the machine itself uses: results of calls that did not run, endings without an answer."""

    cancelled: Text = "Cancelled by user"
    skipped: Text = "Skipped: the turn was cancelled"
    question_cancelled: Text = "User cancelled the question"
    declined: Text = "The user declined to answer. Use your own judgment and go on."
    unanswered: Text = "No answer came in time. Use your own judgment and go on."
    question_not_alone: Text = (
        "Not run: a question to the user must be the only call in a response. Ask it alone, then go on."
    )
    question_not_exclusive: Text = "This tool may not ask the user: other tools were running beside it."
    denied: Text = "Denied by the user"
    denied_in_time: Text = "Not run: nobody allowed it in time."
    cut_off: Text = "Not run: the response was cut off before this call was complete. Try again with shorter arguments."
    not_run: Text = "Not run: the limit of this turn is reached."
    empty: Text = "I have no answer to that."
    limit: Text = "I stopped here: the limit of this turn is reached."


class Policy(Value):
    """All rules of one conversation. The engine fills in `models` with what it was opened with."""

    models: tuple[ModelSpec, ...] = Field(default=(ModelSpec(name="default"),), min_length=1)
    """The model to ask, then those to fall back to, in order."""

    questions: Questions = Questions()
    approval_deadline: Seconds | None = None
    """How long a call waits for a person to allow it before it is denied; None waits for ever."""

    parallel: int = Field(default=1, ge=1)
    """How many tools may run at once; their results always stand in call order."""

    limits: Limits = Limits()
    when_busy: WhenBusy = "refuse"
    """A message during a turn: refused (seed 002), queued for the next turn (003), or steered into this one. A message
    may say otherwise for itself."""

    retry: Retry = Retry()
    cancel_deadline: Seconds = 5.0
    """How long a cancelled tool may take to stop before the turn ends without it."""

    texts: Texts = Texts()
