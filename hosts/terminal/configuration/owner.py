"""Whose conversation a chat is."""

from __future__ import annotations

from getpass import getuser

from ....states.policy import Policy, Recent
from .settings import Settings


def owner_of(settings: Settings, policy: Policy) -> str | None:
    """Return the owner of a new conversation under this policy.

    A policy that looks into other conversations of the owner would find none without one, so then it is the user who is
    logged in, if the settings name nobody.
    """
    if settings.owner or not (policy.recall or isinstance(policy.dialogue, Recent)):
        return settings.owner or None
    try:
        return getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        return None
