"""Which built-in tools an agent of each role may call."""

import pytest

from turnwise.states.policy import roles
from turnwise.states.policy.roles import MAX_DEPTH, Role, role_fault

TOOLS = (
    "ask_user_question",
    "respond_to_user",
    "talk",
    "mark_work_complete",
    "send_user_message",
    "send_agent_message",
    "spawn_agents",
    "recall_conversation",
)
ALLOWED: dict[Role, set[str]] = {
    "foreground": {
        "ask_user_question",
        "respond_to_user",
        "talk",
        "mark_work_complete",
        "send_agent_message",
        "spawn_agents",
        "recall_conversation",
    },
    "background": {
        "mark_work_complete",
        "send_user_message",
        "send_agent_message",
        "spawn_agents",
        "recall_conversation",
    },
    "sub_agent": {"mark_work_complete", "send_agent_message", "recall_conversation"},
}


class TestRoles:
    """D2: which tools a role may call is data."""

    @pytest.mark.parametrize("tool", TOOLS)
    @pytest.mark.parametrize("role", ALLOWED)
    def test_each_role_may_call_what_belongs_to_it(self, role: Role, tool: str) -> None:
        """D2, P20: an agent with a user has no tool for messages to that user, a background agent has one, and agents
        without a user neither speak to one nor ask one."""
        assert (role_fault(tool, role) is None) == (tool in ALLOWED[role])

    @pytest.mark.parametrize(
        ("tool", "role", "sentence"),
        [
            ("ask_user_question", "sub_agent", "ask_user_question is not available to sub-agents"),
            ("send_user_message", "foreground", "send_user_message is not available to agents with a user"),
            ("talk", "background", "talk is not available to background agents"),
        ],
    )
    def test_a_fault_says_what_is_not_available_to_whom(self, tool: str, role: Role, sentence: str) -> None:
        """P20: the fault has the sentence of the seed."""
        assert role_fault(tool, role) == sentence

    @pytest.mark.parametrize("role", ALLOWED)
    def test_a_child_cannot_regain_what_was_denied(self, role: Role) -> None:
        """D2: a sub-agent may call nothing that its parent may not call."""
        allowed = {tool for tool in TOOLS if role_fault(tool, "sub_agent", depth=1) is None}

        assert allowed <= {tool for tool in TOOLS if role_fault(tool, role) is None}

    @pytest.mark.parametrize(("depth", "may"), [(0, True), (MAX_DEPTH - 1, True), (MAX_DEPTH, False), (9, False)])
    def test_agents_start_others_only_so_deep(self, depth: int, may: bool) -> None:
        """P20: beyond the depth limit spawn_agents is denied to every role."""
        assert (role_fault("spawn_agents", "background", depth) is None) == may

    def test_a_sub_agent_is_never_at_the_top(self) -> None:
        """P20: a sub-agent counts as one deep if no depth is given."""
        assert role_fault("spawn_agents", "sub_agent") == "spawn_agents is not available to sub-agents"

    @pytest.mark.parametrize("role", ALLOWED)
    def test_tools_of_the_host_are_not_of_concern(self, role: Role) -> None:
        """D2: tools of the application are available to every role."""
        assert role_fault("find_table", role) is None

    def test_above_a_sub_agent_there_is_one_turn_at_least(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """P20: a sub-agent counts as one deep and not more: with a limit of two it could start others."""
        monkeypatch.setattr(roles, "MAX_DEPTH", 2)

        assert role_fault("spawn_agents", "sub_agent", 0) is None
        assert role_fault("spawn_agents", "sub_agent", 2) is not None
