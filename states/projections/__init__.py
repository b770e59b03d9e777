"""What can be read from a log or from messages that are given: the transcript, and the dialogue of the last minutes.

Nothing here decides what happens next.
"""
