"""What is generated in simulations of agents: their rules, their tools and their mail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from ....states.policy import Limits, Policy, Profile, Questions, Recovery, Retry, SubAgentRules
from ....states.roles import background_policy
from ....states.values.acts import AgentMail, SubAgentTask
from ....states.values.messages import ToolCall, Usage
from ...generation.chance import Chance
from ...generation.policies import Change, a_policy, some_of
from ...generation.vocabulary import TOOLS, Vocabulary, always, one_of
from ..world.vocabulary import SIMULATED

if TYPE_CHECKING:
    from ....effects.tools.tool import AnyTool

BUILT_IN = ("send_user_message", "send_agent_message", "spawn_agents", "transfer_to", "ask_user_question")
"""The built-in tools that agents are given, and that are really carried out."""

USAGE = Usage(input_tokens=8, output_tokens=2, cost=0.001)
"""What a model request costs."""

CHILDREN = 5
"""How many sub-agents the models of a simulation ask for at most. Some are refused or never started, so that about
three are started."""

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
    from ....effects.tools.tool import make_tool

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
