"""turnwise: an explicit finite-state-machine conversation engine.

A conversation rests in a typed state; typed events move it through pure transitions that return the effects they want;
an engine stores each step and then performs its effects. The public names stand in `__init__.pyi`, each with the
module that defines it and is imported on first use, so importing one package never loads another.
"""

import logging

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

# Where a host has set up no log Python would print warnings at people.
logging.getLogger("turnwise").addHandler(logging.NullHandler())
