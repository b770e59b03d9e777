"""One conversation with a user, on a terminal or through a pipe.

What starts a conversation, or looks at stored ones, is a command and does not belong here.
"""
