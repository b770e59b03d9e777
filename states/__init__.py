"""The pure machine: the states of a conversation, the events that move it, and the effects that it asks for.

Nothing here reads a clock, creates an id, opens a file or waits; what carries out effects and stores steps is outside.
Start with `table`, the whole conversation on one page. `machine` reads it.

    from turnwise.states import Context, Idle, UserMessage, next_events, pending, transition

The glossary of the project is docs/reference/glossary.md. The public names stand in `__init__.pyi`, each with the
module that defines it and is imported on first use: what needs an error of the machine loads no table.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
