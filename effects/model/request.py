"""Builds the request to a model from the conversation so far, in a form that every provider accepts.

Each provider refuses something that others accept: arguments that are not a JSON object, names with a colon, repeated
ids, a call without its result, two messages of one role in a row, a file in a tool's result. A conversation may
outlive the choice of a provider, so a request is valid for the strictest of them, whatever the transcript holds.

The transcript says what was said; a request holds both less and more. Less: under some policies only the last
minutes, or a summary in place of messages that no longer fit. More: results of a search in older conversations, a
reminder to the model, tags around the message of another agent, the time and the place. None of this is stored, so it
does not accumulate.

What was written is kept, and each request is built on top of the one before. It costs what is new in it, not what is
stored: nothing here looks at a message that is not part of the request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple, get_args
from weakref import WeakKeyDictionary

from ...states.context import Context
from ...states.dialogue import of_turn
from ...states.effects import RequestLlm
from ...states.events import MemoryRecalled
from ...states.openai_writing import WireMessage, legal_name
from ...states.policy import DEFAULT_SETTINGS, ModelSettings, Recent
from ...states.roles import Caller
from ...states.transcript import Transcript, old_results
from ...states.values.acts import Audience
from ...states.values.messages import Heard, Joined, Made, Message, Suspect, escape_tags, text_for_model
from ...states.values.value import UNEXPLAINED, FailureKind
from ..context import EffectContext, History
from ..schemas.strict import strict_arguments
from ..schemas.wire import wire_tools
from ..text import DAYS, MONTHS
from .port import ModelRequest, RequestedOutput
from .system_message import (
    CLAIM_PLACEHOLDER,
    NO_EXPLAINED_TOOLS,
    RESPOND_PLACEHOLDER,
    WITHHELD_MESSAGE,
    ExplainedTools,
    SystemSource,
    Wording,
    list_tools,
    text_shown,
    write_recalled,
    write_system_message,
)
from .written_messages import WrittenMessages, arrange_behind, canonical_json, parts_of


def build_request(
    effect: RequestLlm, system: str, messages: Sequence[Message], tools: Sequence[dict[str, Any]], turn: int
) -> ModelRequest:
    """The request that `effect` asks for, from the system message and the messages so far.

    `tools` are definitions in OpenAI's shape, `turn` is the number of the turn under way. A name that providers do not
    accept is sent as `legal_name(name)`, in definitions and calls alike; a call that comes back is looked up by that.
    The id of a call is replaced likewise, together with that of its result. If no tools are offered, the tools that
    were called earlier are listed as removed, and none may be called.

    Files are parts of a user's message. Those of results stand in one such message behind the last result of their
    round, since some providers refuse them in results; a text names the tool that returned them. A stored file is a
    reference, which `with_files` replaces when the request is sent. Consecutive messages of one role are merged.
    `Pure.`
    """
    return CachedPrompt().request(effect, system, messages, OfferedTools(tools), turn)[0]


class OfferedTools:
    """Definitions of tools that every provider accepts, their `canonical` JSON, and their list for the system message.
    `left_out` are the tools that cannot be offered, by name, each with the reason as a sentence."""

    def __init__(self, definitions: Sequence[WireMessage]) -> None:
        written = wire_tools(definitions)
        self.definitions: tuple[WireMessage, ...] = tuple(map(_escaped, written.definitions))
        self.left_out: dict[str, str] = written.left_out
        self.canonical: str = canonical_json(self.definitions) if self.definitions else ""
        self.listed: str = list_tools(self.definitions)
        self._names = frozenset(each["function"]["name"] for each in self.definitions)
        self._schemas = {
            legal_name(each["function"]["name"]): each["function"].get("parameters") for each in definitions
        }

    @cached_property
    def strict(self) -> OfferedTools:
        """The same tools; those to whose schemas calls can be held are marked as strict, and their schemas have that
        form. `Pure.`"""
        return OfferedTools([_as_strict(one, self._schemas[one["function"]["name"]]) for one in self.definitions])

    def has(self, choice: str) -> bool:
        """Whether the model can be forced to this choice: any tool if one is "required", or the tool of this name."""
        return bool(self._names) if choice == "required" else legal_name(choice) in self._names

    def with_one_more(self, definition: WireMessage) -> OfferedTools:
        """These tools and, behind them, one whose definition every provider accepts as it is. It is not in the list for
        the system message. The others stay as they are, `strict` or not. `Pure.`"""
        extended = copy(self)
        extended.definitions = (*self.definitions, _escaped(definition))
        extended.canonical = canonical_json(extended.definitions)
        return extended


def _as_strict(definition: WireMessage, schema: Any) -> WireMessage:
    """The definition of a tool with this schema as providers can hold calls to it, if they can."""
    function = definition["function"]
    sent = function.get("parameters")
    strict = strict_arguments(schema, sent) if isinstance(schema, dict) and isinstance(sent, dict) else None
    return (
        definition if strict is None else {**definition, "function": {**function, "parameters": strict, "strict": True}}
    )


def write_system(system: str) -> tuple[WireMessage, ...]:
    """The system message as it is sent; empty if there is none. `Pure.`"""
    return ({"role": "system", "content": system},) if system.strip() else ()


def _escaped(value: Any) -> Any:
    """JSON with the tags of agents' messages escaped in all its texts: the server of a tool wrote them."""
    match value:
        case str():
            return escape_tags(value)
        case dict():
            return {name: _escaped(each) for name, each in value.items()}
        case list() | tuple():
            return [_escaped(each) for each in value]
        case _:
            return value


def _removed_tool(name: str) -> dict[str, Any]:
    description = "This tool is no longer available."
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


@dataclass(frozen=True)
class ToolOffer:
    """The names of the tools that may be called, and by whom, their definitions as they are sent, and those of them
    that the system message explains. `spoken` are those that speak to the user, as in a request."""

    allowed: frozenset[str]
    caller: Caller
    definitions: OfferedTools
    explained: ExplainedTools
    spoken: Mapping[str, str] | None = None

    @cached_property
    def speaks(self) -> bool:
        """Whether one of them speaks to the user."""
        return bool(self.explained.speakers)


SUMMARY_TITLE = "Summary of the conversation so far:"
"""The title above the summary that stands in place of condensed messages."""


class AssembledContext(NamedTuple):
    """The content of a request: the system message, the messages so far as they were said, which may be a list of the
    transcript, so do not change it, and the `closing` ones that only this request holds. `wording` words them for the
    model; None stands for a history that needs no other words."""

    system: str
    history: Sequence[Message]
    closing: tuple[Message, ...] = ()
    wording: Wording | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages as the model reads them. `Pure.`"""
        history = self.history if self.wording is None else map(self.wording.read, self.history)
        return (*history, *self.closing)


def assemble_context(
    effect: RequestLlm,
    context: Context,
    transcript: Transcript,
    turn: int,
    tools: ExplainedTools = NO_EXPLAINED_TOOLS,
    listed_tools: str = "",
    form: str = "",
) -> AssembledContext:
    """The content of the request that `effect` asks for, in the turn under way. A plain request holds the system prompt
    and the user's messages of this turn, and nothing else; the caller sends it without tools. `form` are instructions
    about the form of the answer, which stand behind everything that was said. `Pure.`"""
    found = transcript.found(effect.memory)
    source = SystemSource(context, effect.profile, effect.plain, tools, listed_tools, holds_mail=transcript.holds_mail)
    recalled = "" if found is None or effect.plain else write_recalled(found)
    holds_more = recalled or form or effect.nudge is not None
    policy = context.policy
    is_read_as_said = transcript.is_verbatim and transcript.longest_result <= policy.max_result
    return AssembledContext(
        system=write_system_message(source),
        history=_history(effect, context, transcript, turn, found),
        closing=tuple(_closing(effect, context, transcript, tools, recalled, form)) if holds_more else (),
        # Where no message needs other words, none is looked at.
        wording=None if is_read_as_said else Wording.of(policy.texts, effect.model, policy.max_result),
    )


def held_content(
    effect: RequestLlm, context: Context, transcript: Transcript, turn: int, kind: FailureKind
) -> tuple[Suspect, ...]:
    """What the request that `effect` asks for holds of what may be the reason of a failure of this kind, in the order
    of `Suspect`.

    A failure whose reason nobody knows makes only new files suspicious, and if the provider reported an error of its
    own, nothing at all; until the next turn fails like that. `Pure.`
    """
    found = transcript.found(effect.memory)
    said = [message for message in _history(effect, context, transcript, turn, found) if message.seq]
    held = {*transcript.held(effect.model, turn, said)}
    if found is not None and not effect.plain and (found.block.strip() or found.documents.strip() or found.recent):
        held.add("memory")
    if kind in UNEXPLAINED and not transcript.is_refused_again(turn):
        held &= {"new_files"} if kind == "invalid_request" else set()
    return tuple(one for one in get_args(Suspect) if one in held)


_FILE = 1_000
"""How many characters a file counts for: its tokens are not known, and are some hundred at least."""

_CHARACTERS_OF_TOKEN = 4
"""How many characters a token has, where no model has counted: the rule of thumb for English."""


def clearable_tokens(
    effect: RequestLlm, context: Context, transcript: Transcript, turn: int, request: ModelRequest, used: int = 0
) -> int:
    """About how many tokens this request, to which `effect` has led, would be smaller without the old results that
    `Policy.clear_results` names. `used` are the tokens that it has by the count of its model; 0 if that is not known.
    It takes as long as the request is. `Pure.`"""
    rules, most = context.policy.clear_results, context.policy.max_result
    if rules is None or effect.plain:
        return 0
    history = _history(effect, context, transcript, turn, transcript.found(effect.memory))
    old = [history[place] for place in old_results(history, rules.rounds)]
    characters = sum(min(len(one.text), one.max_result or most) + _FILE * len(one.files) for one in old)
    in_all = len(canonical_json(request.tools)) + request.size + _FILE * sum(map(_files_in, request.messages))
    return characters * (used or in_all // _CHARACTERS_OF_TOKEN) // max(in_all, characters, 1)


def _files_in(message: WireMessage) -> int:
    content = message.get("content")
    return sum("text" not in part for part in content) if isinstance(content, list) else 0


def _history(
    effect: RequestLlm, context: Context, transcript: Transcript, turn: int, found: MemoryRecalled | None
) -> Sequence[Message]:
    """The messages so far that belong into this request."""
    if effect.plain:
        said = of_turn(transcript.messages, transcript.first_try(turn))
        return [message for message in said if message.role == "user"]
    if isinstance(context.policy.dialogue, Recent):
        recent = (Message(role=text.role, text=text.text) for text in (found.recent if found else ()))
        worded = (message.replace(text=text_for_model(message)) for message in recent)
        return [*worded, *of_turn(transcript.messages, transcript.first_try(turn))]
    if transcript.condensed is not None:
        summary = escape_tags(text_shown(transcript.condensed.message, effect.model))
        return [Message(role="user", text=f"{SUMMARY_TITLE}\n{summary}"), *transcript.current]
    return transcript.messages


def _closing(
    effect: RequestLlm,
    context: Context,
    transcript: Transcript,
    tools: ExplainedTools,
    recalled: str,
    form: str,
) -> Iterator[Message]:
    """What only this request holds. It stands behind everything that later requests hold as well, since providers keep
    the beginning of a request: what was found for the turn, too, although all requests of the turn have it."""
    if recalled:
        yield Message(role="user", text=recalled)
    if form:
        yield Message(role="user", text=escape_tags(form))
    yield from _nudge(effect, context, transcript, tools)


def _nudge(effect: RequestLlm, context: Context, transcript: Transcript, tools: ExplainedTools) -> Iterator[Message]:
    """The reminder to the model, as the last message. Texts of the machine name the tools that are offered, and a
    message of another agent stands between its tags."""
    if effect.nudge is not None:
        parts = effect.nudge.parts if isinstance(effect.nudge, Joined) else (effect.nudge,)
        texts = (_reminder(part, effect.model, context, transcript, tools) for part in parts)
        yield Message(role="user", text=Joined.text_of(texts))


def _reminder(part: Heard | Made, model: str, context: Context, transcript: Transcript, tools: ExplainedTools) -> str:
    if isinstance(part, Made):
        return name_tools(part.text, context, tools)
    if transcript.is_withheld(part, model):
        return WITHHELD_MESSAGE
    origin = transcript.origin(part)
    audience: Audience | None = "user" if origin else None
    return text_for_model(Message(role="user", text=transcript.words(part), origin=origin, audience=audience))


def name_tools(text: str, context: Context, tools: ExplainedTools) -> str:
    """The reminder with the tools that it names under the names under which they are offered.

    One that names a tool of which none is offered gives way to one that asks for less: for the claim alone, or for a
    plain text. `Pure.`
    """
    texts = context.policy.texts
    plain = texts.fallback if context.role == "foreground" else texts.fallback_result
    for wording in (text, *((texts.claim_missing,) if CLAIM_PLACEHOLDER in text else ()), plain):
        names = {one: tools.named(one) for one in (RESPOND_PLACEHOLDER, CLAIM_PLACEHOLDER) if one in wording}
        if all(names.values()):
            return _replaced(wording, names)
    return plain


def _replaced(text: str, names: dict[str, str]) -> str:
    for placeholder, name in names.items():
        text = text.replace(placeholder, name)
    return text


CONTEXT_TITLE = "Current context:"
"""The first line of the note."""


def write_fresh_context(at: datetime, location: str) -> str:
    """The note with this time and this location. A model knows neither, a voice assistant is asked about both, and a
    note from an earlier turn would be wrong by now. So each request has exactly one, which is never stored and is no
    part of its digest. `Pure.`"""
    moment = at.astimezone(UTC)
    day = f"{DAYS[moment.weekday()]}, {MONTHS[moment.month - 1]} {moment.day}, {moment.year}"
    return f"{CONTEXT_TITLE}\n• Time: {day} at {moment:%H:%M} UTC\n• Location: {escape_tags(location)}"


def with_fresh_context(request: ModelRequest, note: str) -> ModelRequest:
    """The request with the note at its end. The messages of `request` are not changed.

    The note stands at the end, since providers cache the beginning, in the user's role, which every provider accepts
    there: in front of the text of a last message of the user, and otherwise as a message of its own. `Pure.`
    """
    *before, last = request.messages or ({"role": "system", "content": ""},)
    if last["role"] == "user":
        return replace(request, messages=(*before, _in_front(note, last)))
    own = arrange_behind(last["role"], {"role": "user", "content": note}, request.model)
    return replace(request, messages=(*request.messages, *own))


def _in_front(note: str, message: WireMessage) -> WireMessage:
    """The message with the note in front of its own content."""
    content = message["content"]
    together = [*parts_of(note), *content] if isinstance(content, list) else f"{note}\n\n{content}"
    return {**message, "content": together}


_MAX_PROMPTS = 128
"""How many conversations keep their requests written: more than ask a model at the same time. Another one writes its
request anew, from the transcript in memory."""


class CachedPrompt:
    """The written messages of one conversation. All are written anew when another model is asked, or when messages have
    to be worded for the model for the first time. The system message may change with each turn, since it holds what was
    found for the turn; only the digest is computed anew then."""

    def __init__(self, conversation_id: str = "") -> None:
        self.conversation_id = conversation_id
        self._written = WrittenMessages("")
        self._written_for: tuple[str, str, Wording | None] = ("", "", None)
        self._system: tuple[WireMessage, ...] = ()

    def request(
        self,
        effect: RequestLlm,
        system: str,
        messages: Sequence[Message],
        tools: OfferedTools,
        turn: int,
        settings: ModelSettings = DEFAULT_SETTINGS,
        *,
        closing: Sequence[Message] = (),
        wording: Wording | None = None,
        family: str = "",
        first_turn: int | None = None,
        keep_thinking: str | int = "turn",
        output: RequestedOutput | None = None,
    ) -> tuple[ModelRequest, str]:
        """The request that `build_request` would build from the same arguments, with these settings, and its
        `request_digest`.

        A `tool_choice` of the settings holds where the effect leaves the choice to the model. The `closing` messages
        stand behind the others, in this request only. `wording` words the messages for the model; None leaves them as
        they are. `family` is that of the model, by default that of its name. `first_turn` is the turn that this one
        tries again, by default none, and `keep_thinking` that of the policy. `output` is the form of the answer.
        """
        self._prepare((effect.model, family, wording), write_system(system))
        history = messages if isinstance(messages, list) else list(messages)
        first_turn = turn if first_turn is None else first_turn
        kept_since = first_turn if keep_thinking == "turn" else _kept_since(keep_thinking, first_turn)
        written, called, digest, stable = self._written.request(history, first_turn, kept_since, closing)
        chosen, choice = settings.tool_choice, str(effect.tool_choice)
        if chosen is not None:
            settings = settings.replace(tool_choice=None)
        if chosen is not None or output is not None:
            choice = _choice(effect, chosen, output)
        request = ModelRequest(
            model=effect.model,
            messages=written,
            tools=tools.definitions or tuple(map(_removed_tool, called)),
            tool_choice=choice if tools.definitions or not called else "none",
            conversation_id=self.conversation_id,
            settings=settings,
            output=output,
            stable=stable,
        )
        return request, digest.finish(request, tools.canonical)

    def _prepare(self, written_for: tuple[str, str, Wording | None], system: tuple[WireMessage, ...]) -> None:
        """Keep what was written, unless the messages would be written differently now."""
        model, family, wording = written_for
        if written_for != self._written_for or len(system) != len(self._system):
            worded = (None, None) if wording is None else (wording.read, wording.note)
            self._written = WrittenMessages(model, system, worded[0], family, worded[1])
        elif system != self._system:
            self._written.replace_system(system)
        self._written_for, self._system = written_for, system


def _kept_since(keep_thinking: str | int, first_turn: int) -> int:
    """The first turn whose thinking goes back in a request of this turn, where that is not this turn alone."""
    return max(first_turn - keep_thinking + 1, 0) if isinstance(keep_thinking, int) else 0


def _choice(effect: RequestLlm, chosen: str | None, output: RequestedOutput | None) -> str:
    """How the model may call tools: as the settings say, unless it may not call any. Where it gives its answer by a
    tool, it has to call one."""
    if output is not None and output.tool:
        if output.must_answer or chosen == "none":
            return output.tool
        return "required" if chosen in (None, "auto") else chosen
    return chosen if chosen is not None and effect.tool_choice == "auto" else effect.tool_choice


class PromptCache:
    """The cached prompts of the conversations that asked a model last, at most `capacity`. Each is dropped together
    with the history of its conversation."""

    def __init__(self, capacity: int = _MAX_PROMPTS) -> None:
        self._capacity = capacity
        self._prompts = WeakKeyDictionary[History, CachedPrompt]()

    def __len__(self) -> int:
        return len(self._prompts)

    def prompt_of(self, context: EffectContext) -> CachedPrompt:
        """Return the cached prompt of this conversation, an empty one if it is not cached."""
        prompt = self._prompts.pop(context.history, None) or CachedPrompt(context.conversation_id)
        self._prompts[context.history] = prompt  # behind all others, which are dropped before it
        if len(self._prompts) > self._capacity:
            del self._prompts[next(iter(self._prompts))]
        return prompt
