"""Nobody is reminded of a user who does not wait: agents without one, and turns that only other agents began."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.states import (
    Context,
    Idle,
    LlmRequesting,
    Policy,
    RequestLlm,
    TurnRecord,
    VerifyWork,
    presets,
)
from turnwise.states.replies import due_nudge, owes_answer, wants_text
from turnwise.states.values.messages import Heard, Joined, Made
from turnwise.states.values.value import AGENTS
from turnwise.testing.strategies import NOON

from ...support.conversation import Conversation, completing

TEXTS = Policy().texts
WITHOUT_USER = ("background", "sub_agent")
STRICT = presets.explicit_response()


def conversation_of(role: str, policy: Policy, revision: int = AGENTS) -> Conversation:
    """A conversation whose log began under this revision."""
    return Conversation(policy, role=role, revision=revision)


def nudges(conversation: Conversation) -> list[str]:
    """The texts of the newest request's reminders."""
    (effect,) = (one for one in conversation.step.effects if isinstance(one, RequestLlm))
    parts = effect.nudge.parts if isinstance(effect.nudge, Joined) else (effect.nudge,)
    return [part.text for part in parts if isinstance(part, Made)]


class TestAgentsWithoutAUser:
    """What an agent that nobody listens to is reminded of."""

    @pytest.mark.parametrize("role", WITHOUT_USER)
    def test_a_claim_is_asked_for_without_a_word_about_the_user(self, role: str) -> None:
        """Where a claim ends the turn, it is reminded of the claim alone."""
        conversation = conversation_of(role, STRICT)
        conversation.says()

        conversation.model_says("I looked.")

        assert nudges(conversation) == [TEXTS.claim_missing]
        assert "respond_to_user" not in TEXTS.claim_missing

    @pytest.mark.parametrize("role", WITHOUT_USER)
    def test_a_claim_is_enough(self, role: str) -> None:
        """It is checked at once, although nothing was said to a user."""
        conversation = conversation_of(role, STRICT)
        conversation.says()
        conversation.model_calls(completing())

        conversation.tool_claims(summary="Counted three.")

        assert VerifyWork in conversation.wanted()

    @pytest.mark.parametrize("role", WITHOUT_USER)
    def test_silence_is_no_fault(self, role: str) -> None:
        """Under rules by which an agent with a user is reminded to speak, it ends its turn."""
        policy = Policy(text="thought", silent="nudge")
        conversation = conversation_of(role, policy)
        conversation.says()

        conversation.model_says("Done.")

        assert conversation.ended.status == "completed"

    def test_what_is_asked_for_after_tools_is_a_result(self) -> None:
        """A sub-agent without text is asked for its result, and not for an answer to a user."""
        conversation = conversation_of("sub_agent", presets.sub_agent())
        conversation.says()
        conversation.model_calls("look")
        conversation.tool_ends("look", "Three houses.")

        conversation.model_says("")

        assert nudges(conversation) == [TEXTS.fallback_result]

    def test_a_background_agent_may_end_with_nothing(self) -> None:
        """D12: nobody would read its text, whatever its rules say about texts."""
        conversation = conversation_of("background", presets.assistant())
        conversation.says()

        conversation.model_says("")

        assert (conversation.ended.status, conversation.ended.final_content) == ("completed", None)

    @pytest.mark.parametrize("role", WITHOUT_USER)
    def test_older_logs_replay_as_they_were(self, role: str) -> None:
        """A log that began before there were agents keeps the words that were read then."""
        conversation = conversation_of(role, STRICT, AGENTS - 1)
        conversation.says()

        conversation.model_says("I looked.")

        assert nudges(conversation) == [TEXTS.nudge]


class TestInternalMessages:
    """D8: an internal message may be answered with nothing."""

    def begun(self, policy: Policy, revision: int = AGENTS, **fields: Any) -> Conversation:
        """An agent with a user, which reads a message of another agent."""
        conversation = conversation_of("foreground", policy, revision)
        conversation.agent_says("The build is done.", **fields)
        return conversation

    @pytest.mark.parametrize("preset", [presets.foreground, presets.assistant, presets.talk, presets.reply_flow])
    def test_it_may_be_answered_with_nothing(self, preset: Any) -> None:
        """D8: the turn ends as completed, and the user receives nothing."""
        policy = preset().replace(recall=False, documents=False, dialogue="transcript", route=False)
        conversation = self.begun(policy)

        conversation.model_says("")

        assert isinstance(conversation.state, Idle)
        assert (conversation.ended.status, conversation.ended.deliveries) == ("completed", ())

    def test_where_a_claim_ends_the_turn_the_claim_is_enough(self) -> None:
        """D8: the model is neither asked to speak nor told to."""
        conversation = self.begun(STRICT)
        conversation.model_says("Noted.")
        assert nudges(conversation) == [TEXTS.claim_missing]
        conversation.model_calls(completing())

        conversation.tool_claims(summary="Nothing to do.")

        assert VerifyWork in conversation.wanted()

    def test_an_answer_still_reaches_the_user(self) -> None:
        """The agent decides: what it writes is its reply."""
        conversation = self.begun(presets.foreground())

        conversation.model_says("By the way: the build is done.")

        assert len(conversation.ended.deliveries) == 1

    def test_a_message_for_the_user_is_not_internal(self) -> None:
        """D7: its turn owes the user something."""
        conversation = self.begun(presets.foreground(), audience="user")

        conversation.model_says("")

        assert isinstance(conversation.state, LlmRequesting)
        assert nudges(conversation) == [TEXTS.relay]

    def test_a_person_who_steers_the_turn_waits_for_an_answer(self) -> None:
        """From then on an empty response has the defined ending."""
        conversation = self.begun(presets.foreground().replace(when_busy="steer"))
        conversation.model_calls("look")
        conversation.says("And the tests?")
        conversation.tool_ends("look", "Green.")

        assert conversation.state.turn.internal is False

    def test_the_silent_messages_before_a_person_change_nothing(self) -> None:
        """A person's turn is no internal one, whatever enters with it."""
        conversation = conversation_of("foreground", presets.foreground())
        conversation.agent_says(silent=True)
        conversation.says()

        conversation.model_says("")

        assert conversation.ended.status == "incomplete"

    def test_older_logs_replay_as_they_were(self) -> None:
        """There the same turn ended with the policy's sentence, and its record has no new field."""
        conversation = self.begun(presets.foreground(), AGENTS - 1)
        assert "internal" not in conversation.state.to_json()

        conversation.model_says("")

        assert conversation.ended.status == "incomplete"


@pytest.mark.parametrize("policy", [Policy(), STRICT, presets.talk(), Policy(text="thought", silent="nudge")])
def test_who_owes_nothing_is_never_reminded_of_speaking(policy: Policy) -> None:
    """Neither the relay, nor `speak`, nor `nudge`, which name the user."""
    internal = TurnRecord(number=1, since=NOON, internal=True)
    plain = TurnRecord(number=1, since=NOON, relay=())
    for turn, role in ((internal, "foreground"), (plain, "background"), (plain, "sub_agent")):
        context = Context(role=role, policy=policy)

        assert not owes_answer(turn, context)
        assert due_nudge(turn, context, text="") in (None, TEXTS.claim_missing)
        assert wants_text(turn.replace(claim=Heard(seq=1)), context) is False
