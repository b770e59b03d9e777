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
from .errors import RefusalCode
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
from .handlers import (
    awaiting_approval, awaiting_user_response, busy, cancelling, junctions, llm_requesting, resting,
    retry_waiting, tool_executing,
)
from .states import (
    AwaitingApproval, AwaitingUserResponse, Cancelling, Closed, Failed, Idle, LlmRequesting, RetryWaiting,
    ToolExecuting,
)
# fmt: on
# isort: on

BEGIN_TURN = junction(
    "BEGIN_TURN",
    branch(to=LlmRequesting, then=junctions.request_model),
)
REST = junction(
    "REST",
    branch(when=is_closing, to=Closed, then=junctions.close),
    branch(when=something_waits, to=BEGIN_TURN, then=junctions.open_next_turn),
    branch(to=Idle, then=junctions.rest),
)
ASK_MODEL = junction(
    "ASK_MODEL",
    branch(when=budget_is_spent, to=REST, then=junctions.end_at_limit),
    branch(to=LlmRequesting, then=junctions.request_model),
)
NEXT_IN_ROUND = junction(
    "NEXT_IN_ROUND",
    branch(when=round_goes_on, to=ToolExecuting, then=junctions.start_tools),
    branch(when=needs_approval, to=AwaitingApproval, then=junctions.ask_approval),
    branch(to=ASK_MODEL, then=junctions.leave_round),
)
STOP = junction(
    "STOP",
    branch(when=tools_are_running, to=Cancelling, then=junctions.abort_tools),
    branch(to=REST, then=junctions.end_cancelled),
)
ACKNOWLEDGED = junction(
    "ACKNOWLEDGED",
    branch(when=tools_are_running, to=Cancelling, then=junctions.wait_for_others),
    branch(to=REST, then=junctions.end_cancelled),
)

# Rows that several states share.


def within_turn(busy_code: RefusalCode) -> list[Entry]:
    """Messages and rules during a turn; a message that may not wait is refused with this code."""
    return [
        on(UserMessage, when=may_wait, to=SAME, then=busy.keep_message),
        refuse(UserMessage, busy_code),
        on(MessageWithdrawn, when=still_waits, to=SAME, then=busy.withdraw_message),
        refuse(MessageWithdrawn, "not_waiting"),
        refuse(PolicyChanged, "busy"),
        refuse(RetryRequested, "wrong_state"),
        refuse(Opened, "already_open"),
    ]


AT_REST: list[Entry] = [
    on(UserMessage, to=BEGIN_TURN, then=resting.open_turn),
    on(PolicyChanged, to=SAME, then=resting.change_policy),
    on(CloseRequested, to=Closed, then=resting.close_at_rest),
    nothing(UserCancel),
    refuse(UserQuestionResponse, "wrong_state"),
    refuse(ToolApproval, "wrong_state"),
    refuse(Opened, "already_open"),
]
WORKING: list[Entry] = [
    *within_turn("busy"),
    refuse(UserQuestionResponse, "wrong_state"),
    refuse(ToolApproval, "wrong_state"),
]
STOPPABLE: list[Entry] = [
    nothing(UserCancel, when=comes_too_late),
    on(UserCancel, to=STOP),
    on(CloseRequested, to=STOP, then=junctions.mark_closing),
]

TABLE: Table = {
    Idle: [
        refuse(RetryRequested, "wrong_state"),
        refuse(MessageWithdrawn, "not_waiting"),
        *AT_REST,
    ],
    LlmRequesting: [
        on(LlmResponse, when=calls_are_cut_off, to=ASK_MODEL, then=llm_requesting.refuse_cut_off_calls),
        on(LlmResponse, when=wants_tools_too_late, to=REST, then=llm_requesting.refuse_late_calls),
        on(LlmResponse, when=asks_beside_others, to=ASK_MODEL, then=llm_requesting.refuse_question_beside_others),
        on(LlmResponse, when=wants_tools, to=NEXT_IN_ROUND, then=llm_requesting.take_calls),
        on(LlmResponse, when=only_thinks, to=ASK_MODEL, then=llm_requesting.keep_thinking),
        on(LlmResponse, when=says_nothing, to=REST, then=llm_requesting.end_empty),
        on(LlmResponse, to=REST, then=llm_requesting.end_with_text),
        on(LlmFailed, when=may_retry, to=RetryWaiting, then=llm_requesting.back_off),
        on(LlmFailed, when=has_next_model, to=LlmRequesting, then=llm_requesting.ask_next_model),
        on(LlmFailed, to=Failed, then=llm_requesting.give_up),
        on(EffectFailed, when=may_retry, to=RetryWaiting, then=llm_requesting.back_off),
        on(EffectFailed, when=has_next_model, to=LlmRequesting, then=llm_requesting.ask_next_model),
        on(EffectFailed, to=Failed, then=llm_requesting.give_up),
        *STOPPABLE,
        *WORKING,
    ],
    RetryWaiting: [
        on(RetryDue, to=LlmRequesting, then=retry_waiting.ask_again),
        *STOPPABLE,
        *WORKING,
    ],
    ToolExecuting: [
        on(ToolComplete, to=NEXT_IN_ROUND, then=tool_executing.take_result),
        on(ToolAborted, to=NEXT_IN_ROUND, then=tool_executing.take_abort),
        on(EffectFailed, to=NEXT_IN_ROUND, then=tool_executing.take_failure),
        on(AskUserQuestionPending, when=runs_alone, to=AwaitingUserResponse, then=tool_executing.ask),
        on(AskUserQuestionPending, to=NEXT_IN_ROUND, then=tool_executing.refuse_question),
        *STOPPABLE,
        *WORKING,
    ],
    AwaitingUserResponse: [
        on(UserQuestionResponse, when=is_complete, to=NEXT_IN_ROUND, then=awaiting_user_response.take_answers),
        refuse(UserQuestionResponse, awaiting_user_response.what_is_wrong),
        on(DeadlineReached, to=NEXT_IN_ROUND, then=awaiting_user_response.go_on_unanswered),
        nothing(UserCancel, when=comes_too_late),
        on(UserCancel, when=declines, to=NEXT_IN_ROUND, then=awaiting_user_response.decline),
        on(UserCancel, to=STOP, then=awaiting_user_response.cancel_question),
        on(CloseRequested, to=STOP, then=awaiting_user_response.close_question),
        *within_turn("awaiting_user_response"),
        refuse(ToolApproval, "wrong_state"),
    ],
    AwaitingApproval: [
        on(ToolApproval, when=names_the_call, to=NEXT_IN_ROUND, then=awaiting_approval.take_approval),
        refuse(ToolApproval, "wrong_state"),
        on(DeadlineReached, to=NEXT_IN_ROUND, then=awaiting_approval.deny_in_time),
        *STOPPABLE,
        *within_turn("awaiting_approval"),
        refuse(UserQuestionResponse, "wrong_state"),
    ],
    Cancelling: [
        on(ToolComplete, to=ACKNOWLEDGED, then=tool_executing.take_result),
        on(ToolAborted, to=ACKNOWLEDGED, then=tool_executing.take_abort),
        on(EffectFailed, to=ACKNOWLEDGED, then=tool_executing.take_failure),
        on(AskUserQuestionPending, to=ACKNOWLEDGED, then=cancelling.drop_question),
        on(DeadlineReached, to=REST, then=junctions.end_cancelled),
        on(CloseRequested, to=SAME, then=cancelling.close_when_stopped),
        nothing(UserCancel),
        *WORKING,
    ],
    Failed: [
        on(RetryRequested, to=BEGIN_TURN, then=resting.retry_turn),
        on(MessageWithdrawn, when=still_waits, to=SAME, then=busy.withdraw_message),
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
