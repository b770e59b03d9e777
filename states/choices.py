"""The choices that several rows of the table share: the first branch whose guard says yes is taken.

They are junctions: how a turn begins, what comes next in it, how it ends. `grammar` defines the words.
"""

from __future__ import annotations

# Packed, so that the choices stay on one page.
# isort: off
# fmt: off
from . import junctions
from .grammar import branch, junction
from .guards import (
    begins_elsewhere, budget_is_spent, clearing_makes_room, goes_on_after_failure, has_one_task, is_closing,
    is_still_failed, keeps_waiting, may_be_prompted_again, model_is_asked, must_be_checked, must_speak_first,
    needs_approval, needs_memory, output_must_be_checked, profile_is_open, replies_on_failure, round_claims_work,
    round_gives_output, round_goes_on, something_is_at_work, something_is_in_doubt, something_waits, wants_summary,
    window_is_full,
)
from .handlers import model, turns
from .states import (
    AwaitingApproval, Cancelling, Closed, Compacting, Failed, Idle, InDoubt, LlmRequesting, MemoryRecalling,
    ProfileSelecting, Summarizing, ToolExecuting, Verifying,
)
# fmt: on
# isort: on

# From the message to the model.

FIT_WINDOW = junction(
    "FIT_WINDOW",
    branch(when=clearing_makes_room, to=LlmRequesting, then=junctions.clear_results),
    branch(when=window_is_full, to=Compacting, then=junctions.compact),
    branch(to=LlmRequesting, then=junctions.request_model),
)
AFTER_PROFILE = junction(
    "AFTER_PROFILE",
    branch(when=needs_memory, to=MemoryRecalling, then=junctions.recall),
    branch(to=FIT_WINDOW),
)
BEGIN_TURN = junction(
    "BEGIN_TURN",
    branch(when=profile_is_open, to=ProfileSelecting, then=junctions.select_profile),
    branch(to=AFTER_PROFILE),
)

# From the end of a turn to rest, or to the next turn.

REST = junction(
    "REST",
    branch(when=is_closing, to=Closed, then=turns.close),
    branch(when=begins_elsewhere, to=BEGIN_TURN, then=turns.begin_elsewhere),
    branch(when=is_still_failed, to=Failed, then=turns.stay_failed),
    branch(when=keeps_waiting, to=Failed, then=turns.keep_waiting),
    branch(when=something_waits, to=BEGIN_TURN, then=turns.open_next_turn),
    branch(to=Idle, then=turns.rest),
)
END_TURN = junction(
    "END_TURN",
    branch(when=wants_summary, to=Summarizing, then=junctions.summarize),
    branch(to=REST, then=junctions.end_turn),
)
FAIL = junction(
    "FAIL",
    branch(when=has_one_task, to=REST, then=junctions.fail_turn),
    branch(when=goes_on_after_failure, to=BEGIN_TURN, then=junctions.fail_and_go_on),
    branch(to=Failed, then=junctions.rest_failed),
)
GIVE_UP = junction(
    "GIVE_UP",
    branch(when=replies_on_failure, to=END_TURN, then=junctions.reply_with_error),
    branch(to=FAIL),
)

# Within a turn.

ASK_MODEL = junction(
    "ASK_MODEL",
    branch(when=budget_is_spent, to=END_TURN, then=junctions.stop_at_limit),
    branch(to=FIT_WINDOW),
)
AFTER_EMPTY = junction(
    "AFTER_EMPTY",
    branch(when=may_be_prompted_again, to=ASK_MODEL, then=junctions.prompt_again),
    branch(to=END_TURN, then=junctions.end_empty),
)
CHECK_WORK = junction(
    "CHECK_WORK",
    branch(when=must_speak_first, to=ASK_MODEL, then=model.ask_for_answer),
    branch(when=must_be_checked, to=Verifying, then=model.verify),
    branch(to=END_TURN, then=junctions.end_complete),
)
AFTER_OUTPUT = junction(
    "AFTER_OUTPUT",
    branch(when=output_must_be_checked, to=Verifying, then=model.verify_output),
    branch(to=END_TURN, then=junctions.end_with_output),
)
NEXT_IN_ROUND = junction(
    "NEXT_IN_ROUND",
    branch(when=something_is_in_doubt, to=InDoubt, then=junctions.wait_for_verdict),
    branch(when=round_goes_on, to=ToolExecuting, then=junctions.start_tools),
    branch(when=needs_approval, to=AwaitingApproval, then=junctions.ask_approval),
    branch(when=round_gives_output, to=AFTER_OUTPUT, then=junctions.leave_round_with_output),
    branch(when=round_claims_work, to=CHECK_WORK, then=junctions.leave_round),
    branch(to=ASK_MODEL, then=junctions.leave_round),
)
STOP = junction(
    "STOP",
    branch(when=model_is_asked, to=Cancelling, then=junctions.stop_answer),
    branch(when=something_is_at_work, to=Cancelling, then=junctions.abort_work),
    branch(to=REST, then=junctions.end_cancelled),
)
ACKNOWLEDGED = junction(
    "ACKNOWLEDGED",
    branch(when=something_is_at_work, to=Cancelling, then=junctions.wait_for_others),
    branch(to=REST, then=junctions.end_cancelled),
)
