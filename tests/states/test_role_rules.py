"""The rules of agents without a user follow from those of the agent that they work for."""

from __future__ import annotations

from typing import get_args

import pytest

from turnwise.states import Limits, ModelSpec, Policy, Profile, Recent, Retry, Texts, presets
from turnwise.states.policy import SubAgentRules
from turnwise.states.roles import Role, background_policy, sub_agent_policy

COOK, GUIDE = Profile(name="cook"), Profile(name="guide")
GENERAL = Policy(
    models=(ModelSpec(name="m", window=1000), ModelSpec(name="n")),
    profiles=(GUIDE, COOK),
    limits=Limits(tokens=500),
    parallel=3,
    retry=Retry(attempts=7),
    window=0.5,
    redact=True,
    texts=Texts(ending="Nothing."),
)
KEPT = ("models", "profiles", "limits", "parallel", "retry", "window", "redact", "texts")
PRESETS = (presets.assistant, presets.reply_flow, presets.explicit_response, presets.talk, presets.foreground)


class TestBackgroundAgents:
    """What a background agent takes over from the agent that it works for."""

    def test_general_rules_are_kept(self) -> None:
        """Models, profiles, limits, retries, redaction and texts are those of the other agent."""
        made = background_policy(GENERAL)

        assert {name: getattr(made, name) for name in KEPT} == {name: getattr(GENERAL, name) for name in KEPT}

    @pytest.mark.parametrize("preset", PRESETS)
    def test_nothing_is_left_that_needs_a_user(self, preset: type[Policy]) -> None:
        """D12: its text is its thinking, a turn ends with it, and nobody is reminded of a user."""
        made = background_policy(preset())

        assert (made.text, made.ends_on, made.silent, made.relay) == ("thought", "text", "allow", "prompt_only")
        assert (made.verify, made.summarize, made.recall, made.route) == (0, False, False, False)
        assert (made.when_busy, made.dialogue, made.transcription_note) == ("queue", "transcript", False)

    def test_it_has_a_transcript_of_its_own(self) -> None:
        """The last minutes of dialogue hold texts of people only, so an agent without a user would forget its task."""
        assert background_policy(Policy(dialogue=Recent())).dialogue == "transcript"

    def test_unchosen_models_stay_unchosen(self) -> None:
        """So the engine fills in its own."""
        assert not {"models", "profiles"} & background_policy(Policy(parallel=2)).model_fields_set


class TestSubAgents:
    """What a sub-agent takes over from the agent whose turn starts it."""

    def test_the_limits_are_those_that_are_given(self) -> None:
        """Those of the parent are shared among its sub-agents, and whoever starts them divides them."""
        assert sub_agent_policy(GENERAL, Limits(requests=3)).limits == Limits(requests=3)

    def test_a_named_profile_is_the_only_one(self) -> None:
        """So each turn of the sub-agent has it."""
        assert sub_agent_policy(GENERAL, Limits(), "cook").profiles == (COOK,)

    @pytest.mark.parametrize("name", ["", "nobody"])
    def test_without_a_known_name_the_profiles_are_those_of_the_parent(self, name: str) -> None:
        """The first of them is the default."""
        assert sub_agent_policy(GENERAL, Limits(), name).profiles == (GUIDE, COOK)

    @pytest.mark.parametrize("preset", PRESETS)
    def test_it_answers_also_when_it_fails(self, preset: type[Policy]) -> None:
        """Its parent waits for it. For the same reason a declined question does not end its turn."""
        made = sub_agent_policy(preset(), Limits())

        assert (made.on_failure, made.questions.cancel) == ("reply", "resume")

    def test_it_may_ask_the_user_only_of_its_own_parent(self) -> None:
        """D2: a background agent may not ask, and neither may what it starts; nor what a sub-agent starts."""
        policy = GENERAL.replace(sub_agents=SubAgentRules(questions="ask_user", depth=3))
        made = {role: sub_agent_policy(policy, Limits(), "", role).sub_agents for role in get_args(Role)}

        assert {role: rules.questions for role, rules in made.items()} == {
            "foreground": "ask_user",
            "background": "refuse",
            "sub_agent": "refuse",
        }
        assert {rules.depth for rules in made.values()} == {3}
