"""What an agent of each role may call, and the rules of agents without a user."""

from __future__ import annotations

from typing import get_args

import pytest

from turnwise.effects.tools.catalogue import BUILT_IN
from turnwise.states import Context, Limits, ModelSpec, Policy, Profile, Recent, Retry, Texts, presets
from turnwise.states.policy import SubAgentRules
from turnwise.states.roles import ROLE_TOOLS, Caller, Role, background_policy, sub_agent_policy

from ..support.cases import holds_for

# --- Which built-in tools an agent of each role may call.


ALLOWED: dict[Role, set[str]] = {
    "foreground": {
        "ask_user_question",
        "respond_to_user",
        "speak_to_user",
        "talk",
        "mark_work_complete",
        "send_agent_message",
        "spawn_agents",
        "recall_conversation",
        "transfer_to",
        "read_result",
    },
    "background": {
        "mark_work_complete",
        "send_user_message",
        "send_agent_message",
        "spawn_agents",
        "recall_conversation",
        "transfer_to",
        "read_result",
    },
    "sub_agent": {"mark_work_complete", "send_agent_message", "recall_conversation", "read_result"},
}
TOOLS = sorted(set().union(*ALLOWED.values()))
ASKS_USER = SubAgentRules(questions="ask_user")


class TestData:
    """D2: which tools a role may call is data, and complete."""

    @pytest.mark.parametrize("role", ALLOWED)
    def test_every_built_in_tool_is_allowed_or_denied(self, role: Role) -> None:
        """D2: under each of its names, and never both. So a tool that is added must be decided on for each role."""
        tools = ROLE_TOOLS[role]

        assert set(BUILT_IN) <= tools.allowed | tools.denied == set(TOOLS)
        assert not tools.allowed & tools.denied


class TestRoles:
    """D2: what follows from the data and from the rules for sub-agents."""

    @holds_for("tool", TOOLS)
    @holds_for("role", ALLOWED)
    def test_each_role_may_call_what_belongs_to_it(self, role: Role, tool: str) -> None:
        """D2, P20: an agent with a user has no tool for messages to that user, a background agent has one, and agents
        without a user neither speak to one nor ask one."""
        assert (Caller(role).fault(tool) is None) == (tool in ALLOWED[role])

    @pytest.mark.parametrize(
        ("tool", "role", "sentence"),
        [
            ("ask_user_question", "sub_agent", "ask_user_question is not available to sub-agents"),
            ("spawn_agents", "sub_agent", "spawn_agents is not available to sub-agents"),
            ("send_user_message", "foreground", "send_user_message is not available to agents with a user"),
            ("talk", "background", "talk is not available to background agents"),
        ],
    )
    def test_a_fault_says_what_is_not_available_to_whom(self, tool: str, role: Role, sentence: str) -> None:
        """P20: the fault has the sentence of the seed."""
        assert Caller(role).fault(tool) == sentence

    @pytest.mark.parametrize("role", ALLOWED)
    def test_a_child_cannot_regain_what_was_denied(self, role: Role) -> None:
        """D2: a sub-agent may call nothing that its parent may not call."""
        allowed = {tool for tool in TOOLS if Caller("sub_agent", depth=1).fault(tool) is None}

        assert allowed <= {tool for tool in TOOLS if Caller(role).fault(tool) is None}

    @pytest.mark.parametrize("role", ALLOWED)
    def test_tools_of_the_host_are_not_of_concern(self, role: Role) -> None:
        """D2: tools of the application are available to every role."""
        assert Caller(role).fault("find_table") is None


class TestRules:
    """P20: what the rules for sub-agents change."""

    @holds_for(
        ("role", "depth", "deepest", "may"),
        [
            ("foreground", 0, 1, True),
            ("foreground", 0, 0, False),
            ("background", 0, 1, True),
            ("background", 1, 1, False),
            ("background", 9, 1, False),
            ("sub_agent", 1, 1, False),
            ("sub_agent", 1, 2, True),
            ("sub_agent", 2, 2, False),
            ("sub_agent", 0, 1, False),
            ("sub_agent", 0, 2, True),
        ],
    )
    def test_agents_start_others_only_so_deep(self, role: Role, depth: int, deepest: int, may: bool) -> None:
        """P20: the policy gives the depth limit, beyond which spawn_agents is denied to every role. A sub-agent counts
        as one deep if its log does not say so."""
        assert (Caller(role, depth, SubAgentRules(depth=deepest)).fault("spawn_agents") is None) == may

    @pytest.mark.parametrize(("role", "may"), [("foreground", True), ("background", False), ("sub_agent", True)])
    def test_sub_agents_may_ask_if_the_policy_says_so(self, role: Role, may: bool) -> None:
        """Their question goes to their parent's user. A background agent has no such parent."""
        assert (Caller(role, 1, ASKS_USER).fault("ask_user_question") is None) == may

    @pytest.mark.parametrize("tool", ["respond_to_user", "talk", "send_user_message", "transfer_to"])
    def test_a_sub_agent_that_may_ask_may_do_nothing_else_more(self, tool: str) -> None:
        """D2: the rule is about questions alone."""
        assert Caller("sub_agent", 1, ASKS_USER).fault(tool) is not None

    def test_a_conversation_says_who_calls(self) -> None:
        """The role, the depth and the rules stand in its context."""
        context = Context(role="sub_agent", depth=2, policy=Policy(sub_agents=SubAgentRules(depth=3)))

        assert context.caller == Caller("sub_agent", 2, SubAgentRules(depth=3))
        assert context.caller.fault("spawn_agents") is None


# --- The rules of agents without a user follow from those of the agent that they work for.


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
