"""Which parts of which pages are generated, and whether they are up to date.

The pages about the machine and the command line, and the picture, are generated as a whole. In any other page a
marker, which is a comment, stands in front of each generated part; the part ends at the next empty line, and everything
else is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from turnwise.hosts.diagrams.mermaid import mermaid

from . import benchmarks_page
from .benchmark_results import Results
from .command_line_page import command_line
from .http_page import endpoints, permissions, problems
from .machine_page import markdown
from .machine_picture import machine_picture
from .roles_page import role_tools
from .rules_page import rules, sets_of_rules
from .settings_page import settings, terminal_settings
from .updates_page import updates

ROOT = Path(__file__).parent.parent.parent

WHOLE: dict[str, Callable[[], str]] = {
    "machine.md": lambda: markdown(mermaid()),
    "command-line.md": command_line,
    "machine.svg": machine_picture,
}
"""What is generated as a whole, by the name of its file, and what makes it."""

PAGES = (
    *(ROOT / "docs" / "guides" / f"{name}.md" for name in ("agents", "http", "scale")),
    *(ROOT / "docs" / "reference" / f"{name}.md" for name in ("http-api", "rules", "settings", "updates")),
    *(ROOT / "docs" / "reference" / name for name in ("command-line.md", "machine.md")),
    ROOT / "docs" / "development" / "benchmarks.md",
    ROOT / "docs" / "comparison" / "index.md",
    ROOT / "docs" / "explanation" / "why-events.md",
    ROOT / "README.md",
    ROOT / "docs" / "images" / "machine.svg",
)
"""The pages with generated parts, and the picture of the machine."""

RULES = "<!-- made from states/policy.py by `make docs` -->"
PRESETS = "<!-- made from states/presets.py by `make docs` -->"
SETTINGS = "<!-- made from engine/settings.py by `make docs` -->"
TERMINAL = "<!-- made from hosts/terminal/configuration.py by `make docs` -->"
ROLES = "<!-- made from states/roles.py by `make docs` -->"
UPDATES = "<!-- made from engine/updates.py by `make docs` -->"
ENDPOINTS = "<!-- made from the OpenAPI document of hosts/http by `make docs` -->"
PERMISSIONS = "<!-- made from hosts/http/permissions.py by `make docs` -->"
PROBLEMS = "<!-- made from hosts/http/problems.py by `make docs` -->"
"""The markers in front of the tables of rules, presets, settings, roles, updates, endpoints,
permissions and problems."""

BENCHMARKS = ROOT / "docs" / "development" / "benchmarks.json"
"""What `make bench` measured."""

FIGURES = {
    f"<!-- made from docs/development/benchmarks.json by `make docs`: {part.__name__} -->": part
    for part in (
        benchmarks_page.verdict,
        benchmarks_page.aims,
        benchmarks_page.ratios,
        benchmarks_page.values,
        benchmarks_page.stored,
        benchmarks_page.alone,
        benchmarks_page.scale,
        benchmarks_page.profile,
        benchmarks_page.circumstances,
        benchmarks_page.summary,
        benchmarks_page.growth_of_storage,
    )
}
"""The markers in front of figures, and what makes each part."""


def generated(page: Path) -> str:
    """Return what the page should say: its own text around the generated parts, or all of it by its name."""
    if page.name in WHOLE:
        return WHOLE[page.name]()
    text = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
    parts = {
        RULES: rules(),
        PRESETS: sets_of_rules(),
        SETTINGS: settings(),
        TERMINAL: terminal_settings(),
        ROLES: role_tools(),
        UPDATES: updates(),
        ENDPOINTS: endpoints(),
        PERMISSIONS: permissions(),
        PROBLEMS: problems(),
    }
    if any(marker in text for marker in FIGURES):
        results = Results.read(BENCHMARKS)
        parts |= {marker: part(results) for marker, part in FIGURES.items()}
    for marker, part in parts.items():
        before, found, after = text.partition(marker)
        if found:
            _, gap, rest = after.partition("\n\n")
            text = f"{before}{marker}\n{part}{gap[1:]}{rest}"
    return text


def write(page: Path) -> None:
    """Bring the page up to date. Raises OSError if it cannot be written."""
    page.write_text(generated(page), encoding="utf-8", newline="\n")


def is_fresh(page: Path) -> bool:
    """Whether the page is up to date."""
    return page.is_file() and page.read_text(encoding="utf-8", errors="replace") == generated(page)
