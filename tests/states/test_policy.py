"""Which models a turn asks: its profile's own first, then the policy's."""

from __future__ import annotations

import math
from hashlib import sha256

import pytest
from pydantic import ValidationError

from turnwise.states import (
    Empty,
    ModelSettings,
    ModelSpec,
    Policy,
    Profile,
    ProfileSelected,
    RequestLlm,
    Retry,
    SelectProfile,
    SubAgentRules,
    Texts,
)
from turnwise.states.policy import Rules, models_of, named_models

from ..support.conversation import Conversation

FIRST, SECOND, OWN = ModelSpec(name="first"), ModelSpec(name="second", window=5), ModelSpec(name="own", window=7)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, (FIRST, SECOND)),
        (OWN, (OWN, FIRST, SECOND)),
        (ModelSpec(name="second"), (SECOND, FIRST)),
        (ModelSpec(name="second", window=9), (ModelSpec(name="second", window=9), FIRST)),
    ],
)
def test_the_model_of_the_profile_comes_first(own: ModelSpec | None, expected: tuple[ModelSpec, ...]) -> None:
    """Each model is asked once. The window that a profile does not give is that of the policy's model."""
    policy = Policy(models=(FIRST, SECOND), profiles=(Profile(name="one"), Profile(name="two", model=own)))

    assert models_of(policy, "two") == expected
    assert models_of(policy, "one") == models_of(policy, "") == (FIRST, SECOND)


def test_all_models_that_a_policy_names() -> None:
    """Its own and those of its profiles, each name once."""
    profiles = (Profile(name="one", model=OWN), Profile(name="two", model=ModelSpec(name="second")))

    assert named_models(Policy(models=(FIRST, SECOND), profiles=profiles)) == (FIRST, SECOND, OWN)


def test_a_name_is_enough() -> None:
    """A name stands for a model without a known window, and is written as such."""
    assert Profile(name="one", model="own").model == ModelSpec(name="own")
    assert (
        Policy.model_validate_json(Policy(profiles=(Profile(name="one", model=OWN),)).model_dump_json())
        .profiles[0]
        .model
        == OWN
    )


ADDED_LATER: tuple[tuple[Rules, dict[str, object]], ...] = (
    (
        Policy(),
        {
            "describe_tools": True,
            "describe_agents": True,
            "documents": True,
            "sub_agents": SubAgentRules(depth=2),
            "relay_deadline": 60.0,
        },
    ),
    (Profile(name="one"), {"model": OWN, "description": "Cooks.", "settings": ModelSettings(seed=1)}),
    (
        Texts(),
        {
            **{"transcription_note": "", "tool_protocol": "Call.", "tools_guidance": "Look.", "wake_up": "Now."},
            **dict.fromkeys(("too_many_children", "too_deep", "unknown_profile", "nothing_left"), "No."),
            **dict.fromkeys(("act_not_for_role", "question_not_for_role"), "No."),
            **dict.fromkeys(("claim_missing", "fallback_result", "imported", "overdue"), "Go on."),
            **dict.fromkeys(("words_withheld", "instructions_refused"), "Refused."),
            **dict.fromkeys(("foreground_guidance", "background_guidance", "sub_agent_guidance"), ""),
            **dict.fromkeys(
                ("user_message_guidance", "agent_message_guidance", "transfer_guidance", "spawn_guidance"), ""
            ),
            **dict.fromkeys(("plain_text_reply", "plain_text_fallback", "plain_text_thought"), ""),
        },
    ),
    (Empty(), {"until_limit": True}),
)
"""Rules that were added after logs had been written, each with a value that is not its default."""


@pytest.mark.parametrize(("rules", "changes"), ADDED_LATER)
def test_rules_that_were_added_later_are_left_out_where_they_hold_their_default(
    rules: Rules, changes: dict[str, object]
) -> None:
    """Rules from before are written as they were; what an application changes is written and read back."""
    changed = rules.replace(**changes)

    assert set(rules.ADDED) == set(changes)
    assert not changes.keys() & rules.model_dump().keys()
    assert changes.keys() <= changed.model_dump().keys()
    assert type(rules).model_validate_json(changed.model_dump_json()) == changed


AS_FIRST_WRITTEN = (4704, "f987dad7d8262569")
"""The length and the digest of the default rules: those that the version before agents wrote, with the default of
`Policy.text` and the guidance for speaking tools as they are now."""


def test_the_default_rules_are_written_as_they_always_were() -> None:
    """To the byte: the first event of a log is written again when the log is exported, and its digest must be that of
    the log. A text or a rule that is added must therefore stand in `ADDED`."""
    written = Policy().model_dump_json().encode()

    assert (len(written), sha256(written).hexdigest()[:16]) == AS_FIRST_WRITTEN


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": -1}, {"temperature": math.nan}, {"max_tokens": 0}, {"top_p": 1.5}, {"reasoning_effort": ""}],
)
def test_settings_that_no_provider_takes_are_refused(wrong: dict[str, object]) -> None:
    """A parameter outside its range is refused where the profile is made."""
    with pytest.raises(ValidationError):
        Profile.model_validate({"name": "one", "settings": wrong})


def conversation_with(**rules: object) -> Conversation:
    """A conversation whose second profile has a model of its own."""
    profiles = (Profile(name="one"), Profile(name="two", model=OWN))
    return Conversation(models=(FIRST, SECOND), profiles=profiles, **rules)


def asked_models(conversation: Conversation) -> list[str]:
    """The models that were asked so far."""
    effects = [effect for entry in conversation.history.log for effect in entry.effects]
    return [effect.model for effect in effects if isinstance(effect, RequestLlm)]


def test_a_turn_asks_the_model_of_its_profile_and_falls_back_to_the_others() -> None:
    """One after the other, until none is left."""
    conversation = conversation_with(route=True, retry=Retry(attempts=1))
    conversation.says()
    conversation.happens(ProfileSelected, effect_id=conversation.flying(SelectProfile), profile="two")

    for _ in range(3):
        conversation.model_fails()

    assert asked_models(conversation) == ["own", "first", "second"]
    assert conversation.ended.status == "failed"


def test_the_first_profile_has_the_models_of_the_policy() -> None:
    """It has none of its own."""
    conversation = conversation_with()
    conversation.says()

    assert asked_models(conversation) == ["first"]


def test_the_window_is_that_of_the_model_that_is_asked() -> None:
    """The history is compacted for the small window of the profile's own model."""
    conversation = conversation_with(route=True)
    conversation.says()
    conversation.happens(ProfileSelected, effect_id=conversation.flying(SelectProfile), profile="two")

    conversation.model_calls("look", usage={"input_tokens": 7})

    assert conversation.state.type == "compacting"
