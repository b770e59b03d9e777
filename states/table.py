"""The whole conversation, on one page.

A conversation rests in a state until an event happens. Then the first row for that event whose guard says yes decides
where it rests next. A row reads: on this event, when this holds, go there, and then do that. A name in capitals behind
`to=` is a junction: a choice that several rows share, written once in `choices`. Other names in capitals stand for rows
that several states share. `grammar` defines the words.

In every state each request is taken, refused, or changes nothing. Answers (the outcomes of effects) and reports (what a
crash interrupted, what a sub-agent asks) need rows only where a state can wait for them; all others, which are late,
repeated or forged, are ignored before the table is read. `machine` checks these rules and refuses to start if one of
them is broken.
"""

from __future__ import annotations

# Packed, so that the page stays a page.
# isort: off
# fmt: off
from .choices import (
    AFTER_PROFILE, BEGIN_TURN, REST, END_TURN, FAIL, GIVE_UP, ASK_MODEL, AFTER_EMPTY, CHECK_WORK, NEXT_IN_ROUND, STOP,
    ACKNOWLEDGED,
)
from .errors import RefusalCode
from .events import (
    AgentMessage, AskUserQuestionPending, CallRestricted, CloseRequested, CompactionRequested, DeadlineReached,
    DetailsChanged, DoubtResolved, EffectFailed, HistoryCompacted, LlmFailed, LlmResponse, MemoryRecalled,
    MessageWithdrawn, Opened, PolicyChanged, ProfileSelected, ProfileTransferred, Resumed, RetryDue, RetryRequested,
    ScheduleChanged, SubAgentAsked, SubAgentFinished, ToolAborted, ToolApproval, ToolComplete, ToolInterrupted,
    ToolReconciled, ToolsChanged, TurnSummarized, UserCancel, UserMessage, UserQuestionResponse, WakeUp, WorkVerified,
)
from .grammar import SAME, Line, Reason, Table, lines, nothing, on, refuse
from .guards.claims import may_try_again, was_verified, work_is_claimed
from .guards.crashes import (
    did_not_run, is_asking_about, is_imported, is_unknown, may_not_run_twice, names_a_doubt,
)
from .guards.messages import has_room, is_silent, may_wait, still_waits
from .guards.people import comes_too_late, declines, is_complete, names_the_call
from .guards.refusals import may_ask_without_suspect, refuses_words
from .guards.responses import (
    asks_beside_others, calls_are_cut_off, fails_for_lack_of_room, fills_window, fills_window_again, has_next_model,
    may_retry, must_be_nudged, only_thinks, says_nothing, wants_tools, wants_tools_too_late,
)
from .guards.rounds import may_ask
from .guards.schedules import has_room_for_wake_up, is_stale, may_have_schedule
from .guards.sub_agents import asks_no_longer, declines_for_child, may_ask_for_child, others_work, spawns_children
from .guards.turns import is_in_turn, knows_profile, may_compact_again, may_resume, starts_next_turn
from .handlers import (
    awaiting_approval, awaiting_sub_agents, awaiting_user_response, busy, cancelling, compacting, in_doubt,
    llm_requesting, preparing, resting, resuming, retry_waiting, settings, spawning, summarizing, tool_executing,
    verifying, waking,
)
from .junctions import asking, stopping
from .states import (
    AwaitingApproval, AwaitingSubAgents, AwaitingUserResponse, Cancelling, Closed, Compacting, Failed, Idle, InDoubt,
    LlmRequesting, MemoryRecalling, ProfileSelecting, RetryWaiting, Summarizing, ToolExecuting, Verifying,
)
# fmt: on
# isort: on

# Rows that several states share.

SETTINGS = lines(
    on(ToolsChanged, when=starts_next_turn, to=SAME, then=settings.change_tools),
    refuse(ToolsChanged, why="wrong_state"),
    on(DetailsChanged, to=SAME, then=settings.change_details),
    on(ScheduleChanged, when=may_have_schedule, to=SAME, then=waking.change_schedule),
    refuse(ScheduleChanged, why="no_schedule"),
    on(ProfileTransferred, when=knows_profile, to=SAME, then=settings.transfer),
    refuse(ProfileTransferred, why=settings.unknown_profile),
)
AT_REST = lines(
    SETTINGS,
    on(UserMessage, to=BEGIN_TURN, then=resting.open_turn),
    on(AgentMessage, when=is_silent, to=SAME, then=resting.enter_silent_message),
    on(AgentMessage, to=BEGIN_TURN, then=resting.open_turn),
    nothing(WakeUp, when=is_stale),
    on(WakeUp, to=BEGIN_TURN, then=waking.wake_up),
    on(PolicyChanged, to=SAME, then=resting.change_policy),
    on(CompactionRequested, to=Compacting, then=resting.compact),
    on(CloseRequested, to=Closed, then=resting.close),
    nothing(UserCancel),
    refuse(UserQuestionResponse, ToolApproval, DoubtResolved, why="wrong_state"),
    refuse(Opened, why="already_open"),
)


def busy_with(why: RefusalCode | Reason) -> Line:
    """Requests while something is under way. A message that may not wait is refused for this reason."""
    return lines(
        SETTINGS,
        on(UserMessage, when=may_wait, to=SAME, then=busy.keep_message),
        refuse(UserMessage, why=why),
        on(AgentMessage, when=has_room, to=SAME, then=busy.keep_message),
        nothing(WakeUp, when=is_stale),
        on(WakeUp, when=has_room_for_wake_up, to=SAME, then=waking.keep_wake_up),
        refuse(AgentMessage, WakeUp, PolicyChanged, CompactionRequested, why="busy"),
        on(MessageWithdrawn, when=still_waits, to=SAME, then=busy.withdraw_message),
        refuse(MessageWithdrawn, why="not_waiting"),
        refuse(RetryRequested, why="wrong_state"),
        refuse(Opened, why="already_open"),
    )


ASKS_NOBODY = refuse(UserQuestionResponse, ToolApproval, DoubtResolved, why="wrong_state")
WORKING = lines(busy_with("busy"), ASKS_NOBODY)
STOPPABLE = lines(
    nothing(UserCancel, when=comes_too_late),
    on(UserCancel, to=STOP),
    on(CloseRequested, to=STOP, then=stopping.mark_closing),
)
RESUMABLE = lines(
    on(Resumed, when=may_resume, to=SAME, then=resuming.take_up),
    on(Resumed, to=FAIL, then=resuming.give_up),
)
AT_WORK = lines(STOPPABLE, RESUMABLE, WORKING)

RESTRICTED = on(CallRestricted, to=SAME, then=tool_executing.restrict)
TOOL_NEWS = lines(
    on(AskUserQuestionPending, to=NEXT_IN_ROUND, then=tool_executing.refuse_question),
    on(ToolInterrupted, when=may_not_run_twice, to=NEXT_IN_ROUND, then=tool_executing.doubt_interrupted),
    on(ToolInterrupted, to=NEXT_IN_ROUND, then=tool_executing.take_up),
    on(ToolReconciled, when=did_not_run, to=NEXT_IN_ROUND, then=tool_executing.run_again),
    on(ToolReconciled, when=is_unknown, to=NEXT_IN_ROUND, then=tool_executing.doubt),
    on(EffectFailed, when=is_asking_about, to=NEXT_IN_ROUND, then=tool_executing.doubt),
    on(ToolComplete, ToolReconciled, to=NEXT_IN_ROUND, then=tool_executing.take_result),
    on(ToolAborted, to=NEXT_IN_ROUND, then=tool_executing.take_abort),
    on(EffectFailed, to=NEXT_IN_ROUND, then=tool_executing.take_failure),
    RESTRICTED,
)

TABLE: Table = {
    Idle: lines(
        refuse(RetryRequested, why="wrong_state"),
        refuse(MessageWithdrawn, why="not_waiting"),
        AT_REST,
    ),
    ProfileSelecting: lines(
        on(ProfileSelected, EffectFailed, to=AFTER_PROFILE, then=preparing.take_profile),
        AT_WORK,
    ),
    MemoryRecalling: lines(
        on(MemoryRecalled, EffectFailed, to=ASK_MODEL, then=preparing.take_memory),
        AT_WORK,
    ),
    LlmRequesting: lines(
        on(LlmResponse, when=calls_are_cut_off, to=ASK_MODEL, then=llm_requesting.refuse_cut_off_calls),
        on(LlmResponse, when=wants_tools_too_late, to=END_TURN, then=llm_requesting.refuse_late_calls),
        on(LlmResponse, when=fills_window_again, to=GIVE_UP, then=llm_requesting.give_up_for_lack_of_room),
        on(LlmResponse, when=fills_window, to=Compacting, then=llm_requesting.compact_first),
        on(LlmResponse, when=asks_beside_others, to=ASK_MODEL, then=llm_requesting.refuse_question_beside_others),
        on(LlmResponse, when=wants_tools, to=NEXT_IN_ROUND, then=llm_requesting.take_calls),
        on(LlmResponse, when=only_thinks, to=ASK_MODEL, then=llm_requesting.keep_thinking),
        on(LlmResponse, when=says_nothing, to=AFTER_EMPTY, then=llm_requesting.take_empty),
        on(LlmResponse, when=work_is_claimed, to=CHECK_WORK, then=llm_requesting.take_text),
        on(LlmResponse, when=must_be_nudged, to=ASK_MODEL, then=llm_requesting.nudge),
        on(LlmResponse, to=END_TURN, then=llm_requesting.end_with_text),
        on(LlmFailed, when=may_ask_without_suspect, to=LlmRequesting, then=llm_requesting.ask_without_suspect),
        on(LlmFailed, when=refuses_words, to=GIVE_UP, then=llm_requesting.give_up_words),
        on(LlmFailed, EffectFailed, when=may_retry, to=RetryWaiting, then=llm_requesting.back_off),
        on(LlmFailed, EffectFailed, when=fails_for_lack_of_room, to=Compacting, then=asking.compact),
        on(LlmFailed, EffectFailed, when=has_next_model, to=LlmRequesting, then=llm_requesting.ask_next_model),
        on(LlmFailed, EffectFailed, to=GIVE_UP, then=llm_requesting.give_up),
        AT_WORK,
    ),
    RetryWaiting: lines(
        on(RetryDue, to=LlmRequesting, then=retry_waiting.ask_again),
        AT_WORK,
    ),
    ToolExecuting: lines(
        on(ToolComplete, when=spawns_children, to=AwaitingSubAgents, then=spawning.spawn),
        on(AskUserQuestionPending, when=may_ask, to=AwaitingUserResponse, then=tool_executing.ask),
        TOOL_NEWS,
        AT_WORK,
    ),
    AwaitingUserResponse: lines(
        on(UserQuestionResponse, when=is_complete, to=NEXT_IN_ROUND, then=awaiting_user_response.take_answers),
        refuse(UserQuestionResponse, why=awaiting_user_response.what_is_wrong),
        on(DeadlineReached, to=NEXT_IN_ROUND, then=awaiting_user_response.go_on_unanswered),
        nothing(UserCancel, when=comes_too_late),
        on(UserCancel, when=declines, to=NEXT_IN_ROUND, then=awaiting_user_response.decline),
        on(UserCancel, to=STOP, then=awaiting_user_response.cancel_question),
        on(CloseRequested, to=STOP, then=awaiting_user_response.close_question),
        on(ToolInterrupted, when=may_not_run_twice, to=NEXT_IN_ROUND, then=awaiting_user_response.doubt_interrupted),
        on(ToolInterrupted, to=NEXT_IN_ROUND, then=awaiting_user_response.take_up),
        RESTRICTED,
        refuse(ToolApproval, DoubtResolved, why="wrong_state"),
        on(Resumed, when=is_imported, to=FAIL, then=awaiting_user_response.give_up),
        on(Resumed, to=SAME, then=resuming.take_up),
        busy_with("awaiting_user_response"),
    ),
    AwaitingApproval: lines(
        on(ToolApproval, when=names_the_call, to=NEXT_IN_ROUND, then=awaiting_approval.take_approval),
        refuse(ToolApproval, UserQuestionResponse, DoubtResolved, why="wrong_state"),
        on(DeadlineReached, to=NEXT_IN_ROUND, then=awaiting_approval.deny_in_time),
        RESTRICTED,
        on(Resumed, when=is_imported, to=FAIL, then=resuming.give_up),
        on(Resumed, to=SAME, then=resuming.take_up),
        STOPPABLE,
        busy_with("awaiting_approval"),
    ),
    AwaitingSubAgents: lines(
        on(SubAgentFinished, EffectFailed, when=others_work, to=SAME, then=awaiting_sub_agents.keep_outcome),
        on(SubAgentFinished, EffectFailed, to=NEXT_IN_ROUND, then=awaiting_sub_agents.take_last_outcome),
        on(SubAgentAsked, when=asks_no_longer, to=SAME, then=awaiting_sub_agents.drop_question),
        on(SubAgentAsked, when=may_ask_for_child, to=SAME, then=awaiting_sub_agents.show_question),
        on(SubAgentAsked, to=SAME, then=awaiting_sub_agents.refuse_question),
        on(UserQuestionResponse, when=is_complete, to=SAME, then=awaiting_sub_agents.pass_on_answers),
        refuse(UserQuestionResponse, why=awaiting_user_response.what_is_wrong),
        refuse(ToolApproval, DoubtResolved, why="wrong_state"),
        on(DeadlineReached, to=NEXT_IN_ROUND, then=awaiting_sub_agents.go_on_without),
        RESTRICTED,
        on(UserCancel, when=declines_for_child, to=SAME, then=awaiting_sub_agents.decline_question),
        STOPPABLE,
        RESUMABLE,
        busy_with(awaiting_sub_agents.why_it_is_busy),
    ),
    Verifying: lines(
        on(WorkVerified, when=was_verified, to=END_TURN, then=verifying.end_verified),
        on(WorkVerified, EffectFailed, when=may_try_again, to=ASK_MODEL, then=verifying.send_back),
        on(WorkVerified, EffectFailed, to=END_TURN, then=verifying.end_unverified),
        AT_WORK,
    ),
    Summarizing: lines(
        on(TurnSummarized, EffectFailed, to=REST, then=summarizing.take_summary),
        nothing(UserCancel, when=comes_too_late),
        on(UserCancel, to=REST, then=summarizing.stop),
        on(CloseRequested, to=REST, then=summarizing.close),
        on(Resumed, when=may_resume, to=SAME, then=resuming.take_up),
        on(Resumed, to=REST, then=summarizing.stop),
        WORKING,
    ),
    Compacting: lines(
        on(HistoryCompacted, when=is_in_turn, to=ASK_MODEL, then=compacting.go_on),
        on(HistoryCompacted, to=REST, then=compacting.go_on),
        on(EffectFailed, when=may_compact_again, to=SAME, then=compacting.try_again),
        on(EffectFailed, when=is_in_turn, to=GIVE_UP, then=compacting.give_up),
        on(EffectFailed, to=REST),
        nothing(UserCancel, when=comes_too_late),
        on(UserCancel, when=is_in_turn, to=STOP),
        on(UserCancel, to=REST, then=compacting.stop),
        on(CloseRequested, when=is_in_turn, to=STOP, then=stopping.mark_closing),
        on(CloseRequested, to=REST, then=compacting.close),
        on(Resumed, when=may_resume, to=SAME, then=resuming.take_up),
        on(Resumed, when=is_in_turn, to=FAIL, then=resuming.give_up),
        on(Resumed, to=REST, then=compacting.stop),
        WORKING,
    ),
    Cancelling: lines(
        on(ToolComplete, to=ACKNOWLEDGED, then=tool_executing.take_result),
        on(ToolReconciled, to=ACKNOWLEDGED, then=cancelling.take_verdict),
        on(ToolAborted, to=ACKNOWLEDGED, then=tool_executing.take_abort),
        on(ToolInterrupted, to=ACKNOWLEDGED, then=cancelling.take_interruption),
        RESTRICTED,
        on(AskUserQuestionPending, to=ACKNOWLEDGED, then=cancelling.drop_question),
        on(SubAgentFinished, to=ACKNOWLEDGED, then=cancelling.take_outcome),
        on(EffectFailed, to=ACKNOWLEDGED, then=cancelling.take_failure),
        on(DeadlineReached, to=REST, then=stopping.end_cancelled),
        on(Resumed, when=may_resume, to=SAME, then=resuming.take_up),
        on(Resumed, to=REST, then=stopping.end_cancelled),
        on(CloseRequested, to=SAME, then=cancelling.close_when_stopped),
        nothing(UserCancel),
        WORKING,
    ),
    InDoubt: lines(
        on(DoubtResolved, when=names_a_doubt, to=NEXT_IN_ROUND, then=in_doubt.resolve),
        refuse(DoubtResolved, ToolApproval, UserQuestionResponse, why="wrong_state"),
        TOOL_NEWS,
        STOPPABLE,
        RESUMABLE,
        busy_with("in_doubt"),
    ),
    Failed: lines(
        on(RetryRequested, to=BEGIN_TURN, then=resting.retry_turn),
        on(MessageWithdrawn, when=still_waits, to=SAME, then=busy.withdraw_message),
        refuse(MessageWithdrawn, why="not_waiting"),
        AT_REST,
    ),
    Closed: lines(
        nothing(UserCancel, CloseRequested, WakeUp),
        refuse(Opened, UserMessage, AgentMessage, MessageWithdrawn, RetryRequested, CompactionRequested, why="closed"),
        refuse(PolicyChanged, ToolsChanged, DetailsChanged, ScheduleChanged, ProfileTransferred, why="closed"),
        refuse(UserQuestionResponse, ToolApproval, DoubtResolved, why="closed"),
    ),
}
