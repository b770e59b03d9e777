"""What of a conversation is withheld from models, because a provider refused it.

A request holds everything that was said. If one image, one result or one message in it is refused, the whole request
is, and so is every later one. So what was probably refused is withheld: from then on a note stands in its place. What
was said is not lost by that, since people still see it, and so does a model that takes it.

A provider does not say which part of a request it refuses, so what may be the part is tried in the order of suspicion.
"""

from __future__ import annotations

from typing import Literal

from .failures import FailureKind
from .part import Part

Suspect = Literal["sight", "new_images", "images", "additions", "answers", "memory", "earlier", "words", "instructions"]
"""What of a request may be what was refused.

- `sight`: its images, if the model has never taken one in this conversation. Perhaps it takes none.
- `new_images`: its images that no model has taken yet.
- `images`: all its images.
- `additions`: what came in since the last request that a model accepted, other than by what people said in this turn:
  results of tools, messages of agents, the messages of a turn that failed, a history that was given, a summary; and all
  images that came in since.
- `answers`: what the model itself wrote in this turn since then, texts and calls. If the turn before this one was
  refused, too, also what it wrote before.
- `memory`: what was recalled for the turn.
- `earlier`: what came in before, and was accepted only by other models. If the turn before this one was refused, too,
  everything that came in before.
- `words`: what people said in this turn.
- `instructions`: the system message, after the turn before this one was refused, too. Nothing can stand in its place.
"""

Matter = Literal["text", "images"]
"""What of a message is withheld. With its text, the arguments of its calls are."""


class Withheld(Part):
    """That a message's text or its images are withheld from this model, or from every model if the name is empty, and
    the kind of failure because of which they are."""

    what: Matter
    kind: FailureKind
    model: str = ""

    def concerns(self, model: str) -> bool:
        """Whether it is withheld from this model. `Pure.`"""
        return not self.model or self.model == model
