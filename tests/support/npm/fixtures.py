"""Fixtures of tests that use Node.js. A conftest.py that wants them imports them."""

from __future__ import annotations

import pytest

from .node_packages import NodePackages, installed_packages, node_or_skip


@pytest.fixture(scope="session")
def node() -> str:
    """The path of Node.js, for tests that need no packages."""
    return node_or_skip()


@pytest.fixture(scope="session")
def npm() -> NodePackages:
    """The npm packages of package.json, installed."""
    return installed_packages()
