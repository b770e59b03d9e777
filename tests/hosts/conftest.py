"""Fixtures of the tests of hosts: Node.js and the npm packages."""

from __future__ import annotations

from ..support.npm.fixtures import node, npm

__all__ = ["node", "npm"]
