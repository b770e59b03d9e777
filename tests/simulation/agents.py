"""What a simulation of agents is made of: what carries out their effects, their models, their rules, their tree.

Model requests, mail, sub-agents and the built-in tools for agents are carried out by the engine itself. The tools of
the application, checks, summaries and the like are simulated, as in the simulation of one conversation.

What models say and call follows from the seed. They are asked by the engine as any model is. They use the tools for
agents above all, call some that they were not offered, take their time, fail, and hang.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

from turnwise.states.effects import EFFECTS, AwaitedEffect, Effect, ExecuteTool, RequestLlm, SpawnSubAgent
from turnwise.states.events import Opened
from turnwise.states.policy import Limits, ModelSpec, Policy, Profile, Questions, Recovery, Retry, SubAgentRules
from turnwise.states.roles import background_policy
from turnwise.states.states import AnyState, Closed, Failed, Idle, pending
from turnwise.states.transcript import Transcript
from turnwise.states.values.acts import AgentMail, SubAgentTask
from turnwise.states.values.messages import ToolCall, Usage
from turnwise.states.values.value import FailureKind
from turnwise.testing.generation.chance import Chance
from turnwise.testing.generation.vocabulary import TOOLS, Change, Vocabulary, a_policy, always, one_of, some_of

from .disk import Disk, LogKey, Process, Row
from .environment import RandomSource
from .world import MODEL_NAMES, SIMULATED, OpenEngine, World

if TYPE_CHECKING:
    from turnwise.effects.model.port import ModelAnswer, ModelCall, ModelRequest, Token
    from turnwise.effects.tools.tool import AnyTool

if TYPE_CHECKING:
    from turnwise.effects.context import EffectContext
    from turnwise.effects.dispatcher import Performer
    from turnwise.engine.engine import Engine

    Performers = Mapping[type[Effect], Performer]

BY_THE_ENGINE = (RequestLlm, ExecuteTool, SpawnSubAgent)
"""The awaited effects that the engine carries out itself; of tools those for agents only."""

BUILT_IN = ("send_user_message", "send_agent_message", "spawn_agents", "transfer_to", "ask_user_question")
"""The built-in tools that agents are given, and that are really carried out."""


class AgentsWorld:
    """Opens the engines of a simulation of agents. `simulated` carries out what they do not."""

    def __init__(self, simulated: World, models: SimulatedModels) -> None:
        self.simulated = simulated
        self._models = models

    def open_engine(
        self, process: Process, open_engine: OpenEngine, models: Sequence[ModelSpec], **options: Any
    ) -> Engine:
        """Open an engine in this process."""
        from turnwise.engine.composition import PortWrappers, wrapped_ports

        first, *others = (SimulatedLlm(spec, self._models) for spec in models)
        names = {spec.name for spec in models}  # a turn of an earlier process may ask another one
        more = [SimulatedLlm(ModelSpec(name=name), self._models) for name in MODEL_NAMES if name not in names]
        awaited = (kind for kind in EFFECTS if issubclass(kind, AwaitedEffect))
        simulated = {kind: self.simulated.carry_out for kind in awaited if kind not in BY_THE_ENGINE}
        with wrapped_ports(PortWrappers(performers=partial(self._recorded, process))):
            return open_engine(
                model=first, fallback_models=others, models=more, tools=tools(), performers=simulated, **options
            )

    def _recorded(self, process: Process, performers: Performers) -> Performers:
        """These performers, each of which records what it carries out."""
        recorded = dict(performers)
        recorded.setdefault(SpawnSubAgent, self.simulated.carry_out)
        for kind, performer in recorded.items():
            if issubclass(kind, AwaitedEffect):
                recorded[kind] = self._recorder(process, kind, performer)
        return recorded

    def _recorder(self, process: Process, kind: type[Effect], performer: Performer) -> Performer:
        from turnwise.effects.dispatcher import with_abort_of

        perform = partial(self._execute, performer) if kind is ExecuteTool else performer

        async def record(effect: Any, context: EffectContext) -> Any:
            performing: Any = perform(effect, context)
            return await self.simulated.performed.record(process, effect, context, performing)

        return with_abort_of(performer, record)

    async def _execute(self, performer: Performer, effect: ExecuteTool, context: EffectContext) -> Any:
        """Run a tool: those for agents as the engine does, after a while."""
        if effect.call.name not in BUILT_IN:
            return await self.simulated.carry_out(effect, context)
        await self.simulated.take_time()
        return await performer(effect, context)


MAILS = 16
"""How many messages models write to other agents in a simulation: without an end, no simulation would have one."""

CHILDREN = 5
"""How many sub-agents the models of a simulation ask for at most. Some are refused or never started, so that about
three are started."""

USAGE = Usage(input_tokens=8, output_tokens=2, cost=0.001)
"""What a model request costs."""

FAILURES: tuple[FailureKind, ...] = ("rate_limit", "server_error", "timeout", "authentication", "context_window")

WEIGHTS = {
    "send_user_message": 4,
    "send_agent_message": 4,
    "spawn_agents": 5,
    "transfer_to": 1,
    "ask_user_question": 2,
}
"""How often models use each of the built-in tools for agents, where they are offered."""


class SimulatedModels:
    """What all models of a simulation have in common."""

    def __init__(self, chance: RandomSource, world: World, tree: Tree) -> None:
        self.world = world
        self._chance = chance
        self._tree = tree
        self._mails = MAILS
        self._children = CHILDREN

    async def answer(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer a request. Raises `LlmFailure`, and whatever else models may raise."""
        from turnwise.effects.model.port import LlmFailure, ModelAnswer, Token

        chance = self._chance
        if self.world.calm:
            return ModelAnswer(content="That is all.", usage=USAGE)
        if chance.probably(0.03):
            await self.world.take_long()
        for number in range(chance.pick((0, 0, 2))):
            show(Token(f"{number} "))
            await self.world.take_time()
        await self.world.take_time()
        if chance.probably(0.08):
            raise LlmFailure(chance.pick(FAILURES), "It failed.", chance.pick((None, 3.0)))
        if chance.probably(0.01):
            raise RuntimeError("something went wrong")
        calls = self._calls(request) if chance.probably(0.65) else ()
        content = "" if calls or chance.probably(0.05) else f"Well, {chance.below(1_000)}."
        return ModelAnswer(content=content, tool_calls=calls, usage=USAGE)

    def _calls(self, request: ModelRequest) -> tuple[ModelCall, ...]:
        from turnwise.effects.model.port import ModelCall

        offered = [each["function"]["name"] for each in request.tools]
        names = [self._tool(offered) for _ in range(self._chance.pick((1, 1, 1, 2, 3)))]
        return tuple(ModelCall(f"call-{place}", name, self._arguments(name)) for place, name in enumerate(names))

    def _tool(self, offered: list[str]) -> str:
        """A tool to call: often one for agents, seldom one that is not offered."""
        chance = self._chance
        if chance.probably(0.05):
            return chance.pick(("break", *BUILT_IN))
        for_agents = {name: WEIGHTS[name] for name in offered if name in WEIGHTS and self._may_use(name)}
        others = [name for name in offered if name not in WEIGHTS and self._may_use(name)]
        return chance.weighted(for_agents) if for_agents and chance.probably(0.8) else chance.pick(others or ["break"])

    def _may_use(self, name: str) -> bool:
        if name in ("spawn_agents", "my_spawn"):
            return self._children > 0
        return self._mails > 0 or name not in ("send_user_message", "send_agent_message", "my_respond")

    def _arguments(self, name: str) -> str:
        arguments = self._fitting(name)
        if self._chance.probably(0.03):
            arguments = self._chance.pick(({}, {"unknown": 1}, {**arguments, "more": True}))
        return json.dumps(arguments)

    def _fitting(self, name: str) -> dict[str, Any]:
        chance = self._chance
        match name:
            case "send_user_message":
                self._mails -= 1
                return {"text": f"The user should know {chance.below(1_000)}."}
            case "send_agent_message":
                self._mails -= 1
                agents = [*self._tree.agents, self._tree.stranger, "nobody"]
                to = chance.pick((None, chance.pick(agents), chance.pick(agents)))
                text = {"text": f"You should know {chance.below(1_000)}.", "silent": chance.probably(0.3)}
                return text if to is None else {**text, "agent_id": to}
            case "spawn_agents":
                tasks = [self._task() for _ in range(chance.number(1, max(1, self._children)))]
                self._children -= len(tasks)
                return {"tasks": tasks}
            case "my_spawn":
                self._children -= 1
            case "my_respond":
                self._mails -= 1
            case "transfer_to":
                return {"profile": chance.pick(("one", "two", "nowhere"))}
            case "ask_user_question":
                option = {"label": "6:30 PM", "description": "early"}, {"label": "8:15 PM", "description": "late"}
                question = {"question": "When?", "header": "Time", "options": list(option), "multiSelect": False}
                return {"questions": [question]}
            case _:
                pass
        return {}

    def _task(self) -> str | dict[str, Any]:
        chance = self._chance
        text = f"Find out {chance.below(1_000)}."
        if chance.probably(0.5):
            return text
        more: dict[str, Any] = chance.pick(
            ({"requests": 2}, {"tokens": 20}, {"seconds": 5.0}, {"profile": "one"}, {"profile": "nowhere"}, {})
        )
        return {"text": text, **more}


class SimulatedLlm:
    """One of the models."""

    def __init__(self, spec: ModelSpec, models: SimulatedModels) -> None:
        self.name = spec.name
        self.window = spec.window
        self._models = models

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer the request. Raises `LlmFailure`, and whatever else models may raise."""
        return await self._models.answer(request, show)

    def estimate(self, request: ModelRequest, written: str) -> Usage:
        """What an answer that is cut off has cost: as much as one that is whole."""
        return USAGE


_CHANGES: tuple[Change, ...] = (
    some_of({"profiles": (Profile(name="one"), Profile(name="two"))}),
    some_of({"text": "fallback"}),
    some_of({"silent": "nudge"}, {"silent": "fallback"}),
    some_of({"parallel": 3}),
    some_of({"limits": Limits(requests=6, tokens=40)}, {"limits": Limits(requests=6, cost=0.004)}),
    some_of({"limits": Limits(requests=6, seconds=30.0)}, {"limits": Limits(requests=3, tool_calls=2)}),
    some_of({"when_busy": "queue"}, {"when_busy": "steer"}),
    some_of({"retry": Retry(attempts=1)}, {"retry": Retry(attempts=2, base=0.0)}),
    some_of({"on_failure": "reply"}),
    some_of({"questions": Questions(cancel="resume", deadline=9.0)}),
    some_of({"approval_deadline": 9.0}),
    some_of({"recovery": Recovery(resumes=0)}, {"recovery": Recovery(resumes=1)}),
    some_of({"cancel_deadline": 0.0}, {"cancel_deadline": 1.0}),
    some_of({"sub_agent_deadline": 60.0}, {"sub_agent_deadline": 2.0}, {"sub_agent_deadline": None}),
    some_of({"sub_agents": SubAgentRules(number=2, requests=2)}),
    some_of({"sub_agents": SubAgentRules(depth=2, requests=4, questions="ask_user")}),
    some_of({"relay": "prompt_only"}),
)


def foreground_rules(chance: Chance) -> Policy:
    """The policy of an agent with a user, which leaves the models to the engine."""
    often = (0.1, 0.3)
    questions: Literal["refuse", "ask_user"] = chance.pick(("refuse", "ask_user"))
    limits: dict[str, Any] = chance.pick(({}, {}, {"tokens": 60}, {"cost": 0.006}))
    rules: dict[str, Any] = {
        "limits": Limits(requests=6, **limits),
        "sub_agents": SubAgentRules(requests=4, questions=questions),
    }
    given = a_policy(chance, _CHANGES, often)
    changed = given.model_fields_set
    return given.replace(**{name: value for name, value in rules.items() if name not in changed})


def background_rules(chance: Chance) -> Policy:
    """The policy of an agent that works for another one."""
    return background_policy(foreground_rules(chance))


def some_schedule(chance: Chance) -> dict[str, Any]:
    """When an agent wakes up, as `engine.create` takes it; perhaps never."""
    return chance.pick(({}, {"every": 2.0}, {"every": 7.0}, {"every": 60.0}, {"cron": "* * * * *"}))


def vocabulary(rules: Callable[[Chance], Policy], targets: Callable[[], list[str]]) -> Vocabulary:
    """What performers answer and users want, where agents have these rules and may write to these targets."""
    return replace(
        SIMULATED,
        policy=rules,
        mail=lambda chance: AgentMail(
            target=chance.pick(targets()),
            text=f"Result {chance.below(1_000)}",
            audience=chance.pick(("user", "agent")),
            silent=chance.probably(0.3),
        ),
        tasks=one_of(("Look it up.",), ("Count.", SubAgentTask(text="Ask.", requests=2))),
        cost=always(USAGE),
    )


@cache
def tools() -> tuple[AnyTool | str, ...]:
    """The tools of an engine: the built-in ones for agents, and one of the application for each kind of tool."""
    return (*BUILT_IN, *(_tool(call) for call in TOOLS if _can_be_declared(call)))


def _can_be_declared(call: ToolCall) -> bool:
    """Whether a tool of the application can be like that."""
    return call.fault is None and (call.exclusive or "question" not in call.acts)


def _tool(call: ToolCall) -> AnyTool:
    from turnwise.effects.tools.tool import make_tool

    async def run() -> str:
        """Do it."""
        raise AssertionError("a tool was run in a simulation")

    async def reconcile() -> str:
        """Say whether it was done."""
        raise AssertionError("a tool was asked in a simulation")

    return make_tool(
        run,
        name=f"my_{call.name}",
        crash=call.crash,
        exclusive=call.exclusive,
        acts=call.acts,
        approval=call.approval,
        reconcile=reconcile if call.crash == "reconcile" else None,
    )


class Tree:
    """The conversations on a disk. All of them belong to the tree, except those of the other `stranger`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.roots: list[str] = []
        """The agents that the application created: the one with a user first."""
        self.stranger = ""
        """A conversation of another owner, which nobody here may reach."""

    def rows(self, agent_id: str) -> Sequence[Row]:
        """The steps of the agent that is stored under this id, or that was deleted last; none if nobody ever had it."""
        return self._disk.steps_of(agent_id)

    def was_deleted(self, agent_id: str) -> bool:
        """Whether an agent with this id was deleted."""
        return agent_id in self._disk.deleted

    def logs_of(self, agent_id: str) -> list[AgentLog]:
        """The logs of all agents that have had this id: of those that were deleted, then of the stored one."""
        keys = [(agent_id, number) for number in range(len(self._disk.logs_of(agent_id)))]
        return [
            AgentLog(key, rows, self._disk.began[key], self._disk.ended.get(key))
            for key, rows in zip(keys, self._disk.logs_of(agent_id), strict=True)
        ]

    def all_logs(self) -> Iterator[AgentLog]:
        """The logs of all agents that are stored or were deleted."""
        for agent_id in self.all_agents:
            yield from self.logs_of(agent_id)

    def state(self, agent_id: str) -> AnyState:
        """The state in which an agent rests, as stored."""
        return self.rows(agent_id)[-1].state

    def is_at_rest(self, agent_id: str) -> bool:
        """Whether an agent waits for nothing but messages."""
        state = self.state(agent_id)
        return isinstance(state, Idle | Failed | Closed) and not pending(state) and state.book.wake is None

    @property
    def agents(self) -> list[str]:
        """The agents that are stored, in the order in which they were created."""
        return [each for each in self._disk.rows if each != self.stranger]

    @property
    def all_agents(self) -> list[str]:
        """The ids of the agents that are stored or were deleted."""
        return list(dict.fromkeys([*self.agents, *self._disk.deleted]))

    @property
    def children(self) -> list[str]:
        """The sub-agents that are stored."""
        return [each for each in self.agents if self.logs_of(each)[-1].opened.role == "sub_agent"]

    def is_reachable(self, agent_id: str, other_id: str) -> bool:
        """Whether both belong to the tree. `Pure.`"""
        return self.stranger not in (agent_id, other_id)


@dataclass(frozen=True)
class AgentLog:
    """The log of one agent, as stored or as it was when the agent was deleted. Agents that were created under the id of
    a deleted one have logs of their own. `began` and `ended` count the lines of the trace: the latter is None of an
    agent that is stored."""

    key: LogKey
    rows: Sequence[Row]
    began: int
    ended: int | None

    @property
    def agent_id(self) -> str:
        """The id of the agent."""
        return self.key[0]

    @property
    def is_stored(self) -> bool:
        """Whether the agent is stored, so it was not deleted."""
        return self.ended is None

    @property
    def opened(self) -> Opened:
        """The first event of the agent."""
        event = self.rows[0].event
        assert isinstance(event, Opened)
        return event

    def is_during(self, other: AgentLog) -> bool:
        """Whether this agent was created while the other one was stored."""
        return other.began < self.began and (other.ended is None or self.began < other.ended)

    def transcript(self) -> Transcript:
        """What was said in the conversation of the agent."""
        transcript = Transcript()
        for row in self.rows:
            transcript.add(row.entry)
        return transcript
