"""Carries out the effects of conversations: model requests, tools, timers and deliveries.

Nothing here knows the store, or which state a conversation is in.
"""
