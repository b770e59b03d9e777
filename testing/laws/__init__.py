"""The laws: invariants that every conversation keeps, each as a function that raises where it does not hold.

A law looks at a `History`, that is, at the newest event and everything that is known from outside by then, and raises
`LawBroken` with a sentence. `check_laws` checks all of them along a trace. Law 15 is about the table of the machine,
and is checked by the tests of the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ...states.context import are_among
from ...states.effects import RequestLlm, SpawnSubAgent
from ...states.events import (
    EffectFailed,
    LlmFailed,
    Opened,
    ProfileTransferred,
    Resumed,
    ScheduleChanged,
    ToolsChanged,
)
from ...states.states import AwaitingSubAgents, Closed, LlmRequesting, RetryWaiting
from ...states.values.messages import Heard, Made, Outcomes
from ..generation.events import SETTINGS
from ..history import History, Law, LawBroken, Observation, histories, require
from ..shrinking import tell
from .branches import counts_through_all_branches, knows_its_branches, shows_one_branch
from .rounds import (
    changes_nothing_unless_taken,
    hands_on_answers_exactly,
    is_deterministic,
    is_replayed_by_its_log,
    is_taken_or_refused,
    pairs_calls_with_results,
    runs_no_more_than_allowed,
    takes_answers_by_their_effect,
    unpaired,
    waits_for_something,
)
from .turns import (
    can_be_left,
    can_be_stopped,
    checks_what_is_delivered,
    delivers_no_blank_text,
    delivers_what_was_chosen,
    ends_each_turn_once,
    gives_wanted_outputs,
    keeps_what_it_owes,
    keeps_what_was_stopped,
    keeps_within_limits,
    loses_no_message,
    names_limits_truly,
    stays_closed,
    withholds_what_was_refused,
)
from .window import clears_before_it_compacts, clears_old_results

__all__ = [
    "LAWS",
    "Law",
    "LawBroken",
    "can_be_left",
    "can_be_stopped",
    "changes_nothing_unless_taken",
    "changes_settings_alone",
    "check_laws",
    "check_newest",
    "checks_what_is_delivered",
    "clears_before_it_compacts",
    "clears_old_results",
    "counts_through_all_branches",
    "delivers_no_blank_text",
    "delivers_what_was_chosen",
    "ends_each_turn_once",
    "gives_wanted_outputs",
    "hands_on_answers_exactly",
    "histories",
    "is_deterministic",
    "is_replayed_by_its_log",
    "is_taken_or_refused",
    "keeps_tools_of_turns",
    "keeps_what_it_owes",
    "keeps_what_was_stopped",
    "keeps_within_limits",
    "knows_its_branches",
    "loses_no_message",
    "loses_no_sub_agent",
    "names_limits_truly",
    "pairs_calls_with_results",
    "passes_questions_of_sub_agents_on",
    "runs_no_more_than_allowed",
    "shares_limits_with_sub_agents",
    "shows_one_branch",
    "stays_closed",
    "stays_with_its_profile",
    "takes_answers_by_their_effect",
    "unpaired",
    "waits_for_something",
    "wakes_by_its_schedule",
    "withholds_what_was_refused",
]


def check_laws(trace: Iterable[Observation], *laws: Law) -> None:
    """Check the laws given, or all, at each step of a trace. The trace begins with the first event of a conversation.

    Raises `LawBroken` at the first step at which a law does not hold, with a note that holds the trace as a program.
    """
    history = History()
    for history in histories(trace):
        check_newest(history, *laws)
    if not laws:
        check_newest(history, is_replayed_by_its_log)


def check_newest(history: History, *laws: Law) -> None:
    """Check the laws given, or all, at the newest step.

    Raises `LawBroken`, with a note that holds the trace as a program. What a law of your own raises gets that note too.
    """
    for law in laws or LAWS:
        try:
            law(history)
        except Exception as broken:
            tell(broken, history.observations, law)
            raise


def changes_settings_alone(history: History) -> None:
    """A change of a setting counts one step, and changes nothing else of the state but this setting."""
    newest = history.newest
    if newest.step is None or not isinstance(newest.event, SETTINGS):
        return
    book = newest.before.book.replace(seq=newest.before.book.seq + 1)
    if isinstance(newest.event, ScheduleChanged):
        book = book.replace(wake=newest.event.next_wake)
    if isinstance(newest.event, ProfileTransferred):
        book = book.replace(profile=newest.event.profile)
    require(newest.after == newest.before.replace(book=book), "a change of a setting changed the state", history)
    done = newest.effects or newest.step.ended or newest.step.withdrawn
    require(not done, "a change of a setting did something", history)


def keeps_tools_of_turns(history: History) -> None:
    """No event changes the tools of the newest turn, so a turn has the same tools from its beginning to its end."""
    newest = history.newest
    if newest.step is None or isinstance(newest.event, Opened):
        return
    turn = newest.before.book.turn
    before, after = newest.context.tools_in(turn), history.context.tools_in(turn)
    require(before == after, "the tools of the newest turn changed", history)
    had, has = newest.context.tools_in(turn + 1), history.context.tools_in(turn + 1)
    if not isinstance(newest.event, ToolsChanged):
        require(had == has, "the tools of the next turn changed without being asked to", history)
    elif newest.event.narrows:
        require(are_among(has, had), "a change that narrows brought in a tool", history)


def wakes_by_its_schedule(history: History) -> None:
    """Only a conversation with a schedule waits for a wake-up, and a closed one waits for none. At most one wake-up
    waits in the inbox."""
    wake, schedule = history.state.book.wake, history.context.schedule
    require(wake is None or schedule is not None, "a wake-up is awaited without a schedule", history)
    require(wake is None or not isinstance(history.state, Closed), "a closed conversation waits for a wake-up", history)
    waiting = [one for one in getattr(history.state, "inbox", ()) if one.scheduled]
    require(len(waiting) <= 1, "several wake-ups wait", history)


def stays_with_its_profile(history: History) -> None:
    """Once a conversation was handed over, each new model request has that profile. A request that is sent again is the
    same request, and keeps its own."""
    newest, profile = history.newest, history.state.book.profile
    if newest.step is None or not profile or isinstance(newest.before, RetryWaiting):
        return
    fails_over = isinstance(newest.before, LlmRequesting) and isinstance(newest.event, LlmFailed | EffectFailed)
    for effect in newest.effects:
        if isinstance(effect, RequestLlm) and not fails_over and not isinstance(newest.event, Resumed):
            require(effect.profile == profile, "a model is asked under another profile than it was handed to", history)


def shares_limits_with_sub_agents(history: History) -> None:
    """Law 12: sub-agents together may use no more than their parent has left, each no more than the rules say, and no
    more of them are started in a turn, and no deeper, than the rules allow."""
    newest, policy = history.newest, history.newest.context.policy
    started = [effect for effect in newest.effects if isinstance(effect, SpawnSubAgent)]
    if not started or isinstance(newest.event, Resumed):
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
    """Whether the result of a call holds the outcome of each of its sub-agents in order."""
    said = history.sub_agents.results[call_id].said
    return isinstance(said, Outcomes) and _reads_back(history, said, call_id)


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
    has_user = context.role != "background"
    may_ask = has_user and context.policy.sub_agents.questions == "ask_user"
    require(may_ask or state.question is None, "the user is asked although the policy does not allow it", history)


LAWS: tuple[Law, ...] = (
    is_taken_or_refused,
    is_deterministic,
    changes_nothing_unless_taken,
    pairs_calls_with_results,
    takes_answers_by_their_effect,
    runs_no_more_than_allowed,
    waits_for_something,
    can_be_stopped,
    can_be_left,
    stays_closed,
    ends_each_turn_once,
    delivers_what_was_chosen,
    delivers_no_blank_text,
    checks_what_is_delivered,
    keeps_within_limits,
    names_limits_truly,
    shares_limits_with_sub_agents,
    loses_no_message,
    keeps_what_it_owes,
    keeps_what_was_stopped,
    loses_no_sub_agent,
    passes_questions_of_sub_agents_on,
    hands_on_answers_exactly,
    changes_settings_alone,
    keeps_tools_of_turns,
    wakes_by_its_schedule,
    stays_with_its_profile,
    clears_before_it_compacts,
    clears_old_results,
    withholds_what_was_refused,
    shows_one_branch,
    knows_its_branches,
    counts_through_all_branches,
    gives_wanted_outputs,
)
"""All laws: those that have a number in its order, then the others."""
