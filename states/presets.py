"""Ready-made policies, one for each kind of conversation that turnwise knows."""

from __future__ import annotations

from .policy import Empty, Limits, Policy, Recent, Repeats, SpeechRules


def assistant() -> Policy:
    """An assistant that answers in text, uses tools one at a time and may ask its user. `Pure.`"""
    return Policy()


def reply_flow(
    agentic_max_turns: int = 8, dialogue_window_sec: float = 300.0, tool_marker: str | None = "TOOL"
) -> Policy:
    """A voice assistant with a memory: secrets are removed, a profile is chosen, older conversations and documents are
    searched, a request holds the last minutes only, a turn has eight requests, and every failure gets a reply.

    `agentic_max_turns` is how many requests a turn may have, and for how many of them a call is remembered.
    `dialogue_window_sec` is how many seconds of dialogue a request holds. Lines of a reply that begin with
    `tool_marker` are removed. `Pure.`
    """
    return Policy(
        limits=Limits(requests=agentic_max_turns, last="plain"),
        repeats=Repeats(window=agentic_max_turns),
        on_failure="reply",
        dialogue=Recent(seconds=dialogue_window_sec),
        recall=True,
        documents=True,
        route=True,
        fresh_context=True,
        transcription_note=True,
        describe_tools=True,
        redact=True,
        marker=tool_marker,
        empty=Empty(until_limit=True),
        plain_retry=1,
    )


def explicit_response() -> Policy:
    """An agent that works until it claims to be done, and that speaks to the user by a tool. The claim is checked. Its
    last text is delivered only if it said nothing. `Pure.`"""
    return Policy(text="fallback", ends_on="work_complete", silent="fallback", verify=5)


def talk() -> Policy:
    """An agent whose text is only its thinking: the user receives what it says by a tool, at once. `Pure.`"""
    return Policy(text="thought", speech=SpeechRules(keep="each", empty="deliver", never_fail=True))


def foreground() -> Policy:
    """An agent with a user. It passes on what background agents have for that user; messages that arrive while it is
    busy wait. `Pure.`"""
    return Policy(when_busy="queue", relay="nudge_then_deliver", describe_agents=True)


def background() -> Policy:
    """An agent that works for another one. Its own text reaches nobody. `Pure.`"""
    return Policy(text="thought", when_busy="queue", describe_agents=True)


def sub_agent() -> Policy:
    """An agent that a turn of another agent started. Its last text is its result. `Pure.`"""
    return Policy(
        text="thought", when_busy="queue", limits=Limits(requests=20), on_failure="reply", describe_agents=True
    )
