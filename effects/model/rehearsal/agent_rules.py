"""The rules by which the rehearsal model is one of several agents.

In the foreground it presents what other agents have for its user, and takes note of the rest. In the background it
passes on what it has found. Anywhere it hands a list of tasks to sub-agents, writes to another agent, and hands the
conversation over to another profile, where it has the tool for that and the user's words ask for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from ....states.events import ORIGIN_OF_WAKE_UPS
from .dialogue import SPAWN, TELL_AGENT, TELL_USER, TRANSFER, Call, Dialogue, Reply
from .guesses import tasks_in

NEWS = "An agent that works for you reports:"
"""What the model writes above a message that another agent has for the user."""

BEFORE_PASSING_ON, AFTER_PASSING_ON = "The user should know this.", "That is all for now."
"""What a background agent writes beside a message for the user, and after it."""

SENT = "The message is on its way."
"""What the model says once it has written to another agent."""

SILENCE = Reply("")
"""Nothing, as an answer to a message that is no request."""

_TO_USER = re.compile(r"\btell (?:the|your|my) user (?:that )?(.+)", re.IGNORECASE | re.DOTALL)
_TO_AGENT = re.compile(r"\btell (?:the )?agent (\S+?)[:,]? (?:that |to )?(.+)", re.IGNORECASE | re.DOTALL)
_TO_PROFILE = re.compile(r"\b(?:transfer|hand|pass|connect)\b.*? (?:over )?to (?:the )?([\w-]+)", re.IGNORECASE)


def present(dialogue: Dialogue) -> Reply | None:
    """Present to the user what another agent has for them."""
    return Reply(f"{NEWS}\n\n{dialogue.said}") if dialogue.audience == "user" else None


def take_note(dialogue: Dialogue) -> Reply | None:
    """Say nothing to an internal message: it is no request of the user. Background agents do what it asks, and so does
    an agent that a schedule has woken."""
    is_update = dialogue.audience == "agent" and dialogue.origin != ORIGIN_OF_WAKE_UPS
    return SILENCE if is_update and not dialogue.is_background else None


def pass_on(dialogue: Dialogue) -> Reply | None:
    """Pass on to the user what the message says, if it asks for that in the background."""
    found = _TO_USER.search(dialogue.said)
    if not dialogue.is_background or dialogue.results or found is None:
        return None
    return tell_user(found[1])


def tell_user(text: str) -> Reply:
    """Send the user a message through the agent in the foreground. `Pure.`"""
    return Reply(BEFORE_PASSING_ON, (Call(TELL_USER, {"text": text}),))


def tell_agent(dialogue: Dialogue) -> Reply | None:
    """Write to the agent that the user names by its id."""
    found = _TO_AGENT.search(dialogue.said)
    if TELL_AGENT not in dialogue.special or dialogue.results or found is None:
        return None
    return Reply("Let me tell that agent.", (Call(TELL_AGENT, {"agent_id": found[1], "text": found[2]}),))


def transfer(dialogue: Dialogue) -> Reply | None:
    """Hand the conversation over to the profile that the user names, and then say who is speaking."""
    found = _TO_PROFILE.search(dialogue.said)
    if found is None or (TRANSFER not in dialogue.special and not dialogue.results):
        return None
    if not dialogue.results:
        return Reply(f"Let me hand you over to {found[1]}.", (Call(TRANSFER, {"profile": found[1]}),))
    result = next((text for name, text in dialogue.results if name == TRANSFER), None)
    return None if result is None else Reply(f"You are now speaking to {found[1]}. {result}")


def hand_out(dialogue: Dialogue) -> Reply | None:
    """Hand a list of tasks to sub-agents, one each."""
    tasks = tasks_in(dialogue.said)
    if SPAWN not in dialogue.special or dialogue.results or not tasks:
        return None
    text = f"There are {len(tasks)} tasks. Let me hand them to sub-agents."
    return Reply(text, (Call(SPAWN, {"tasks": [task.text for task in tasks]}),))


AGENT_RULES: tuple[Callable[[Dialogue], Reply | None], ...] = (
    present,
    take_note,
    pass_on,
    tell_agent,
    transfer,
    hand_out,
)


def findings_of(said: str, result: str) -> Iterator[str]:
    """What the sub-agents of `said` returned, a line for each. `Pure.`"""
    try:
        agents = json.loads(result)["agents"]
    except (ValueError, KeyError, TypeError):
        yield result
        return
    tasks = [task.item for task in tasks_in(said)]
    for number, agent in enumerate(agents):
        title = tasks[number] if len(tasks) == len(agents) else f"Sub-agent {number + 1}"
        failed = "" if agent["status"] == "completed" else f" ({agent['status']})"
        yield f"{title}{failed}: {agent['result']}"
