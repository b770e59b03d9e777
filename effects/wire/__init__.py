"""The definitions of tools as they are sent to models."""

from __future__ import annotations
