"""Carries out `SpawnSubAgent`: starts a sub-agent, waits until it has ended, and answers with its result.

The id of the sub-agent is the key of the effect. So it is started once, however often the effect is carried out: a
process that takes the parent over finds the sub-agent, and waits for it or reads in its log how it ended.

The sub-agent goes on when the task of the performer is cancelled, because the parent is closed or lost here. It is
stopped only when the parent no longer wants it, or when it is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pydantic import ValidationError

from ..states.effects import SpawnSubAgent
from ..states.errors import EngineClosed, InvalidInput, UnknownConversation
from ..states.events import Opened, SubAgentAsked, SubAgentFinished, UserMessage
from ..states.roles import sub_agent_policy
from ..states.values.messages import NOTHING_SPENT, Usage
from ..states.values.questions import OpenQuestion
from ..states.values.turn import EndedStatus
from ..states.values.value import sooner
from .agents import SubAgent, SubAgents
from .clock import Clock
from .context import EffectContext
from .tools.registry import ToolRegistry

TASK = "task"
"""The id under which a sub-agent takes its task, so that it takes it once."""

OPENED = "opened"
"""The id of the first event of a sub-agent."""

DELETED = "The sub-agent was deleted."
NO_TASK = "The sub-agent was not started: its task is empty, or too long."
LONG_ID = "The sub-agent was not started: its id, which begins with that of its parent, would be too long."
"""What the parent reads in place of a result."""


@dataclass(eq=False)
class _Run:
    """A sub-agent that is waited for here. `stopping` is set when it is to end; `is_late` says that it was due, so that
    the parent does not wait any longer. `reported` is what the parent knows that it asks."""

    effect: SpawnSubAgent
    context: EffectContext
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    is_late: bool = False
    reported: OpenQuestion | None = None

    @property
    def child_id(self) -> str:
        return self.context.key(self.effect.effect_id)


class SubAgentPerformer:
    """Carries out `SpawnSubAgent` with these sub-agents. `tools` are the tools of the engine."""

    def __init__(self, sub_agents: SubAgents, tools: ToolRegistry, clock: Clock) -> None:
        self._sub_agents = sub_agents
        self._tools = tools
        self._clock = clock
        self._runs: dict[str, _Run] = {}

    async def abort(self, effect: SpawnSubAgent, context: EffectContext) -> None:
        """Tell the sub-agent to end. If it is waited for here, the answer comes when it has ended."""
        child_id = context.key(effect.effect_id)
        if (run := self._runs.get(child_id)) is not None:
            run.stopping.set()
        elif (child := await self._sub_agents.find(child_id)) is not None:
            await child.close()

    async def __call__(self, effect: SpawnSubAgent, context: EffectContext) -> SubAgentFinished:
        """Start the sub-agent, or find it, and answer when it has ended."""
        run = self._runs[context.key(effect.effect_id)] = _Run(effect, context)
        timer = asyncio.ensure_future(self._stop_when_due(run))
        try:
            return await self._carry_out(run)
        except UnknownConversation:
            return self._answer(run, "failed", DELETED)
        except EngineClosed:
            return await self._wait_for_close()
        finally:
            timer.cancel()
            if self._runs.get(run.child_id) is run:
                del self._runs[run.child_id]

    async def _wait_for_close(self) -> NoReturn:
        """Leave the effect to the next engine, which asks for it again: this one closes, and cancels the task, or has
        done so already."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        await _never()

    async def _stop_when_due(self, run: _Run) -> None:
        if run.effect.due is not None:
            await self._clock.sleep_until(sooner(run.effect.due, self._clock.now(), run.effect.seconds))
            run.is_late = True
            run.stopping.set()

    async def _carry_out(self, run: _Run) -> SubAgentFinished:
        try:
            task = await self._task(run)
        except ValidationError:
            return self._answer(run, "failed", NO_TASK)
        child = await self._sub_agents.find(run.child_id)
        if child is None:
            if run.stopping.is_set():
                return self._given_up(run, NOTHING_SPENT)
            if (fault := self._unknown_tool(run)) is not None:
                return self._answer(run, "failed", fault)
            try:
                child = await self._sub_agents.create(run.child_id, self._opened(run))
            except InvalidInput:
                return self._answer(run, "failed", LONG_ID)
        if not child.has_ended and not run.stopping.is_set():
            await child.begin(task)
        run.reported = await self._sub_agents.reported(run.context.conversation_id, run.effect.effect_id)
        if not await self._has_ended(run, child):
            return self._given_up(run, await child.usage())
        return await self._ended(run, child)

    async def _has_ended(self, run: _Run, child: SubAgent) -> bool:
        """Wait until the sub-agent has ended, and report what it asks meanwhile. Returns false if it was due and tools
        still delay its end."""
        is_told = False
        while not child.has_ended:
            if run.stopping.is_set() and not is_told:
                await child.close()
                is_told = True
            elif run.is_late:
                return False
            else:
                seq = child.seq
                await self._report(run, child.asks)
                await _first_of(child.beyond(seq), _never() if is_told else run.stopping.wait())
        return True

    async def _report(self, run: _Run, asks: OpenQuestion | None) -> None:
        """Report what the sub-agent asks, if the parent does not know it, or that it no longer asks what the parent
        knows."""
        effect_id, known, at = run.effect.effect_id, run.reported, self._clock.now()
        concerned = asks or known
        if asks == known or concerned is None:
            return
        run.reported = asks
        news: dict[str, Any] = {} if asks is None else {"questions": asks.questions, "since": asks.since}
        report = SubAgentAsked(effect_id=effect_id, at=at, call_id=concerned.call_id, **news)
        await self._sub_agents.report(run.context.conversation_id, report)

    async def _ended(self, run: _Run, child: SubAgent) -> SubAgentFinished:
        outcome, usage = await child.outcome(), await child.usage()
        if run.is_late and outcome.status == "cancelled":
            return self._given_up(run, usage)
        await child.close()  # a failed turn can be tried again, but nobody waits for that
        text = outcome.text or (run.context.policy.texts.child_cancelled if outcome.status == "cancelled" else "")
        return self._answer(run, outcome.status, text, usage).replace(is_json=outcome.is_json)

    def _given_up(self, run: _Run, usage: Usage) -> SubAgentFinished:
        texts = run.context.policy.texts
        return self._answer(run, "cancelled", texts.child_late if run.is_late else texts.child_cancelled, usage)

    def _answer(self, run: _Run, status: EndedStatus, text: str, usage: Usage = NOTHING_SPENT) -> SubAgentFinished:
        return SubAgentFinished(
            effect_id=run.effect.effect_id, at=self._clock.now(), outcome=text, status=status, usage=usage
        )

    # --- the beginning

    def _unknown_tool(self, run: _Run) -> str | None:
        """Return what is wrong with the tools of the task: the parent may not use one of them, or there is none of that
        name."""
        chosen = run.context.context.tools_in(run.context.turn)
        allowed = None if chosen is None else self._tools.allowed(chosen)
        names = run.effect.tools or ()
        unknown = next((name for name in names if self._tools.find(name, allowed) is None), None)
        return None if unknown is None else self._tools.describe_unknown(unknown, allowed)

    def _opened(self, run: _Run) -> Opened:
        """Return the first event of the sub-agent: its role, and what it takes over from its parent."""
        effect, parent = run.effect, run.context.context
        return Opened(
            event_id=OPENED,
            at=self._clock.now(),
            role="sub_agent",
            parent=run.context.conversation_id,
            depth=parent.depth + 1,
            system=parent.system,
            policy=sub_agent_policy(parent.policy, effect.limits, effect.profile, parent.role),
            chose_models=parent.chose_models,
            chose_profiles=parent.chose_profiles or bool(effect.profile),
            tools=parent.tools_in(run.context.turn) if effect.tools is None else effect.tools,
            owner=parent.owner,
            metadata=parent.metadata,
        )

    async def _task(self, run: _Run) -> UserMessage:
        return UserMessage(event_id=TASK, at=self._clock.now(), text=await run.context.words(run.effect.task))


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of these has ended; the others are cancelled. Raises what it raises."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for task in done:
        task.result()


async def _never() -> NoReturn:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody sets this future")
