"""How the page finds the way of a step over the map, and how it reads a long log, with the map of the real machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnwise.hosts.diagrams.machine_map import machine_map, route_of, type_of
from turnwise.states.grammar import Junction
from turnwise.states.machine import MACHINE, Edge, edges

from ...support.browser.node_tests import check_modules

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent / "routes.test.mjs"


def junctions_of(edge: Edge) -> list[str]:
    """The names of the junctions on the way of an edge, as a step of the log names them."""
    targets = [edge.row.to, *(branch.to for branch in edge.branches)]
    return [target.name for target in targets if isinstance(target, Junction)]


def test_the_page_draws_each_step_over_the_route_of_the_table(node: str, tmp_path: Path) -> None:
    """The tests in routes.test.mjs hold for every way of the table, and for logs of any length."""
    routes = [
        {
            "source": type_of(edge.source),
            "target": type_of(edge.to),
            "junctions": junctions_of(edge),
            "route": route_of(edge),
        }
        for edge in edges(MACHINE)
    ]
    assert len(routes) > 1000
    (tmp_path / "machine.json").write_text(
        json.dumps({"machine": machine_map().model_dump(mode="json"), "routes": routes})
    )

    check_modules(node, TESTS, tmp_path, MACHINE=str(tmp_path / "machine.json"))
