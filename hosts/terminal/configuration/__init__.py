"""What a run works with: its settings, and the databases, presets and tools that they name.

Nothing here starts a conversation or writes to the terminal.
"""
