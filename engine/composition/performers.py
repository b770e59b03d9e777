"""The composition root: the one place that knows which performer carries out which effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...effects.channels.delivery import DeliveryDispatcher, DeliveryPerformer
from ...effects.clock import Clock, TimerPerformer
from ...effects.context import EffectContext
from ...effects.dispatcher import InProcessDispatcher, Performer
from ...effects.location import Locator, location_source
from ...effects.model.performers.asking import ModelCaller, RunningAnswers
from ...effects.model.performers.llm_request import LlmRequestPerformer
from ...effects.model.performers.profile_selection import ProfileSelectionPerformer
from ...effects.model.performers.summaries import CompactionPerformer, SummaryPerformer
from ...effects.model.performers.verification import VerificationPerformer
from ...effects.retry_queues import Resumable
from ...effects.tools.performers import ReconciliationPerformer, ResumptionPerformer, ToolPerformer
from ...effects.tools.registry import ToolRegistry
from ...states.effects import (
    CompactHistory,
    DeliverToUser,
    Effect,
    ExecuteTool,
    RecallMemory,
    ReconcileTool,
    RequestLlm,
    ResumeTool,
    SelectProfile,
    StartTimer,
    SummarizeTurn,
    VerifyWork,
)
from ...states.events import Answer
from ..agents.agents import EngineAgents
from ..bootstrap import DispatcherFactory, Performers, wrap
from ..choices.choices import Choices
from ..choices.defaults import Defaults
from ..choices.models import Models, WaitingTurns
from ..choices.rule_checks import RuleChecks
from ..services.event_redactor import EventRedactor
from .memory import EngineMemory
from .providers import Providers

if TYPE_CHECKING:
    from ..settings import Settings
    from ..tracing.tracing import Tracing


FIRST_TO_ASK = (SelectProfile, RecallMemory, RequestLlm, CompactHistory)
"""The effects of which one is the first in a turn to ask a model."""


def build_performers(
    models: Models,
    tools: ToolRegistry,
    deliveries: DeliveryDispatcher,
    clock: Clock,
    settings: Settings,
    providers: Providers,
    memory: EngineMemory,
    agents: EngineAgents,
    given: Performers,
    waiting: WaitingTurns,
    answering: RunningAnswers,
    tracing: Tracing | None = None,
) -> Performers:
    """Return the performer of each kind of effect: `given` adds to the built-in ones, or replaces them. The first that
    asks a model in a turn waits as long as that cannot be asked at all."""

    def caller(silence: float, whole: float | None = None) -> ModelCaller:
        asking = ModelCaller(models.find, silence, whole, answering)
        return asking if tracing is None else tracing.asking(asking)

    asking = caller(settings.llm_chat_timeout_sec, settings.llm_chat_whole_timeout_sec)
    performers: dict[type[Effect], Performer] = {
        SelectProfile: ProfileSelectionPerformer(
            caller(settings.llm_profile_select_timeout_sec), clock, memory.recent, settings.llm_profile_select_model
        ),
        RecallMemory: memory.performer(caller(settings.llm_tools_timeout_sec)),
        RequestLlm: LlmRequestPerformer(asking, tools, clock, build_locator(settings, providers, clock)),
        VerifyWork: VerificationPerformer(asking, clock),
        SummarizeTurn: SummaryPerformer(asking, clock),
        CompactHistory: CompactionPerformer(asking, clock),
        ExecuteTool: ToolPerformer(tools, clock, settings.max_result, memory.search, agents.directory),
        ResumeTool: ResumptionPerformer(clock),
        ReconcileTool: ReconciliationPerformer(tools, clock, settings.max_result),
        StartTimer: TimerPerformer(clock),
        DeliverToUser: DeliveryPerformer(deliveries),
        **agents.performers(tools),
    }
    performers = {
        **performers,
        **{kind: _when_askable(performers[kind], waiting) for kind in FIRST_TO_ASK},
        **given,
    }
    return wrap("performers", performers if tracing is None else tracing.performers(performers))


def _when_askable(perform: Performer, waiting: WaitingTurns) -> Performer:
    """Return the performer, which begins once the models of its turn can be asked."""

    async def when_askable(effect: Any, context: EffectContext) -> Answer | None:
        await waiting.until_askable(context.conversation_id, context.context)
        return await perform(effect, context)

    return when_askable


def build_resumers(
    deliveries: DeliveryDispatcher, agents: EngineAgents, given: Performers
) -> Mapping[type[Effect], Resumable]:
    """Return what goes on with each type of effect that an earlier process left in the outbox. For a type of which the
    application has `given` the performer, that is its own `resume`, if it has one: nobody else knows its targets."""
    built_in = {kind: resumer for kind, resumer in agents.resumers.items() if kind not in given}
    performers: Mapping[type[Effect], object] = given
    own = {kind: one for kind, one in performers.items() if isinstance(one, Resumable)}
    return {DeliverToUser: DeliveryPerformer(deliveries), **built_in, **own}


def runs_all_tools(given: Performers, dispatcher: DispatcherFactory) -> bool:
    """Whether the engine runs every tool itself, and neither a performer nor a dispatcher of the application does."""
    return dispatcher is InProcessDispatcher and ExecuteTool not in given


def build_locator(settings: Settings, providers: Providers, clock: Clock) -> Locator:
    """Return what tells where the user is, asking nobody that the settings do not allow.

    An application that gives a source of its own has thereby allowed it, unless the settings forbid it.
    """
    is_given = providers.location is not None and "location_enabled" not in settings.model_fields_set
    source = location_source(
        providers.location,
        enabled=settings.location_enabled or is_given,
        ip_address=settings.location_ip_address,
        auto_detect=settings.location_auto_detect,
    )
    return Locator(source, clock)


def build_choices(
    defaults: Defaults,
    tools: ToolRegistry,
    given: Performers,
    dispatcher: DispatcherFactory,
    memory: EngineMemory,
    redactor: EventRedactor,
) -> Choices:
    """Return what conversations may choose. A dispatcher of the application may carry out any effect, and where the
    application asks the models itself, by a performer that it has `given`, it may offer them other tools."""
    is_built_in = dispatcher is InProcessDispatcher
    offers_tools = is_built_in and RequestLlm not in given
    needs_store = is_built_in and RecallMemory not in given
    can_recall = (lambda: memory.store.is_searchable) if needs_store else (lambda: True)
    return Choices(RuleChecks(defaults.models, tools, offers_tools, can_recall, lambda: redactor.fault), defaults)
