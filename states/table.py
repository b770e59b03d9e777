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
from . import junctions
from .choices import (
    AFTER_PROFILE, BEGIN_TURN, REST, END_TURN, FAIL, GIVE_UP, ASK_MODEL, AFTER_EMPTY, AFTER_OUTPUT, CHECK_WORK,
    NEXT_IN_ROUND, STOP, ACKNOWLEDGED,
)
from .errors import RefusalCode
from .events import (
    BRANCHING, AgentMessage, AskUserQuestionPending, CallRestricted, CloseRequested, CompactionRequested,
    DeadlineReached, DetailsChanged, DoubtResolved, EffectFailed, HistoryCompacted, LlmFailed, LlmResponse, LlmStopped,
    MemoryRecalled, MessageWithdrawn, Opened, PolicyChanged, ProfileSelected, ProfileTransferred, Resumed, RetryDue,
    RetryRequested, ScheduleChanged, SubAgentAsked, SubAgentFinished, ToolAborted, ToolApproval, ToolComplete,
    ToolInterrupted, ToolReconciled, ToolsChanged, TurnSummarized, UserCancel, UserMessage, UserQuestionResponse,
    WakeUp, WorkVerified,
)
from .grammar import SAME, Line, Reason, Table, lines, nothing, on, refuse
from .guards import (
    asks_beside_others, asks_no_longer, calls_are_cut_off, comes_too_late, declines, declines_for_child, did_not_run,
    fails_for_lack_of_room, fills_window, fills_window_again, fits_without_old_results, gives_output, gives_up_output,
    has_lost_answer, has_next_model, has_room, has_room_for_wake_up, interrupts, interrupts_turn, is_asking_about,
    is_complete, is_imported, is_in_turn, is_silent, is_stale, is_unknown, knows_profile, leaves_turn, may_ask,
    may_ask_for_child, may_ask_without_suspect, may_change_branch, may_compact_again, may_have_schedule,
    may_not_run_twice, may_resume, may_retry, may_try_again, may_wait, must_be_nudged, must_give_output, names_a_doubt,
    names_the_call, only_thinks, others_work, refuses_words, says_nothing, spawns_children, starts_next_turn,
    still_waits, stops_answer, tells_what_was_heard, wants_tools, wants_tools_too_late, was_verified, work_is_claimed,
)
from .handlers import agents, model, people, tools, turns
from .states import (
    AwaitingApproval, AwaitingSubAgents, AwaitingUserResponse, Cancelling, Closed, Compacting, Failed, Idle, InDoubt,
    LlmRequesting, MemoryRecalling, ProfileSelecting, RetryWaiting, Summarizing, ToolExecuting, Verifying,
)
# fmt: on
# isort: on

# Rows that several states share.

SETTINGS = lines(
    on(ToolsChanged, when=starts_next_turn, to=SAME, then=turns.change_tools),
    refuse(ToolsChanged, why="wrong_state"),
    on(DetailsChanged, to=SAME, then=turns.change_details),
    on(ScheduleChanged, when=may_have_schedule, to=SAME, then=turns.change_schedule),
    refuse(ScheduleChanged, why="no_schedule"),
    on(ProfileTransferred, when=knows_profile, to=SAME, then=turns.transfer),
    refuse(ProfileTransferred, why=turns.unknown_profile),
)
AT_REST = lines(
    SETTINGS,
    on(UserMessage, to=BEGIN_TURN, then=turns.open_turn),
    on(AgentMessage, when=is_silent, to=SAME, then=turns.enter_silent_message),
    on(AgentMessage, to=BEGIN_TURN, then=turns.open_turn),
    nothing(WakeUp, when=is_stale),
    on(WakeUp, to=BEGIN_TURN, then=turns.wake_up),
    on(PolicyChanged, to=SAME, then=turns.change_policy),
    on(CompactionRequested, to=Compacting, then=turns.compact),
    on(*BRANCHING, when=may_change_branch, to=REST, then=turns.change_branch),
    refuse(*BRANCHING, why=turns.why_branch_stays),
    on(CloseRequested, to=Closed, then=turns.close),
    on(UserCancel, when=tells_what_was_heard, to=SAME, then=turns.note_heard),
    nothing(UserCancel),
    refuse(UserQuestionResponse, ToolApproval, DoubtResolved, why="wrong_state"),
    refuse(Opened, why="already_open"),
)


def busy_with(why: RefusalCode | Reason) -> Line:
    """Requests while something is under way. A message that may not wait is refused for this reason."""
    return lines(
        SETTINGS,
        on(UserMessage, when=may_wait, to=SAME, then=turns.keep_message),
        refuse(UserMessage, why=why),
        on(AgentMessage, when=has_room, to=SAME, then=turns.keep_message),
        nothing(WakeUp, when=is_stale),
        on(WakeUp, when=has_room_for_wake_up, to=SAME, then=turns.keep_wake_up),
        refuse(AgentMessage, WakeUp, PolicyChanged, CompactionRequested, why="busy"),
        on(MessageWithdrawn, when=still_waits, to=SAME, then=turns.withdraw_message),
        refuse(MessageWithdrawn, why="not_waiting"),
        refuse(RetryRequested, why="wrong_state"),
        refuse(*BRANCHING, why=turns.why_branch_stays),
        refuse(Opened, why="already_open"),
    )


ASKS_NOBODY = refuse(UserQuestionResponse, ToolApproval, DoubtResolved, why="wrong_state")
WORKING = lines(busy_with("busy"), ASKS_NOBODY)
STOPPABLE = lines(
    nothing(UserCancel, when=comes_too_late),
    on(UserCancel, to=STOP, then=junctions.take_cancel),
    on(UserMessage, when=interrupts, to=STOP, then=turns.interrupt),
    on(*BRANCHING, when=may_change_branch, to=STOP, then=junctions.mark_branch),
    on(CloseRequested, to=STOP, then=junctions.mark_closing),
)
RESUMABLE = lines(
    on(Resumed, when=may_resume, to=SAME, then=tools.take_up_run),
    on(Resumed, to=FAIL, then=tools.give_up),
)
AT_WORK = lines(STOPPABLE, RESUMABLE, WORKING)

RESTRICTED = on(CallRestricted, to=SAME, then=tools.restrict)
TOOL_NEWS = lines(
    on(AskUserQuestionPending, to=NEXT_IN_ROUND, then=tools.refuse_question),
    on(ToolInterrupted, when=may_not_run_twice, to=NEXT_IN_ROUND, then=tools.doubt_interrupted),
    on(ToolInterrupted, to=NEXT_IN_ROUND, then=tools.take_up),
    on(ToolReconciled, when=did_not_run, to=NEXT_IN_ROUND, then=tools.run_again),
    on(ToolReconciled, when=is_unknown, to=NEXT_IN_ROUND, then=tools.doubt),
    on(EffectFailed, when=is_asking_about, to=NEXT_IN_ROUND, then=tools.doubt),
    on(ToolComplete, ToolReconciled, to=NEXT_IN_ROUND, then=tools.take_result),
    on(ToolAborted, to=NEXT_IN_ROUND, then=tools.take_abort),
    on(EffectFailed, to=NEXT_IN_ROUND, then=tools.take_failure),
    RESTRICTED,
)

TABLE: Table = {
    Idle: lines(
        refuse(RetryRequested, why="wrong_state"),
        refuse(MessageWithdrawn, why="not_waiting"),
        AT_REST,
    ),
    ProfileSelecting: lines(
        on(ProfileSelected, EffectFailed, to=AFTER_PROFILE, then=turns.take_profile),
        AT_WORK,
    ),
    MemoryRecalling: lines(
        on(MemoryRecalled, EffectFailed, to=ASK_MODEL, then=turns.take_memory),
        AT_WORK,
    ),
    LlmRequesting: lines(
        on(LlmResponse, when=gives_output, to=AFTER_OUTPUT, then=model.take_output),
        on(LlmResponse, when=gives_up_output, to=GIVE_UP, then=model.give_up_output),
        on(LlmResponse, when=must_give_output, to=ASK_MODEL, then=model.send_output_back),
        on(LlmResponse, when=calls_are_cut_off, to=ASK_MODEL, then=model.refuse_cut_off_calls),
        on(LlmResponse, when=wants_tools_too_late, to=END_TURN, then=model.refuse_late_calls),
        on(LlmResponse, when=fills_window_again, to=GIVE_UP, then=model.give_up_for_lack_of_room),
        on(LlmResponse, when=fills_window, to=Compacting, then=model.compact_first),
        on(LlmResponse, when=asks_beside_others, to=ASK_MODEL, then=model.refuse_question_beside_others),
        on(LlmResponse, when=wants_tools, to=NEXT_IN_ROUND, then=model.take_calls),
        on(LlmResponse, when=only_thinks, to=ASK_MODEL, then=model.keep_thinking),
        on(LlmResponse, when=says_nothing, to=AFTER_EMPTY, then=model.take_empty),
        on(LlmResponse, when=work_is_claimed, to=CHECK_WORK, then=model.take_text),
        on(LlmResponse, when=must_be_nudged, to=ASK_MODEL, then=model.nudge),
        on(LlmResponse, to=END_TURN, then=model.end_with_text),
        on(LlmFailed, when=may_ask_without_suspect, to=LlmRequesting, then=model.ask_without_suspect),
        on(LlmFailed, when=refuses_words, to=GIVE_UP, then=model.give_up_words),
        on(LlmFailed, EffectFailed, when=may_retry, to=RetryWaiting, then=model.back_off),
        on(LlmFailed, when=fits_without_old_results, to=LlmRequesting, then=model.ask_without_old_results),
        on(LlmFailed, EffectFailed, when=fails_for_lack_of_room, to=Compacting, then=junctions.compact),
        on(LlmFailed, EffectFailed, when=has_next_model, to=LlmRequesting, then=model.ask_next_model),
        on(LlmFailed, EffectFailed, to=GIVE_UP, then=model.give_up),
        on(LlmStopped, to=ACKNOWLEDGED, then=model.keep_stopped),
        AT_WORK,
    ),
    RetryWaiting: lines(
        on(RetryDue, to=LlmRequesting, then=model.ask_again),
        AT_WORK,
    ),
    ToolExecuting: lines(
        on(ToolComplete, when=spawns_children, to=AwaitingSubAgents, then=agents.spawn),
        on(AskUserQuestionPending, when=may_ask, to=AwaitingUserResponse, then=tools.ask),
        TOOL_NEWS,
        AT_WORK,
    ),
    AwaitingUserResponse: lines(
        on(UserQuestionResponse, when=is_complete, to=NEXT_IN_ROUND, then=people.take_answers),
        refuse(UserQuestionResponse, why=people.what_is_wrong),
        on(DeadlineReached, to=NEXT_IN_ROUND, then=people.go_on_unanswered),
        nothing(UserCancel, when=comes_too_late),
        on(UserCancel, when=declines, to=NEXT_IN_ROUND, then=people.decline),
        on(UserCancel, to=STOP, then=people.cancel_question),
        on(*BRANCHING, when=may_change_branch, to=STOP, then=people.leave_question),
        on(UserMessage, when=interrupts, to=STOP, then=people.interrupt_question),
        on(CloseRequested, to=STOP, then=people.close_question),
        on(ToolInterrupted, when=may_not_run_twice, to=NEXT_IN_ROUND, then=people.doubt_interrupted),
        on(ToolInterrupted, to=NEXT_IN_ROUND, then=people.take_up),
        RESTRICTED,
        refuse(ToolApproval, DoubtResolved, why="wrong_state"),
        on(Resumed, when=is_imported, to=FAIL, then=people.give_up),
        on(Resumed, to=SAME, then=tools.take_up_run),
        busy_with("awaiting_user_response"),
    ),
    AwaitingApproval: lines(
        on(ToolApproval, when=names_the_call, to=NEXT_IN_ROUND, then=people.take_approval),
        refuse(ToolApproval, UserQuestionResponse, DoubtResolved, why="wrong_state"),
        on(DeadlineReached, to=NEXT_IN_ROUND, then=people.deny_in_time),
        RESTRICTED,
        on(Resumed, when=is_imported, to=FAIL, then=tools.give_up),
        on(Resumed, to=SAME, then=tools.take_up_run),
        STOPPABLE,
        busy_with("awaiting_approval"),
    ),
    AwaitingSubAgents: lines(
        on(SubAgentFinished, EffectFailed, when=others_work, to=SAME, then=agents.keep_outcome),
        on(SubAgentFinished, EffectFailed, to=NEXT_IN_ROUND, then=agents.take_last_outcome),
        on(SubAgentAsked, when=asks_no_longer, to=SAME, then=agents.drop_question),
        on(SubAgentAsked, when=may_ask_for_child, to=SAME, then=agents.show_question),
        on(SubAgentAsked, to=SAME, then=agents.refuse_question),
        on(UserQuestionResponse, when=is_complete, to=SAME, then=agents.pass_on_answers),
        refuse(UserQuestionResponse, why=people.what_is_wrong),
        refuse(ToolApproval, DoubtResolved, why="wrong_state"),
        on(DeadlineReached, to=NEXT_IN_ROUND, then=agents.go_on_without),
        RESTRICTED,
        on(UserCancel, when=declines_for_child, to=SAME, then=agents.decline_question),
        STOPPABLE,
        RESUMABLE,
        busy_with(agents.why_it_is_busy),
    ),
    Verifying: lines(
        on(WorkVerified, when=was_verified, to=END_TURN, then=model.end_verified),
        on(WorkVerified, EffectFailed, when=may_try_again, to=ASK_MODEL, then=model.send_back),
        on(WorkVerified, EffectFailed, to=END_TURN, then=model.end_unverified),
        AT_WORK,
    ),
    Summarizing: lines(
        on(TurnSummarized, EffectFailed, to=REST, then=turns.take_summary),
        nothing(UserCancel, when=comes_too_late),
        on(UserCancel, to=REST, then=turns.cancel_summary),
        on(UserMessage, when=interrupts, to=REST, then=turns.interrupt_summary),
        on(*BRANCHING, when=may_change_branch, to=REST, then=turns.leave_summary),
        on(CloseRequested, to=REST, then=turns.close_summary),
        on(Resumed, when=may_resume, to=SAME, then=tools.take_up_run),
        on(Resumed, to=REST, then=turns.stop),
        WORKING,
    ),
    Compacting: lines(
        on(HistoryCompacted, when=is_in_turn, to=ASK_MODEL, then=model.go_on),
        on(HistoryCompacted, to=REST, then=model.go_on),
        on(EffectFailed, when=may_compact_again, to=SAME, then=model.try_again),
        on(EffectFailed, when=is_in_turn, to=GIVE_UP, then=model.give_up_compaction),
        on(EffectFailed, to=REST),
        nothing(UserCancel, when=comes_too_late),
        on(UserCancel, when=is_in_turn, to=STOP, then=junctions.take_cancel),
        on(UserCancel, to=REST, then=model.cancel),
        on(UserMessage, when=interrupts_turn, to=STOP, then=turns.interrupt),
        on(UserMessage, when=interrupts, to=REST, then=model.interrupt),
        on(*BRANCHING, when=leaves_turn, to=STOP, then=junctions.mark_branch),
        on(*BRANCHING, when=may_change_branch, to=REST, then=model.leave),
        on(CloseRequested, when=is_in_turn, to=STOP, then=junctions.mark_closing),
        on(CloseRequested, to=REST, then=model.close),
        on(Resumed, when=may_resume, to=SAME, then=tools.take_up_run),
        on(Resumed, when=is_in_turn, to=FAIL, then=tools.give_up),
        on(Resumed, to=REST, then=model.stop),
        WORKING,
    ),
    Cancelling: lines(
        on(LlmStopped, to=ACKNOWLEDGED, then=model.keep_stopped),
        on(LlmResponse, to=REST, then=model.end_with_last_response),
        on(LlmFailed, to=REST, then=junctions.end_cancelled),
        on(EffectFailed, when=stops_answer, to=REST, then=junctions.end_cancelled),
        on(ToolComplete, to=ACKNOWLEDGED, then=tools.take_result),
        on(ToolReconciled, to=ACKNOWLEDGED, then=agents.take_verdict),
        on(ToolAborted, to=ACKNOWLEDGED, then=tools.take_abort),
        on(ToolInterrupted, to=ACKNOWLEDGED, then=agents.take_interruption),
        RESTRICTED,
        on(AskUserQuestionPending, to=ACKNOWLEDGED, then=agents.drop_question_of_cancelled),
        on(SubAgentFinished, to=ACKNOWLEDGED, then=agents.take_outcome_of_cancelled),
        on(EffectFailed, to=ACKNOWLEDGED, then=agents.take_failure),
        on(DeadlineReached, to=REST, then=junctions.end_cancelled),
        on(Resumed, when=has_lost_answer, to=REST, then=junctions.end_cancelled),
        on(Resumed, when=may_resume, to=SAME, then=tools.take_up_run),
        on(Resumed, to=REST, then=junctions.end_cancelled),
        on(*BRANCHING, when=may_change_branch, to=SAME, then=agents.go_to_branch_when_stopped),
        on(CloseRequested, to=SAME, then=agents.close_when_stopped),
        on(UserCancel, when=tells_what_was_heard, to=SAME, then=turns.note_heard),
        nothing(UserCancel),
        WORKING,
    ),
    InDoubt: lines(
        on(DoubtResolved, when=names_a_doubt, to=NEXT_IN_ROUND, then=tools.resolve),
        refuse(DoubtResolved, ToolApproval, UserQuestionResponse, why="wrong_state"),
        TOOL_NEWS,
        STOPPABLE,
        RESUMABLE,
        busy_with("in_doubt"),
    ),
    Failed: lines(
        on(RetryRequested, to=BEGIN_TURN, then=turns.retry_turn),
        on(MessageWithdrawn, when=still_waits, to=SAME, then=turns.withdraw_message),
        refuse(MessageWithdrawn, why="not_waiting"),
        AT_REST,
    ),
    Closed: lines(
        nothing(UserCancel, CloseRequested, WakeUp),
        refuse(Opened, UserMessage, AgentMessage, MessageWithdrawn, RetryRequested, CompactionRequested, why="closed"),
        refuse(PolicyChanged, ToolsChanged, DetailsChanged, ScheduleChanged, ProfileTransferred, why="closed"),
        refuse(UserQuestionResponse, ToolApproval, DoubtResolved, *BRANCHING, why="closed"),
    ),
}
