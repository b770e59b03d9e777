"""The files of the page: what they are sent with, and that nothing else can be reached."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from turnwise.engine.updates import Update
from turnwise.hosts.page.files import CONTENT_SECURITY_POLICY, page_files, page_routes

from ...support.cases import holds_for


@pytest.fixture(scope="module")
def client() -> TestClient:
    """A client of the page alone."""
    return TestClient(Starlette(routes=page_routes()))


@holds_for("name", sorted(page_files()))
def test_every_file_is_sent_with_its_media_type_and_the_strict_policy(client: TestClient, name: str) -> None:
    """Each file has the media type that a browser needs to run it, and the policy that forbids foreign code."""
    response = client.get(f"/page/{name}")

    assert response.status_code == 200
    suffixes = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}
    assert response.headers["content-type"].split(";")[0] == suffixes[name.rpartition(".")[2]]
    assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_file_that_has_not_changed_is_not_sent_again(client: TestClient) -> None:
    """A browser that names the tag of what it has receives 304 without a body; another tag brings the file."""
    tag = client.get("/").headers["etag"]

    assert client.get("/", headers={"If-None-Match": tag}).status_code == 304
    assert client.get("/", headers={"If-None-Match": f'"old", W/{tag}'}).content == b""
    assert client.get("/", headers={"If-None-Match": '"old"'}).status_code == 200


@holds_for(
    "path",
    [
        "/page/",
        "/page/none.js",
        "/page/../files.py",
        "/page/..%2ffiles.py",
        "/page/%2e%2e%2ffiles.py",
        "/page/app.js%00",
    ],
)
def test_nothing_but_the_files_of_the_page_is_served(client: TestClient, path: str) -> None:
    """A path that names no file of the page is not found, whatever tricks it uses."""
    assert client.get(path).status_code == 404


def test_the_page_works_below_a_prefix() -> None:
    """Mounted below a prefix the page names its files by relative addresses, which stay below the prefix."""
    mounted = TestClient(Starlette(routes=[Mount("/assistant", routes=page_routes())]))

    page = mounted.get("/assistant")  # followed to the address with a slash

    assert page.url.path == "/assistant/"
    addresses = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    assert addresses
    for address in addresses:
        assert mounted.get(str(page.url.join(address))).status_code == 200, address


def test_no_file_of_the_page_needs_what_the_policy_forbids() -> None:
    """No file turns a string into markup or code, has code or styles in its markup, or names another server."""
    forbidden = re.compile(
        rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|<style|\sstyle=|\son\w+=\""
        rb"|@import|url\(|https?://(?!www\.w3\.org/2000/svg)\w"
    )

    found = {name: forbidden.findall(file.content) for name, file in page_files().items()}

    assert not any(found.values()), found


def test_every_type_of_update_is_listened_to_and_shown() -> None:
    """A browser drops an event whose type has no listener, so a new type of update must be named in the stream, and the
    view must say what it changes."""
    types = {kind.type for kind in get_args(Update)}
    stream, view = (page_files()[name].content.decode() for name in ("stream.js", "view.js"))
    (listened,) = re.findall(r"const UPDATE_TYPES = \[(.*?)\];", stream, re.DOTALL)
    (handled,) = re.findall(r"const HANDLERS = \{(.*?)\n\};", view, re.DOTALL)

    assert set(re.findall(r"\w+", listened)) == types
    assert {*re.findall(r"^  (\w+):", handled, re.MULTILINE), "snapshot"} == types
