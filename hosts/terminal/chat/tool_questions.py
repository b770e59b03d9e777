"""The questions that turnwise itself asks about a tool: whether it may run, and whether it ran before a crash."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

from ....effects.printable import with_hidden_shown
from ....effects.tools.tool import shown_arguments
from ....states.events import Resolution
from ....states.values.messages import ToolCall
from ....states.values.questions import QuestionOption, UserQuestion
from .user_input import FreeTextOption

ALLOW, DENY = "Allow", "Deny"
YES, NO = ("allow", "y", "yes"), ("deny", "n", "no")
"""The answers that allow and deny a call, in any case; any other answer denies it and is the reason."""

REASON_TO_DENY = FreeTextOption("Deny, and say why", "", ", yes, no, or why not")

RESOLUTIONS: Mapping[str, Resolution] = {"It ran": "ran", "It did not run": "did_not_run", "Run it again": "again"}
"""What the user can say about an interrupted call, by its label."""


def approval_question(call: ToolCall, description: str = "") -> UserQuestion:
    """Ask whether a call may run of a tool with this description. Denying comes first, so that Enter pressed too early
    does not allow it. `Pure.`"""
    allow = QuestionOption(label=ALLOW, description="run it as it stands")
    deny = QuestionOption(label=DENY, description="go on without it")
    text = f"May {_with_arguments(call, 'run')}?"
    if description.strip():
        text += f"\n{indent(with_hidden_shown(description.strip()), '  ')}"
    return UserQuestion(question=text, header="Approval", options=(deny, allow))


def parse_approval(answer: str) -> tuple[bool, str | None]:
    """Return whether an answer allows the call, and the reason that it gives for denying it, if any. `Pure.`"""
    word = answer.strip().casefold()
    return word in YES, None if word in (*YES, *NO) else answer


def doubt_question(call: ToolCall) -> UserQuestion:
    """Ask whether a call ran that a crash interrupted. `Pure.`"""
    options = tuple(QuestionOption(label=label) for label in RESOLUTIONS)
    text = f"The program ended while {_with_arguments(call, 'ran')}. Did it run?"
    return UserQuestion(question=text, header="In doubt", options=options)


def _with_arguments(call: ToolCall, verb: str) -> str:
    return f"{with_hidden_shown(call.name)} {verb} with {shown_arguments(call)}"
