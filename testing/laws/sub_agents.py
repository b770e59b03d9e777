"""Laws 12 and 14 for sub-agents: what they may use up, what becomes of them, and what they ask."""

from __future__ import annotations

import json

from ...states.effects import RequestLlm, SpawnSubAgent
from ...states.events import Resumed
from ...states.states import AwaitingSubAgents
from ...states.values.messages import Heard, Joined, Made, Outcomes
from ...states.values.value import AGENTS
from ..history import History
from ..law import require

# --- 12: what they may use up


def shares_limits_with_sub_agents(history: History) -> None:
    """Law 12: sub-agents together may use no more than their parent has left, each no more than the rules say, and no
    more of them are started in a turn, and no deeper, than the rules allow."""
    newest, policy = history.newest, history.newest.context.policy
    started = [effect for effect in newest.effects if isinstance(effect, SpawnSubAgent)]
    if not started or isinstance(newest.event, Resumed) or newest.context.revision < AGENTS:
        return
    spent, limits = history.spending.spent.usage, policy.limits
    tokens, costs = [one.limits.tokens for one in started], [one.limits.cost for one in started]
    left = None if limits.tokens is None else limits.tokens - spent.tokens
    given = sum(left or 0 if one is None else one for one in tokens)
    require(left is None or given <= left, "sub-agents may use too many tokens", history)
    money = None if limits.cost is None else limits.cost - (spent.cost or 0.0)
    total = sum(money or 0.0 if one is None else one for one in costs)
    require(money is None or total <= money * (1 + 1e-9), "sub-agents may spend too much", history)
    most = max(one.limits.requests for one in started)
    require(most <= policy.sub_agents.requests, "a sub-agent may send too many requests", history)
    require(history.spending.children <= policy.sub_agents.number, "a turn starts too many sub-agents", history)
    depth = max(newest.context.depth, int(newest.context.role == "sub_agent"))
    require(depth < policy.sub_agents.depth, "sub-agents are nested too deep", history)


# --- 14: what becomes of them


def loses_no_sub_agent(history: History) -> None:
    """Law 14: every sub-agent that was started works or has ended, and its outcome becomes part of the result of the
    call that started it, once, in the order of the tasks, and reads back equal from its JSON."""
    sub_agents, working = history.sub_agents, history.in_flight
    for effect_id, child in sub_agents.children.items():
        result = sub_agents.results.get(child.call_id)
        places = (effect_id in working) + (child.outcome is not None) + (result is not None and child.outcome is None)
        require(places == 1, f"the sub-agent {effect_id} is in {places} places", history)
        reports = 0 if child.outcome is None else sub_agents.reported[child.outcome]
        require(reports == (result is not None and child.outcome is not None), "an outcome is lost or doubled", history)
    for call_id in sub_agents.results:
        require(
            _tells_of_all(history, call_id),
            f"the result of {call_id} does not hold the outcome of each sub-agent",
            history,
        )
    if any(isinstance(effect, RequestLlm) for effect in history.newest.effects):
        open_calls = {child.call_id for child in sub_agents.children.values()} - sub_agents.results.keys()
        require(not open_calls, "the model is asked before it has the results of sub-agents", history)


def _tells_of_all(history: History, call_id: str) -> bool:
    """Whether the result of a call holds the outcome of each of its sub-agents in order. In logs of earlier revisions a
    heading stands in front of each."""
    said = history.sub_agents.results[call_id].said
    children = history.sub_agents.of(call_id).values()
    if history.context.revision >= AGENTS:
        return isinstance(said, Outcomes) and _reads_back(history, said, call_id)
    parts = said.parts if isinstance(said, Joined) else ()
    outcomes = [part if isinstance(part, Heard) else None for part in parts[1::2]]
    headed = all(isinstance(part, Made) for part in parts[::2])
    return headed and outcomes == [child.outcome for child in children]


def _reads_back(history: History, said: Outcomes, call_id: str) -> bool:
    children = history.sub_agents.of(call_id).values()
    if len(said.parts) != len(children):
        return False
    agents = json.loads(history.said.words(said))["agents"]
    told = zip(said.parts, children, strict=True)
    texts = [part.text if isinstance(part, Made) else child.text for part, child in told]
    wanted = [{"status": child.status, "result": text} for child, text in zip(children, texts, strict=True)]
    outcomes = [part if isinstance(part, Heard) else None for part in said.parts]
    return agents == wanted and outcomes == [child.outcome for child in children]


# --- 14: what they ask


def passes_questions_of_sub_agents_on(history: History) -> None:
    """Law 14: a question of a sub-agent waits until a person answers or declines it, and the sub-agent gets that once;
    or until the sub-agent no longer asks. The user is asked only if there is one and the policy allows it."""
    sub_agents, state, context = history.sub_agents, history.state, history.context
    require(sub_agents.faults == [], "; ".join(sub_agents.faults), history)
    if not isinstance(state, AwaitingSubAgents):
        return
    known = [(effect_id, asked.call_id, asked.settled) for effect_id, asked in sub_agents.asked.items()]
    kept = [(asked.effect_id, asked.call_id, asked.settled) for asked in state.asked]
    require(kept == known, "the state does not know what the sub-agents ask", history)
    has_user = context.role != "background" or context.revision < AGENTS
    may_ask = has_user and context.policy.sub_agents.questions == "ask_user"
    require(may_ask or state.question is None, "the user is asked although the policy does not allow it", history)
