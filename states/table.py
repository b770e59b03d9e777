"""The whole conversation, on one page.

A conversation rests in a state until something happens; then the first row for that event whose guard says yes tells
where it rests next. Rows read: on this event, when this holds, go there, and then do that. Names in capitals are
junctions: questions that several rows share, asked below in one place. The words are defined in `grammar`.

Every state takes, refuses or does nothing about every request. Answers (what comes of effects) need rows only where a
state waits for them: one that nobody waits for, because it is late, doubled or forged, is ignored before this table is
asked. `machine` reads this page, checks these promises, and refuses to start if one is broken.
"""

from __future__ import annotations

# Packed, so that the page stays a page.
# isort: off
# fmt: off
from .events import (
    AskUserQuestionPending, CloseRequested, DeadlineReached, EffectFailed, LlmFailed, LlmResponse,
    MessageWithdrawn, Opened, PolicyChanged, RetryDue, RetryRequested, ToolAborted, ToolApproval, ToolComplete,
    UserCancel, UserMessage, UserQuestionResponse,
)
from .grammar import SAME, Entry, Table, branch, junction, nothing, on, refuse
from .guards import (
    asks_beside_others, budget_is_spent, calls_are_cut_off, comes_too_late, declines, has_next_model, is_closing,
    is_complete, may_retry, may_wait, names_the_call, needs_approval, only_thinks, round_goes_on,
    runs_alone, says_nothing, something_waits, still_waits, tools_are_running, wants_tools, wants_tools_too_late,
)
from .handlers.awaiting_approval import deny_in_time, take_approval
from .handlers.awaiting_user_response import (
    cancel_question, close_question, decline, go_on_unanswered, take_answers, what_is_wrong,
)
from .handlers.busy import keep_message, withdraw_message
from .handlers.cancelling import close_when_stopped, drop_question
from .handlers.junctions import (
    abort_tools, ask_approval, close, end_at_limit, end_cancelled, leave_round, mark_closing, open_next_turn,
    request_model, rest, start_tools, wait_for_others,
)
from .handlers.llm_requesting import (
    ask_next_model, back_off, end_empty, end_with_text, give_up, keep_thinking, refuse_cut_off_calls, refuse_late_calls,
    refuse_question_beside_others, take_calls,
)
from .handlers.resting import change_policy, close_at_rest, open_turn, retry_turn
from .handlers.retry_waiting import ask_again
from .handlers.tool_executing import ask, refuse_question, take_abort, take_failure, take_result
from .states import (
    AwaitingApproval, AwaitingUserResponse, Cancelling, Closed, Failed, Idle, LlmRequesting, RetryWaiting,
    ToolExecuting,
)
# fmt: on
# isort: on

BEGIN_TURN = junction(
    "BEGIN_TURN",
    branch(to=LlmRequesting, then=request_model),
)
REST = junction(
    "REST",
    branch(when=is_closing, to=Closed, then=close),
    branch(when=something_waits, to=BEGIN_TURN, then=open_next_turn),
    branch(to=Idle, then=rest),
)
ASK_MODEL = junction(
    "ASK_MODEL",
    branch(when=budget_is_spent, to=REST, then=end_at_limit),
    branch(to=LlmRequesting, then=request_model),
)
NEXT_IN_ROUND = junction(
    "NEXT_IN_ROUND",
    branch(when=round_goes_on, to=ToolExecuting, then=start_tools),
    branch(when=needs_approval, to=AwaitingApproval, then=ask_approval),
    branch(to=ASK_MODEL, then=leave_round),
)
STOP = junction(
    "STOP",
    branch(when=tools_are_running, to=Cancelling, then=abort_tools),
    branch(to=REST, then=end_cancelled),
)
STOPPED = junction(
    "STOPPED",
    branch(when=tools_are_running, to=Cancelling, then=wait_for_others),
    branch(to=REST, then=end_cancelled),
)

# Rows that several states share.
OPEN: list[Entry] = [refuse(Opened, "already_open")]
AT_REST: list[Entry] = [
    on(UserMessage, to=BEGIN_TURN, then=open_turn),
    on(PolicyChanged, to=SAME, then=change_policy),
    on(CloseRequested, to=Closed, then=close_at_rest),
    nothing(UserCancel),
    refuse(UserQuestionResponse, "wrong_state"),
    refuse(ToolApproval, "wrong_state"),
    *OPEN,
]
BUSY: list[Entry] = [
    on(UserMessage, when=may_wait, to=SAME, then=keep_message),
    on(MessageWithdrawn, when=still_waits, to=SAME, then=withdraw_message),
    refuse(MessageWithdrawn, "not_waiting"),
    refuse(PolicyChanged, "busy"),
    refuse(RetryRequested, "wrong_state"),
    *OPEN,
]
WORKING: list[Entry] = [
    *BUSY,
    refuse(UserMessage, "busy"),
    refuse(UserQuestionResponse, "wrong_state"),
    refuse(ToolApproval, "wrong_state"),
]
STOPPABLE: list[Entry] = [
    nothing(UserCancel, when=comes_too_late),
    on(UserCancel, to=STOP),
    on(CloseRequested, to=STOP, then=mark_closing),
    *WORKING,
]

TABLE: Table = {
    Idle: [
        refuse(RetryRequested, "wrong_state"),
        refuse(MessageWithdrawn, "not_waiting"),
        *AT_REST,
    ],
    LlmRequesting: [
        on(LlmResponse, when=calls_are_cut_off, to=ASK_MODEL, then=refuse_cut_off_calls),
        on(LlmResponse, when=wants_tools_too_late, to=REST, then=refuse_late_calls),
        on(LlmResponse, when=asks_beside_others, to=ASK_MODEL, then=refuse_question_beside_others),
        on(LlmResponse, when=wants_tools, to=NEXT_IN_ROUND, then=take_calls),
        on(LlmResponse, when=only_thinks, to=ASK_MODEL, then=keep_thinking),
        on(LlmResponse, when=says_nothing, to=REST, then=end_empty),
        on(LlmResponse, to=REST, then=end_with_text),
        on(LlmFailed, when=may_retry, to=RetryWaiting, then=back_off),
        on(LlmFailed, when=has_next_model, to=LlmRequesting, then=ask_next_model),
        on(LlmFailed, to=Failed, then=give_up),
        on(EffectFailed, when=may_retry, to=RetryWaiting, then=back_off),
        on(EffectFailed, when=has_next_model, to=LlmRequesting, then=ask_next_model),
        on(EffectFailed, to=Failed, then=give_up),
        *STOPPABLE,
    ],
    RetryWaiting: [
        on(RetryDue, to=LlmRequesting, then=ask_again),
        *STOPPABLE,
    ],
    ToolExecuting: [
        on(ToolComplete, to=NEXT_IN_ROUND, then=take_result),
        on(ToolAborted, to=NEXT_IN_ROUND, then=take_abort),
        on(EffectFailed, to=NEXT_IN_ROUND, then=take_failure),
        on(AskUserQuestionPending, when=runs_alone, to=AwaitingUserResponse, then=ask),
        on(AskUserQuestionPending, to=NEXT_IN_ROUND, then=refuse_question),
        *STOPPABLE,
    ],
    AwaitingUserResponse: [
        on(UserQuestionResponse, when=is_complete, to=NEXT_IN_ROUND, then=take_answers),
        refuse(UserQuestionResponse, what_is_wrong),
        on(DeadlineReached, to=NEXT_IN_ROUND, then=go_on_unanswered),
        nothing(UserCancel, when=comes_too_late),
        on(UserCancel, when=declines, to=NEXT_IN_ROUND, then=decline),
        on(UserCancel, to=STOP, then=cancel_question),
        on(CloseRequested, to=STOP, then=close_question),
        *BUSY,
        refuse(UserMessage, "awaiting_user_response"),
        refuse(ToolApproval, "wrong_state"),
    ],
    AwaitingApproval: [
        on(ToolApproval, when=names_the_call, to=NEXT_IN_ROUND, then=take_approval),
        refuse(ToolApproval, "wrong_state"),
        on(DeadlineReached, to=NEXT_IN_ROUND, then=deny_in_time),
        nothing(UserCancel, when=comes_too_late),
        on(UserCancel, to=STOP),
        on(CloseRequested, to=STOP, then=mark_closing),
        *BUSY,
        refuse(UserMessage, "awaiting_approval"),
        refuse(UserQuestionResponse, "wrong_state"),
    ],
    Cancelling: [
        on(ToolComplete, to=STOPPED, then=take_result),
        on(ToolAborted, to=STOPPED, then=take_abort),
        on(EffectFailed, to=STOPPED, then=take_failure),
        on(AskUserQuestionPending, to=STOPPED, then=drop_question),
        on(DeadlineReached, to=REST, then=end_cancelled),
        on(CloseRequested, to=SAME, then=close_when_stopped),
        nothing(UserCancel),
        *WORKING,
    ],
    Failed: [
        on(RetryRequested, to=BEGIN_TURN, then=retry_turn),
        on(MessageWithdrawn, when=still_waits, to=SAME, then=withdraw_message),
        refuse(MessageWithdrawn, "not_waiting"),
        *AT_REST,
    ],
    Closed: [
        nothing(UserCancel),
        nothing(CloseRequested),
        refuse(UserMessage, "closed"),
        refuse(MessageWithdrawn, "closed"),
        refuse(UserQuestionResponse, "closed"),
        refuse(ToolApproval, "closed"),
        refuse(RetryRequested, "closed"),
        refuse(PolicyChanged, "closed"),
        refuse(Opened, "closed"),
    ],
}
