"""The page of an application whose users may only talk: what they may not do is not offered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.async_api import Page, expect

from turnwise import Engine, tool
from turnwise.testing import FunctionLlm, call

from ...support.browser.tabs import Faults
from ...support.http.live_server import LiveServer, serving

pytestmark = pytest.mark.slow


@tool(approval_by="operator")
async def refund(amount: int) -> str:
    """Refund."""
    return f"Refunded {amount}."


def the_engine() -> Engine:
    """An engine whose model wants to refund something."""
    llm = FunctionLlm(
        lambda request: "Done." if request.messages[-1]["role"] == "tool" else call("refund", amount=5), name="model"
    )
    return Engine.open("sqlite://", model=llm, tools=[refund])


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[tuple[LiveServer, str]]:
    """A server whose users have the permissions that the test names, and a conversation that waits for an operator."""
    engine = the_engine()
    with serving(engine, owner=lambda _: "ann", allow=request.param) as server:
        conversation = server.run(engine.create, owner="ann")
        server.run(conversation.send, "Refund me")
        yield server, conversation.id


@pytest.mark.parametrize("server", [()], indirect=True)
async def test_what_is_denied_is_not_offered(page: Page, faults: Faults, server: tuple[LiveServer, str]) -> None:
    """Neither the inspector, nor instructions for a new conversation, nor the decision about a call of the operator's;
    and nothing that the server would refuse is asked for."""
    running, named = server
    await page.goto(f"{running.url}/#/c/{named}")
    await expect(page.get_by_role("heading", name="The tool “refund” waits for an operator")).to_be_visible()
    await expect(page.get_by_role("button", name="Allow")).to_have_count(0)
    await expect(page.get_by_role("button", name="Inspector")).to_be_hidden()
    await expect(page.get_by_role("complementary", name="Inspector")).to_be_hidden()

    await page.goto(f"{running.url}/#/")
    await page.get_by_text("Options").click()
    await expect(page.get_by_role("checkbox", name="refund")).to_be_visible()
    await expect(page.get_by_label("Instructions")).to_have_count(0)


@pytest.mark.parametrize("server", [("log", "requests", "system", "approvals")], indirect=True)
async def test_what_is_allowed_is_offered(page: Page, faults: Faults, server: tuple[LiveServer, str]) -> None:
    """The same user, with permissions."""
    running, named = server
    await page.goto(f"{running.url}/#/c/{named}")
    await expect(page.get_by_role("button", name="Inspector")).to_be_visible()
    await page.get_by_role("button", name="Allow").click()
    await expect(page.get_by_text("Done.").first).to_be_visible()
    await page.goto(f"{running.url}/#/")
    await page.get_by_text("Options").click()
    await expect(page.get_by_label("Instructions")).to_be_visible()
