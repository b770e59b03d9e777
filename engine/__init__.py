"""Conversations that move: the application's API, the loop that drives each of them, and what an engine is made of."""
