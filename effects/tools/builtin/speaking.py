"""The built-in tools by which a model speaks to its user and says that its work is complete.

A model takes its text for an answer, while an application may deliver none of it. With these tools the difference is
clear: what a model says by them is meant for the user, and everything else is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from ....states.policy import Texts
from ....states.values.acts import Speech, WorkComplete
from ..declaration import make_tool, tool
from ..tool import AnyTool
from .speech_arguments import SpeechArguments


def _speaking_tool(
    parameter: str, refusal_in: Callable[[Texts], str], **declared: Any
) -> Callable[[Callable[..., Any]], AnyTool]:
    """Make a function a tool that says the value of its parameter to the user. `refusal_in` picks the text that the
    model reads if the value is missing.

    Such a tool only records what was said, so a call that a crash interrupted runs again.
    """

    def decorate(function: Callable[..., Any]) -> AnyTool:
        tool = make_tool(function, acts=("speech",), crash="pure", **declared)
        return replace(tool, arguments=SpeechArguments(function, parameter, refusal_in))

    return decorate


@_speaking_tool("text", refusal_in=lambda texts: texts.nothing_said)
async def respond_to_user(
    text: Annotated[
        str,
        Field(
            description="What the user is to receive. Write naturally, the way one person talks to another: "
            "no Markdown, no code, no other markup."
        ),
    ],
) -> Speech:
    """Say something to the user, so that it is sure to reach them.

    Where the user listens, on voice, the text is spoken aloud; elsewhere it is sent to them as a message. Ordinary text
    that you write beside your calls is for yourself and may never reach the user. So call this whenever something is
    meant for them: an answer, a text that they want to hear, a result, a confirmation.
    """
    return Speech(text=text.strip())


speak_to_user = replace(respond_to_user, name="speak_to_user")
"""The same tool under its other name."""


@_speaking_tool("message", refusal_in=lambda texts: texts.no_message, exclusive=True)
async def talk(
    message: Annotated[str, Field(description="What to say to the user. Write naturally, without any markup.")],
) -> Speech:
    """Talk to the user: they receive the message at once. Take this for the only way to reach the user.

    All other text that you write counts as your own thinking. You must therefore use this tool for every word that is
    meant for the user, be it a greeting, an answer, what you are about to do or what came of it. Use it as often as you
    have something to say.
    """
    return Speech(text=message, when="now")


def _check_not_blank(summary: str) -> str:
    if not summary.strip():
        raise ValueError("a summary must not be empty")
    return summary.strip()


@tool(acts=("work_complete",), crash="pure")
async def mark_work_complete(
    summary: Annotated[str, AfterValidator(_check_not_blank), Field(description="What was done, in a few sentences")],
    confidence: Annotated[
        float | None, Field(strict=True, ge=0, le=1, description="How sure you are that nothing is missing, 0 to 1")
    ] = None,
) -> WorkComplete:
    """Declare that all the work which the user asked for is done.

    Call it last, once nothing is left to do and everything meant for the user was said to them: the summary is for the
    record and does not replace an answer. The claim may be checked, and you will be told if something is missing. Do
    not call it while you are waiting for something, or if you could not do what was asked.
    """
    return WorkComplete(summary=summary, confidence=confidence)
