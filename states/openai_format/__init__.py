"""The chat format of OpenAI: a given history is checked and repaired here, and messages are written in it.

Nothing here knows how a request is sent, or which model is asked.
"""
