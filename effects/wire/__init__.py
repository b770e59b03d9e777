"""The definitions of tools as they are sent to models: with names and schemas that every provider accepts."""

from __future__ import annotations
