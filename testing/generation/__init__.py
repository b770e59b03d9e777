"""Generated events, answers, requests, policies, states and effects: one source of them for everybody.

A generator is a function of a `Chance`, which makes its choices, and of a `Vocabulary`, which says what may be chosen.
The Hypothesis strategies (`strategies`) use the generators, and so do the walks and the simulations in tests/. What
decides when a generated event happens, and what must hold afterwards, does not belong here.
"""
