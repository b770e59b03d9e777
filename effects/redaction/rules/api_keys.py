"""Finds keys of services by how they begin.

The detectors of `detect-secrets` know many of them. What it has no detector for, or only one for some of the keys, is
in `_BEGINNINGS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module

from ..rule import SecretSpan
from .line_breaks import find_across_lines

_BEGINNINGS = {
    r"sk-[\w-]{12,}+": "OpenAI, Anthropic, OpenRouter and others",
    r"(?:sk|rk|pk)_(?:live|test)_\w{10,}+|whsec_[\w+/=]{16,}+": "Stripe",
    r"gh[pousr]_\w{16,}+|github_pat_\w{20,}+": "GitHub",
    r"AIza[\w-]{20,}+|ya29\.[\w-]{16,}+|GOCSPX-[\w-]{16,}+": "Google",
    r"xox[a-z](?:-[\w-]{10,}+|\.[\w.-]{10,}+)|xapp-\d-[\w-]{10,}+": "Slack",
    r"hf_\w{20,}+": "Hugging Face",
    r"gsk_\w{20,}+|xai-\w{20,}+|pplx-\w{20,}+|r8_\w{20,}+|tvly-[\w-]{16,}+|nvapi-[\w-]{20,}+": "hosts of models",
    r"gl(?:pat|dt|ft|rt|soat|ptt|cbt|agent|oas|imt|ffct)-[\w.-]{16,}+": "GitLab",
    r"npm_\w{30,}+|dckr_pat_[\w-]{20,}+|pypi-[\w-]{50,}+|rubygems_\w{40,}+": "registries of packages",
    r"do[opr]_v1_\w{32,}+|hvs\.[\w-]{20,}+|dp\.pt\.\w{30,}+|tfp_\w{30,}+|LTAI\w{12,}+": "hosts and vaults",
    r"shp(?:at|ca|pa|ss)_\w{20,}+|EAA\w{30,}+|sq0\w{3}-[\w-]{20,}+|SG\.[\w-]{16,}+\.[\w-]{16,}+": "shops, mail",
    r"lin_api_\w{20,}+|ntn_\w{20,}+|secret_\w{32,}+|figd_[\w-]{20,}+|PMAK-[\w-]{20,}+|NRAK-\w{20,}+": "tools of teams",
    r"ATATT3[\w=-]{20,}+|sntry[su]_[\w+/=-]{30,}+|glc_[\w+/=-]{30,}+|phc_\w{20,}+|dapi[0-9a-f]{32}": "tools of teams",
    r"key-[0-9a-f]{32}": "Mailgun",
}
"""Patterns of keys, each with who issues them."""

_OWN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_BEGINNINGS)})")

DETECTORS = (
    ("aws", "AWSKeyDetector", 1),
    ("azure_storage_key", "AzureStorageKeyDetector", 1),
    ("discord", "DiscordBotTokenDetector", 1),
    ("github_token", "GitHubTokenDetector", 1),
    ("gitlab_token", "GitLabTokenDetector", 8),
    ("mailchimp", "MailchimpDetector", 1),
    ("pypi_token", "PypiTokenDetector", 2),
    ("sendgrid", "SendGridDetector", 1),
    ("slack", "SlackDetector", 2),
    ("square_oauth", "SquareOAuthDetector", 1),
    ("stripe", "StripeDetector", 1),
    ("telegram_token", "TelegramBotTokenDetector", 1),
    ("twilio", "TwilioKeyDetector", 2),
)
"""The detectors of `detect-secrets` that are used: module, class, and how many of its patterns. The others look for
names of variables, which the rule for passwords does for all services, or are not linear."""

_REST = re.compile(r"[\w-]*+")

_SEPARATOR = re.compile(r"[-_.]")


def find_api_keys(text: str) -> Iterator[SecretSpan]:
    """Yield the keys in a text, also those that the end of a line has broken in two."""
    yield from _find(text)
    if "\n" in text:
        yield from find_across_lines(text, _find)


def _find(text: str) -> Iterator[SecretSpan]:
    for match in _OWN.finditer(text):
        if _is_random(match[0]):
            yield SecretSpan(*match.span(), "API_KEY")
    for pattern in _detectors():
        done = 0
        for match in pattern.finditer(text):
            start, end = match.span()
            if start >= done and (text[start].isdigit() or not text[max(0, start - 1) : start].isalnum()):
                rest = _REST.match(text, end)
                done = end if rest is None else rest.end()
                yield SecretSpan(start, done, "API_KEY")


@cache
def _detectors() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of `detect-secrets`. The first call loads it, which takes a tenth of a second."""
    found: list[re.Pattern[str]] = []
    for module, name, count in DETECTORS:
        detector = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
        found += list(detector.denylist)[:count]
    return tuple(found)


def _is_random(key: str) -> bool:
    """Whether a key looks as if a machine had made it. Words with hyphens between them do not."""
    first, *parts = _SEPARATOR.split(key)
    return any(len(part) >= 8 and _is_mixed(part) for part in parts or [first[4:]])


def _is_mixed(part: str) -> bool:
    has_digit = any(map(str.isdigit, part))
    return has_digit != part.isdigit() if has_digit else part[1:].upper() != part[1:] != part[1:].lower()
