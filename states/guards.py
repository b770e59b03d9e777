"""The questions on which the next step depends: may another tool run, is the turn's budget spent, must a person be
asked?

A guard stands in a row of the table or in a branch of a junction, behind `when`. It looks at the step so far, the event
and the context, decides nothing else and changes nothing, so the table alone says what follows from its answer. What a
guard computes beside a yes or a no, such as the limit that is reached or the shares of sub-agents, is a function here
too, because handlers that act on the answer need the same figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

from .context import Context, are_among
from .events import (
    AgentMessage,
    Answer,
    AskUserQuestionPending,
    Branching,
    DoubtResolved,
    EffectFailed,
    Event,
    LlmFailed,
    LlmResponse,
    MessageWithdrawn,
    ProfileTransferred,
    Resumed,
    ScheduleChanged,
    SubAgentAsked,
    SubAgentFinished,
    ToolApproval,
    ToolComplete,
    ToolInterrupted,
    ToolReconciled,
    ToolsChanged,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    WakeUp,
    WorkVerified,
)
from .outputs import has_other_calls, is_valid_output, misses_output
from .policy import Limits, Policy, Recent, models_of
from .replies import after_empty, due_nudge, owes_answer, text_of_reply, text_rule, wants_text
from .states import (
    AwaitingApproval,
    AwaitingSubAgents,
    AwaitingUserResponse,
    Busy,
    Cancelling,
    Compacting,
    Failed,
    InDoubt,
    InFlight,
    InRound,
    Interruptible,
    LlmRequesting,
    Questioning,
    State,
    ToolExecuting,
    Verifying,
)
from .step_builder import StepBuilder
from .values.acts import Act, AgentMail, Speech, SubAgents
from .values.messages import Suspect, Usage
from .values.questions import overanswered_question, unanswered_question, unknown_question
from .values.round import RoundCall, Share
from .values.turn import MAX_INBOX, LimitKind, TurnRecord
from .values.value import TRANSIENT, FailureKind


def work_is_claimed(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model claimed earlier in the turn that the work is complete. A text after the claim does not withdraw it."""
    return step.turn.claim is not None


def round_claims_work(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The work is claimed to be complete, every call of the round succeeded, and the turn wants no typed answer."""
    round_ = step.round
    is_claimed = (round_.claim or step.turn.claim) is not None and not round_.failed and not round_.queued
    return is_claimed and not context.wants_output(step.turn)


def round_gives_output(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """A typed answer was given beside the calls of the round, and every call succeeded."""
    round_ = step.round
    return step.turn.output is not None and not round_.failed and not round_.queued


def output_must_be_checked(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The policy wants claims to be verified, and the typed answer is one, or comes after one."""
    policy = context.policy
    is_claim = policy.ends_on == "work_complete" or step.turn.claim is not None
    return policy.verify > 0 and is_claim and step.turn.final is not None


def gives_output(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """A typed answer is wanted, and the response is one that is valid, and nothing else."""
    if event.output is None or not context.wants_output(step.turn):
        return False
    return is_valid_output(event) and not has_other_calls(event)


def gives_up_output(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """A typed answer is wanted, the response tries to be one and is not valid, and none may be sent back any more."""
    return step.turn.output_failures >= context.policy.output_retries and misses_output(step.turn, event, context)


def must_give_output(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """A typed answer is wanted, and the response ends the model's work without a valid one."""
    return misses_output(step.turn, event, context) and not has_other_calls(event)


def must_speak_first(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """Nothing was said to the user in this turn, and the model may be asked to do so."""
    return lacks_answer(step.turn, context) and not budget_is_spent(step, event, context)


def lacks_answer(turn: TurnRecord, context: Context) -> bool:
    """Whether nothing was said in this turn to a user who waits for it, and the model was not yet asked to do so.
    `Pure.`"""
    shows_text = text_rule(context, speaks=turn.speaks) == "reply" and turn.final is not None
    is_heard = bool(turn.said or turn.deliveries) or shows_text or not owes_answer(turn, context)
    return not is_heard and not turn.asked_to_speak


def must_be_checked(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The policy wants claims to be verified."""
    return context.policy.verify > 0


def was_verified(step: StepBuilder[Verifying], event: WorkVerified, context: Context) -> bool:
    """The claim holds."""
    return event.passed


def may_try_again(step: StepBuilder[Verifying], event: WorkVerified | EffectFailed, context: Context) -> bool:
    """The check may fail once more, and a request is left."""
    rejected = step.turn.rejections + 1
    return may_fail_again(rejected, event, context) and not _spends_budget(step, event, context)


def may_fail_again(rejections: int, event: WorkVerified | EffectFailed, context: Context) -> bool:
    """Whether the check may fail once more after so many failures. Not so where no verifier is available, because no
    other claim would pass either. `Pure.`"""
    is_unavailable = isinstance(event, EffectFailed) and event.kind == "unavailable"
    return not is_unavailable and rejections < context.policy.verify


def window_is_full(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The last request left no room in the window for another one, and the history was not just compacted."""
    return is_full(step, context, step.window_used) and not step.turn.condensed


def is_full(step: StepBuilder[State], context: Context, used: int) -> bool:
    """Whether a request of so many tokens leaves no room for another one. `Pure.`"""
    policy, window = context.policy, _window(step, context)
    if window is None or type(policy.dialogue) is Recent:
        return False
    return used >= policy.window * window


def _window(step: StepBuilder[State], context: Context) -> int | None:
    """How many tokens the model takes in that is asked next; None if that is not known. `Pure.`"""
    turn = step.turn
    profile, place = (step.profile, 0) if step.is_handed_over else (turn.profile, turn.model)
    return models_of(context.policy, profile)[place].window


def clearing_makes_room(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """Without old results of tools the next request has room enough, and the window is full, or so far used that it is
    worth while."""
    return bool(step.clearable) and makes_room(step, context, step.window_used, step.clearable)


def makes_room(step: StepBuilder[State], context: Context, used: int, clearable: int) -> bool:
    """Whether it is time to clear old results of tools, and enough for the next request. `used` is what the last one
    had used of the window, and `clearable` how much of that were such results. `Pure.`"""
    rules, window = context.policy.clear_results, _window(step, context)
    if not clearable or rules is None or window is None:
        return False
    full = context.policy.window * window
    if used >= full:
        return used - clearable < full
    return used >= rules.share * window and clearable >= rules.least * window


def budget_is_spent(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The turn may send no further model request."""
    turn = step.turn
    return limit_reached(context.policy.limits, turn, event, turn.spent) is not None


def _spends_budget(
    step: StepBuilder[State], event: LlmResponse | WorkVerified | EffectFailed, context: Context
) -> bool:
    """Whether the turn may send no further model request once this answer is paid for. The guards of rows use it,
    because they are asked before the cost of the answer is counted. `Pure.`"""
    spent = step.turn.spent if isinstance(event, EffectFailed) else step.turn.spent + event.usage
    return limit_reached(context.policy.limits, step.turn, event, spent) is not None


def limit_reached(limits: Limits, turn: TurnRecord, event: Event, spent: Usage) -> LimitKind | None:
    """The limit because of which the turn may send no further model request, or None if it may send one. `Pure.`"""
    return "requests" if turn.requests >= limits.requests else _limit_used_up(limits, turn, event, spent)


def _limit_used_up(limits: Limits, turn: TurnRecord, event: Event, spent: Usage) -> LimitKind | None:
    """Which of the tokens, the money and the time of the turn are used up; None if there is some left of each.
    `Pure.`"""
    if limits.tokens is not None and spent.tokens >= limits.tokens:
        return "tokens"
    if limits.cost is not None and (spent.cost or 0.0) >= limits.cost:
        return "cost"
    if limits.seconds is not None and (event.at - turn.since).total_seconds() >= limits.seconds:
        return "seconds"
    return None


ORDER_OF_SUSPICION: Mapping[FailureKind, tuple[Suspect, ...]] = {
    "unsupported_content": ("hearing", "reading", "sight", "new_files", "files"),
    "unreadable_content": ("new_files", "files"),
    "content_filter": ("additions", "answers", "memory", "earlier", "words"),
    "invalid_request": ("new_files", "files", "additions", "answers", "earlier"),
    "server_error": ("new_files", "files"),
}
"""What is suspected when a request is refused for its content, or fails for a reason that may be its content, in this
order.

Which part was refused, no provider says. So the parts that may be it are withheld one after the other, and each time
the model is asked without them. The part that is suspected first is the one whose loss costs least, should it be
innocent: what has just come in, and nobody but a tool has said.
"""


def may_ask_without_suspect(step: StepBuilder[LlmRequesting], event: LlmFailed, context: Context) -> bool:
    """The request was refused for its content, and something may be what was refused that the model can be asked
    without: anything but what people said in this turn. What can pass by itself is waited for first, and a turn whose
    budget is used up asks no more."""
    if first_suspect(step.turn, event) in (None, "words") or uses_up_budget(step, event, context):
        return False
    return not (may_retry(step, event, context) or has_next_model(step, event, context))


def refuses_words(step: StepBuilder[LlmRequesting], event: LlmFailed, context: Context) -> bool:
    """The request was refused for its content, and only what people said in this turn can be what was refused."""
    return first_suspect(step.turn, event) == "words"


def first_suspect(turn: TurnRecord, event: LlmFailed) -> Suspect | None:
    """What is suspected first, of what the refused request held and what was not yet withheld since the newest answer.
    `Pure.`"""
    if not event.held:
        return None
    order = ORDER_OF_SUSPICION.get(event.kind, ())
    return next((one for one in order if one in event.held and one not in turn.withheld), None)


def calls_are_cut_off(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The provider stopped the response before its calls were complete."""
    return bool(event.tool_calls) and event.finish_reason == "length"


def wants_tools_too_late(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model calls tools, but this was the last request that the turn may send."""
    return bool(event.tool_calls) and step.turn.requests >= context.policy.limits.requests


def fills_window(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model calls tools, their results would not fit into the window, also if old ones were cleared, and another
    request would follow."""
    used = event.usage.tokens
    leaves_no_room = bool(event.tool_calls) and is_full(step, context, used)
    if not leaves_no_room or makes_room(step, context, used, event.clearable):
        return False
    return not _spends_budget(step, event, context)


def fills_window_again(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """As `fills_window`, although the history was just compacted."""
    return step.turn.condensed and fills_window(step, event, context)


def asks_beside_others(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The response holds a question beside other calls, and the policy wants a question alone."""
    if len(event.tool_calls) < 2 or context.policy.questions.alongside != "alone":
        return False
    return any("question" in call.acts for call in event.tool_calls)


def wants_tools(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The model calls tools."""
    return bool(event.tool_calls)


def only_thinks(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The response holds only thinking, and the model is not done: it was not cut off, did not do the same in the
    response before, and has not yet said by tool everything that is wanted."""
    if event.content.strip() or not event.thinking.strip():
        return False
    is_done = bool(step.turn.said) and not wants_text(step.turn, context)
    return event.finish_reason != "length" and not step.turn.only_thought and not is_done


def says_nothing(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The response has no text for people, although one is wanted."""
    return not text_of_reply(event.content, context.policy).strip() and wants_text(step.turn, context)


def must_be_nudged(step: StepBuilder[LlmRequesting], event: LlmResponse, context: Context) -> bool:
    """The turn would end without something that the policy asks for, and the model may be asked once more."""
    return is_nudge_due(step.turn, event, context) and not _spends_budget(step, event, context)


def is_nudge_due(turn: TurnRecord, event: LlmResponse, context: Context) -> bool:
    """Whether the turn would end with this response without something that the policy asks for. `Pure.`"""
    return due_nudge(turn, context, text=event.content) is not None and event.finish_reason != "length"


def may_be_prompted_again(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """After an empty response there is another way to ask, and a request is left for it."""
    return after_empty(step.turn, context) is not None and not budget_is_spent(step, event, context)


def may_retry(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """The failure is transient, and this model has attempts left."""
    transient = event.kind in TRANSIENT and _wait(step, event, context) is not None
    return transient and not uses_up_budget(step, event, context)


def has_next_model(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """The failure is transient, and the policy names another model."""
    others = step.turn.model + 1 < len(models_of(context.policy, step.turn.profile))
    return event.kind in TRANSIENT and others and not uses_up_budget(step, event, context)


def uses_up_budget(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """Whether nothing is left of the turn's tokens, money or time after an answer that broke off and was paid for.
    `Pure.`"""
    if isinstance(event, EffectFailed) or not event.usage.is_anything:
        return False
    return _limit_used_up(context.policy.limits, step.turn, event, step.turn.spent) is not None


def fits_without_old_results(step: StepBuilder[LlmRequesting], event: LlmFailed, context: Context) -> bool:
    """The request was larger than the model's window, and may fit without old results of tools, which were not yet
    cleared for it."""
    may_clear = bool(event.clearable) and context.policy.clear_results is not None and not step.turn.cleared
    return may_clear and event.kind == "context_window" and not uses_up_budget(step, event, context)


def fails_for_lack_of_room(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """The request was larger than the model's window, the history was not yet compacted for it, and another request may
    follow."""
    return may_compact_for(step, event, context) and not budget_is_spent(step, event, context)


def may_compact_for(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> bool:
    """Whether the request could fit after a compaction. `Pure.`"""
    condenses = type(context.policy.dialogue) is not Recent and not step.turn.condensed
    return event.kind == "context_window" and condenses


def _wait(step: StepBuilder[LlmRequesting], event: LlmFailed | EffectFailed, context: Context) -> float | None:
    retry_after = event.retry_after if isinstance(event, LlmFailed) else None
    return context.policy.retry.wait(step.state.attempt, retry_after)


def is_stale(step: StepBuilder[State], event: WakeUp, context: Context) -> bool:
    """The conversation does not wait for this wake-up: it has happened already, or the schedule has changed."""
    return event.due != step.wake


def has_room_for_wake_up(step: StepBuilder[State], event: WakeUp, context: Context) -> bool:
    """The inbox is not full, or holds a wake-up already, which stands for this one too."""
    return len(step.inbox) < MAX_INBOX or step.has_wake_up


def may_have_schedule(step: StepBuilder[State], event: ScheduleChanged, context: Context) -> bool:
    """A sub-agent has no schedule: it has one task, and closes when it is done."""
    return event.schedule is None or context.role != "sub_agent"


def spawns_children(step: StepBuilder[ToolExecuting], event: ToolComplete, context: Context) -> bool:
    """The tool starts sub-agents and does nothing else, may do so, and the rules allow these sub-agents."""
    acts = event.result.acts
    if len(acts) != 1 or not isinstance(acts[0], SubAgents) or event.result.error:
        return False
    call = step.round.call(event.effect_id)
    may_spawn = "children" in call.acts and call.exclusive and runs_alone(step, event, context)
    return may_spawn and spawn_fault(acts[0], step.turn, event.at, context) is None


def spawn_fault(act: SubAgents, turn: TurnRecord, at: datetime, context: Context) -> str | None:
    """The reason why this turn may not start these sub-agents, or None if it may. `Pure.`"""
    rules, texts = context.policy.sub_agents, context.policy.texts
    if context.caller.is_too_deep:
        return texts.too_deep
    if turn.children + len(act.tasks) > rules.number:
        return texts.too_many_children.replace("{number}", str(rules.number))
    if any(not text.strip() for text in act.texts):
        return texts.nothing_said
    if not all(context.policy.has_profile(task.profile) for task in act.full_tasks if task.profile):
        return texts.unknown_profile
    return texts.nothing_left if shares_of(act, turn, at, context.policy) is None else None


def asks_no_longer(step: StepBuilder[AwaitingSubAgents], event: SubAgentAsked, context: Context) -> bool:
    """The sub-agent no longer asks what it asked."""
    return event.questions is None


def may_ask_for_child(step: StepBuilder[AwaitingSubAgents], event: SubAgentAsked, context: Context) -> bool:
    """The questions of sub-agents are put to the user, and there is one."""
    return context.policy.sub_agents.questions == "ask_user" and may_ask_user(context)


def declines_for_child(step: StepBuilder[AwaitingSubAgents], event: UserCancel, context: Context) -> bool:
    """The cancel names the question of a sub-agent that a person sees, and the policy lets the sub-agent go on."""
    names_question = event.call_id is not None and not comes_too_late(step, event, context)
    return names_question and context.policy.questions.cancel == "resume"


def others_work(step: StepBuilder[AwaitingSubAgents], event: SubAgentFinished | EffectFailed, context: Context) -> bool:
    """Other sub-agents are still working."""
    return len(step.round.unfinished) > 1


def is_complete(step: StepBuilder[Questioning], event: UserQuestionResponse, context: Context) -> bool:
    """The answers belong to the call that asks now, answer every question, and nothing else."""
    asked = step.state.open_question
    if asked is None or event.call_id not in (None, asked.call_id):
        return False
    return context.policy.questions.partial or (
        unknown_question(asked.questions, {**event.answers, **event.annotations}) is None
        and unanswered_question(asked.questions, event.answers) is None
        and overanswered_question(asked.questions, event.answers) is None
    )


def declines(step: StepBuilder[AwaitingUserResponse], event: UserCancel, context: Context) -> bool:
    """The policy lets the model go on when a question is cancelled."""
    return context.policy.questions.cancel == "resume"


def names_the_call(step: StepBuilder[AwaitingApproval], event: ToolApproval, context: Context) -> bool:
    """The approval is for the call that waits now."""
    return event.call_id == step.state.call.call_id


def comes_too_late(step: StepBuilder[Busy], event: UserCancel, context: Context) -> bool:
    """The cancel names a turn or a question that is over."""
    state = step.state
    if event.turn not in (None, step.turns):
        return True
    return event.call_id not in (None, state.waiting_call_id)


def may_ask_user(context: Context) -> bool:
    """Whether the agent has a user to ask: its own, or, if the policy allows that, the one of the agent that started
    it. `Pure.`"""
    return context.caller.may_ask_user


def may_act(act: Act, context: Context) -> bool:
    """Whether an agent of this role may do this, also by the tools of the application: only an agent with a user speaks
    to that user, and only a background agent writes to the user of another agent. `Pure.`"""
    if isinstance(act, AgentMail) and act.audience == "user":
        return context.role == "background"
    return context.role == "foreground" or not isinstance(act, Speech)


def round_goes_on(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """A tool is running, or one may start."""
    return bool(step.round.running) or call_to_start(step, event, context) is not None


def call_to_start(step: StepBuilder[State], event: Event, context: Context) -> RoundCall | None:
    """The call that may start now, if the limits allow it. `Pure.`"""
    call = step.round.next_to_start(context.policy.parallel)
    return call if call is not None and _tools_are_left(step, event, context) else None


def needs_approval(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The next call runs only if a person allows it, and the limits allow it."""
    return step.round.next_to_approve is not None and _tools_are_left(step, event, context)


def _tools_are_left(step: StepBuilder[State], event: Event, context: Context) -> bool:
    limits, turn = context.policy.limits, step.turn
    most = limits.tool_calls
    within_count = most is None or turn.tool_calls < most
    return within_count and _limit_used_up(limits, turn, event, turn.spent) is None


def model_is_asked(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The model writes its response."""
    return isinstance(step.state, LlmRequesting)


def has_lost_answer(step: StepBuilder[Cancelling], event: Resumed, context: Context) -> bool:
    """The process has died in which the model was being stopped, so nobody knows what it had written."""
    return step.state.answering in left_in_flight(step.state, event, context)


def stops_answer(step: StepBuilder[Cancelling], event: EffectFailed, context: Context) -> bool:
    """It is the model that was being stopped, and not a tool or a sub-agent."""
    return step.state.answering == event.effect_id


def something_is_at_work(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """A call is running, or a sub-agent works."""
    return step.in_round and bool(step.round.effect_ids)


def something_is_in_doubt(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """It is unknown of some call whether it ran."""
    return bool(step.round.doubtful)


def runs_alone(step: StepBuilder[ToolExecuting], event: Answer, context: Context) -> bool:
    """No other call is running."""
    return len(step.round.running) == 1


def may_ask(step: StepBuilder[ToolExecuting], event: AskUserQuestionPending, context: Context) -> bool:
    """There is a user to ask, no other call is running, and a call that waits for the answer and then goes on is
    exclusive."""
    may_suspend = not event.suspends or step.round.call(event.effect_id).exclusive
    return may_suspend and runs_alone(step, event, context) and may_ask_user(context)


N = TypeVar("N", int, float)


def shares_of(act: SubAgents, turn: TurnRecord, at: datetime, policy: Policy) -> tuple[Share, ...] | None:
    """What each of these sub-agents may use up: an equal share of the tokens and the money that the turn has left, all
    the time that it has left, because they work side by side, and no more than its task says. None if nothing is left
    to share. `Pure.`"""
    limits, spent, number = policy.limits, turn.spent, len(act.tasks)
    tokens = None if limits.tokens is None else (limits.tokens - spent.tokens) // number
    cost = None if limits.cost is None else (limits.cost - (spent.cost or 0.0)) / number
    seconds = None if limits.seconds is None else limits.seconds - max(0.0, (at - turn.since).total_seconds())
    if any(left is not None and left <= 0 for left in (tokens, cost, seconds)):
        return None
    return tuple(
        Share(
            requests=min(policy.sub_agents.requests, task.requests or policy.sub_agents.requests),
            tokens=_least(tokens, task.tokens),
            cost=_least(cost, task.cost),
            seconds=seconds,
        )
        for task in act.full_tasks
    )


def _least(*limits: N | None) -> N | None:
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def profile_is_open(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The policy lets a router choose among several profiles, and the conversation was handed to none of them."""
    return not step.profile and context.policy.route and len(context.policy.profiles) > 1


def needs_memory(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The turn needs something of the past that is not in the transcript."""
    policy = context.policy
    return may_search(step.turn, policy) or type(policy.dialogue) is Recent or policy.documents


def may_search(turn: TurnRecord, policy: Policy) -> bool:
    """Whether older conversations may be searched for the profile of this turn. `Pure.`"""
    return policy.recall and all(profile.recall for profile in policy.profiles if profile.name == turn.profile)


def starts_next_turn(step: StepBuilder[State], event: ToolsChanged, context: Context) -> bool:
    """The change of tools begins with the turn after the newest one, so it leaves the turn under way alone. One that
    `narrows` brings no tool that the conversation does not have."""
    if event.from_turn != step.turns + 1:
        return False
    return not event.narrows or are_among(event.tools, context.tools_in(event.from_turn))


def knows_profile(step: StepBuilder[State], event: ProfileTransferred, context: Context) -> bool:
    """The policy has the profile to which the conversation is to be handed over."""
    return context.policy.has_profile(event.profile)


def is_in_turn(step: StepBuilder[Compacting], event: Event, context: Context) -> bool:
    """The history is compacted for a request of a turn, and not at rest."""
    return step.in_turn


def is_still_failed(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The history was compacted at rest while a failed turn can still be tried again, and no message has come that
    begins another one."""
    if type(step.state) is not Compacting or step.state.failed is None or step.goes_to is not None:
        return False
    return not goes_on_after_failure(step, event, context)


def may_compact_again(step: StepBuilder[Compacting], event: EffectFailed, context: Context) -> bool:
    """The failure is transient, and attempts are left."""
    return event.kind in TRANSIENT and step.state.attempt < context.policy.retry.attempts


def replies_on_failure(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """A turn that cannot continue ends with a reply instead of resting in Failed."""
    return context.policy.on_failure == "reply"


def wants_summary(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The turn completed, and the policy wants a summary of it."""
    ending = step.ending
    return context.policy.summarize and ending is not None and ending.status == "completed"


def may_resume(step: StepBuilder[Busy], event: Resumed, context: Context) -> bool:
    """Few enough processes have died in this state, or the one that has died does not count. An imported turn goes on
    in no process."""
    if event.imported:
        return False
    return not counts_as_resume(step.state, event, context) or step.state.resumes < context.policy.recovery.resumes


def counts_as_resume(state: Busy, event: Resumed, context: Context) -> bool:
    """Whether the process that has died counts: not in a wait for a person, and not if nothing is in flight that it
    left. `Pure.`"""
    return state.works and bool(left_in_flight(state, event, context))


def left_in_flight(state: Busy, event: Resumed, context: Context) -> InFlight:
    """The effects in flight that an earlier process has left. What the report does not name has been begun since. A
    report that names nothing is about everything. `Pure.`"""
    in_flight = state.in_flight()
    if not event.open:
        return in_flight
    return {effect_id: kind for effect_id, kind in in_flight.items() if effect_id in event.open}


def may_change_branch(step: StepBuilder[State], event: Branching, context: Context) -> bool:
    """The conversation still is where the sender of the request has seen it, may go to another branch, and does not go
    elsewhere already."""
    return not (context.has_one_task or is_leaving(step.state) or has_moved_on(step, event))


def is_leaving(state: State) -> bool:
    """Whether the conversation ends, or goes to another branch, once everything has stopped. `Pure.`"""
    return type(state) is Cancelling and (state.closing or state.goes_to is not None)


def has_moved_on(step: StepBuilder[State], event: Branching) -> bool:
    """Whether what the request says of the log holds no longer: the conversation went to another branch, or has begun
    another turn than the one that was to be the newest. `Pure.`"""
    point, newest = event.point, event.newest
    is_known = point.turn <= step.turns
    return event.branch != step.branch or newest not in (None, step.turns) or not is_known


def leaves_turn(step: StepBuilder[Compacting], event: Branching, context: Context) -> bool:
    """The conversation may go to another branch, and a turn is under way."""
    return step.in_turn and may_change_branch(step, event, context)


def begins_elsewhere(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The conversation goes to another branch, and a turn begins there. In an imported conversation no turn does so by
    itself."""
    return step.goes_to is not None and bool(step.goes_to.messages) and not is_imported(step, event, context)


def is_closing(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The conversation ends with this turn, or it is a sub-agent and its turn has ended."""
    return step.closing or (context.has_one_task and step.ended is not None)


def has_one_task(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """It is a sub-agent, which closes when its turn has ended."""
    return context.has_one_task


def may_wait(step: StepBuilder[Busy], event: UserMessage, context: Context) -> bool:
    """The message, or else the policy, says that it may wait, and the inbox has room."""
    return (event.when_busy or context.policy.when_busy) != "refuse" and len(step.inbox) < MAX_INBOX


def interrupts(step: StepBuilder[Busy], event: UserMessage, context: Context) -> bool:
    """The message, or else the policy, wants the turn stopped, which is not all that the conversation is for; and the
    inbox has room."""
    wants = (event.when_busy or context.policy.when_busy) == "interrupt"
    return wants and not context.has_one_task and len(step.inbox) < MAX_INBOX


def interrupts_turn(step: StepBuilder[Compacting], event: UserMessage, context: Context) -> bool:
    """It interrupts, and a turn waits for the compaction."""
    return is_in_turn(step, event, context) and interrupts(step, event, context)


def tells_what_was_heard(step: StepBuilder[State], event: UserCancel, context: Context) -> bool:
    """The user has interrupted what was said in the newest turn."""
    is_meant = event.turn in (None, step.turns) and event.call_id is None
    return event.heard is not None and step.turns > 0 and is_meant


def has_room(step: StepBuilder[Busy], event: AgentMessage, context: Context) -> bool:
    """The inbox is not full."""
    return len(step.inbox) < MAX_INBOX


def is_silent(step: StepBuilder[State], event: AgentMessage, context: Context) -> bool:
    """The message starts no turn."""
    return event.silent


def still_waits(step: StepBuilder[Busy | Failed], event: MessageWithdrawn, context: Context) -> bool:
    """The message is still in the inbox."""
    return any(waiting.event_id == event.message_id for waiting in step.inbox)


def keeps_waiting(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The inbox of an imported conversation holds a message that would start a turn."""
    return is_imported(step, event, context) and something_waits(step, event, context)


def something_waits(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The inbox holds a message that starts a turn."""
    return any(not waiting.silent for waiting in step.inbox)


def goes_on_after_failure(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The inbox holds a message that starts a turn, and the conversation was not imported."""
    return not is_imported(step, event, context) and something_waits(step, event, context)


def may_not_run_twice(step: StepBuilder[Interruptible], event: ToolInterrupted, context: Context) -> bool:
    """Only a person may have the call run again."""
    return step.round.must_not_run_twice(step.round.named(event.call_id))


def is_imported(step: StepBuilder[State], event: Event, context: Context) -> bool:
    """The log comes from elsewhere, so nothing of it goes on by itself."""
    return isinstance(event, Resumed) and event.imported


def did_not_run(step: StepBuilder[InRound], event: ToolReconciled, context: Context) -> bool:
    """The tool knows that the call did not run. It is not believed of a call that must not run twice."""
    return event.verdict == "did_not_run" and not step.round.must_not_run_twice(step.round.call(event.effect_id))


def is_unknown(step: StepBuilder[InRound], event: ToolReconciled, context: Context) -> bool:
    """The tool does not know whether the call ran, or is not believed."""
    return event.verdict != "ran"


def is_asking_about(step: StepBuilder[InRound], event: EffectFailed, context: Context) -> bool:
    """What failed was the question whether the call ran."""
    return step.round.started(event.effect_id).reconciling == event.effect_id


def names_a_doubt(step: StepBuilder[InDoubt], event: DoubtResolved, context: Context) -> bool:
    """The request names a call that is in doubt."""
    return event.call_id in step.round.doubtful
