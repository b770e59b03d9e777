"""What the site shows beside the pages of docs/: the changelog, the examples, and pictures drawn by Mermaid.

mkdocs calls these functions by their names, since mkdocs.yml lists this file under `hooks`. Pages are for readers
of the repository, too: where one links to a file outside of docs/, the site shows that file if it is an example, and
else the name without a link.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from importlib.resources import files as files_of
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "build" / "api" / "turnwise"
"""Where the package stands as it is installed: mkdocs.yml names its folder, from which the API pages are made."""

MERMAID = "assets/mermaid.js"
"""The library that draws pictures in the browser. The theme would load it from another server."""

COMMENT = re.compile(r"^<!-- made from .* -->\n", re.MULTILINE)
"""It would keep the table below it from being one."""

NAMED = re.compile(r"(?<![(`/])`?\bdocs/([\w/-]+\.md)`?")
"""A page that the changelog names by its path."""

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(((?:\.\./)+[^)\s]*)\)")


def on_startup(**_: Any) -> None:
    """Lay out the package for the API pages."""
    SOURCES.mkdir(parents=True, exist_ok=True)
    names = ["__init__.py", "__init__.pyi", *(path.parent.name for path in ROOT.glob("[a-z]*/__init__.py"))]
    for name in names:
        with suppress(FileExistsError):
            (SOURCES / name).symlink_to(os.path.relpath(ROOT / name, SOURCES))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each example, and the library that draws pictures."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        files.append(File.generated(config, f"examples/{path.stem}.md", content=_example(path)))
    drawing = files_of("mermaidx") / "assets" / "mermaid.js"
    files.append(File.generated(config, MERMAID, content=drawing.read_bytes()))
    return files


def _example(path: Path) -> str:
    return f"# {path.name}\n\n```python\n{path.read_text(encoding='utf-8')}```\n"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Return the text of a page for the site: the changelog in place of its page, and no links that leave docs/."""
    if page.file.src_uri == "changelog.md":
        return NAMED.sub(_titled, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    folder = PurePosixPath("docs", page.file.src_uri).parent
    markdown = COMMENT.sub("", markdown)
    return LINK.sub(lambda found: _within_site(found, folder), markdown)


def _titled(found: re.Match[str]) -> str:
    """Return a link to a page that is named by its path, if it is still there."""
    path = ROOT / "docs" / found[1]
    if not path.is_file():
        return found[0]
    title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return f"[{title}]({found[1]})"


def _within_site(found: re.Match[str], folder: PurePosixPath) -> str:
    """Return a link that stays in the site."""
    text, link = found.groups()
    target = os.path.normpath(folder / link)
    if target.startswith("docs/"):
        return found[0]
    if target.startswith("examples/"):
        page = os.path.relpath(f"docs/{target.removesuffix('.py')}.md", folder)
        return f"[{text}]({page})"
    return text


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let a page with a picture load what draws it."""
    if 'class="mermaid"' not in html:
        return html
    script = files.get_file_from_path(MERMAID)
    assert script is not None
    return f'{html}<script src="{script.url_relative_to(page.file)}"></script>'
