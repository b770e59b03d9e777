"""The README as an index of packages shows it: no link in it is relative."""

from __future__ import annotations

from generator.published_readme import published_readme

README = """\
# turnwise

<picture>
  <source media="(prefers-color-scheme: dark)" srcset="docs/page-dark.png">
  <img src="docs/page.png" alt="The page">
</picture>

![The table](docs/table.svg)

Read [the guide](docs/guide.md#tools), [below](#floors) and [litellm](https://litellm.example/).

```python
turns[0](first)
```

[Other](docs/other.md) and ![a badge](https://badges.example/1.svg).
"""


def test_without_an_address_the_text_of_links_stays() -> None:
    """And pictures are left out, except those that are found elsewhere. Code is as it was."""
    assert published_readme(README, "1.2.0", None) == (
        "# turnwise\n\n"
        "Read the guide, below and [litellm](https://litellm.example/).\n\n"
        "```python\nturns[0](first)\n```\n\n"
        "Other and ![a badge](https://badges.example/1.svg).\n"
    )


def test_with_an_address_links_lead_to_the_files_of_the_version() -> None:
    """Pages by `/blob/`, pictures by `/raw/`."""
    shown = published_readme(README, "1.2.0", "https://git.example/turnwise")

    assert 'srcset="https://git.example/turnwise/raw/v1.2.0/docs/page-dark.png"' in shown
    assert '<img src="https://git.example/turnwise/raw/v1.2.0/docs/page.png"' in shown
    assert "![The table](https://git.example/turnwise/raw/v1.2.0/docs/table.svg)" in shown
    assert "[the guide](https://git.example/turnwise/blob/v1.2.0/docs/guide.md#tools)" in shown
    assert "[below](https://git.example/turnwise/blob/v1.2.0/README.md#floors)" in shown
    assert "turns[0](first)" in shown
    assert "![a badge](https://badges.example/1.svg)" in shown
