"""Asks the model for its next answer: builds the request from what is committed, and turns the answer into an event.

A request is written from the state of the conversation at the step that asked for it, so whoever looks at that step
later writes the same request again. It offers the tools that the engine has now, of those that the conversation may use
in the turn, that the turn's profile allows and that agents of its role may call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import inf
from operator import methodcaller
from typing import Any

from ....states.context import Context
from ....states.dialogue import of_turn
from ....states.effects import RequestLlm
from ....states.events import LlmFailed, LlmResponse, LlmStopped
from ....states.openai_writing import legal_name
from ....states.outputs import schema_of_rules
from ....states.policy import ModelSettings, Policy, named_models, settings_of
from ....states.replies import TextRule, text_rule
from ....states.roles import Caller
from ....states.transcript import Transcript
from ....states.values.messages import Suspect
from ....states.values.output import OutputSchema, OutputWay, WantedOutput
from ....states.values.value import REFUSED_CONTENT, UNEXPLAINED, encodable
from ...clock import Clock
from ...context import EffectContext, Progress, mark_of
from ...location import Locator
from ...logs import performer_logger
from ...printable import is_blank
from ...tools.catalogue import BUILT_IN, READ_RESULT
from ...tools.registry import ToolRegistry
from ..families import family_named, provider_fields_of, storable_block, storable_blocks
from ..outputs import (
    OutputForms,
    OutputReader,
    PartialOutput,
    ReadOutput,
    as_prompted,
    requested_output,
    tool_of,
)
from ..port import LlmFailure, ModelAnswer, ModelRequest, RequestedOutput, Token
from ..request import (
    CachedPrompt,
    OfferedTools,
    PromptCache,
    ToolOffer,
    assemble_context,
    clearable_tokens,
    held_content,
    with_fresh_context,
    write_fresh_context,
)
from ..shown_files import with_files
from ..system_message import ExplainedTools
from .asking import ModelCaller, UnfinishedAnswer, sentence_of

logger: logging.Logger = performer_logger("turnwise.planning")

_content = methodcaller("get", "content")


class LlmRequestPerformer:
    """Carries out `RequestLlm`. `locator` tells where the user is, in conversations whose requests state that, and
    `forms` are those of typed answers that the engine knows."""

    def __init__(
        self,
        caller: ModelCaller,
        tools: ToolRegistry,
        clock: Clock,
        locator: Locator | None = None,
        forms: OutputForms | None = None,
    ) -> None:
        self._locator = Locator(None, clock) if locator is None else locator
        self._caller = caller
        self._tools = tools
        self._forms = OutputForms() if forms is None else forms
        self._writer = RequestWriter(tools, caller.family_of, self._forms, caller.output_way)
        self._clock = clock
        self._prompts = PromptCache()

    async def __call__(self, effect: RequestLlm, context: EffectContext) -> LlmResponse | LlmFailed | LlmStopped:
        """Ask, and answer with the response or with the failure; or, if this task is cancelled, with what had come by
        then. The connection is closed when this returns."""
        asking = _Asking()
        try:
            return await self._ask(effect, context, asking)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # a cancellation of a library has leaked out of it
                raise
            return self._stopped(effect, asking)

    async def _ask(self, effect: RequestLlm, context: EffectContext, asking: _Asking) -> LlmResponse | LlmFailed:
        transcript = await context.transcript()
        offer = self._writer.offer_for(effect, context.context, context.turn, transcript)
        request, digest = self._write(effect, context, transcript, offer)
        schema = (
            None
            if effect.output is None
            else _schema_wanted(effect.output, effect.profile, context.context, transcript)
        )
        del transcript
        if context.policy.fresh_context and not effect.plain:
            request = with_fresh_context(request, write_fresh_context(effect.at, await self._locator.describe()))

        asking.speaks = offer.speaks
        asking.rule = rule = _shown_rule(context.context, offer)
        show: Callable[[Token], None] = partial(_show, context.progress, effect.effect_id, rule)
        if request.output is not None and schema is not None:
            asking.shows_text = _shows_text(request.output, context)
            show = self._showing_output(show, effect.effect_id, context, request.output, schema)
        try:
            sent = request
            if list in map(type, map(_content, request.messages)):  # most requests hold texts alone
                sent = await with_files(request, context.files)
            asking.answering = self._caller.begin(sent, show)
            answer = await self._caller.finish(asking.answering)
        except LlmFailure as failure:
            return await self._failed(failure, request, effect, context)
        response = self._response(effect, request, digest, answer, context, offer, schema)
        used = response.usage.tokens
        if not _is_near_window(context.policy, used):
            return response
        return response.replace(clearable=await _clearable(effect, context, request, used))

    def _showing_output(
        self,
        show: Callable[[Token], None],
        effect_id: int,
        context: EffectContext,
        output: RequestedOutput,
        schema: OutputSchema,
    ) -> Callable[[Token], None]:
        """What shows the pieces of a typed answer: as far as it can be read. Its text is shown, too, if the user
        receives it as it is."""
        progress = context.progress
        form = self._forms.form_of(schema)
        partial_output = PartialOutput(output, form, lambda value: progress(effect_id, "output", {"value": value}))
        is_text = _shows_text(output, context)

        def show_both(token: Token) -> None:
            if token.kind in ("thinking", "speech") or (token.kind == "text" and is_text):
                show(token)
            partial_output.add(token)

        return show_both

    def _write(
        self, effect: RequestLlm, context: EffectContext, transcript: Transcript, offer: ToolOffer
    ) -> tuple[ModelRequest, str]:
        """Return what follows from the log: the request without the fresh context, and its digest. Nobody holds the
        transcript afterwards, while the model is asked."""
        if logger.isEnabledFor(logging.INFO):
            _log_request(context.turn, transcript, len(_offered_to(effect, offer).definitions))
        prompt = self._prompts.prompt_of(context)
        return self._writer.write(effect, context.context, context.turn, transcript, offer, prompt)

    def _response(
        self,
        effect: RequestLlm,
        request: ModelRequest,
        digest: str,
        answer: ModelAnswer,
        context: EffectContext,
        offer: ToolOffer,
        schema: OutputSchema | None,
    ) -> LlmResponse:
        model = request.model
        mark = mark_of(context.links.of(effect.effect_id))
        calls = self._tools.resolve_calls(
            effect.effect_id, answer.tool_calls, context.policy, offer.allowed, offer.caller, mark
        )
        read = ReadOutput(None, calls)
        if request.output is not None and schema is not None:
            reader = OutputReader(self._forms, self._forms.form_of(schema), request.output, context.policy)
            read = reader.read(answer, calls)
        # A model may be anybody's: what no response can hold fails this performer, under any dispatcher.
        return LlmResponse(
            effect_id=effect.effect_id,
            at=self._clock.now(),
            content="" if is_blank(answer.content) else encodable(answer.content),
            thinking=encodable(answer.thinking),
            opaque=storable_blocks(answer.opaque, model),
            tool_calls=read.calls,
            finish_reason=answer.finish_reason,
            usage=answer.usage,
            model=model,
            digest=digest,
            speaks=offer.speaks,
            provider=provider_fields_of(answer, calls, self._caller.family_of(model), model),
            output=read.output,
            citations=answer.citations,
            logprobs=None if answer.logprobs is None else storable_block(answer.logprobs, model),
        )

    async def _failed(
        self, failure: LlmFailure, request: ModelRequest, effect: RequestLlm, context: EffectContext
    ) -> LlmFailed:
        return LlmFailed(
            effect_id=effect.effect_id,
            at=self._clock.now(),
            kind=failure.kind,
            sentence=sentence_of(failure),
            retry_after=failure.retry_after,
            held=await _held(failure, request, effect, context),
            usage=failure.usage,
            clearable=await _clearable(effect, context, request) if failure.kind == "context_window" else 0,
        )

    def _stopped(self, effect: RequestLlm, asking: _Asking) -> LlmStopped:
        """What had come of the answer. A model that has shown nothing may not have begun."""
        fields: dict[str, Any] = {}
        if (answering := asking.answering) is not None:
            text = answering.written("text") if asking.shows_text else ""
            thinking, speech = answering.written("thinking"), answering.written("speech")
            if not is_blank(speech):
                # Beside it a text that is no reply was shown to nobody as one.
                thoughts, text = (thinking, text) if asking.rule == "reply" else (_paragraphs(thinking, text), "")
                thinking, text = thoughts, _paragraphs(text, speech)
            fields = {
                "content": "" if is_blank(text) else encodable(text),
                "thinking": encodable(thinking),
                "spoken": not is_blank(speech),
                "usage": answering.usage(),
                "model": effect.model,
                "speaks": asking.speaks,
            }
        return LlmStopped(effect_id=effect.effect_id, at=self._clock.now(), **fields)


@dataclass(slots=True)
class _Asking:
    """The answer that is asked for, once the model is asked, whether a tool that speaks was offered, and
    whether people see the text, by this rule."""

    answering: UnfinishedAnswer | None = None
    speaks: bool = False
    rule: TextRule = "reply"
    shows_text: bool = True


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if not is_blank(text))


def _schema_wanted(wanted: WantedOutput, profile: str, context: Context, transcript: Transcript) -> OutputSchema | None:
    """The form that the answer to a request with this profile must have. `Pure.`"""
    brought = None if wanted.seq is None else transcript.output(wanted.seq)
    return brought or schema_of_rules(context, profile)


def _shows_text(output: RequestedOutput, context: EffectContext) -> bool:
    """Whether the text of a typed answer is shown while it comes: beside a call that gives it, or if the user receives
    it as it is."""
    return output.tool != "" or context.policy.output_reply == "json"


async def _held(
    failure: LlmFailure, request: ModelRequest, effect: RequestLlm, context: EffectContext
) -> tuple[Suspect, ...]:
    """What the request held of what may have been the reason of this failure. If it was the answer that was refused,
    what people said is left alone: another answer to it may pass."""
    if failure.kind not in REFUSED_CONTENT and failure.kind not in UNEXPLAINED:
        return ()
    held = held_content(effect, context.context, await context.transcript(), context.turn, failure.kind)
    has_system = request.messages[:1] and request.messages[0]["role"] == "system"
    left_out = {*(() if has_system else ("instructions",)), *(("words",) if failure.of_answer else ())}
    return tuple(one for one in held if one not in left_out)


def _is_near_window(policy: Policy, used: int) -> bool:
    """Whether a request of so many tokens is large enough for one of the models that old results may be cleared."""
    rules = policy.clear_results
    if rules is None:
        return False
    windows = [model.window for model in named_models(policy) if model.window is not None]
    return used >= min(rules.share, policy.window) * min(windows, default=inf)


async def _clearable(effect: RequestLlm, context: EffectContext, request: ModelRequest, used: int = 0) -> int:
    """About how many tokens this request would be smaller without old results of tools."""
    return clearable_tokens(effect, context.context, await context.transcript(), context.turn, request, used)


def _shown_rule(context: Context, offer: ToolOffer) -> TextRule:
    """The rule by which the text that answers this request is shown while it streams: what the policy takes for a
    thought is shown as one."""
    return "thought" if context.policy.text == "thought" else text_rule(context, speaks=offer.speaks)


def _show(progress: Progress, effect_id: int, rule: TextRule, token: Token) -> None:
    """Show a piece of an answer: all text as a thought, if it is one, and text that may not reach the user as such."""
    kind = "thinking" if rule == "thought" and token.kind != "speech" else token.kind
    shown = {"text": token.text, "kind": kind}
    progress(effect_id, "token", {**shown, "fallback": True} if rule == "fallback" and kind == "text" else shown)


def _log_request(turn: int, transcript: Transcript, tools: int) -> None:
    """Note which request of the turn this is. A request that is sent again has the same number."""
    answered = sum(message.role == "assistant" for message in of_turn(transcript.messages, turn))
    logger.info("Request %d of turn %d, tools: %d.", answered + 1, turn, tools)


_NO_TOOLS = OfferedTools(())

_LOGGER = performer_logger("turnwise.tools")

KEPT = 256
"""How many choices of tools are kept: more than an application makes, unless it makes one for each conversation."""

_MAX_TOLD = 20
"""The most tools of which one warning says why they are left out."""

_EXPLAINED = {
    "respond": "respond_to_user",
    "talk": "talk",
    "message_user": "send_user_message",
    "message_agent": "send_agent_message",
    "transfer": "transfer_to",
    "spawn": "spawn_agents",
}
"""The built-in tools that the system message explains, by the fields of `ExplainedTools`."""

Names = tuple[str, ...] | None
"""Names of tools as they were chosen; None stands for all tools."""


class RequestWriter:
    """Writes the requests of an engine that has these tools. `family_of` returns the family of the model of a name, and
    `way_of` how it is asked for an answer with a schema, beside other tools or without.

    A request is built for every answer of a model, while the tools of a conversation seldom change and are mostly the
    same in all conversations. So what is offered is written once for each choice of tools and each kind of agent and
    kept, until a source of tools changes.
    """

    def __init__(
        self,
        tools: ToolRegistry,
        family_of: Callable[[str], str] = family_named,
        forms: OutputForms | None = None,
        way_of: Callable[[str, OutputSchema, bool], OutputWay] = lambda *_: "tool",
    ) -> None:
        self._tools = tools
        self._family_of = family_of
        self._forms = OutputForms() if forms is None else forms
        self._way_of = way_of
        self._offer = lru_cache(KEPT)(self._make_offer)
        self._told = set[str]()

    def offer_for(self, effect: RequestLlm, context: Context, turn: int, transcript: Transcript) -> ToolOffer:
        """Return what this request offers of the tools in this turn.

        It stays the same within a turn, also after a crash: tools that a conversation chooses during a turn are those
        of the next one. Only the tools of sources come and go within a turn, and once a request leaves out a part of a
        result, the tool by which that is read is offered, too."""
        profile = context.policy.find_profile(effect.profile)
        of_profile = None if profile is None else profile.tools
        reads = transcript.hides_results or transcript.longest_result > context.policy.max_result
        return self._offer(self._tools.version, context.tools_in(turn), of_profile, context.caller, reads)

    def write(
        self,
        effect: RequestLlm,
        context: Context,
        turn: int,
        transcript: Transcript,
        offer: ToolOffer,
        prompt: CachedPrompt,
    ) -> tuple[ModelRequest, str]:
        """Return the request that `effect` asks for, without the fresh context, and its digest. `context`, `turn` and
        `transcript` are those of the step that has the effect; `prompt` keeps what is written for the next request of
        this conversation."""
        if effect.plain:  # it has nothing in common with the requests before and behind it
            prompt = CachedPrompt(prompt.conversation_id)
        settings = settings_of(context.policy, effect.profile, transcript.settings(turn))
        tools, output, form = _offered_to(effect, offer), None, ""
        tools = tools.strict if settings.strict else tools
        wanted = effect.output
        schema = None if wanted is None else _schema_wanted(wanted, effect.profile, context, transcript)
        if schema is not None:
            output = self._output(effect, schema, tools, strict=bool(settings.strict))
            tools = _with_output(tools, output, context.policy)
            form = as_prompted(output, context.policy.texts.output_guidance) if output.way == "prompted" else ""
        if settings.tool_choice is not None:
            settings = _with_choice(settings, settings.tool_choice, turn, transcript, tools)
        assembled = assemble_context(effect, context, transcript, turn, offer.explained, tools.listed, form)
        request, digest = prompt.request(
            effect,
            assembled.system,
            assembled.history,
            tools,
            turn,
            settings,
            closing=assembled.closing,
            wording=assembled.wording,
            family=self._family_of(effect.model),
            first_turn=transcript.first_try(turn),
            keep_thinking=context.policy.keep_thinking,
            output=output,
        )
        spoken = None if effect.plain else offer.spoken or None
        if spoken or context.owner is not None or context.metadata:
            request = replace(request, spoken=spoken, owner=context.owner, metadata=context.metadata)
        return request, digest

    def _output(
        self, effect: RequestLlm, schema: OutputSchema, tools: OfferedTools, *, strict: bool
    ) -> RequestedOutput:
        """What the request says of the form of its answer."""
        names = [tool["function"]["name"] for tool in tools.definitions]
        must_answer = not names or effect.tool_choice == "none"
        way = self._way_of(effect.model, schema, bool(names))
        form = self._forms.form_of(schema)
        return requested_output(form, way, names, must_answer=must_answer, strict_tools=strict)

    def _make_offer(
        self, version: tuple[int, ...], chosen: Names, of_profile: Names, caller: Caller, reads: bool
    ) -> ToolOffer:
        allowed = self._tools.allowed(chosen, of_profile, caller)
        names = {purpose: self._tools.name_of(BUILT_IN[name], allowed) for purpose, name in _EXPLAINED.items()}
        explained = ExplainedTools(
            **names,
            speaking=self._tools.names_acting("speech", allowed) if caller.role == "foreground" else (),
            claiming=self._tools.names_acting("work_complete", allowed),
        )
        reader = (BUILT_IN[READ_RESULT].definition(),) if reads and READ_RESULT not in allowed else ()
        offered = OfferedTools((*self._tools.definitions(allowed), *reader))
        self._tell(offered.left_out)
        spoken = self._tools.spoken_arguments(explained.speaking) if explained.speaking else None
        return ToolOffer(allowed - offered.left_out.keys(), caller, offered, explained, spoken)

    def _tell(self, left_out: Mapping[str, str]) -> None:
        """Log which tools are left out, each once."""
        new = left_out.keys() - self._told
        self._told |= new
        sentences = [sentence for name, sentence in left_out.items() if name in new]
        if sentences:
            more = f" So are {len(sentences) - _MAX_TOLD} others." if len(sentences) > _MAX_TOLD else ""
            _LOGGER.warning("%s%s", " ".join(sentences[:_MAX_TOLD]), more)


def _with_choice(
    settings: ModelSettings, chosen: str, turn: int, transcript: Transcript, tools: OfferedTools
) -> ModelSettings:
    """Return these settings with the choice of tools for this request. One that forces a call holds for the first
    response of a turn, which may be tried again, and only if there is such a tool. `Pure.`"""
    if chosen in ("auto", "none"):
        return settings
    first = transcript.first_try(turn)
    if not tools.has(chosen) or any(one.role == "assistant" for one in of_turn(transcript.messages, first)):
        return settings.replace(tool_choice=None)
    return settings if chosen == "required" else settings.replace(tool_choice=legal_name(chosen))


def _with_output(tools: OfferedTools, output: RequestedOutput, policy: Policy) -> OfferedTools:
    """The tools, and behind them the one by which the answer is given, if it is given by one. `Pure.`"""
    if not output.tool:
        return tools
    return tools.with_one_more(tool_of(output, policy.texts.output_tool))


def _offered_to(effect: RequestLlm, offer: ToolOffer) -> OfferedTools:
    """Return the definitions that the request holds: a plain one has none. `Pure.`"""
    return _NO_TOOLS if effect.plain else offer.definitions
