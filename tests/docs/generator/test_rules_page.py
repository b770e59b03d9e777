"""The tables of rules and presets in docs/host.md are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generate import main
from generator.pages import PRESETS, RULES
from generator.rules_page import rules, sets_of_rules
from turnwise import presets
from turnwise.states import policy as turnwise_policy
from turnwise.states.policy import Policy, Rules, Texts
from turnwise.states.values.value import Value

from ...support.pages import Page, table

PAGE = Page("docs/host.md")

KINDS = {
    "" if kind is Policy else f"{name}.": kind
    for name, kind in vars(turnwise_policy).items()
    if isinstance(kind, type) and issubclass(kind, Rules) and kind not in (Rules, Texts)
}
"""The rules, by what stands before the names of their fields."""


def written(value: object) -> str:
    """A default as it is written in the table."""
    if isinstance(value, tuple) and value:
        return '`(ModelSpec(name="default"),)`'
    if isinstance(value, Value):
        return f"`{type(value).__name__}()`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


class TestTheTablesOfRules:
    """The two tables that `docs/generator/rules_page.py` writes into docs/host.md."""

    @pytest.mark.slow
    def test_the_page_in_the_tree_is_fresh(self) -> None:
        """The tables in docs/host.md are what is generated from the code."""
        assert main(["--check", str(PAGE.path)]) == 0, "run `make docs`"

    def test_every_rule_says_what_it_means(self) -> None:
        """Each field of the policy has a row with a sentence and its default."""
        rows = table(PAGE.text, "rule")

        for prefix, kind in KINDS.items():
            for name, field in kind.model_fields.items():
                default, _, meant = rows.pop(f"{prefix}{name}")
                assert meant.endswith((".", "…")), name
                assert field.is_required() or default == written(field.default)
        assert rows == {}

    def test_a_preset_is_made_of_the_rules_that_stand_beside_it(self) -> None:
        """A policy with the rules in the table equals the preset."""
        names = {**vars(turnwise_policy), "Texts": Texts}
        for name, (_, changed) in table(PAGE.section("Rules"), "preset").items():
            rules = ", ".join(re.findall(r"`([^`]+)`", changed))

            assert eval(f"Policy({rules})", names) == eval(f"presets.{name}", {"presets": presets})

    @pytest.mark.slow
    def test_what_stands_around_a_table_stays(self, tmp_path: Path) -> None:
        """Generating a table again changes nothing else on the page, even if the table ends it."""
        page = tmp_path / "page.md"
        page.write_text(f"Before.\n\n{PRESETS}\n| old |\n\nBetween.\n\n{RULES}\n| old |\n", encoding="utf-8")

        stale, *fresh = main(["--check", str(page)]), main([str(page)]), main(["--check", str(page)])

        assert (stale, fresh) == (1, [0, 0])
        expected = f"Before.\n\n{PRESETS}\n{sets_of_rules()}\nBetween.\n\n{RULES}\n{rules()}"
        assert page.read_text(encoding="utf-8") == expected
