"""Protocols of other projects through which their clients talk to conversations, a folder for each.

A door translates a request into the engine's API, and updates into what its protocol sends.
"""
