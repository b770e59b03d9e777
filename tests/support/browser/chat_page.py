"""The chat of the page as a person uses it: where its parts are, by role and label."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect

from ..http.live_server import LiveServer


class ChatPage:
    """A tab that shows the chat of a server."""

    def __init__(self, page: Page, server: LiveServer) -> None:
        self.page = page
        self.server = server
        self.messages = page.get_by_role("region", name="Messages")
        self.own = self.messages.get_by_role("article", name="You", exact=True)
        self.answers = self.messages.get_by_role("article", name="Assistant", exact=True)
        self.writing = self.messages.get_by_role("article", name="Assistant, writing", exact=True)
        self.thoughts = self.messages.get_by_role("article", name="Thought", exact=True)
        self.composer = page.get_by_role("textbox", name="Message", exact=True)
        self.state = page.get_by_role("main").locator(".badge").first
        self.alert = page.get_by_role("alert")
        self.lost = page.get_by_role("status").get_by_text("The page connects again by itself.")
        self.list = page.get_by_role("navigation", name="Conversations")

    async def open(self, conversation_id: str = "") -> None:
        """Show a conversation, or what begins a new one."""
        await self.page.goto(f"{self.server.url}/#/{f'c/{conversation_id}' if conversation_id else ''}")
        await expect(self.composer).to_be_visible()

    async def send(self, text: str) -> None:
        """Write a message and send it with Enter."""
        await self.composer.fill(text)
        await self.composer.press("Enter")

    def button(self, name: str) -> Locator:
        """Return the button with exactly this name."""
        return self.page.get_by_role("button", name=name, exact=True)

    def tool(self, name: str) -> Locator:
        """Return the cards of the calls of a tool."""
        return self.messages.get_by_role("article", name=f"Tool {name}", exact=True)
