"""The role of an agent among others, which of the built-in tools it may call, and by which rules it works.

A *foreground* agent has a user; a *background* agent works for a foreground agent; a *sub-agent* was started by a turn
of another agent and answers it.

The rules of agents without a user are made from the rules of the agent that they work for. Such an agent has the same
models, profiles, limits and texts. What differs is what concerns a user: nobody reads its replies, waits while it is
busy or hears what a claim says, so its text is its thinking and a turn ends with that text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from .policy import Limits, Policy, SubAgentRules

Role = Literal["foreground", "background", "sub_agent"]

DEFAULT_RULES = SubAgentRules()
"""The rules for sub-agents of a policy that says nothing of them."""


@dataclass(frozen=True)
class RoleTools:
    """The built-in tools, by all their names, that agents of one role may call.

    `title` is what such agents are called in a sentence.
    """

    title: str
    allowed: frozenset[str]

    @property
    def denied(self) -> frozenset[str]:
        """Those that they may not call: what only agents of other roles may. `Pure.`"""
        return frozenset[str]().union(*(tools.allowed for tools in ROLE_TOOLS.values())) - self.allowed


_EVERYBODY = {"mark_work_complete", "read_result", "recall_conversation", "send_agent_message", "spawn_agents"}
_SPEAKING = {"ask_user_question", "respond_to_user", "speak_to_user", "talk"}

ROLE_TOOLS: Mapping[Role, RoleTools] = MappingProxyType({
    "foreground": RoleTools("agents with a user", frozenset({*_EVERYBODY, *_SPEAKING, "transfer_to"})),
    "background": RoleTools("background agents", frozenset({*_EVERYBODY, "send_user_message", "transfer_to"})),
    "sub_agent": RoleTools("sub-agents", frozenset(_EVERYBODY)),
})  # fmt: skip
"""Which built-in tools the agents of each role may call. `Caller.fault` adds what the rules for sub-agents say."""


class Caller(NamedTuple):
    """The agent that calls tools: its role, its depth, and the rules for sub-agents.

    `depth` counts the agents above this one: 0 where no turn of another agent started it. By the `rules`, agents beyond
    a depth start no others, and sub-agents may ask the user.
    """

    role: Role = "foreground"
    depth: int = 0
    rules: SubAgentRules = DEFAULT_RULES

    @property
    def is_too_deep(self) -> bool:
        """Whether this agent may not start others, because too many are above it. A sub-agent counts as one deep if its
        log does not say so. `Pure.`"""
        above = max(self.depth, 1) if self.role == "sub_agent" else self.depth
        return above >= self.rules.depth

    @property
    def may_ask_user(self) -> bool:
        """Whether this agent has a user to ask: its own, or, if the rules allow that, the one of the agent that started
        it. `Pure.`"""
        asks_for_another = self.role == "sub_agent" and self.rules.questions == "ask_user"
        return self.role == "foreground" or asks_for_another

    def fault(self, tool: str) -> str | None:
        """Return why this agent may not call the built-in `tool`, in a sentence, or None if it may. `Pure.`"""
        of_role = ROLE_TOOLS[self.role]
        is_denied = tool in of_role.denied and not (tool == "ask_user_question" and self.may_ask_user)
        if is_denied or (tool == "spawn_agents" and self.is_too_deep):
            return f"{tool} is not available to {of_role.title}"
        return None


def background_policy(policy: Policy) -> Policy:
    """Return the rules of a background agent that works for an agent with these rules. `Pure.`"""
    return policy.replace(
        text="thought",
        ends_on="text",
        silent="allow",
        verify=0,
        summarize=False,
        when_busy="queue",
        dialogue="transcript",
        recall=False,
        route=False,
        transcription_note=False,
        describe_agents=True,
        relay="prompt_only",
        sub_agents=policy.sub_agents.replace(questions="refuse"),
    )


def sub_agent_policy(policy: Policy, limits: Limits, profile: str = "", parent: Role = "foreground") -> Policy:
    """Return the rules of a sub-agent that an agent with these rules and the role `parent` starts. `limits` are its
    limits. `profile` is the name of its profile; if it is empty or unknown, the sub-agent has the profiles of the
    rules, the first by default.

    A sub-agent always answers, so a failure becomes its last text. It may ask the user only of its own parent, which
    must have one, and goes on if that user declines to answer. `Pure.`
    """
    named = tuple(one for one in policy.profiles if one.name == profile)
    made = background_policy(policy).replace(
        limits=limits,
        profiles=named or policy.profiles,
        on_failure="reply",
        questions=policy.questions.replace(cancel="resume"),
    )
    return made.replace(sub_agents=policy.sub_agents) if parent == "foreground" else made
