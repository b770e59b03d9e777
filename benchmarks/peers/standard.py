"""The texts of the standard turn, the same for every system that is measured.

Only the standard library is imported here, because each system runs in an environment of its own.
"""

from __future__ import annotations

import json

SYSTEM = "You book tables."
SAID = "A table for two, tonight at half past seven, somewhere Japanese and not too loud, please. ".ljust(120, ".")
ASKED = {"cuisine": "japanese", "time": "19:30", "party": 2}
ARGUMENTS = json.dumps(ASKED)
"""The same as a model writes it. No system has to write what its model says anew for each request."""

FOUND = "Kikunoi, Japanese, two at 6:30 PM; Nobu, Japanese, two at 8:15 PM. ".ljust(201, ".")
REPLIED = "There are two tables: Kikunoi at 6:30 PM, or Nobu at 8:15 PM. Which one shall I book? ".ljust(200, ".")
TEXTS = (SAID, ARGUMENTS, FOUND, REPLIED)
"""What is said in a turn: 573 bytes."""

BOOK = "Book it."
"""Any other message than `SAID`: the model asks a question about it."""

QUESTION = "Which of the two shall I book?"
OPTIONS = ("Kikunoi", "Nobu")

MESSAGES = 4
"""Messages of a standard turn: of the user, the call, its result, the reply."""
