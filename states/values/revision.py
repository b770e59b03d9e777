"""The revision of the machine under which a log began.

A log is replayed years after it was written and must come out as it was stored. So a handler that does something new,
which changes a stored state, effect or end of a turn, asks for the revision first; logs that began before keep the old
behaviour.

- 1: every log that was written before revisions existed. Its first event does not say so.
- 2: the end of a turn names the limit that was reached.
- 3: the end of a turn names its profile.
- 4: agents. A sub-agent closes itself when its turn has ended, its outcome reaches its parent as JSON, what is left of
  the parent's limits is shared among its sub-agents, and an act is carried out only if the role allows it. When a
  conversation closes, the agents whose messages still wait are told.
- 5: after a crash only the effects that the report of the resume names are asked for again.
- 6: what a conversation owes is kept. Each behaviour that came with it has a name below.
  - `ANSWERS_OR_SAYS_WHY`: no text that ends a turn is blank where the policy has a sentence for that, and a message
    that is passed on by the prompt alone is owed no answer.
  - `KEEPS_RELAYS`: a message for the user is owed until a turn has passed it on, also when turns fail or are cancelled,
    and a message that waits when a turn fails begins the next one.
  - `KNOWS_WHO_SPEAKS`: a turn knows whether the model was offered a tool that speaks, and what becomes of its text.
  - `MARKED_KEYS`: the keys of effects hold a mark of the log.
  - `WAITS_AS_AGREED`: what was to be waited for until a moment that a clock has set which ran ahead is waited for as
    long as was agreed, counted from the moment at which the conversation goes on.
  - `COUNTS_RUNS_AGAIN`: a call that its tool says did not run is run again, which is no progress, so processes that die
    in it are counted on.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

FIRST_REVISION = 1
NAMES_LIMITS = 2
NAMES_PROFILES = 3
AGENTS = 4
NAMES_WHAT_WAS_LEFT = 5
ANSWERS_OR_SAYS_WHY = 6
KEEPS_RELAYS = 6
KNOWS_WHO_SPEAKS = 6
MARKED_KEYS = 6
COUNTS_RUNS_AGAIN = 6
WAITS_AS_AGREED = 6
CURRENT_REVISION = 6
"""The revision of new conversations."""

Revision = Annotated[int, Field(ge=FIRST_REVISION, le=CURRENT_REVISION)]
"""A revision that this version knows."""
