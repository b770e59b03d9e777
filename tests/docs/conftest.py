"""Fixtures of the tests of the site: a real browser, also for pages that serve one."""

from __future__ import annotations

from ..support.browser.fixtures import (
    browser,
    faults,
    page,
    pytest_collection_modifyitems,
    pytest_runtest_makereport,
    tabs,
)

__all__ = ["browser", "faults", "page", "pytest_collection_modifyitems", "pytest_runtest_makereport", "tabs"]
