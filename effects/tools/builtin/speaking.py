"""The built-in tools by which a model reaches its user and says that its work is done.

A model takes what it writes for an answer, while a host may deliver none of it (seeds 000 and 004). These tools make
the difference plain: what is said by them is meant for the user, and everything else is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from ....states.policy.texts import Texts
from ....states.values.acts import Speech, WorkComplete
from ..tool import AnyTool, make_tool, tool
from .speech_arguments import Words


def _speaks(says: str, missing: Callable[[Texts], str], **declared: Any) -> Callable[[Callable[..., Any]], AnyTool]:
    """Make a function a tool that says its parameter `says` to the user; a call without it reads what is `missing`.

    Such a tool only records what was said, so a call that a crash interrupted runs again.
    """

    def decorate(function: Callable[..., Any]) -> AnyTool:
        made = make_tool(function, acts=("speech",), crash="pure", **declared)
        return replace(made, arguments=Words(function, says, missing))

    return decorate


@_speaks("text", missing=lambda texts: texts.nothing_said)
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
"""The same tool under its other name (case S16)."""


@_speaks("message", missing=lambda texts: texts.no_message, exclusive=True)
async def talk(
    message: Annotated[str, Field(description="What to say to the user. Write naturally, without any markup.")],
) -> Speech:
    """Talk to the user: they receive the message at once. This is the only way to reach the user.

    All other text that you write is your own thinking, which nobody but you ever sees. You must therefore use this tool
    for every word that is meant for the user, be it a greeting, an answer, what you are about to do or what came of it.
    Use it as often as you have something to say.
    """
    return Speech(text=message, when="now")


def _says_something(summary: str) -> str:
    if not summary.strip():
        raise ValueError("a summary must not be empty")
    return summary.strip()


@tool(acts=("work_complete",), crash="pure")
async def mark_work_complete(
    summary: Annotated[str, AfterValidator(_says_something), Field(description="What was done, in a few sentences")],
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
