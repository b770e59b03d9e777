"""What an agent may do by the acts of its tools, whatever tool returns them."""

from typing import Any

import pytest

from turnwise.states import Act, AgentMail, LlmRequesting, SendToAgent, Speech, Texts, WorkComplete

from ...support.cases import holds_for
from ...support.conversation import Conversation, call

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
