"""Carries out what a conversation asks of the world: model requests, tools, timers. Never sees the store."""
