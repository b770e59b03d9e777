"""The page of a server that wants to know who calls: by its token, or by the users of the application around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Mount, Route

from turnwise.hosts.http import create_app

from ...support.browser.asking import TABLE, Conversations, asking_engine
from ...support.browser.tabs import Faults
from ...support.http.live_server import LiveServer, serving, serving_app

pytestmark = pytest.mark.slow

TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversations]:
    """A server that wants a token."""
    engine = asking_engine(tmp_path_factory.mktemp("session") / "asking.db")
    with serving(engine, token=TOKEN) as server:
        yield Conversations(server, engine)


async def test_the_token_is_asked_for_once(page: Page, faults: Faults, conversations: Conversations) -> None:
    """Without a token the page asks for it, says when it is wrong, and goes on when it is right. It is stored nowhere
    in the page, and a reload does not ask again."""
    faults.allow("status of 401")
    await page.goto(conversations.begin(TABLE))
    dialog = page.get_by_role("dialog", name="Sign in")
    await expect(dialog.get_by_label("Token")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_have_text("Enter the token.")
    await page.keyboard.type("wrong")
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_contain_text("token")
    await dialog.get_by_label("Token").fill(TOKEN)
    await dialog.get_by_role("button", name="Sign in").click()
    await expect(dialog).to_be_hidden()
    await expect(page.get_by_role("radio", name="Window")).to_be_visible()
    stored = await page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])")
    assert TOKEN not in stored

    await page.reload()
    await expect(page.get_by_role("radio", name="Window")).to_be_visible()
    await expect(dialog).to_have_count(0)


async def test_what_was_being_sent_is_sent_after_signing_in(
    page: Page, faults: Faults, conversations: Conversations
) -> None:
    """If the session ends while a question is open, the answer waits for a new session, and then the newest one is
    sent."""
    faults.allow("status of 401")
    await page.goto(conversations.begin(TABLE))
    dialog = page.get_by_role("dialog", name="Sign in")
    await dialog.get_by_label("Token").fill(TOKEN)
    await page.keyboard.press("Enter")
    await page.get_by_role("radio", name="Bar").check()
    await page.context.clear_cookies()
    await page.get_by_role("button", name="Send answer").click()
    await expect(dialog).to_be_visible()
    await page.keyboard.press("Escape")
    await page.get_by_role("radio", name="Window").check()
    await page.get_by_role("button", name="Send answer").click()
    await dialog.get_by_label("Token").fill(TOKEN)
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("region", name="Messages")).to_contain_text(
        '{"Which table would you like?": "Window"}'
    )
    await expect(page.locator("turnwise-person section")).to_have_count(0)


# --- an application with users of its own


def user_of(request: Request) -> str | None:
    """The user of the application who is signed in."""
    return request.cookies.get("user")


async def sign_in(request: Request) -> RedirectResponse:
    """What the application does at its login page: it takes everybody for Ann."""
    response = RedirectResponse("/assistant/")
    response.set_cookie("user", "ann")
    return response


@pytest.fixture(params=["/login", None])
def mounted(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[LiveServer, str | None]]:
    """An application that the page is mounted into, and the `login_url` that it tells the page."""
    engine = asking_engine(tmp_path / "asking.db")
    page = create_app(engine, owner=user_of, login_url=request.param)
    app = Starlette(routes=[Route("/login", sign_in), Mount("/assistant", page)], lifespan=lambda app: engine)
    with serving_app(app, engine=engine) as server:
        yield server, request.param


async def test_users_of_an_application_are_led_to_where_they_sign_in(
    page: Page, faults: Faults, mounted: tuple[LiveServer, str | None]
) -> None:
    """A caller whom the application does not know reads that in one sentence, and gets a link where the application has
    told one; never a form for a token, which could not succeed. Whoever has signed in goes on."""
    server, login_url = mounted
    faults.allow("status of 401")
    await page.goto(f"{server.url}/assistant/")
    dialog = page.get_by_role("dialog", name="Sign in")
    await expect(dialog).to_have_accessible_description(
        "You are not signed in to the application that these conversations belong to."
        if login_url
        else "Sign in to the application that these conversations belong to: this page has no sign-in of its own."
    )
    await expect(page.get_by_label("Token")).to_have_count(0)
    if login_url:
        await expect(dialog.get_by_role("link", name="Sign in")).to_be_focused()
        await page.keyboard.press("Enter")
    else:
        await page.context.add_cookies([{"name": "user", "value": "ann", "url": server.url}])
        await dialog.get_by_role("button", name="Try again").click()

    await expect(page.get_by_text("No conversations yet.")).to_be_visible()
    await expect(page.get_by_role("dialog")).to_have_count(0)
