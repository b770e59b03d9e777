"""Which built-in tools an agent of each role may call."""

import pytest

from turnwise.effects.tools.catalogue import BUILT_IN
from turnwise.states import Context, Policy
from turnwise.states.policy import SubAgentRules
from turnwise.states.roles import ROLE_TOOLS, Caller, Role

from ..support.cases import holds_for

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
    },
    "background": {
        "mark_work_complete",
        "send_user_message",
        "send_agent_message",
        "spawn_agents",
        "recall_conversation",
        "transfer_to",
    },
    "sub_agent": {"mark_work_complete", "send_agent_message", "recall_conversation"},
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
