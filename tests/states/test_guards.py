"""What the guards decide: the end of a turn names the limit because of which it ended, and an agent's role says what it
may do by the acts of its tools, whatever tool returns them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnwise.states import (
    Act,
    AgentMail,
    Context,
    Limits,
    LlmRequesting,
    ModelSpec,
    Opened,
    Policy,
    SendToAgent,
    Speech,
    Texts,
    Usage,
    UserMessage,
    WorkComplete,
    presets,
)
from turnwise.states.machine import begin, transition
from turnwise.states.values.value import FIRST_REVISION
from turnwise.testing.strategies import NOON

from ..support.cases import holds_for
from ..support.conversation import Conversation, call, completing

COST = Usage(input_tokens=9, output_tokens=1, cost=0.5)


def ends_at(conversation: Conversation) -> tuple[str, str | None]:
    """How the turn ended that the last step left, and at which limit."""
    return conversation.ended.status, conversation.ended.limit


def missing_claim() -> Conversation:
    """The rules want a claim, and the model gives a text."""
    conversation = Conversation(presets.explicit_response(), limits=Limits(requests=1))
    conversation.says()
    conversation.model_says("Done.")
    return conversation


def empty_response() -> Conversation:
    """The model says nothing after its tools have run."""
    conversation = Conversation(limits=Limits(requests=2))
    conversation.says()
    conversation.model_calls("look")
    conversation.tool_ends("look")
    conversation.model_says("")
    return conversation


def rejected_claim() -> Conversation:
    """The claim is rejected, and would be allowed to be rejected once more."""
    conversation = Conversation(presets.explicit_response(), verify=3, limits=Limits(requests=1, last="plain"))
    conversation.says()
    conversation.model_calls(completing())
    return conversation


TEXTS = Texts()
FOR_USER = AgentMail(target="other", text="It is ready.", audience="user")
FOR_AGENT = AgentMail(target="other", text="It is ready.")
NOW, LATER = Speech(text="Hello", when="now"), Speech(text="Hello")


def acting(act: Act, role: str, **fields: Any) -> Conversation:
    """An agent of this role whose tool has done this."""
    conversation = Conversation(role=role, **fields)
    conversation.says()
    conversation.model_calls(call("work", exclusive=True, acts=("speech", "mail", "work_complete")))
    conversation.tool_ends("work", acts=[act])
    return conversation


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(requests=1, last="plain"), "requests"),
        (Limits(requests=1), "requests"),
        (Limits(tokens=10), "tokens"),
        (Limits(cost=0.5), "cost"),
        (Limits(seconds=1.0), "seconds"),
        (Limits(requests=2, tokens=10, cost=0.5, seconds=1.0), "tokens"),
    ],
)
def test_a_turn_that_goes_on_calling_tools_names_its_limit(limits: Limits, limit: str) -> None:
    """Whichever limit is reached, the end names it; of several the first in the order requests, tokens, cost,
    seconds."""
    conversation = Conversation(limits=limits)
    conversation.says()

    conversation.model_calls("look", usage=COST)

    assert ends_at(conversation) == ("incomplete", limit)


def test_a_limit_that_is_reached_behind_a_round_is_named() -> None:
    """The tools have run, and the model may not be asked what comes of their results."""
    conversation = Conversation(limits=Limits(seconds=3.0))
    conversation.says()
    conversation.model_calls("look")

    conversation.tool_ends("look")
    conversation.now = conversation.now.replace(minute=5)
    conversation.model_calls("look")

    assert ends_at(conversation) == ("incomplete", "seconds")


def test_a_limit_of_tool_calls_ends_no_turn() -> None:
    """Calls beyond it are not run, and the model answers."""
    conversation = Conversation(limits=Limits(tool_calls=0))
    conversation.says()
    conversation.model_calls("look")

    conversation.model_says("I could not look.")

    assert ends_at(conversation) == ("completed", None)


def test_an_answer_to_the_last_request_is_no_end_by_a_limit() -> None:
    """The model answered, although it had no tools for that request."""
    conversation = Conversation(limits=Limits(requests=1))
    conversation.says()

    conversation.model_says("Done.")

    assert ends_at(conversation) == ("completed", None)


@pytest.mark.parametrize("play", [missing_claim, empty_response, rejected_claim])
def test_a_limit_that_keeps_the_model_from_being_reminded_is_named(play: Callable[[], Conversation]) -> None:
    """The model would be asked once more if the limit allowed it."""
    assert play().ended.limit == "requests"


def test_a_turn_that_fails_because_no_request_is_left_names_the_limit() -> None:
    """The history would be compacted for another request, which the limit does not allow."""
    conversation = Conversation(limits=Limits(requests=1), models=(ModelSpec(name="small"),))
    conversation.says()

    conversation.model_fails("context_window")

    assert ends_at(conversation) == ("failed", "requests")


def test_a_failure_of_another_kind_names_no_limit() -> None:
    """No limit keeps the turn from going on."""
    conversation = Conversation(limits=Limits(requests=1))
    conversation.says()

    conversation.model_fails("authentication")

    assert ends_at(conversation) == ("failed", None)


def test_a_cancelled_turn_names_no_limit() -> None:
    """It was ended by a person, though its limit was reached."""
    conversation = Conversation(limits=Limits(requests=1))
    conversation.says()

    conversation.cancels()

    assert ends_at(conversation) == ("cancelled", None)


def test_a_log_of_the_first_revision_names_none() -> None:
    """It was written before ends named limits, and must come out as it was stored."""
    policy = Policy(limits=Limits(requests=1, last="plain"), texts=Texts(limit="Enough."))
    opened = Opened(event_id="1", at=NOON, policy=policy, revision=FIRST_REVISION)
    context = Context().after(opened)
    asked = transition(begin(opened).state, UserMessage(event_id="2", at=NOON, text="Hello"), context)
    assert isinstance(asked.state, LlmRequesting)
    conversation = Conversation(policy)
    conversation.says()
    response = conversation.model_calls(call("look"))
    event = conversation.history.newest.event

    old = transition(asked.state, event, context)

    assert response.ended is not None
    assert old.ended == response.ended.replace(limit=None)
    assert "limit" not in old.ended.model_dump(exclude_defaults=True)


@holds_for(
    ("act", "roles"),
    [
        (NOW, {"foreground"}),
        (LATER, {"foreground"}),
        (FOR_USER, {"background"}),
        (FOR_AGENT, {"foreground", "background", "sub_agent"}),
    ],
)
@holds_for("role", ["foreground", "background", "sub_agent"])
def test_only_an_agent_with_a_user_speaks_and_only_a_background_agent_writes_to_users(
    act: Act, roles: set[str], role: str
) -> None:
    """D2, P20: an act that the role does not allow has an error result, is not carried out, and the agent goes
    on."""
    conversation = acting(act, role)

    conversation.rests_in(LlmRequesting)
    if role in roles:
        assert conversation.results() == {"work": "done"}
    else:
        assert conversation.results() == {"work": TEXTS.act_not_for_role}
        assert conversation.errors() == ["work"]
        assert conversation.delivered() == []
        assert SendToAgent not in conversation.wanted()


@pytest.mark.parametrize("role", ["foreground", "background", "sub_agent"])
def test_every_agent_may_claim_that_its_work_is_complete(role: str) -> None:
    """A claim concerns no user, so every role may make it."""
    assert acting(WorkComplete(summary="All done."), role).results() == {"work": "done"}


@pytest.mark.parametrize(("act", "role"), [(NOW, "background"), (FOR_USER, "foreground"), (LATER, "sub_agent")])
def test_an_earlier_revision_carries_every_act_out(act: Act, role: str) -> None:
    """A log of an earlier revision keeps what it did."""
    assert acting(act, role, revision=3).results() == {"work": "done"}
