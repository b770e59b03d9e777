"""How text reaches the terminal: lines, wrapping, notices, log records and error messages.

What is written is decided by the callers; nothing here knows a command, a setting or a running conversation.
"""
