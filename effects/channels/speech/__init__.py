"""The channel that speaks: it removes markup from a text and gives the text to a voice.

Each voice is a program of its own. Nothing here knows what a model or an engine is.
"""
