"""JSON schemas of tools: checked, repaired, and written as every provider accepts them."""

from __future__ import annotations
