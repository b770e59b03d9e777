"""The built-in tools are found by their names, and imported then."""

from __future__ import annotations

from turnwise.effects.tools.catalogue import BUILT_IN, built_in_name, names_of

from ...support.cases import holds_for


@holds_for("name", BUILT_IN)
def test_each_tool_has_the_name_by_which_it_is_found(name: str) -> None:
    """It is a built-in tool, also where an application offers it."""
    assert BUILT_IN[name].name == name
    assert built_in_name(BUILT_IN[name]) == name
    assert names_of(f"server:{name}")[0] == name


def test_a_tool_with_two_names_has_both() -> None:
    """The one that is asked for comes first."""
    assert names_of("speak_to_user") == ("speak_to_user", "respond_to_user")
    assert names_of("respond_to_user") == ("respond_to_user", "speak_to_user")


def test_other_names_mean_no_built_in_tool() -> None:
    """Whatever they look like."""
    assert names_of("find_table") == names_of("") == names_of("questions") == ()
    assert "questions" not in BUILT_IN
