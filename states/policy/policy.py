"""The rules of a conversation, which the application chooses.

How often a failed request is tried again, what a cancel does to a question, how many tools run at once: applications
differ here, so the rules are data. They are stored in the log, so a conversation that is replayed years later is
replayed under the rules that held then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from ..values.value import Seconds, Text
from .model_settings import DEFAULT_SETTINGS, ModelSettings
from .rules import Rules
from .texts import Texts

WhenBusy = Literal["refuse", "queue", "steer"]
"""What happens to a message that arrives during a turn."""


class ModelSpec(Rules):
    """A model that may be asked."""

    name: Text = Field(min_length=1)
    """The name by which litellm, or the application, knows the model."""

    window: int | None = Field(default=None, ge=1)
    """How many tokens the model takes in. None if that is not known: then nothing is compacted before a request has
    failed because it was too long."""


def _named(model: Any) -> Any:
    return {"name": model} if isinstance(model, str) else model


class Questions(Rules):
    """How questions to a person are handled."""

    alongside: Literal["in_order", "alone"] = "in_order"
    """A question beside other calls. in_order: it waits for the calls before it, and those behind it wait for the
    answer. alone: every call of that response gets an error result, and the model is asked again."""

    answer: Literal["json", "readable"] = "json"
    """How the model reads an answer: as JSON, or as text with previews and notes."""

    cancel: Literal["idle", "resume"] = "idle"
    """A cancelled question ends the turn (idle), or lets the model go on by its own judgment (resume)."""

    partial: bool = False
    """Whether answers with unknown, missing or too many choices are accepted as they are instead of being refused."""

    deadline: Seconds | None = None
    """How many seconds a question waits before the model goes on without an answer; None waits for ever."""


class Limits(Rules):
    """What one turn may use up. None means no limit. The limits are counted anew after every message and answer of a
    person."""

    requests: int = Field(default=50, ge=1)
    """Model requests. A retry of a failed request is the same request. Agents that work on their own, such as coding
    agents, need 50 to 100 requests a turn; 200 is a safe bound for them, beside a limit on `tokens` or `cost`."""

    last: Literal["answer_now", "plain"] = "answer_now"
    """The last request that is allowed: answer_now is sent without tools, plain is sent like any other."""

    tool_calls: int | None = Field(default=None, ge=0)
    """Tool calls that run."""

    tokens: int | None = Field(default=None, ge=1)
    """Tokens of all requests, sent and received."""

    cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Cost in US dollars."""

    seconds: Annotated[Seconds, Field(gt=0)] | None = None
    """Wall-clock time, without the time spent waiting for people."""


class Retry(Rules):
    """When a request that failed for a transient reason is sent again."""

    attempts: int = Field(default=3, ge=1)
    """Attempts per model, the first included."""

    base: Seconds = 1.0
    """Seconds before the second attempt. Each further wait is `factor` times as long, up to `cap`."""

    factor: float = Field(default=2.0, ge=1, allow_inf_nan=False)
    """How many times as long each wait is as the one before it."""

    cap: Seconds = 60.0
    """The longest wait, in seconds. If a provider asks for a longer one (Retry-After), the next model is tried
    instead."""

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
    """What happens to speech that a tool brings for the end of the turn. Speech for now is always delivered."""

    keep: Literal["last", "each"] = "last"
    """Of several speeches, the last in call order is delivered, or each in call order."""

    empty: Literal["error", "deliver"] = "error"
    """Speech without text is refused, or delivered like any other."""

    never_fail: bool = False
    """Whether invalid arguments of a speaking tool are acknowledged all the same: a number is spoken as it is written,
    and without any text nothing is delivered. This is for the tools that come with turnwise."""


class Repeats(Rules):
    """What happens to a call that was made before: the same tool with the same arguments, in any order of their
    keys."""

    window: int = Field(default=0, ge=0)
    """For how many requests of the turn a call is remembered; 0 lets every call run. Calls that act (speak, ask, claim,
    send mail, spawn) always run."""


class Empty(Rules):
    """What happens after a response without text and calls."""

    ADDED: ClassVar = ("until_limit",)

    in_a_row: int = Field(default=1, ge=1)
    """After tool results: how many empty responses in a row before the model is given the fallback prompt, once. Where
    a claim ends the turn, the model is reminded of the claim at once."""

    until_limit: bool = False
    """Whether a model that only thinks, or has said and done nothing in the turn yet, is asked again until a limit of
    the turn is reached. Otherwise the turn ends with the policy's sentence for that."""


class Recovery(Rules):
    """How a turn survives the death of its process."""

    resumes: int = Field(default=2, ge=0)
    """How often a turn may be resumed without progress before it fails. Waits for people are not counted."""


class Recent(Rules):
    """A request holds only the texts of the last minutes, from all conversations of the owner."""

    seconds: Annotated[Seconds, Field(gt=0)] = 300.0
    """How many seconds back a request looks. A message that is exactly this old is included."""


class Profile(Rules):
    """A way for the model to behave, chosen for each turn."""

    ADDED: ClassVar = ("model", "description", "settings")

    name: Text = Field(min_length=1)
    """The name by which it is chosen."""

    prompt: Text = ""
    """What is added to the conversation's system prompt in turns with this profile."""

    tools: tuple[Text, ...] | None = None
    """The tools that may be called, by name; None allows all that the conversation may use. Others are not offered, and
    a call of one of them has an error result. The tools of MCP servers are allowed in any case."""

    recall: bool = True
    """Whether older conversations may be searched for this profile."""

    guidance: bool = True
    """Whether the system message explains how to reach the user, where there is a tool for it."""

    model: Annotated[ModelSpec | None, BeforeValidator(_named)] = None
    """The model of turns with this profile, which is asked before the policy's models; a name is enough. None leaves
    the policy's models."""

    description: Text = ""
    """What this profile is for. The router reads it to choose a profile."""

    settings: ModelSettings = DEFAULT_SETTINGS
    """The parameters of model requests in turns with this profile."""

    if TYPE_CHECKING:  # a type checker would not take a name for the model

        def __init__(
            self,
            *,
            name: str,
            prompt: str = "",
            tools: Iterable[str] | None = None,
            recall: bool = True,
            guidance: bool = True,
            model: ModelSpec | str | None = None,
            description: str = "",
            settings: ModelSettings = DEFAULT_SETTINGS,
        ) -> None: ...


class SubAgentRules(Rules):
    """How many sub-agents a turn may start, and what they may do."""

    depth: int = Field(default=1, ge=0)
    """How deep sub-agents may be nested: with 1 a sub-agent may not start sub-agents of its own, with 0 nobody may."""

    number: int = Field(default=10, ge=1)
    """How many sub-agents one turn may start."""

    requests: int = Field(default=20, ge=1)
    """Model requests of each sub-agent, unless its task says fewer."""

    questions: Literal["refuse", "ask_user"] = "refuse"
    """A question of a sub-agent is refused, or put to the user of the agent that started it."""


class Policy(Rules):
    """All rules of one conversation. If the application does not choose `models` or `profiles`, the engine fills in
    its own."""

    ADDED: ClassVar = ("describe_tools", "describe_agents", "documents", "sub_agents", "relay_deadline")

    models: tuple[ModelSpec, ...] = Field(default=(ModelSpec(name="default"),), min_length=1)
    """The model to ask, then its fallbacks, in order."""

    profiles: tuple[Profile, ...] = ()
    """The profiles to choose from. The first is the default; with fewer than two nothing is chosen."""

    text: Literal["auto", "reply", "fallback", "thought"] = "auto"
    """Whether the text with which the model ends a turn reaches the user. reply: always. fallback: only if nothing was
    said by tool. thought: never. auto: as a fallback where the model is offered a tool that speaks, else always."""

    speech: SpeechRules = SpeechRules()
    """What happens to speech that tools bring."""

    ends_on: Literal["text", "work_complete"] = "text"
    """What ends a turn: text without calls, or the claim that the work is complete."""

    nudges: int = Field(default=2, ge=0)
    """How often in a turn the model is reminded of what the rules want, before the turn ends as it is."""

    silent: Literal["allow", "nudge", "fallback"] = "allow"
    """What happens if nothing would reach the user in a turn: allow it, remind the model, or deliver its text."""

    verify: int = Field(default=0, ge=0)
    """How often in a turn the check of a claim may fail before the turn ends as incomplete; 0 turns verification
    off."""

    summarize: bool = False
    """Whether a summary of a completed turn is written for display. It never changes what was said."""

    questions: Questions = Questions()
    """How the model's questions to a person are handled."""

    approval_deadline: Seconds | None = None
    """How many seconds a call waits for a person's approval before it is denied; None waits for ever."""

    sub_agent_deadline: Seconds | None = 1800.0
    """How many seconds a turn waits for its sub-agents; None waits for ever."""

    sub_agents: SubAgentRules = SubAgentRules()
    """How many sub-agents a turn may start, and what they may do."""

    parallel: int = Field(default=1, ge=1)
    """How many tools may run at once. Their results always stand in call order."""

    repeats: Repeats = Repeats()
    """What happens to a call that was made before."""

    limits: Limits = Limits()
    """What one turn may use up."""

    empty: Empty = Empty()
    """What happens after an empty response."""

    plain_retry: int = Field(default=0, ge=0)
    """How often a turn without an answer is tried once more with only the system prompt and the user's message."""

    when_busy: WhenBusy = "refuse"
    """A message during a turn is refused, queued for the next turn, or steered into this one. A message can override
    this for itself."""

    retry: Retry = Retry()
    """When a model request that failed is sent again."""

    on_failure: Literal["fail", "reply"] = "fail"
    """A turn that cannot continue rests in Failed, or ends with a reply that says why."""

    dialogue: Literal["transcript"] | Recent = "transcript"
    """What a request holds of the past: all of it, compacted when it fills the window, or the last minutes only."""

    window: float = Field(default=0.9, gt=0, le=1)
    """The share of a model's window that counts as full."""

    recall: bool = False
    """Whether older conversations are searched for each turn."""

    documents: bool = False
    """Whether the application's document source is asked for each turn."""

    route: bool = False
    """Whether a profile is chosen for each turn."""

    fresh_context: bool = False
    """Whether each request states the time and the place, in a message that is not part of the dialogue."""

    transcription_note: bool = False
    """Whether the system message says that messages were spoken and may have been misheard."""

    describe_tools: bool = False
    """Whether the system message explains how tools are called and lists them under the heading "Tools:"."""

    describe_agents: bool = False
    """Whether the system message explains the messages of other agents, and how to reach the user and other agents. It
    explains the messages in any case once the conversation holds one."""

    redact: bool = False
    """Whether secrets in messages, responses, tool arguments and tool results are replaced by labels before anything
    is stored."""

    marker: Text | None = None
    """A word of the model's tool protocol. Lines of a reply that begin with it are not for people."""

    relay: Literal["nudge_then_deliver", "prompt_only"] = "nudge_then_deliver"
    """What happens if a turn did not pass on a message for the user: remind the model and then deliver the message
    unchanged, or rely on the prompt alone."""

    relay_deadline: Seconds | None = 604_800.0
    """How many seconds after it was taken up a message for the user is still passed on, if the turns until then failed
    or were cancelled. Then it lapses, and the agent that wrote it is told. None keeps it until it is passed on."""

    cancel_deadline: Seconds = 5.0
    """How many seconds a cancelled tool may take to stop before the turn ends without it."""

    recovery: Recovery = Recovery()
    """How a turn survives the death of its process."""

    texts: Texts = Texts()
    """The texts that the machine itself uses."""

    def has_profile(self, name: str) -> bool:
        """Whether there is a profile of this name. `Pure.`"""
        return self.find_profile(name) is not None

    def find_profile(self, name: str) -> Profile | None:
        """Return the profile of this name, or None. `Pure.`"""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        return None
