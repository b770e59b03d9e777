"""The channel that speaks: from a text with markup to a voice that is heard.

Each voice is a program of its own. Nothing here knows what a model or an engine is.
"""
