"""Asks axe-core, a checker that many use, what keeps people from using a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page

GRAVE = {"serious", "critical"}

REPORT = """async (rules) => {
    const only = rules.length > 0 ? { runOnly: rules } : {};
    const { violations } = await axe.run(document, { resultTypes: ["violations"], ...only });
    const sentence = ({ id, help, nodes }) => [id, help, ...nodes.map(({ html }) => html.slice(0, 200))].join("; ");
    return violations.map((violation) => [violation.impact, sentence(violation)]);
}"""


async def violations(page: Page, axe: str, rules: Sequence[str] = ()) -> list[str]:
    """Return what is seriously wrong with a page, as sentences, by these rules of axe-core or by all of them. `axe` is
    its text, which is put into the page if it is not there: open the tab with `bypass_csp=True`."""
    if not await page.evaluate("'axe' in window"):
        await page.add_script_tag(content=axe)
    return [sentence for impact, sentence in await page.evaluate(REPORT, [*rules]) if impact in GRAVE]


async def hidden_overflow(page: Page) -> list[str]:
    """Return the elements that reach beyond the right edge of the window, and that no scrolling brings into sight."""
    found: list[str] = await page.evaluate("""() => {
        const width = document.documentElement.clientWidth;
        const scrolls = (element) => {
            for (let one = element; one !== null; one = one.parentElement) {
                if (["auto", "scroll", "hidden"].includes(getComputedStyle(one).overflowX)) return true;
            }
            return false;
        };
        const isBeyond = (one) => one.getBoundingClientRect().right > width + 1 && one.checkVisibility();
        return [...document.querySelectorAll("turnwise-app main *")]
            .filter((one) => isBeyond(one) && !scrolls(one.parentElement))
            .map((one) => one.outerHTML.slice(0, 120));
    }""")
    return found
