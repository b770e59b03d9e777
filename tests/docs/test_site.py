"""The site: every page is in its navigation, every public name in its reference, and it builds without a warning."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import yaml
from filelock import FileLock
from playwright.async_api import Page as BrowserPage
from playwright.async_api import expect
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from ..support.http.live_server import serving_app
from ..support.pages import ROOT, Page, paths_of_pages
from ..support.programs.missing import missing


class Configuration(yaml.SafeLoader):
    """Reads mkdocs.yml, in which tags name functions; they are passed over."""


Configuration.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, tag, node: tag)
NAVIGATION = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Configuration)["nav"]


def pages_in(navigation: Any) -> list[str]:
    """Return the pages of a part of the navigation, in order."""
    match navigation:
        case str():
            return [navigation]
        case dict():
            return [page for part in navigation.values() for page in pages_in(part)]
        case _:
            return [page for part in navigation for page in pages_in(part)]


def test_every_page_is_in_the_navigation() -> None:
    """Once, with those that the site makes of the examples. Whoever adds a page adds its line to mkdocs.yml."""
    pages = [path.removeprefix("docs/") for path in paths_of_pages()]
    examples = [f"examples/{path.stem}.md" for path in (ROOT / "examples").glob("*.py")]

    assert sorted(pages_in(NAVIGATION)) == sorted([*pages, *examples])


MODULES = ("turnwise", "turnwise.hosts.http", "turnwise.persistence", "turnwise.states", "turnwise.testing")
CONTRACT = "turnwise.testing.store_contract"
API = [path for path in paths_of_pages() if path.startswith("docs/reference/api/")]
SHOWN = [name for path in API for name in re.findall(r"^::: ([\w.]+)$", Page(path).text, re.MULTILINE)]


def meant(path: str) -> tuple[str, int]:
    """Return a name together with what it names, which several modules may have."""
    return path.rpartition(".")[2], id(resolve_name(path))


def test_every_public_name_is_explained_once() -> None:
    """On one of the API pages, under one of the modules from which it can be imported."""
    public = {f"{module}.{name}" for module in MODULES for name in import_module(module).__all__}

    assert sorted(map(meant, SHOWN)) == sorted({*map(meant, public - {"turnwise.__version__"}), meant(CONTRACT)})


class Loaded(HTMLParser):
    """Collects what a page loads when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note the address of a script, a picture, a style or a font."""
        given = dict(attributes)
        if tag in ("script", "img", "source", "iframe"):
            self.addresses.append(given.get("src") or "")
        elif tag == "link" and given.get("rel") != "canonical":
            self.addresses.append(given.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the site, which one process of the run builds as `make site` does, without a warning."""
    if find_spec("material") is None:
        missing('The site needs its extra `site`: `make site` installs it, or pip install "turnwise[site]".')
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with FileLock(shared / "site.lock"):
        if not (shared / "site" / "built").exists():
            build(shared / "site")
    return shared / "site"


def build(folder: Path) -> None:
    """Build the site into a folder."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=280)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    (folder / "built").touch()


@pytest.mark.slow
def test_it_loads_nothing_from_other_servers(site: Path) -> None:
    """No page has a script, a style, a font or a picture that stands elsewhere."""
    parser = Loaded()
    for page in site.rglob("*.html"):
        parser.feed(page.read_text(encoding="utf-8"))

    assert parser.addresses
    assert [address for address in parser.addresses if "//" in address] == []


@pytest.mark.slow
def test_every_name_in_a_docstring_leads_somewhere(site: Path) -> None:
    """A reference that cannot be resolved would stay as it was written."""
    pages = sorted((site / "reference" / "api").rglob("*.html"))

    assert pages
    assert [page.parent.name for page in pages if "][turnwise." in page.read_text(encoding="utf-8")] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LiteLlm", "OpenAICompatible"])
def test_a_class_has_what_its_abstract_base_does_for_it(site: Path, name: str) -> None:
    """No page shows the base."""
    text = (site / "reference" / "api" / "models" / "index.html").read_text(encoding="utf-8")

    members = ("complete", "estimate", "ready", "refused", "refused_tools", "takes", "output_way")
    assert [member for member in members if f'id="turnwise.{name}.{member}"' not in text] == []
    assert "ServedModel" not in text


@pytest.mark.slow
def test_it_shows_all_of_the_changelog(site: Path) -> None:
    """And not the page that stands for it in the repository."""
    text = (site / "changelog" / "index.html").read_text(encoding="utf-8")

    assert "Keep a Changelog" in text
    assert "The site shows it here" not in text


@pytest.mark.slow
async def test_it_is_searched_and_draws_without_other_servers(site: Path, page: BrowserPage) -> None:
    """A browser finds the pages about cancelling, and shows the picture of the machine."""
    app = Starlette(routes=[Mount("/", StaticFiles(directory=site, html=True))])
    with serving_app(app) as server:
        await page.goto(server.url)
        await page.get_by_role("textbox", name="Search").press_sequentially("cancel")
        await expect(page.locator(".md-search-result__item", has_text="cancel").first).to_be_visible()
        await page.goto(f"{server.url}/reference/machine/")
        await expect(page.locator("div.mermaid")).to_be_visible()


DOCSTRING = """Send a message to `Engine`, or as `send` does; docs/guides/turns.md says more.

    turn = await conversation.send("Hello")

    print(turn.reply)

`unknown` is left alone.
"""

SHOWN_DOCSTRING = """Send a message to [`Engine`][turnwise.Engine], or as [`send`][turnwise.Conversation.send] does; \
[Turns](../../../guides/turns/) says more.

```python
turn = await conversation.send("Hello")

print(turn.reply)
```

`unknown` is left alone."""


@pytest.mark.slow
def test_a_docstring_has_links_and_coloured_programs() -> None:
    """A name leads to its place, a page is named by its title, and what is indented is a program."""
    pytest.importorskip("griffe", reason="the extra `site` is not installed")
    from generator.api_pages import changed

    places = {"Engine": "turnwise.Engine", "send": "turnwise.Conversation.send"}

    assert changed(DOCSTRING, places) == SHOWN_DOCSTRING
