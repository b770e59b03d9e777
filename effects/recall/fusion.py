"""Merges the results of several searches: by keywords, and by vectors.

Their scores cannot be compared, but their ranks can. Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)
adds up 1 / (60 + rank) over the searches that found a text.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...states.values.acts import FoundText

_DAMPING = 60
"""The constant of the paper. The larger it is, the less the first ranks count."""


def fuse(*rankings: Sequence[FoundText]) -> tuple[FoundText, ...]:
    """The texts of all rankings, each once, the best first. Of texts with the same score, that of the earlier ranking
    comes first. `Pure.`"""
    scores: dict[FoundText, float] = {}
    for ranking in rankings:
        for rank, found in enumerate(dict.fromkeys(ranking), 1):
            scores[found] = scores.get(found, 0.0) + 1 / (_DAMPING + rank)
    return tuple(sorted(scores, key=lambda found: -scores[found]))
