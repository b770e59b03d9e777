"""Makes the README as an index of packages shows it, where links within the repository would lead nowhere.

With the address of the repository these links lead there, at the tag of the version. Without one their text stays, and
pictures are left out.
"""

from __future__ import annotations

import re

_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r"<picture>.*?</picture>\n*|!\[[^\]]*\]\((?!\w+:)[^)]*\)\n*", re.DOTALL)
_SOURCE = re.compile(r'((?:src|srcset)="|!\[[^\]]*\]\()(?!\w+:)')
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:)([^)\s]*)\)")


def published_readme(readme: str, version: str, repository: str | None) -> str:
    """Return the README of a version without links that are relative.

    `repository` is the address under which its files are found by `/blob/TAG/PATH`, and their bytes by `/raw/TAG/PATH`.
    `Pure.`
    """
    parts = _CODE.split(readme)
    return "".join(part if part.startswith("```") else _part(part, version, repository) for part in parts)


def _part(text: str, version: str, repository: str | None) -> str:
    if repository is None:
        return _LINK.sub(r"\1", _PICTURE.sub("", text))
    page = f"{repository.rstrip('/')}/blob/v{version}"
    linked = _LINK.sub(lambda link: f"[{link[1]}]({page}/{_path(link[2])})", text)
    return _SOURCE.sub(lambda source: f"{source[1]}{repository.rstrip('/')}/raw/v{version}/", linked)


def _path(link: str) -> str:
    return f"README.md{link}" if link.startswith("#") else link
