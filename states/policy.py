"""The rules of a conversation, which the application chooses.

How often a failed request is tried again, what a cancel does to a question, how many tools run at once: applications
differ here, so the rules are data. They are validated whenever an application writes them, and stored in the log, so a
conversation that is replayed years later is replayed under the rules that held then. That holds for the words of the
machine, too: an application words them for its users, and a replay shows the words that were read then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, model_serializer
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from .values.files import MAX_FILES
from .values.output import GivenOutput, OutputSchema
from .values.value import Block, Seconds, Text, Value


class Rules(Value):
    """Rules that belong together.

    `ADDED` names the rules that were added to a class after logs had been written with it. They are left out when they
    hold their default, so older rules are written as they were. To change such a default changes the rules of logs.
    """

    ADDED: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_added_defaults(self, write: Any) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name in self.ADDED:
            if getattr(self, name) == type(self).model_fields[name].default:
                written.pop(name, None)
        return written

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema of the fields: what is left out is optional when it is read, too."""
        fields: Any = {key: value for key, value in schema.items() if key != "serialization"}
        return handler(fields)

    def replace(self, **changes: Any) -> Self:
        """Return these rules with some of them changed. `Pure.`

            presets.talk().replace(silent="nudge")

        Raises ValueError (pydantic's ValidationError) for a name or a value that is not valid, like the constructor.
        """
        chosen = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**chosen, **changes})


def _listed(given: object) -> object:
    return (given,) if isinstance(given, str) else given


class ModelSettings(Rules):
    """Parameters of model requests, of a profile, of a conversation, or for one message. None leaves a parameter to the
    setting behind it: to the profile's behind that of a message, to the policy's behind that of a profile. What none of
    them sets is not sent, so the provider's default holds."""

    ADDED: ClassVar[tuple[str, ...]] = (
        "tool_choice",
        "parallel_tool_calls",
        "stop",
        "logprobs",
        "top_logprobs",
        "strict",
        "cache",
        "server_tools",
    )

    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """How much the model varies its words: 0 is the least."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """The most tokens that one response may have."""

    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """The share of probability from which each token is chosen."""

    seed: int | None = None
    """A number that makes the responses of some providers repeatable."""

    reasoning_effort: Annotated[Text, Field(min_length=1)] | None = None
    """How long the model thinks before it answers, in the words of its provider, such as "low" or "high"."""

    tool_choice: Literal["auto", "none", "required"] | Annotated[Text, Field(min_length=1)] | None = None
    """Whether the model may call tools: "auto" as it likes, "none" not at all, "required" at least one, and the name of
    a tool that one. What is forced holds for the first response of a turn; behind it the model chooses by itself, since
    it could never end the turn otherwise."""

    parallel_tool_calls: bool | None = None
    """Whether one response may call several tools."""

    stop: Annotated[tuple[Annotated[Text, Field(min_length=1)], ...], BeforeValidator(_listed)] | None = None
    """Texts at which the response ends, without them; one may stand without a list."""

    logprobs: bool | None = None
    """Whether the provider tells how probable each token of the response was. They are kept on the message."""

    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    """How many other tokens are told for each token, with their probabilities."""

    strict: bool | None = None
    """Whether the provider holds calls to the schemas of their tools. That is asked for each tool whose schema can be
    written so: objects are closed and have all their fields, and null stands for one that is not given."""

    cache: Literal["auto", "off"] | None = None
    """With "auto", providers that want to be told are told up to where requests stay the same, so that they keep that
    beginning: Anthropic by breakpoints, which cost a little more than other input, OpenAI by a key for the
    conversation."""

    server_tools: tuple[Literal["web_search", "web_fetch", "code_execution"] | Block, ...] | None = None
    """Tools that run at the provider, by name, or as the provider defines them, as JSON objects. What they find is part
    of the response; see docs/guides/providers.md for who has which."""

    def over(self, other: ModelSettings) -> ModelSettings:
        """Return these settings, with those of `other` for what they leave open. `Pure.`"""
        if self is DEFAULT_SETTINGS or other is DEFAULT_SETTINGS:
            return other if self is DEFAULT_SETTINGS else self
        given = {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}
        return other.replace(**given) if given else other


DEFAULT_SETTINGS = ModelSettings()
"""Settings of which none is sent."""


class Texts(Rules):
    """The words of the machine, by their readers.

    The model reads *results* in place of the result of a call, or of a part of it, and *nudges* once: they are never
    stored as dialogue, and in them `respond_to_user` and `mark_work_complete` stand for whatever tools a request
    offers that speak to the user or claim that the work is complete. Where it offers none, `claim_missing`,
    `fallback` or `fallback_result` is read in place of a nudge that names one. `claim_missing` and `fallback_result`
    are also those for turns in which no user waits for an answer. *Guidance* is part of the system message of each
    request that offers the tool it is about, or whose agent has the role it is about; `{tool}` stands for the tool's
    name, `{plain_text}` for what the rules make of plain text (`plain_text_reply`, `plain_text_fallback` or
    `plain_text_thought`), `{profiles}` for the list of the profiles, and `{schema}` for the schema of the answer.
    People read *endings* and *reasons*. An empty ending or an empty guidance is left out.
    """

    ADDED: ClassVar[tuple[str, ...]] = (
        "transcription_note",
        "tool_protocol",
        "tools_guidance",
        "wake_up",
        "too_many_children",
        "too_deep",
        "unknown_profile",
        "nothing_left",
        "act_not_for_role",
        "question_not_for_role",
        "claim_missing",
        "imported",
        "fallback_result",
        "foreground_guidance",
        "background_guidance",
        "sub_agent_guidance",
        "user_message_guidance",
        "agent_message_guidance",
        "transfer_guidance",
        "spawn_guidance",
        "overdue",
        "plain_text_reply",
        "plain_text_fallback",
        "plain_text_thought",
        "words_withheld",
        "instructions_refused",
        "output_noted",
        "output_taken",
        "output_invalid",
        "output_missing",
        "output_failed",
        "output_tool",
        "output_guidance",
        "stopped",
        "result_cut",
        "result_cleared",
        "heard",
        "unheard",
    )

    # Results
    cancelled: Text = "Cancelled by user"
    skipped: Text = "Skipped: the turn was cancelled"
    question_cancelled: Text = "User cancelled the question"
    declined: Text = "The user declined to answer. Use your own judgment and go on."
    unanswered: Text = "No answer came in time. Use your own judgment and go on."
    question_not_alone: Text = (
        "Not run: a question to the user must be the only call in a response. Ask it alone, then go on."
    )
    question_not_exclusive: Text = "This tool may not ask the user: other tools were running beside it."
    act_not_declared: Text = "The tool did something that it does not declare; none of it was carried out."
    act_not_exclusive: Text = "The tool may not do this beside other tools; none of it was carried out."
    unknown_profile: Text = "There is no profile of this name; nothing was carried out."
    nothing_said: Text = "text is required"
    no_message: Text = "message is required"
    denied: Text = "Denied by the user"
    denied_in_time: Text = "Not run: nobody allowed it in time."
    cut_off: Text = "Not run: the response was cut off before this call was complete. Try again with shorter arguments."
    not_run: Text = "Not run: the limit of this turn is reached."
    no_room: Text = "Not run: the conversation had to be condensed first. Call the tool again if you still need it."
    repeated: Text = "Not run: you made the same call before. Reuse its earlier result."
    child_late: Text = "It did not finish in time."
    child_cancelled: Text = "It was cancelled."
    too_many_children: Text = "Not started: one turn may start no more than {number} sub-agents."
    too_deep: Text = "Not started: sub-agents may not be nested any deeper."
    nothing_left: Text = "Not started: nothing is left of the limits of this turn."
    act_not_for_role: Text = "An agent of this kind may not do this; none of it was carried out."
    question_not_for_role: Text = "This agent has no user to ask. Use your own judgment and go on."
    in_doubt: Text = "It is unknown whether this ran: the program stopped while it was running."
    did_run: Text = "This ran, but its result is lost: the program stopped while it was running."
    did_not_run: Text = "This did not run: the program stopped before it could."
    interrupted: Text = "Not run: the program was interrupted too often."
    undelivered: Text = "(The user did not receive this.)"
    stopped: Text = "(The user stopped your answer here.)"
    heard: Text = "(The user interrupted you, and heard only this of it: {heard})"
    unheard: Text = "(The user interrupted you, and heard nothing of this.)"
    acknowledgement: Text = "Message delivered to user"
    recorded: Text = "Recorded: the user receives it when the turn ends."
    recorded_last: Text = "Recorded: the user receives it when the turn ends, unless you say something else by then."
    claimed: Text = "Noted. It counts unless another call of this response fails or a check finds something missing."
    result_cut: Text = (
        "[… {missing} of {characters} characters are left out here; "
        'read_result(call_id="{call_id}", from={place}) reads on …]'
    )
    result_cleared: Text = (
        "[This result of {characters} characters is not shown any more; "
        'read_result(call_id="{call_id}") shows it again.]'
    )
    output_taken: Text = "Taken as the answer."
    output_noted: Text = "Noted. It is the answer unless another call of this response fails; then give it again."

    # Nudges
    nudge: Text = (
        "If you are done, first call respond_to_user with what the user should receive, then call mark_work_complete "
        "with a concise summary. Otherwise go on working."
    )
    speak: Text = (
        "Nothing has reached the user in this turn. Say to the user, with respond_to_user, what they should know."
    )
    answer_missing: Text = (
        "You marked the work as complete, but nothing was said to the user. Call respond_to_user with your answer now."
    )
    relay: Text = "A message for the user is waiting. Present it to the user now, in your own words."
    overdue: Text = (
        "These messages for the user came before, and the user has not heard of them yet. Tell the user about them in "
        "your next answer, in your own words."
    )
    fallback: Text = "Answer the user now, from the results above, in plain words and without calling tools."
    claim_missing: Text = "If you are done, call mark_work_complete with a concise summary. Otherwise go on working."
    output_invalid: Text = "Your answer does not have the form that is asked for. Give it again. What is wrong:"
    output_missing: Text = "Your answer does not have the form that is asked for. Give it again, in that form."
    fallback_result: Text = (
        "State your result now, from the results of the tools above, in plain words and without calling tools."
    )

    # Tasks
    wake_up: Text = "It is time for your scheduled work: do it now, as your instructions say."

    # Guidance
    how_to_respond: Text = (
        "# How the user hears from you\n"
        "What you say with the tool {tool} reaches the user: it is spoken aloud where they listen, and sent as a "
        "message where they read. {plain_text}\n"
        "Call {tool} whenever something is meant for the user: when you answer a question, read content back to them, "
        "give a result or a summary, confirm an action, or have anything else to tell them.\n"
        "Write in natural sentences, the way people talk, with no Markdown, lists, code or other markup."
    )
    how_to_talk: Text = (
        "# How the user hears from you\n"
        "The user hears what you say with the tool {tool}, at once and in the order in which you say it. {plain_text}\n"
        "Call {tool} for every word that is meant for the user: when you greet them, answer a question, read content "
        "back, tell what you are about to do, give a result or a summary, confirm an action, or have anything else to "
        "tell them.\n"
        "Write in natural sentences, the way people talk, with no Markdown, lists, code or other markup."
    )
    plain_text_reply: Text = (
        "Plain text that you write outside of {tool} reaches the user as well, when the turn ends with it. Do not say "
        "the same thing twice."
    )
    plain_text_fallback: Text = (
        "Plain text that you write outside of {tool} stays with you and is not delivered. Only if you say nothing with "
        "{tool} in a turn, the user receives the text with which the turn ends."
    )
    plain_text_thought: Text = (
        "Plain text that you write outside of {tool} is your own thinking and is not delivered: if you never call "
        "{tool}, the user hears nothing at all."
    )
    foreground_guidance: Text = (
        "# Messages of other agents\n"
        "Other agents work in the background for your user, and write to you. Each of their messages stands between "
        "tags, in which origin names the agent.\n"
        '<message_for_user origin="…">…</message_for_user> holds something that the user has to learn. You must '
        "present it to the user in your next answer, also if they asked for something else: in your own words, as fits "
        "the conversation, with all facts that matter to them, and without the tags or anything else internal.\n"
        '<system_message origin="…">…</system_message> is an internal update and no request of the user. Never show it '
        "to the user, quote it or mention it. Take it into account, do what your task requires because of it, and if "
        "that is nothing, write no answer."
    )
    background_guidance: Text = (
        "# Your role\n"
        "You work in the background, for an agent who talks with a user. Neither of them sees your text: it is your "
        "own thinking. When your work is done for now, end it with a short text and call no tool; new messages wake "
        "you.\n"
        'A message between tags, <system_message origin="…">…</system_message>, comes from another agent or from your '
        "schedule. It is an internal update or a task, and no request of the user."
    )
    sub_agent_guidance: Text = (
        "# Your role\n"
        "Another agent has given you the task in the first message, and waits for your result. Work until the task is "
        "done; then write the result as text and call no tool. Your last text is all that the other agent receives, "
        "so it must be complete and understandable by itself: what you found or did, and what you could not do and "
        "why. No user reads it.\n"
        'A message between tags, <system_message origin="…">…</system_message>, is an internal update of another agent.'
    )
    user_message_guidance: Text = (
        "# How the user hears from you\n"
        "Call {tool} when the user should learn something: a result they wait for, a finding that matters to them, or "
        "something that only they can decide or provide. Write the plain facts, complete and without a greeting: "
        "the agent who talks with the user presents them in its own words. Do not call it for intermediate steps, or "
        "for what the user was told before."
    )
    agent_message_guidance: Text = (
        "# How other agents hear from you\n"
        "Call {tool} to tell another agent something that it needs for its own work. The user does not see it, and the "
        "other agent need not answer. What the user has to learn does not belong there."
    )
    transfer_guidance: Text = (
        "# Profiles\n"
        "These profiles describe ways for you to work. When another one suits what the user needs now, call {tool} "
        "with its name: from then on you work by it, with the same user and the same conversation.\n"
        "{profiles}"
    )
    output_tool: Text = "Give your answer with this tool, once you have what you need. The call ends your turn."
    output_guidance: Text = (
        "# The form of your answer\n"
        "When you have what you need, answer with one JSON object that fits this JSON schema, and with nothing else: "
        "no explanation, and no fence around it.\n"
        "{schema}"
    )
    spawn_guidance: Text = (
        "# Sub-agents\n"
        "A task that you hand over with {tool} may name one of these profiles, by which its sub-agent then works:\n"
        "{profiles}"
    )
    transcription_note: Text = (
        "The user speaks, and their words reach you through speech recognition: words may be misheard, missing or "
        "spelled in another way. Read a message as it was most likely meant. If it stays unclear, answer with one "
        "short question."
    )
    tool_protocol: Text = (
        "You work in steps. In each step you either call tools or answer the user.\n"
        "Call a tool by its name, with arguments that fit its schema; write no calls into your text. You see the "
        "results before your next step. When a call fails, try another way, or offer the user an alternative. Do not "
        "repeat a call whose result you already have.\n"
        "When you have what you need, answer in text and call no tool: this text is your reply and ends the turn. If "
        "you cannot tell what the user wants, reply with one short question."
    )
    tools_guidance: Text = (
        "Prefer the data that these tools return over what you remember, and a tool made for a task over shell "
        "commands that do the same. State only what the results support."
    )

    # Endings
    ending: Text = "I have no answer to that."
    limit: Text = "I stopped here: the limit of this turn is reached."
    error: Text = "I could not answer:"

    # Reasons that people read
    output_failed: Text = "The model gave no answer of the form that was asked for:"
    full: Text = "The conversation does not fit into the model's window, even when it is condensed."
    imported: Text = "This turn was under way elsewhere when the conversation was imported."
    died_too_often: Text = "The program stopped too often in the middle of this turn."
    words_withheld: Text = "What was said in this turn is not shown to the model any more. Say it in other words."
    instructions_refused: Text = "As this happens again and again, it may be the instructions that are refused."


WhenBusy = Literal["refuse", "queue", "steer", "interrupt"]
"""What happens to a message that arrives during a turn: it is refused, waits for the next turn, enters this one, or
stops it."""


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
    """The last request that is allowed: with answer_now the model may call no tool, plain is sent like any other."""

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

    ADDED: ClassVar[tuple[str, ...]] = ("until_limit",)

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

    ADDED: ClassVar[tuple[str, ...]] = ("model", "description", "settings", "output")

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

    output: GivenOutput | None = None
    """The form of the answers of turns with this profile: a type, such as a pydantic model, or a JSON schema. None
    leaves the form that the conversation wants."""

    if TYPE_CHECKING:  # a type checker would not take a name for the model, nor a type for a schema

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
            output: Any = None,
        ) -> None: ...


class OutputField(Rules):
    """The user receives the text of one field of a typed answer; of one without that field, the JSON."""

    field: Text = Field(min_length=1)
    """The name of the field."""


class OutputRendering(Rules):
    """The user receives what a function of the application makes of a typed answer. An engine that does not have it
    delivers the JSON."""

    rendering: Text = Field(min_length=1)
    """The name of the function in `Engine.open(renderings={…})`. A log holds no functions."""


class FileRules(Rules):
    """How large the files of messages and results may be, and how many."""

    size: int = Field(default=20_000_000, ge=1)
    """The most bytes of one file. Chosen to be about what providers take in one request."""

    together: int = Field(default=30_000_000, ge=1)
    """The most bytes of all files of one message, or of one result."""

    number: int = Field(default=20, ge=0, le=MAX_FILES)
    """The most files of one message, or of one result; with 0 there can be none."""


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


MIN_RESULT = 200
"""The least that a model can be shown at once of a result: room for the line that says what is left out, and a few
words."""


MAX_RESULT = 20_000
"""How many characters a request shows of a result, unless a rule says otherwise: about 5,000 tokens, which leaves room
for many results in the windows of today's models."""


class Clearing(Rules):
    """When old results of tools are cleared from requests, so that room is left in the window before anything has to be
    summarized. A model reads a line in place of each, and can read the result by `read_result`."""

    share: float = Field(default=0.75, gt=0, le=1)
    """The share of a model's window from which on they are cleared."""

    least: float = Field(default=0.1, ge=0, le=1)
    """The least share of the window that is cleared below the share that counts as full (`Policy.window`). Less would
    not be worth a changed beginning: providers cache that of a request only as long as it stays the same."""

    rounds: int = Field(default=3, ge=1)
    """How many of the newest rounds of calls keep their results."""


class Policy(Rules):
    """All rules of one conversation. If the application does not choose `models` or `profiles`, the engine fills in
    its own."""

    ADDED: ClassVar[tuple[str, ...]] = (
        "describe_tools",
        "describe_agents",
        "documents",
        "sub_agents",
        "relay_deadline",
        "settings",
        "keep_thinking",
        "output_retries",
        "output_reply",
        "files",
        "max_result",
        "clear_results",
    )

    models: tuple[ModelSpec, ...] = Field(default=(ModelSpec(name="default"),), min_length=1)
    """The model to ask, then its fallbacks, in order."""

    profiles: tuple[Profile, ...] = ()
    """The profiles to choose from. The first is the default; with fewer than two nothing is chosen."""

    text: Literal["auto", "reply", "fallback", "thought"] = "auto"
    """Whether the text with which the model ends a turn reaches the user. reply: always. fallback: only if nothing was
    said by tool. thought: never. auto: as a fallback where the model is offered a tool that speaks, else always."""

    settings: ModelSettings = DEFAULT_SETTINGS
    """The parameters of model requests, where neither the turn's profile nor the message sets them."""

    keep_thinking: Literal["turn", "conversation"] | Annotated[int, Field(ge=1)] = "turn"
    """For how long the thinking of a model, and what its provider has sealed, is sent back to the same family of
    models: in its own turn, in so many turns including its own, or always. What belongs to calls is sent back with them
    in any case."""

    speech: SpeechRules = SpeechRules()
    """What happens to speech that tools bring."""

    ends_on: Literal["text", "work_complete"] = "text"
    """What ends a turn: text without calls, or the claim that the work is complete."""

    nudges: int = Field(default=2, ge=0)
    """How often in a turn the model is reminded of what the rules require, before the turn ends anyway."""

    silent: Literal["allow", "nudge", "fallback"] = "allow"
    """What happens if nothing would reach the user in a turn: allow it, remind the model, or deliver its text."""

    verify: int = Field(default=0, ge=0)
    """How often in a turn the check of a claim may fail before the turn ends as incomplete; 0 turns verification
    off."""

    output_retries: int = Field(default=2, ge=0)
    """How often in a turn that wants a typed answer an invalid one is sent back with what is wrong, before the turn
    fails."""

    output_reply: Literal["json"] | OutputField | OutputRendering = "json"
    """What the user receives for a typed answer: the JSON, the text of one field, or the result of a function of the
    application."""

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

    files: FileRules = FileRules()
    """How large the files of messages and results may be, and how many."""

    parallel: int = Field(default=1, ge=1)
    """How many tools may run at once. Their results always stand in call order."""

    repeats: Repeats = Repeats()
    """What happens to a call that was made before."""

    limits: Limits = Limits()
    """How many requests, tool calls and the like one turn may use."""

    empty: Empty = Empty()
    """What happens after an empty response."""

    plain_retry: int = Field(default=0, ge=0)
    """How often a turn without an answer is tried once more with only the system prompt and the user's message."""

    when_busy: WhenBusy = "refuse"
    """A message during a turn is refused; queued for the next turn, which takes all waiting messages; steered into this
    one; or stops it and begins the next. A message can override this for itself."""

    retry: Retry = Retry()
    """When a model request that failed is sent again."""

    on_failure: Literal["fail", "reply"] = "fail"
    """A turn that cannot continue rests in Failed, or ends with a reply that says why."""

    dialogue: Literal["transcript"] | Recent = "transcript"
    """How much of the history a request holds: all of it, compacted when it fills the window, or the last minutes
    only."""

    window: float = Field(default=0.9, gt=0, le=1)
    """The share of a model's window that counts as full."""

    max_result: int = Field(default=MAX_RESULT, ge=MIN_RESULT)
    """The most characters that a request shows of the result of one call, unless its tool has a limit of its own. Of a
    longer one the model is shown the beginning and the end, and reads what it wants of the rest by `read_result`."""

    clear_results: Clearing | None = Clearing()
    """When old results of tools are cleared from requests. None never clears any; then a full window is compacted at
    once."""

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


def models_of(policy: Policy, profile: str) -> tuple[ModelSpec, ...]:
    """Return the models that a turn with this profile asks, in order: the profile's own model, if it has one, then the
    policy's others. `Pure.`"""
    chosen = policy.find_profile(profile) if profile else None
    if chosen is None or chosen.model is None:
        return policy.models
    own = chosen.model
    same = next((model for model in policy.models if model.name == own.name), own)
    first = same if own.window is None else own
    return (first, *(model for model in policy.models if model.name != own.name))


def settings_of(policy: Policy, profile: str, said: ModelSettings = DEFAULT_SETTINGS) -> ModelSettings:
    """Return the parameters of model requests in turns with this profile, whose message was sent with the settings
    `said`. `Pure.`"""
    chosen = policy.find_profile(profile) if profile else None
    if chosen is None and said is DEFAULT_SETTINGS:
        return policy.settings
    of_profile = DEFAULT_SETTINGS if chosen is None else chosen.settings
    return said.over(of_profile.over(policy.settings))


def output_of(policy: Policy, profile: str) -> OutputSchema | None:
    """Return the form of the answers of turns with this profile; None if it leaves that open. `Pure.`"""
    chosen = policy.find_profile(profile) if profile else None
    return None if chosen is None else chosen.output


def named_models(policy: Policy) -> tuple[ModelSpec, ...]:
    """Return all models that the policy names: its own, then those of its profiles, each name once. `Pure.`"""
    named: dict[str, ModelSpec] = {}
    for model in (*policy.models, *[profile.model for profile in policy.profiles]):
        if model is not None:
            named.setdefault(model.name, model)
    return tuple(named.values())
