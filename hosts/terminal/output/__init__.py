"""How text reaches the terminal: lines, wrapping, notices, log records and error messages.

What is written is decided in the rooms above; nothing here knows a command, a setting or a running conversation.
"""
