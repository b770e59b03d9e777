"""The page about many processes: its configurations are valid, and its queries run."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest
import yaml

from turnwise.engine.settings import Settings

from ..support.pages import Page, table
from ..support.programs.missing import missing
from ..support.terminal import COMMAND

PAGE, HTTP_PAGE = Page("docs/guides/scale.md"), Page("docs/guides/http.md")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin"

UNITS = {match[1]: match[0] for match in re.finditer(r"# /etc/systemd/system/(\S+)\n[^`]*", PAGE.text)}
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.text, re.DOTALL)


def commands() -> list[str]:
    """The commands of turnwise that the page runs."""
    started = re.findall(r"(?:ExecStart=/opt/turnwise/bin/|command: )(turnwise .*)", PAGE.text)
    written = re.findall(r"^(turnwise (?:serve|worker|copy) .*)$", PAGE.text, re.MULTILINE)
    return sorted({*started, *written})


def test_its_settings_are_those_of_an_engine() -> None:
    """By their names and defaults."""
    for name, (default, _) in table(PAGE.text, "setting").items():
        assert default.removesuffix(" s") == f"{Settings.model_fields[name].default:g}"


@pytest.mark.parametrize("command", commands())
def test_its_commands_exist(command: str) -> None:
    """With the options that they are given."""
    _, name, *rest = command.split()
    helped = subprocess.run([*COMMAND, name, "--help"], capture_output=True, text=True, timeout=120)

    assert helped.returncode == 0
    assert all(word in helped.stdout for word in rest if word.startswith("--"))


@pytest.mark.parametrize("unit", UNITS)
def test_its_units_are_valid(unit: str, tmp_path: Path) -> None:
    """systemd finds nothing wrong with them, and a stop leaves a process more time than it takes."""
    program = shutil.which("systemd-analyze", path=PATH)
    if program is None:
        missing("systemd is not installed: `apt-get install systemd`.")
    text = (
        UNITS[unit]
        .replace("/opt/turnwise/bin/turnwise", "/bin/true")
        .replace("User=turnwise", f"User={getpass.getuser()}")
    )
    (tmp_path / unit).write_text(text.replace("/etc/turnwise", "/etc"))

    checked = subprocess.run(
        [program, "verify", "--man=no", f"{tmp_path}/{unit.replace('@', '@1')}"], capture_output=True, text=True
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_its_containers_are_described() -> None:
    """The file is YAML; what starts after the database waits for it, and is stopped gently."""
    (text,) = re.findall(r"```yaml\n# compose.yaml\n(.*?)```", PAGE.text, re.DOTALL)

    services = yaml.safe_load(text)["services"]

    assert set(services) == {"database", "web", "worker"}
    for name in ("web", "worker"):
        assert services[name]["depends_on"] == {"database": {"condition": "service_healthy"}}
        assert services[name]["environment"]["TURNWISE_DB"].startswith("postgresql://")


def test_its_configuration_of_nginx_is_valid(tmp_path: Path) -> None:
    """Together with that of the page about HTTP, whose upstream it replaces."""
    if not shutil.which("nginx", path=PATH):
        missing("nginx is not installed: `apt-get install nginx`.")
    (ours,) = re.findall(r"```nginx\n(.*?)```", PAGE.text, re.DOTALL)
    (theirs,) = re.findall(r"```nginx\n(.*?)```", HTTP_PAGE.text, re.DOTALL)
    (retry,) = re.findall(r"`(proxy_next_upstream [^`]*;)`", PAGE.text)
    block = re.sub(r"upstream turnwise \{.*?\n\}\n", ours, theirs, flags=re.DOTALL)
    block = re.sub(r" *ssl_\w+ .*\n", "", block).replace("443 ssl", f"unix:{tmp_path}/socket")
    block = block.replace("proxy_buffering off;", f"proxy_buffering off;\n{retry}")
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(f"pid {tmp_path}/pid;\nerror_log {tmp_path}/errors;\nevents {{}}\nhttp {{\n{block}\n}}\n")

    checked = subprocess.run(
        ["nginx", "-t", "-q", "-p", str(tmp_path), "-e", f"{tmp_path}/errors", "-c", str(configuration)],
        env={"PATH": PATH},
        capture_output=True,
        text=True,
    )

    assert checked.returncode == 0, checked.stderr


@pytest.mark.slow
def test_its_queries_run(migrated_postgres_url: str) -> None:
    """On a new database."""
    assert len(QUERIES) >= 8
    with psycopg.connect(migrated_postgres_url, autocommit=True) as connection:
        for query in QUERIES:
            connection.execute(query)
